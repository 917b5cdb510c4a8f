"""The text of one step: queues, token budget, KV cache blocks, batch, candidates and time."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.conftest import Golden
from tests.report.nasty import NASTY
from tests.report.traces import Calls, hello, step_facts
from tracellm.report.step_text import step_numbers, step_text
from tracellm.trace import names
from tracellm.trace.model import Process, Trace

GOLDEN = Path(__file__).parent / "golden"

PROMPTS = {
    "0": ["You", " are", " kind", ".", " What", " is", " a", " name", "?"],
    "1": ["You", " are", " kind", ".", "法国", "的", "首都", "是", "哪里", "？", "\n"],
    "2": ["You", " are", " kind", ".", " Tell", " me", " a", " joke", "!"],
    "3": ["Hello", ",", " \x1b[31m", "\t", "world"],
}


def busy() -> Trace:
    """Return four steps of an engine with blocks of four tokens: prefix hits, a preemption, a return, an eviction."""
    calls = Calls()
    startup: dict[str, Any] = {names.KV_NUM_BLOCKS: 10, names.KV_BLOCK_SIZE: 4,
                               names.CONFIG: ["max_num_seqs=4", "enable_prefix_caching=True"]}  # fmt: skip
    calls.leaf("EngineCore._initialize_kv_caches", **startup)
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(chain(*PROMPTS.values())), 100)}
    for request_id, prompt in PROMPTS.items():
        calls.leaf(names.REQUEST_SPAN, "request", **{
            names.REQUEST_ID: request_id, names.GEN_AI_INPUT_TOKENS: len(prompt),
            names.REQUEST_PROMPT_TOKENS: [ids[piece] for piece in prompt], names.REQUEST_PROMPT_TEXTS: prompt,
        })  # fmt: skip
    for index, step in enumerate(STEPS, 1):
        with calls("EngineCore.step_fn", **(step | {names.STEP_INDEX: index, names.RECORDING_DURATION: 500})):
            calls.leaf("Scheduler.schedule")
            calls.leaf("GPUModelRunner._model_forward")
            calls.tick(90_000)
    return calls.trace()


def facts(kind: str, batch: list[tuple[str, int, int, int, str, str]], free: int, **more: Any) -> dict[str, Any]:
    """Return a step's attributes; the batch has (request, tokens, computed, prefix hit, cached blocks, new blocks)."""
    columns = zip(*batch, strict=True)
    keys = (names.STEP_REQUESTS, names.STEP_TOKENS, names.STEP_COMPUTED, names.STEP_CACHED, names.STEP_CACHED_BLOCKS,
            names.STEP_NEW_BLOCKS)  # fmt: skip
    sampled = more.pop("sampled")
    likely = [
        [[700 + i, piece, 0.7], [800 + i, "其他", 0.2], [900, " other", 0.0004]]
        for i, piece in enumerate(sampled.values())
    ]
    return {
        **{key: list(column) for key, column in zip(keys, columns, strict=True)},
        names.STEP_KIND: kind,
        names.STEP_PHASES: ["prefill" if tokens > 1 else "decode" for _, tokens, *_ in batch],
        names.STEP_RUNNING: [row[0] for row in batch],
        names.STEP_BUDGET: 16,
        names.STEP_BLOCKS_FREE: free,
        names.STEP_BLOCKS_TOTAL: 9,
        names.STEP_LOGITS: [len(sampled), 4096],
        names.STEP_SAMPLED: list(sampled),
        names.STEP_SAMPLED_IDS: [700 + i for i in range(len(sampled))],
        names.STEP_SAMPLED_TEXTS: list(sampled.values()),
        names.STEP_SAMPLED_PROBS: [0.7] * len(sampled),
        names.STEP_CANDIDATES: [json.dumps(candidates) for candidates in likely],
        **more,
    }


def waiting(**reasons: str) -> dict[str, Any]:
    """Return the attributes of a waiting queue: `_3="behind request=2"`."""
    ids = [request_id.strip("_") for request_id in reasons]
    return {
        names.STEP_WAITING: ids,
        names.STEP_NUM_WAITING: len(ids),
        names.STEP_HELD: ids,
        names.STEP_HELD_REASONS: [reason.partition(" ")[0] for reason in reasons.values()],
        names.STEP_HELD_DETAILS: [reason.partition(" ")[2] for reason in reasons.values()],
    }


