"""The comparison of two runs, as text and as Markdown."""

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.conftest import Golden
from tests.report.nasty import NASTY
from tests.report.traces import Calls, step_facts
from tests.report.two_runs import folder_of, run_of
from tracellm.report.diff import diff_markdown, diff_text
from tracellm.report.wording.blocks import Column, Paragraph, Table, markdown, plain, wrapped
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder

GOLDEN = Path(__file__).parent / "golden"

IN_PROCESS = folder_of(run_of(), "in-process")
TWO_PROCESSES = folder_of(run_of(multiprocess=True), "two-processes")
OTHER = folder_of(
    run_of(requests=3, steps=4, tokens=[100, 7, 102, 103], ids="cmpl-{}", config=("max_num_seqs=2", "block_size=16")),
    "other",
    script="other.py",
    argv=["other.py", "--fast"],
    versions={"python": "3.11.7", "torch": "2.10.0"},
    status="failed",
    error={"type": "ValueError", "message": "no\nluck"},
)


def said(a: RunFolder, b: RunFolder, lang: str = "en") -> str:
    """Return the sentence on top."""
    return " ".join(diff_text(a, b, lang=lang, width=200).partition("\n\n")[0].split())


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("name", "other"), [("processes", TWO_PROCESSES), ("other", OTHER)])
def test_what_a_reader_sees(name: str, other: RunFolder, lang: str, golden: Golden) -> None:
    """Comparisons of different clients, and of runs that differ in everything, equal the golden files."""
    golden(GOLDEN / f"diff-{name}.{lang}.txt", diff_text(IN_PROCESS, other, lang=lang))


def test_markdown(golden: Golden) -> None:
    """The Markdown equals the golden file."""
    golden(GOLDEN / "diff-processes.md", diff_markdown(IN_PROCESS, TWO_PROCESSES))


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_lines_keep_to_the_width(width: int, lang: str) -> None:
    """No line is wider than the page, and no text is lost."""
    narrow = diff_text(IN_PROCESS, OTHER, lang=lang, width=width)
    assert max(map(cell_len, narrow.splitlines())) <= width
    wide = diff_text(IN_PROCESS, OTHER, lang=lang, width=1000)
    words = re.findall(r"[\w.]+", wide, re.ASCII)
    everything = re.sub(r"\s", "", narrow)
    assert [word for word in words if word not in everything and not re.search("[._]", word)] == []


@pytest.mark.parametrize(
    ("b", "sentence"),
    [
        (IN_PROCESS, "Only times differ: same tokens, same 3 steps, same calls."),
        (folder_of(run_of(ids="cmpl-{}")), "Only times differ: same tokens, same 3 steps, same calls."),
        (folder_of(run_of(config=("max_num_seqs=2",))), "Same tokens, same 3 steps."),
        (folder_of(run_of(blocks=7)), "Same tokens; 1 of 3 steps differ, first step 1."),
        (folder_of(run_of(tokens=[1, 2, 3])), "2 of 2 requests got different tokens; 3 of 3 steps differ, first "),
        (folder_of(run_of(steps=2)), "2 of 2 requests got fewer tokens in B; 3 steps in A and 2 steps in B, first "),
        (folder_of(run_of(requests=1)), "1 request only in A; 3 of 3 steps differ, first step 1."),
        (folder_of(run_of(text=False)), "Same 3 steps; tokens cannot be compared in a recording without text."),
        (folder_of(run_of(steps=0)), "B has no step, A has 3."),
        (folder_of(Trace([])), "The runs have no call in common."),
        (folder_of(run_of(), status="running"), "B did not finish; "),
        (folder_of(run_of(), status="interrupted"), "B was interrupted; "),
        (folder_of(run_of(), status="terminated"), "B was terminated; "),
        (folder_of(run_of(), status="failed", error={"type": "OSError"}), "B failed (OSError); "),
        (TWO_PROCESSES, "Same tokens, same 3 steps; B has 2 processes and 5 messages, 960 B in total, which took "
         "67 µs per step (6.7%)."),
    ],
    ids=["itself", "other names", "settings", "blocks", "tokens", "shorter", "a request less", "no text", "no steps",
         "empty", "running", "interrupted", "terminated", "failed", "processes"],
)  # fmt: skip
def test_the_sentence_on_top(b: RunFolder, sentence: str) -> None:
    """One sentence on top names the most important difference."""
    assert said(IN_PROCESS, b).startswith(sentence)


