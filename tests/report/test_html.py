"""The HTML page as text: content, no outside references, sound structure."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tracellm.report.html
from tests.report.synthetic import HOSTILE, a_run, a_run_folder, shown_html
from tests.report.traces import Calls
from tracellm.report.texts import LANGUAGES, text
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.problems import Problem
from tracellm.trace.run_folder import RunFolder

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Page(HTMLParser):
    """Elements of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(source)
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("style", "script"):
            self.text += f" {data} "

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def test_it_says_what_ran_and_what_came_out():
    """The page has script, model, requests, steps, blocks, versions and the cost of probes."""
    said = " ".join(Page(shown_html(a_run_folder(a_run()))).text.split())
    for fact in (
        "capital.py --n 2",
        "Finished",
        "Tokens generated 26 from 12 prompt tokens",
        "The capital of France is",
        "6 prompt tokens, 9 generated · finish reason: stop",
        "InprocClient chosen",
        "llm = LLM(model, multiprocess_mode=True)",
        "In a real vLLM, 0.11 or later",
        "5,767,168 float32 parameters",
        "268 MB of 3.2 GB available",
        "max_model_len 1024",
        "torch 2.13.0",
        "84 probes were installed. Cost of recording: 1,204 calls, ",
    ):
        assert fact in said


@pytest.mark.parametrize(
    ("lang", "words"), [("en", ("argument", "environment variable", "default")), ("zh", ("参数", "环境变量", "默认"))]
)
def test_settings_have_their_origin(lang: Any, words: tuple[str, str, str]):
    """Each setting has its origin: argument, environment, default, or none."""
    calls = Calls()
    config = ["model=tiny", "max_num_seqs=256", "attention_backend=torch", "SOME_VARIABLE=1"]
    config.append("VLLM_ENABLE_V1_MULTIPROCESSING=1")
    with calls("LLM.__init__", "request", args=["model='tiny'", "max_num_seqs=None"]):
        calls.leaf("EngineArgs.create_engine_config", "request", **{names.CONFIG: config})
        calls.leaf("EngineCoreClient.make_client", "request", **{names.CLIENT_VARIABLE_SET: True})
        calls.leaf("GPUModelRunner.load_model", "request", **{names.LOAD_OPS_REASON: "environment"})
    origins = {
        name: origin
        for name, origin in re.findall(
            r"<dt><code>(\w+)</code></dt><dd><code>[^<]*</code>(?: <small>([^<]*)</small>)?",
            shown_html(a_run_folder(calls.spans), lang),
        )
    }
    argument, environment, default = words
    assert origins == {
        "model": argument,
        "max_num_seqs": default,
        "attention_backend": environment,
        "SOME_VARIABLE": "",
        "VLLM_ENABLE_V1_MULTIPROCESSING": environment,
    }


def test_it_says_what_a_failed_run_died_of():
    """A failed run shows the exception with its place and line, and the missing parts as missing."""
    error = {"type": "ModelLoadError", "message": "no config.json in /nowhere", "file": "capital.py", "line": 3,
             "function": "main", "source": "llm = LLM('/nowhere')"}  # fmt: skip
    page = Page(shown_html(a_run_folder([], status="failed", exit_status=1, error=error)))
    for fact in (
        "Failed",
        "ModelLoadError: no config.json in /nowhere",
        "capital.py:3, main",
        "llm = LLM('/nowhere')",
        text("en", "html.client.none"),
        text("en", "html.requests.none"),
        text("en", "calls.none"),
        text("en", "page.replay.none"),
        text("en", "html.startup.none"),
    ):
        assert fact in page.text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_an_empty_and_a_damaged_folder_make_a_page(lang):
    """A folder without spans and with wrong types in its manifest still gives a page with its problems."""
    manifest = {key: ["what", {"is": None}] for key in ("script", "argv", "started_at", "duration_s", "error", "probes",
                                                        "versions", "host", "options", "status")}  # fmt: skip
    for broken in ({}, manifest):
        folder = RunFolder(Path("runs/broken"), broken, Trace([]), [Problem("trace_torn", file="trace/main-1.jsonl")])
        said = {"en": "the last line is torn", "zh": "最后一行不完整"}[lang]
        assert said in Page(shown_html(folder, lang)).text


def test_a_run_without_text_says_so_and_shows_no_empty_cells():
    """Without recorded text, a note replaces prompts and outputs."""
    source = shown_html(a_run_folder(a_run(text=False), options={"text": False}))
    assert text("en", "html.no_text") in source
    assert "<dt>Prompt</dt>" not in source


