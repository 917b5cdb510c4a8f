"""The call tree as text: from the user's line to the kernels, aligned, folded and safe to print."""

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.conftest import Golden
from tests.report.nasty import NASTY
from tests.report.traces import Calls, generate, hello, start_engine
from tracellm.report.calltree import calltree, folded_tree
from tracellm.report.tree.nodes import walk
from tracellm.trace import names
from tracellm.trace.model import Trace

GOLDEN = Path(__file__).parent / "golden"


def without_lines(row: str) -> str:
    """Return a row without its tree lines, with single blanks."""
    return " ".join(row.lstrip(" │├└").split())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_small_run(lang: str, golden: Golden):
    """The tree of a plain run equals the golden file, in both languages."""
    golden(GOLDEN / f"hello.{lang}.txt", calltree(hello(tokens=17), lang=lang))


def test_a_failed_run(golden: Golden):
    """A failed call is marked, with the exception below the call that raised it."""
    tree = calltree(hello(tokens=6, fails_at=4))
    assert tree.count("RuntimeError: out of memory") == 1
    assert "✗ LLM.generate" in tree
    golden(GOLDEN / "failed.txt", tree)


def test_it_begins_at_the_users_line():
    """The script's source lines stand below the script, and the engine's calls below the lines."""
    rows = [without_lines(row) for row in calltree(hello()).splitlines()]
    at = next(number for number, row in enumerate(rows) if row.startswith("hello.py:5 outputs = llm.generate(prompts)"))
    assert rows[at + 1].startswith("LLM.generate")


def test_a_recording_that_lost_what_encloses_its_calls():
    """A repeated sequence without an enclosing call, as after a kill, has one counted row per call."""
    calls = Calls()
    for _ in range(3):
        calls.leaf("Scheduler.schedule")
        calls.leaf("Worker.execute_model")
    rows = [without_lines(row).split()[:2] for row in calltree(Trace(calls.spans)).splitlines()]
    assert rows[1:] == [["Scheduler.schedule", "×3"], ["Worker.execute_model", "×3"]]


def test_a_result_that_has_no_room_is_cut_and_says_so():
    """A result that does not fit ends in an ellipsis, and the row keeps to the width."""
    calls = Calls()
    calls.leaf("Some.quite_long_name", result="a very long result, " * 3)
    wide, narrow, none = (calltree(calls.trace(), width=width).splitlines()[1] for width in (120, 60, 36))
    assert "→ a very long result, a very long result, a very long result," in wide
    assert re.search(r"Some.quite_long_name → a very lo…  ", narrow)
    assert "→" not in none
    assert max(map(cell_len, (wide, narrow))) <= 120


def test_calls_that_never_ended_say_so():
    """A call without an end is marked as not ended and kept apart, in both languages."""
    calls = Calls()
    calls.leaf("Some.call")
    calls.leaf("Some.call")
    calls.spans[-1].attributes[names.OPEN] = True
    rows = [without_lines(row).split(" 1 µs")[0] for row in calltree(calls.trace()).splitlines()[1:]]
    assert rows == ["Some.call", "Some.call (not ended)"]
    assert "Some.call（未结束）" in calltree(calls.trace(), lang="zh")


def test_repeated_layers_are_one_row_with_their_kernels_below():
    """Repeated layers and their kernels are one counted row each."""
    rows = [without_lines(row) for row in calltree(hello(tokens=17)).splitlines()]
    at = rows.index(next(row for row in rows if row.startswith("steps 2-16: decode, 2 requests ×15")))
    below = [row.split()[:2] for row in rows[at:]]
    assert ["Qwen2DecoderLayer.forward", "×60"] in below
    assert ["ops.paged_attention", "×60"] in below


def test_steps_with_the_same_calls_are_not_written_out_again():
    """A group of steps with the same calls as an earlier group refers to it."""
    rows = [without_lines(row) for row in calltree(hello(tokens=17)).splitlines()]
    at = next(number for number, row in enumerate(rows) if row.startswith("step 17: decode"))
    assert rows[at + 1] == "(the calls of steps 2-16)"


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_row_is_wider_than_asked(width: int, lang: str):
    """Rows keep to the width, with Chinese characters two columns wide, and columns align."""
    rows = calltree(hello(tokens=17, fails_at=9), lang=lang, width=width).splitlines()
    assert max(map(cell_len, rows)) <= width
    ends = {
        cell_len(row) for row in rows if re.search(r"(s|自身|own)$", row) and "calls of" not in row and "✗ R" not in row
    }
    assert len(ends) <= 2  # rows with an own time, and rows with a total only


def test_own_times_of_the_rows_sum_to_the_run():
    """The own times of all rows sum to the duration of the run."""
    tree = folded_tree(hello(tokens=17))
    assert sum(node.own_ns for node in walk(tree)) == tree[0].total_ns


def test_a_recording_without_text_still_names_the_line():
    """Without recorded text, the user's line is its file and number."""
    trace = hello()
    for span in trace.spans:
        span.attributes.pop(names.CALLER_TEXT, None)
    assert any(without_lines(row).startswith("hello.py:5 ") for row in calltree(trace).splitlines())


def test_a_probed_function_has_its_line_and_calls():
    """A probed user function stands below its calling line, and the engine below the function's own line."""
    calls = Calls()
    with calls("hello.py", "request", lifeline="hello.py"):
        start_engine(calls)
        with calls("ask", "request", lifeline="hello.py", line=(20, "ask('Why?')")):
            generate(calls, 1, 3, line=(9, "return llm.generate(question)"))
    rows = [without_lines(row) for row in calltree(calls.trace()).splitlines()]
    titles = ["hello.py:20 ask('Why?')", "ask ", "hello.py:9 return llm.generate(question)", "LLM.generate"]
    places = [next(number for number, row in enumerate(rows) if row.startswith(title)) for title in titles]
    assert places == list(range(places[0], places[0] + 4))


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_hostile_values_stay_on_their_row(text: str):
    """Each call is one row without control characters, whatever its names and values."""
    calls = Calls()
    with (
        pytest.raises(ValueError, match=r"^"),
        calls(text or "x", "request", lifeline=text),
        calls(f"A.{text}", lifeline=text, result=text, line=(1, text)),
    ):
        raise ValueError(text)
    tree = calltree(calls.trace())
    assert len(tree.splitlines()) == len(tree.split("\n")) - 1 == 5
    tree.encode()
    assert "\x1b" not in tree


def test_an_empty_trace_says_so():
    """An empty trace gives one sentence."""
    assert calltree(Trace([])) == "No call was recorded.\n"