def two_threads(*threads: str, lifeline: str = "A") -> RunFolder:
    """Return a run in which these threads of one process call the same method."""
    calls = Calls()
    for thread in threads:
        more = {names.THREAD_NAME: thread} if thread else {}
        calls.leaf(f"{lifeline}.run", **more, **{names.CODE_FUNCTION: "engine.A.run"})
    return folder_of(calls.trace())


def test_the_same_threads_in_another_order_are_no_difference() -> None:
    """Calls in the same processes and threads are no difference, whatever their order."""
    text = diff_text(two_threads("", "pool"), two_threads("pool", ""))
    assert "another process or thread" not in text
    assert "in the same process and thread: 1 function." in text
    assert "main: pool" in diff_text(two_threads(""), two_threads("pool"))


@pytest.mark.parametrize(("lang", "title"), [("en", "In both, but of another class"), ("zh", "两边都有，但类名不同")])
def test_another_class_in_the_same_thread(lang: str, title: str) -> None:
    """A class with the same code under another name is listed by both names, without its process."""
    lines = diff_text(two_threads(""), two_threads("", lifeline="B"), lang=lang).splitlines()
    at = lines.index(title)
    assert lines[at + 2].split() == ["A", "B"]
    assert not any(line.split() == ["main", "main", "A"] for line in lines)


def test_what_aborts_nothing_is_not_counted() -> None:
    """Only abort calls with a request are listed."""
    calls = Calls()
    calls.leaf("A.run")
    for count in (0, 0, 1):
        calls.leaf("SyncMPClient.abort_requests", args=[f"request_ids=list of {count}"])
    lines = diff_text(two_threads(""), folder_of(calls.trace())).splitlines()
    assert [line.split() for line in lines if "abort" in line] == [["SyncMPClient.abort_requests", "1", "main"]]
    nothing = Calls()
    nothing.leaf("SyncMPClient.abort_requests", args=["request_ids=list of 0"])
    assert "abort" not in diff_text(two_threads(""), folder_of(nothing.trace()))


