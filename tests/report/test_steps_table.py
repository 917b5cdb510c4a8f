"""The table of steps: scheduled and waiting requests, reasons, and outputs."""

import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.conftest import Golden
from tests.report.nasty import NASTY
from tests.report.traces import Calls, hello, step_facts
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason, ReasonCode
from tracellm.report.steps_table import step_rows, steps_table
from tracellm.report.wording.changes import changes
from tracellm.trace import names
from tracellm.trace.model import Process, Trace

GOLDEN = Path(__file__).parent / "golden"


def trace_of(*steps: dict[str, Any]) -> Trace:
    """Return a trace of steps with these attributes."""
    calls = Calls()
    for facts in steps:
        calls.leaf("EngineCore.step_fn", **facts)
    return calls.trace()


BUSY = [
    step_facts(1, ["0", "1"], new=True) | {
        names.STEP_WAITING: ["2"], names.STEP_HELD: ["2"], names.STEP_HELD_REASONS: ["no_free_blocks"],
        names.STEP_HELD_DETAILS: ["needed=4 free=1"],
    },
    step_facts(2, ["0", "1"]) | {names.STEP_FINISHED: ["1"], names.STEP_FINISH_REASONS: ["stop"]},
    step_facts(3, ["0", "2"]) | {
        names.STEP_KIND: "mixed", names.STEP_PHASES: ["decode", "prefill"], names.STEP_NEW: ["2"],
        names.STEP_TOKENS: [1, 20], names.STEP_CACHED: [0, 16], names.STEP_COMPUTED: [9, 16],
        names.STEP_NEW_BLOCKS: ["", "5-6,9"],
    },
    step_facts(4, ["0", "2"]),
    step_facts(5, ["0", "2"]),
    step_facts(6, ["0"]) | {names.STEP_PREEMPTED: ["2"]},
]  # fmt: skip


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_busy_run(lang: str, golden: Golden):
    """The table of a run with waiting, a prefix hit, a preemption and an end equals the golden file."""
    golden(GOLDEN / f"steps.{lang}.txt", steps_table(trace_of(*BUSY), lang=lang))


def test_several_engines_have_tables_of_their_own():
    """Steps of two interleaved processes have separate tables, and are compared within their engine."""
    one, other = Calls(process=Process(11, "EngineCore_0")), Calls(process=Process(12, "EngineCore_0"))
    for index in (1, 2, 3):
        for calls in (one, other):
            calls.leaf("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1))
    trace = Trace(sorted([*one.spans, *other.spans], key=lambda span: span.start_ns), [one.process, other.process])
    rows = step_rows(trace)
    assert [(row.engine, row.indexes, row.steps[0].span.process) for row in rows] == [
        (1, "1", one.process), (0, "2-3", one.process), (2, "1", other.process), (0, "2-3", other.process)
    ]  # fmt: skip
    heads = ["Engine 1: EngineCore_0, process id 11", "Engine 2: EngineCore_0, process id 12"]
    assert [line for line in steps_table(trace).splitlines() if line.startswith("Engine")] == heads
    assert "Engine 1" not in steps_table(one.trace())


def test_alike_steps_share_a_row():
    """Unchanged steps share a row with the sums of tokens and times, and the whole text."""
    rows = step_rows(trace_of(*BUSY))
    assert [row.indexes for row in rows] == ["1", "2", "3", "4-5", "6"]
    alike = rows[3]
    assert alike.num_tokens == 4
    assert alike.duration_ns == 2000
    assert [one.sampled for one in alike.requests()] == [" is is", " is is"]


def test_who_left_before_a_step():
    """An aborted request is reported once, and a step without scheduled requests has its reason."""
    empty = {names.STEP_KIND: "empty", names.STEP_REQUESTS: [], names.STEP_SAMPLED: []}
    rows = step_rows(
        trace_of(
            step_facts(1, ["0", "1"], new=True),
            step_facts(2, ["0"]) | {names.STEP_ABORTED: ["1"], names.STEP_RELEASED: ["1"]},
            step_facts(3, ["0"]),
            step_facts(4, ["0"], last=True),
            step_facts(5, []) | empty | {names.STEP_RELEASED: ["0"]},
        )
    )
    assert [changes(row.steps[0], "en") for row in rows] == [
        ["requests 0, 1 joined"],
        ["request 1 aborted: cancelled, or a stop string was found"],
        [],
        ["request 0 finished: length (max_tokens or the model's limit)"],
        ["nothing to compute: the model runner drops request 0, finished earlier"],
    ]


SAMPLING = {
    names.STEP_SAMPLED: ["0", "1"],
    names.STEP_SAMPLED_TEXTS: [" a", " b"],
    names.STEP_SAMPLED_IDS: [5, 6],
    names.STEP_SAMPLED_PROBS: [0.5, 0.25],
    names.STEP_PROCESSORS: ["top_k top_p", ""],
    names.STEP_LEFT: [3, 4096],
    names.STEP_DRAWN_PROBS: [0.75, 0.25],
    names.STEP_DRAWN_CANDIDATES: ['[[5, " a", 0.75], [7, " c", 0.25]]', "[]"],
}


@pytest.mark.parametrize(
    ("lang", "said"),
    [("en", "chosen from 3 tokens after top_k, top_p"), ("zh", "经 top_k、top_p 处理后，从 3 个 token 中选出")],
)
def test_what_acted_on_the_logits_is_said(lang: str, said: str):
    """A request's line names its logits processors and the number of remaining tokens; others have no such line."""
    table = steps_table(trace_of(step_facts(1, ["0", "1"]) | SAMPLING), lang=lang).splitlines()
    assert [said in line for line in table if line.startswith("    ")][:2] == [True, False]


def test_of_several_steps_the_range_is_said():
    """A row of several steps has the range of remaining tokens, or the names alone if there is no count."""
    two = trace_of(
        step_facts(1, ["0", "1"]) | SAMPLING, step_facts(2, ["0", "1"]) | SAMPLING | {names.STEP_LEFT: [9, 1]}
    )
    assert "chosen from 3 to 9 tokens after top_k, top_p" in steps_table(two)
    uncounted = {name: value for name, value in SAMPLING.items() if name != names.STEP_LEFT}
    assert "1 token, after top_k, top_p →" in steps_table(trace_of(step_facts(1, ["0", "1"]) | uncounted))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (CutShort.token_budget(budget=64, wanted=20, scheduled=3), ("20", "3", "64")),
        (CutShort.chunk_threshold(threshold=8, wanted=20), ("20", "8")),
        (NotScheduledReason.max_num_seqs(limit=4, running=4), ("max_num_seqs", "4")),
        (NotScheduledReason.no_free_blocks(needed=5, free=2), ("5", "2")),
        (NotScheduledReason.preempted(by="7", needed=2, free=1), ("7", "2", "1")),
        (NotScheduledReason.preempted(by="1", needed=2, free=1), ("own KV cache blocks|自己的 KV 缓存块", "2", "1")),
        (NotScheduledReason.grammar(kind="json"), ("json",)),
        (CutShort.encoder_budget(item=1, needed=20, budget=64, left=3), ("1", "20", "64", "3")),
        (NotScheduledReason.encoder_cache(item=1, needed=20, size=64, free=3), ("1", "20", "64", "3")),
        (CutShort.chunked_mm_input(item=1, needed=20, left=3), ("1", "20", "3")),
        (NotScheduledReason.behind("7", ReasonCode.GRAMMAR), ("7",)),
        (NotScheduledReason.behind("7", ReasonCode.ENCODER_CACHE), ("7", "encoder cache|编码器缓存")),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else value.code.value,
)
def test_every_reason_is_said_with_its_numbers(reason: NotScheduledReason | CutShort, said: tuple[str, ...], lang: str):
    """Each reason is a sentence with its numbers, without its code, in both languages."""
    facts = step_facts(1, ["0"]) | {names.STEP_HELD: ["1"], names.STEP_HELD_REASONS: [reason.code.value]}
    details = str(reason).partition(" ")[2]
    table = steps_table(trace_of(facts | {names.STEP_HELD_DETAILS: [details]}), lang=lang)
    line = table.splitlines()[3]
    assert all(re.search(number, line) for number in said)
    assert "=" not in line


