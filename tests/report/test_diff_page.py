"""The page of two runs as text: content, pairs, no outside references, sound structure."""

import base64
import json
import re
import zlib
from itertools import pairwise
from typing import Any

import pytest

from tests.report.synthetic import HOSTILE
from tests.report.test_html import Page
from tests.report.traces import Calls, step_facts
from tests.report.two_runs import folder_of, run_of
from tracellm.report.diff.page import diff_html
from tracellm.report.texts import LANGUAGES
from tracellm.trace.model import Trace
from tracellm.trace.problems import Problem
from tracellm.trace.run_folder import RunFolder

A = folder_of(run_of(requests=3, steps=4), "small", argv=["hello.py", "8"])
B = folder_of(run_of(requests=3, steps=3, blocks=2, config=("max_num_seqs=2", "block_size=16")), "large")


def shown(a: RunFolder, b: RunFolder, lang: Any = "en") -> str:
    """Return the page without the data of its script."""
    return re.sub(r'<script type="application/octet-stream".*?</script>', "", diff_html(a, b, lang), flags=re.DOTALL)


def data(a: RunFolder, b: RunFolder) -> dict[str, Any]:
    """Return the data of the page's script."""
    packed = re.search(r'id="data">([^<]*)<', diff_html(a, b))
    assert packed
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return found


def test_it_says_what_differs_first():
    """The page begins with the verdict and the first difference, and has every part of the text."""
    said = " ".join(Page(source := shown(A, B)).text.split())
    for fact in (
        "small ↔ large",
        "3 of 3 requests got fewer tokens in B; 4 steps in A and 3 steps in B, first difference in step 1.",
        "Go to the first difference: step 1",
        "≠ KV cache blocks",
        "max_num_seqs 256 2",
        "Each run was made once.",
        "More often in A",
        "1 step only in A.",
    ):
        assert fact in said, fact
    assert 'href="#step=1"' in source
    assert [m for m in re.findall(r'<h2 id="([\w-]+)"', source) if m not in ("html.notes", "html.problems")] == [
        "side-by-side", "runs", "times", "boundary", "calls", "steps", "requests"
    ]  # fmt: skip


def test_runs_that_do_the_same_have_no_first_difference():
    """Two equal runs have a verdict, and no link to a difference."""
    source = shown(A, A)
    assert "Only times differ: same tokens, same 4 steps, same calls." in source
    assert 'href="#step=' not in source


def test_a_step_of_one_run_alone_may_be_the_first_difference():
    """If one run only goes on longer, its next step is the first difference."""
    longer = folder_of(run_of(steps=5, tokens=[1, 2, 3, 4, 5]), "longer")
    shorter = folder_of(run_of(steps=3, tokens=[1, 2, 3]), "shorter")
    said = " ".join(Page(shown(longer, shorter)).text.split())
    assert "Go to the first difference: step 4 ≠ only A has this step" in said


def test_steps_are_paired_as_the_text_pairs_them():
    """Pairs hold engine and index of both steps; steps without requests are in none, and a longer run is alone."""
    calls = Calls()
    for index, ids in enumerate((["0"], [], ["0"]), 1):
        calls.leaf("EngineCore.step_fn", **step_facts(index, ids, new=index == 1))
    pairs = data(folder_of(calls.trace()), folder_of(run_of(requests=1, steps=3)))["pairs"]
    assert [(pair["n"], pair["a"], pair["b"]) for pair in pairs] == [
        (1, [0, 0], [0, 0]), (2, [0, 2], [0, 1]), (3, None, [0, 2])
    ]  # fmt: skip
    assert pairs[2]["differs"] == ["kind", "requests", "tokens", "blocks", "sampled"]


def test_requests_of_a_pair_have_rows_of_one_number():
    """The requests of a pair have the same row in both runs, also under other ids or in only one run."""
    found = data(folder_of(run_of(requests=2)), folder_of(run_of(requests=3, ids="cmpl-{}")))
    assert [row["id"] for row in found["a"]["requests"]] == ["0", "1", "cmpl-2"]
    assert [row["id"] for row in found["b"]["requests"]] == ["cmpl-0", "cmpl-1", "cmpl-2"]
    assert [row[0] for row in found["a"]["engines"][0]["steps"][0]["scheduled"]] == [0, 1]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_run_without_steps_is_named(lang: Any):
    """If one run or both have no step, the page says so and has the other parts."""
    empty, bare = (
        folder_of(run_of(steps=0), "empty"),
        RunFolder(A.path, {}, Trace([]), [Problem("trace_torn", file="x")]),
    )
    sentence = {"en": "{} has no step with a request.", "zh": "{} 没有包含请求的 step"}[lang]
    one = shown(A, empty, lang)
    assert sentence.format("B") in one
    assert sentence.format("A") not in one
    assert 'href="#step=' not in one
    assert 'id="replay"' in one
    both = shown(bare, empty, lang)
    assert sentence.format("A") in both
    assert sentence.format("B") in both
    assert 'id="replay"' not in both
    assert 'id="html.problems"' in both


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_asks_for_nothing_from_outside(lang: Any):
    """The page has no address, style attribute or handler, and a policy against them."""
    page = Page(shown(A, B, lang))
    policy = next(str(a["content"]) for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {name for name in attributes if name in ("src", "style", "action") or name.startswith("on")}
        assert str(attributes.get("href", "#")).startswith("#")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_its_structure_is_sound(lang: Any):
    """The page has one main heading, consecutive heading levels, landmarks, unique ids and valid references."""
    page = Page(shown(A, folder_of(run_of(multiprocess=True), "B"), lang))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert page.count(landmark) == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {str(a["aria-labelledby"]) for _, a in page.tags if "aria-labelledby" in a}
    wanted |= {str(a["href"])[1:] for tag, a in page.tags if tag == "a" and "=" not in str(a["href"])}
    assert wanted <= set(ids)
    assert page.tags[0] == ("html", {"lang": {"en": "en", "zh": "zh-CN"}[lang]})


def test_folders_are_shown_by_name():
    """Only the names of the run folders are shown, with the folder above if the names are equal."""
    one, other = (folder_of(run_of(), f"/home/someone/{name}/run") for name in ("before", "after"))
    source = shown(one, other)
    assert "before/run ↔ after/run" in source
    assert "someone" not in source


@pytest.mark.parametrize("bad", HOSTILE)
def test_text_of_a_run_is_never_markup(bad: str):
    """Names, arguments and settings of a run become no tag, and invisible characters are escapes."""
    odd = folder_of(run_of(ids=bad.replace("{", "{{").replace("}", "}}") + "{}", config=(f"model={bad}",)), "odd",
                    argv=["x", bad], script=bad, status="failed", error={"type": bad, "message": bad})  # fmt: skip
    source = shown(A, odd)
    page = Page(source)
    assert page.count("script") == 1
    assert page.count("style") == 1
    for tag in ("img", "svg", "textarea", "b"):
        assert page.count(tag) == 0
    assert source.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