def test_it_does_not_tell_whose_machine_it_was():
    """The page has neither the host name nor the folders above the relevant ones."""
    place = "/home/someone/work"
    error = {"type": "ValueError", "message": "no", "file": f"{place}/sub/capital.py", "line": 3, "function": "f",
             "traceback": f'File "{place}/sub/capital.py", line 3\nFile "/usr/lib/python3.11/json/decoder.py", line 2\n'
                          'File "/srv/team/tools/x.py", line 1'}  # fmt: skip
    folder = a_run_folder(a_run(), Path("/home/someone/work/tracellm-runs/one"), status="failed", error=error)
    page = Page(shown_html(folder))
    for secret in ("someone", "box", "/srv", "/usr"):
        assert secret not in page.text
    assert "sub/capital.py:3, f" in page.text
    for shown in ('"sub/capital.py"', '"…/json/decoder.py"', '"…/tools/x.py"', "…/tracellm/tiny", "run folder one"):
        assert shown in page.text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_it_asks_for_nothing_from_outside(lang):
    """The page has no address, import, style attribute or handler, and a policy against them."""
    page = Page(source := shown_html(a_run_folder(a_run()), lang))
    policy = next(str(a["content"]) for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not {name for name in attributes if name in ("src", "style", "action") or name.startswith("on")}
        assert str(attributes.get("href", "#")).startswith("#")
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
    assert style
    assert not re.search(r"url\(|@import|https?:", style[1])


@pytest.mark.parametrize("lang", LANGUAGES)
def test_its_structure_is_sound(lang):
    """The page has one main heading, consecutive heading levels, landmarks, unique ids and valid references."""
    page = Page(shown_html(a_run_folder(a_run()), lang))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "nav", "main", "footer"):
        assert page.count(landmark) == 1
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = {str(a["aria-labelledby"]) for _, a in page.tags if "aria-labelledby" in a}
    wanted |= {str(a["href"])[1:] for tag, a in page.tags if tag == "a"}
    assert wanted <= set(ids)
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert page.tags[0] == ("html", {"lang": {"en": "en", "zh": "zh-CN"}[lang]})


def test_text_from_outside_is_never_markup():
    """Text from the run never becomes a tag."""
    plain = Page(shown_html(a_run_folder(a_run(prompts=("a", "b"), outputs=("c",), decode_steps=2))))
    for bad in HOSTILE:
        spans = a_run(prompts=(bad, bad), outputs=(bad,), decode_steps=2)
        for span in spans:
            span.attributes["tracellm.arguments"] = [f"x={bad}"]
        folder = a_run_folder(spans, script=bad, argv=[bad], versions={"python": "3.11.9", "torch": bad, "other": "1"})
        page = Page(shown_html(folder))
        for tag in ("script", "style", "img", "textarea", "article", "h1", "h2"):
            assert page.count(tag) == plain.count(tag)


def test_control_characters_are_shown_not_kept():
    """The page shows escape sequences, direction marks and lone surrogates as text."""
    source = shown_html(a_run_folder(a_run(prompts=HOSTILE[:5], outputs=HOSTILE)))
    assert source.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", source)
    assert r"\u202egnp.exe" in source


def test_a_long_run_stays_small():
    """The page of two hundred steps with eight requests is below a megabyte."""
    prompts = [f"Prompt number {i} of a batch" for i in range(8)]
    spans = a_run(prompts=prompts, outputs=[" word" * 200], decode_steps=200, layers=4)
    assert len(shown_html(a_run_folder(spans)).encode()) < 1_000_000


def test_a_long_prompt_is_cut_and_says_so():
    """A prompt of a megabyte is cut, with the length of the rest."""
    source, short = (shown_html(a_run_folder(a_run(prompts=(prompt, "b")))) for prompt in ("x" * 1_000_000, "x"))
    assert len(source) - len(short) < 100_000
    assert "994,000 more characters" in source


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_read_in_light_and_dark():
    """Each text colour has WCAG's contrast of at least 4.5:1 on its backgrounds, light and dark."""
    style = (Path(tracellm.report.html.__file__).parent / "styles/page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    for theme in (light, dark):
        colour = dict(re.findall(r"--([\w-]+): (#\w{6});", theme))
        for front, ground in (
            ("fg", "bg"), ("fg", "raised"), ("soft", "bg"), ("soft", "raised"), ("accent", "bg"), ("accent", "tint"),
            ("bad", "bad-tint"), ("bad", "bg"), ("warn", "warn-tint"), ("fg", "tint"),
        ):  # fmt: skip
            high, low = sorted((_luminance(colour[front]), _luminance(colour[ground])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (front, ground)