STEPS = [
    facts("prefill", [("0", 9, 0, 0, "", "1-3"), ("1", 7, 4, 4, "1", "4-5")], 4, sampled={"0": " My", "1": "巴"},
          **{names.STEP_NEW: ["0", "1"]},
          **waiting(_2="token_budget given=0 wanted=5 left=0 budget=16", _3="behind request=2 cause=token_budget")),
    facts("mixed", [("0", 1, 9, 0, "", ""), ("1", 1, 11, 0, "", ""), ("2", 5, 4, 4, "1", "6-7"),
                    ("3", 5, 0, 0, "", "8-9")], 0,
          sampled={"0": " name", "1": "黎", "2": " Why", "3": "!"}, **{names.STEP_NEW: ["2", "3"]}),
    facts("decode", [("0", 1, 10, 0, "", ""), ("1", 1, 12, 0, "", "9"), ("2", 1, 9, 0, "", "")], 1,
          sampled={"1": "。", "0": " is", "2": " did"},
          **{names.STEP_PREEMPTED: ["3"], names.STEP_FINISHED: ["0"], names.STEP_FINISH_REASONS: ["length"],
             names.STEP_PROCESSORS: ["", "temperature top_k", ""], names.STEP_LEFT: [0, 5, 0],
             names.STEP_DRAWN_PROBS: [0, 0.9, 0], names.STEP_DRAWN_CANDIDATES: ["[]", '[[701, " is", 0.9]]', "[]"]},
          **waiting(_3="preempted by=1 needed=1 free=0")),
    facts("mixed", [("1", 1, 13, 0, "", ""), ("2", 1, 10, 0, "", ""), ("3", 2, 4, 4, "8", "2")], 1,
          sampled={"1": "！", "2": " the", "3": " 你好"},
          **{names.STEP_RESUMED: ["3"], names.STEP_GRAMMAR_ALLOWED: [-1, 9, 2],
             names.STEP_GRAMMAR_SHARES: [0, 0.75, 0.0002],
             names.STEP_GRAMMAR_TOKENS: ["[]", '[[701, " the", 0.7], [701, " the", 0.7], [7, "\\n", 0.05]]',
                                         '[[60, "Sure", 0.6], [702, " 你好", 1e-4], [8, "{", 1e-4]]']}),
]  # fmt: skip


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize(("lang", "width"), [("en", 80), ("zh", 80), ("en", 140)])
def test_a_step_of_a_busy_run(number: int, lang: str, width: int, golden: Golden):
    """Steps with a full budget, a preemption, and a return with an eviction equal the golden files."""
    golden(GOLDEN / f"step-{number}.{lang}.{width}.txt", step_text(busy(), number, lang=lang, width=width))


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(lang: str, width: int):
    """No line is wider than the width, also with Chinese tokens and texts that would act on a terminal."""
    for trace in (busy(), nasty()):
        for number in step_numbers(trace):
            lines = step_text(trace, number, lang=lang, width=width).splitlines()
            assert max(map(cell_len, lines)) <= width
            assert not any(character in line for line in lines for character in "\x1b\u2028\t")


def nasty() -> Trace:
    """Return a step of requests whose ids and tokens are hostile texts."""
    calls = Calls()
    ids = [text[:40] for text in NASTY]
    facts = step_facts(1, ids, new=True) | {names.STEP_SAMPLED_TEXTS: ids, names.STEP_NUM_WAITING: 1000}
    calls.leaf("EngineCore.step_fn", **facts)
    return calls.trace()


def test_a_run_with_little_recorded():
    """Without a KV cache, requests or text, the step is shown as far as it is known."""
    text = step_text(hello(), 1)
    assert text.startswith("Step 1 · prefill\nJoined: 0, 1.\n")
    assert "Blocks 17 to 100 (84) were never used." in text
    assert "slot_mapping  ? ? ?" in text


def test_each_engine_has_its_step():
    """Two engines that both count their steps from 1 are both shown, with their processes."""
    one, other = Calls(process=Process(11, "EngineCore_0")), Calls(process=Process(12, "EngineCore_1"))
    for calls in (one, other):
        calls.leaf("EngineCore.step_fn", **step_facts(1, ["0"], new=True))
    one.leaf("EngineCore.step_fn", **step_facts(2, ["0"]))
    trace = Trace(sorted([*one.spans, *other.spans], key=lambda span: span.start_ns), [one.process, other.process])
    assert step_numbers(trace) == [1, 2]
    heads = [line for line in step_text(trace, 1).splitlines() if line.startswith("Engine ")]
    assert heads == ["Engine 1, EngineCore_0", "Engine 2, EngineCore_1"]
    assert step_text(trace, 2).count("Step 2") == 1
    assert step_text(trace, 3) == ""


def test_a_large_cache_leaves_out_free_lines():
    """Lines of the block map without any used or cached block are left out."""
    calls = Calls()
    facts = step_facts(1, ["a-long-request-id"], new=True)
    facts |= {names.STEP_NEW_BLOCKS: ["1,5000"], names.STEP_BLOCKS_FREE: 5998, names.STEP_BLOCKS_TOTAL: 6000}
    calls.leaf("EngineCore.step_fn", **facts)
    lines = step_text(calls.trace(), 1, width=80).splitlines()
    assert "  A: a-long-request-id  block_table = [1, 5000]" in lines
    shown = lines[lines.index("  A: a-long-request-id  block_table = [1, 5000]") + 1 :][:4]
    assert shown[0].startswith("      0  ∅  A+ .")
    assert shown[1] == "      …"
    assert shown[2].split()[0] == "5,000"
    assert shown[3] == "  Blocks 5,001 to 6,000 (1,000) were never used."


def test_a_request_with_a_long_id_is_shown_in_the_width():
    """An id that is longer than a line is wrapped, with its tokens below it."""
    name = "r" * 200
    calls = Calls()
    more = {names.STEP_SAMPLED: [name], names.STEP_SAMPLED_IDS: [7], names.STEP_SAMPLED_TEXTS: [" seven"]}
    facts = step_facts(1, [name], new=True) | more
    calls.leaf("EngineCore.step_fn", **facts)
    lines = step_text(calls.trace(), 1, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("seven" in line for line in lines)
