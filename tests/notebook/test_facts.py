"""Facts of a run that show themselves: each has text and HTML with the same content, in both languages."""

import re
from html import unescape

import pytest

import tracellm
from tests.notebook.conftest import Recorded
from tracellm.notebook.rows import MOST_ROWS, Rows
from tracellm.notebook.text import Mermaid, Text
from tracellm.report.facts.kernels import KernelFacts
from tracellm.report.html.cell import MOST_CHARACTERS
from tracellm.report.texts import LANGUAGES, text

WRONG = "sequenceDiagram\n  EngineCore->>Scheduler: schedule()\n  EngineCore->>Scheduler: <b>dance</b>()\n"


def words(page: str) -> str:
    """Return the text of an HTML page without blanks."""
    return re.sub(r"\s", "", unescape(re.sub("<[^>]*>", "", page)))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_facts_are_the_same_in_text_and_html(recorded: Recorded, lang: str):
    """Client, processes, kernels, requests, stages, tokens, check, comparison and variant show themselves."""
    run = tracellm.open_run(recorded[0].folder, lang=lang)
    request = run.requests[1]
    variant = run.whatif(max_num_batched_tokens=32)
    facts = (
        run.client, run.processes, run.kernels(), run.kernels(step=1), request, request.timeline, request.tokens,
        run.check(WRONG), run.diff(run), variant,
    )  # fmt: skip
    for fact in facts:
        bundle = fact._repr_mimebundle_()  # type: ignore[union-attr]
        assert bundle["text/plain"] == str(fact)
        assert "<script" not in bundle["text/html"]
        assert "<b>" not in bundle["text/html"]
        for word in re.findall(r"\w{4,}", str(fact)):
            assert word in words(bundle["text/html"]), type(fact)


def test_the_facts_are_values_too(recorded: Recorded):
    """A list of facts is a list, the client and the check have their fields, and long values are not in their repr."""
    run, *_ = recorded
    assert run.client is not None
    assert run.client.rule == "not multiprocess_mode and not asyncio_mode"
    assert [name for name, _, _ in run.client.inputs] == ["multiprocess_mode", "asyncio_mode", "executor_class"]
    assert [process.steps for process in run.processes] == [len(run.steps)]
    assert run.requests[0].timeline == list(run.requests[0].timeline)
    assert repr(run.check(WRONG)) == "<check: 1 of 2 calls found in order>"
    assert len(repr(run.steps[5].sampled)) < 200
    assert repr(run.to_arrow()).startswith(f"<tables of a run: .spans ({len(run.trace.spans):,} rows), .steps")
    assert "µs" not in str(run.whatif(max_num_batched_tokens=32).steps), "a variant has no times"


def test_kernels_are_a_table(recorded: Recorded):
    """A kernel has its launches, bytes and operations; one without a GPU time says so."""
    from tracellm.notebook.facts import kernel_rows

    found = [KernelFacts("matmul", "1", 3, 2_000_000, 0, 0, bytes=2048, flops=1_000_000), KernelFacts("norm", "1", 1)]
    lines = str(kernel_rows(found, "en", of_step=True)).splitlines()
    assert len(lines) == 3
    assert lines[1].split()[:2] == ["matmul", "3"]
    assert text("en", "model.kernels.none") in lines[1]


def test_a_long_list_shows_its_beginning():
    """A cell shows the first of many rows, and the number of the others."""
    rows = Rows(range(MOST_ROWS + 7), "en", ["number"], lambda number: [str(number)])
    assert len(rows) == MOST_ROWS + 7
    assert str(rows).splitlines()[-1] == text("en", "page.more", n=7)
    assert rows._repr_mimebundle_()["text/html"].count("<tr") == 1 + MOST_ROWS


def test_a_cell_is_never_larger_than_its_limit():
    """A cell shows the first lines of a long text, and the number of the others; a large diagram is left out."""
    long = Text("<" * 99 + "\n" + "line\n" * MOST_CHARACTERS)
    bundle = long._repr_mimebundle_()
    assert sum(map(len, bundle.values())) <= MOST_CHARACTERS
    kept = bundle["text/plain"].count("line\n")
    assert text("en", "cell.more_lines", n=MOST_CHARACTERS - kept) in bundle["text/plain"]
    bundle = Mermaid("A->>B: c()\n" * 40_000, "<svg></svg>")._repr_mimebundle_()
    assert sum(map(len, bundle.values())) <= MOST_CHARACTERS
    assert text("en", "cell.mermaid.large") in bundle["text/html"]