@pytest.mark.parametrize(("lang", "caution"), [("en", "Each run was made once. "), ("zh", "两边各运行一次。")])
def test_times_come_with_a_caution(lang: str, caution: str) -> None:
    """Times come with a caution; several steps have their quartiles."""
    few = diff_text(IN_PROCESS, TWO_PROCESSES, lang=lang)
    assert caution in few
    assert "1.00 ms (" not in few
    calls = Calls()
    for index, lasts in enumerate((1, 2, 3, 4, 100), 1):
        with calls("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1)):
            calls.tick(lasts * 1_000_000 - 1000)
    several = diff_text(folder_of(calls.trace()), folder_of(calls.trace()), lang=lang)
    assert caution in several
    assert ("3.00 ms (2.00 ms to 4.00 ms)" if lang == "en" else "3.00 ms（2.00 ms 至 4.00 ms）") in several
    assert caution not in diff_text(folder_of(Trace([])), folder_of(Trace([])), lang=lang)


def test_neither_has_a_step() -> None:
    """Two runs without steps compare their start-up; the boundary has no cost per step."""
    a, b = folder_of(run_of(steps=0)), folder_of(run_of(steps=0, multiprocess=True))
    assert said(a, b).startswith("Neither run has a step; B has 2 processes and 2 messages, 600 B in total.")


def test_empty_folders_are_compared() -> None:
    """Without manifest and spans on both sides, every part is reported as empty."""
    empty = RunFolder(Path("empty"), {}, Trace([]), [])
    for lang in ("en", "zh"):
        assert diff_text(empty, empty, lang=lang)
        assert diff_text(IN_PROCESS, empty, lang=lang)
        assert diff_markdown(empty, IN_PROCESS, lang=lang)
    assert "Neither run has a call." in diff_text(empty, empty)


def test_a_manifest_of_other_shape_is_read_as_far_as_it_goes() -> None:
    """A run.json with wrong types is read as far as possible."""
    odd = RunFolder(Path("odd"), {"argv": "x", "versions": 3, "host": [], "options": None, "error": "?",
                                  "status": ["?"], "script": {"a": 1}}, run_of(), [])  # fmt: skip
    assert "['?']" in diff_text(IN_PROCESS, odd)


def test_the_same_each_time() -> None:
    """The output is the same each time."""
    once, again = (diff_text(folder_of(run_of()), folder_of(run_of(multiprocess=True))) for _ in range(2))
    assert once == again


def test_many_calls_are_counted_not_listed() -> None:
    """Many different calls are cut, and the rest is counted."""
    a, b = Calls(), Calls()
    for i in range(200):
        a.leaf(f"A{i}.run")
        b.leaf(f"B{i}.run")
    text = diff_text(folder_of(a.trace()), folder_of(b.trace()))
    assert text.count("... and 140 more calls.") == 2
    assert len(text.splitlines()) < 170


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_hostile_values_stay_where_they_are(text: str) -> None:
    """Names and texts are escaped: no control characters, no broken table, no markup."""
    calls = Calls()
    facts = step_facts(1, [text], new=True, last=True) | {names.STEP_KIND: text, names.STEP_SAMPLED_TEXTS: [text]}
    calls.leaf("EngineCore.step_fn", **facts)
    calls.leaf(f"{text}.run", lifeline=text)
    odd = folder_of(calls.trace(), text, argv=["x", text], script=text)
    plain_text, marked = diff_text(IN_PROCESS, odd), diff_markdown(IN_PROCESS, odd)
    assert max(map(cell_len, plain_text.splitlines())) <= 80
    for output in (plain_text, marked):
        output.encode()
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028]", output)
    rows = [line for line in marked.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {3, 4, 5, 8}
    assert "<script>" not in re.sub(r"`[^`]*`", "", marked)


def test_a_table_gives_way_where_it_can() -> None:
    """In a narrow table text is wrapped first, then names, and numbers never."""
    columns = Column("name", code=True), Column("n", number=True), Column("where")
    row = ["EngineCoreProc._process_engine_step"], ["1,234,567"], ["in the engine core's own process"]
    table = Table(columns, (row,))
    lines = plain([table], 70).splitlines()
    assert "EngineCoreProc._process_engine_step  1,234,567" in lines[1]
    assert len(lines) == 3
    assert "1,234,567" in plain([table], 40)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a bb ccc", 4, ["a bb", "ccc"]),
        ("abcdef", 4, ["abcd", "ef"]),
        ("记录有损坏，请重来", 8, ["记录有损", "坏，请重", "来"]),
        ("记录有损，请", 8, ["记录有", "损，请"]),
        ("", 4, [""]),
        ("中a", 1, ["中", "a"]),
        ("花费（6%）", 6, ["花费", "（6%）"]),
    ],
)
def test_wrapping(text: str, width: int, lines: list[str]) -> None:
    """Words stay whole where possible, Chinese breaks anywhere but before a mark, and long words are broken."""
    assert wrapped(text, width) == lines


def test_markdown_is_escaped() -> None:
    """Markdown characters are escaped, and names are code."""
    table = Table((Column("c", code=True), Column("t")), ((["a|b`c"], ["__x__ a_b <b> |*"]),))
    assert markdown([table]).splitlines()[-1] == r"| ``a\|b`c`` | \_\_x\_\_ a_b &lt;b&gt; \|\* |"
    assert markdown([Paragraph("# x")]) == "\\# x\n"
