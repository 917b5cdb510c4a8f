"""The call tree as text: from the user's line to the kernels, aligned, folded, safe to print."""

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.conftest import Golden
from tests.report.nasty import NASTY
from tests.report.traces import Calls, generate, hello, start_engine
from tracellm.report.calltree import calltree, folded_tree
from tracellm.report.html.tree_view import tree_view
from tracellm.report.tree.nodes import walk
from tracellm.trace import names
from tracellm.trace.model import Trace

GOLDEN = Path(__file__).parent / "golden"


def without_lines(row: str) -> str:
    """A row without what joins it to the one above, and with single blanks."""
    return " ".join(row.lstrip(" │├└").split())


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_small_run(lang: str, golden: Golden):
    """The tree of a plain run is the one kept here: user's lines, steps, layers and kernels, counts and times."""
    golden(GOLDEN / f"hello.{lang}.txt", calltree(hello(tokens=17), lang=lang))


def test_a_failed_run(golden: Golden):
    """Calls that an exception left are marked, and the exception stands below the call that raised it."""
    tree = calltree(hello(tokens=6, fails_at=4))
    assert tree.count("RuntimeError: out of memory") == 1
    assert "✗ LLM.generate" in tree
    golden(GOLDEN / "failed.txt", tree)


def test_it_begins_at_the_users_line():
    """Below the script stand its lines, as they are written, and below them the engine's calls."""
    rows = [without_lines(row) for row in calltree(hello()).splitlines()]
    at = next(number for number, row in enumerate(rows) if row.startswith("hello.py:5 outputs = llm.generate(prompts)"))
    assert rows[at + 1].startswith("LLM.generate")


def test_a_recording_that_lost_what_encloses_its_calls():
    """Where a sequence of calls repeats with nothing around it, as after a kill, each call has its row, counted."""
    calls = Calls()
    for _ in range(3):
        calls.leaf("Scheduler.schedule")
        calls.leaf("Worker.execute_model")
    rows = [without_lines(row).split()[:2] for row in calltree(Trace(calls.spans)).splitlines()]
    assert rows[1:] == [["Scheduler.schedule", "×3"], ["Worker.execute_model", "×3"]]
    assert [row["title"] for row in tree_view(Trace(calls.spans), "en")["tree"]] == [row[0] for row in rows[1:]]


def test_a_result_that_has_no_room_is_cut_and_says_so():
    """What came back is told as far as there is room, and ends in an ellipsis where there is not; widths hold."""
    calls = Calls()
    calls.leaf("Some.quite_long_name", result="a very long result, " * 3)
    wide, narrow, none = (calltree(calls.trace(), width=width).splitlines()[1] for width in (120, 60, 36))
    assert "→ a very long result, a very long result, a very long result," in wide
    assert re.search(r"Some.quite_long_name → a very lo…  ", narrow)
    assert "→" not in none
    assert max(map(cell_len, (wide, narrow))) <= 120


def test_calls_that_never_ended_say_so():
    """A call that the recording's end cut short is told as not ended, in both languages, and is apart from others."""
    calls = Calls()
    calls.leaf("Some.call")
    calls.leaf("Some.call")
    calls.spans[-1].attributes[names.OPEN] = True
    rows = [without_lines(row).split(" 1 µs")[0] for row in calltree(calls.trace()).splitlines()[1:]]
    assert rows == ["Some.call", "Some.call (not ended)"]
    assert "Some.call（未结束）" in calltree(calls.trace(), lang="zh")


def test_repeated_layers_are_one_row_with_their_kernels_below():
    """Four layers in each of fifteen steps are one row that counts sixty, and so are the kernels."""
    rows = [without_lines(row) for row in calltree(hello(tokens=17)).splitlines()]
    at = rows.index(next(row for row in rows if row.startswith("steps 2-16: decode, 2 requests ×15")))
    below = [row.split()[:2] for row in rows[at:]]
    assert ["Qwen2DecoderLayer.forward", "×60"] in below
    assert ["ops.paged_attention", "×60"] in below


def test_steps_with_the_same_calls_are_not_written_out_again():
    """A later group of steps names the earlier one whose calls it made."""
    rows = [without_lines(row) for row in calltree(hello(tokens=17)).splitlines()]
    at = next(number for number, row in enumerate(rows) if row.startswith("step 17: decode"))
    assert rows[at + 1] == "(the calls of steps 2-16)"


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_row_is_wider_than_asked(width: int, lang: str):
    """Rows keep to the width, counting Chinese characters as two, and the columns stand below each other."""
    rows = calltree(hello(tokens=17, fails_at=9), lang=lang, width=width).splitlines()
    assert max(map(cell_len, rows)) <= width
    ends = {
        cell_len(row) for row in rows if re.search(r"(s|自身|own)$", row) and "calls of" not in row and "✗ R" not in row
    }
    assert len(ends) <= 2  # rows with an own time, and rows with a total only


def test_own_times_of_the_rows_sum_to_the_run():
    """What the tree tells as own time is all the time there was."""
    tree = folded_tree(hello(tokens=17))
    assert sum(node.own_ns for node in walk(tree)) == tree[0].total_ns


def test_a_recording_without_text_still_names_the_line():
    """Without its text the user's line is file and number."""
    trace = hello()
    for span in trace.spans:
        span.attributes.pop(names.CALLER_TEXT, None)
    assert any(without_lines(row).startswith("hello.py:5 ") for row in calltree(trace).splitlines())


def test_a_probed_function_has_its_line_and_calls():
    """A function of the user's stands below the line that called it, the engine below the function's own line."""
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
    """Whatever names, lines, results and exceptions hold, a call is one row that a terminal cannot be driven by."""
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
    """Nothing recorded is one sentence."""
    assert calltree(Trace([])) == "No call was recorded.\n"