def test_rows_of_several_steps_are_explained():
    """A note below the table explains rows of several steps, if there are any."""
    assert "A row of several steps" in steps_table(trace_of(*BUSY))
    assert "A row of several steps" not in steps_table(trace_of(*BUSY[:3]))


def test_a_row_tells_tokens_blocks_and_prefix_hits():
    """A row has all that a request got in its step: tokens, blocks and prefix hits."""
    [_, request] = step_rows(trace_of(*BUSY))[2].requests()
    assert (request.request_id, request.num_tokens, request.prefix_hit_tokens) == ("2", 20, 16)
    assert request.new_blocks == (5, 6, 9)


def test_a_recording_without_text_shows_none():
    """Without recorded text, no generated text is shown."""
    trace = hello()
    for span in trace.spans:
        for name in names.PRIVATE:
            span.attributes.pop(name, None)
    assert "→" not in steps_table(trace)
    assert {one.sampled for row in step_rows(trace) for one in row.requests()} == {None}


def test_of_a_large_batch_the_first_requests_are_told():
    """Requests of a large batch are counted after the first few."""
    table = steps_table(trace_of(step_facts(1, [str(i) for i in range(100)], new=True)))
    assert "... and 92 more" in table
    assert len(table.splitlines()) < 15


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_hostile_values_stay_on_their_line(text: str):
    """Names and texts of requests are escaped and cut to the width."""
    facts = step_facts(1, [text], new=True, last=True) | {names.STEP_KIND: text, names.STEP_SAMPLED_TEXTS: [text]}
    table = steps_table(trace_of(facts), width=70)
    lines = table.split("\n")
    assert len(lines) == len(table.splitlines()) + 1 == 6
    assert max(map(cell_len, lines[2:])) <= 70
    table.encode()
    assert "\x1b" not in table


def test_an_empty_trace_says_so():
    """A trace without steps gives one sentence."""
    assert steps_table(Trace([])) == "No step was recorded.\n"


def test_a_step_that_failed_says_of_what():
    """A failed step has its exception on one line and a row of its own, in both languages."""
    calls = Calls()
    for index in (1, 2):
        calls.leaf("EngineCore.step_fn", **step_facts(index, ["0"]))
    with pytest.raises(RuntimeError), calls("EngineCore.step_fn", **step_facts(3, ["0"])):
        raise RuntimeError("no token is left\nfor request 0")
    trace = calls.trace()
    assert [len(row.steps) for row in step_rows(trace)] == [2, 1]
    assert "the step failed: RuntimeError: no token is left" in " ".join(steps_table(trace).split())
    assert "这个 step 失败" in steps_table(trace, lang="zh")
