"""Findings: preemptions, waiting, prompts in pieces, prefix cache hits, shrinking batches, slow first tokens."""

import re
from typing import Any

import pytest

from tests.report.synthetic import a_run_folder, shown_html
from tests.report.traces import Calls
from tracellm.report.facts.findings import findings
from tracellm.report.html.answer_view import answer_view
from tracellm.report.html.data import run_data
from tracellm.report.texts import LANGUAGES
from tracellm.trace import names
from tracellm.trace.model import Span, Trace


def a_step(
    index: int,
    scheduled: dict[str, tuple[int, int, str]],
    *,
    hits: dict[str, int] | None = None,
    held: dict[str, tuple[str, str]] | None = None,
    waiting: tuple[str, ...] = (),
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the attributes of a step; `scheduled` has tokens, computed tokens and phase of each request."""
    held, hits = held or {}, hits or {}
    return {
        names.STEP_INDEX: index,
        names.STEP_KIND: "mixed",
        names.STEP_REQUESTS: list(scheduled),
        names.STEP_TOKENS: [tokens for tokens, _, _ in scheduled.values()],
        names.STEP_COMPUTED: [computed for _, computed, _ in scheduled.values()],
        names.STEP_PHASES: [phase for _, _, phase in scheduled.values()],
        names.STEP_CACHED: [hits.get(request, 0) for request in scheduled],
        names.STEP_CACHED_BLOCKS: ["1" if request in hits else "" for request in scheduled],
        names.STEP_HELD: list(held),
        names.STEP_HELD_REASONS: [reason for reason, _ in held.values()],
        names.STEP_HELD_DETAILS: [details for _, details in held.values()],
        names.STEP_RUNNING: list(scheduled),
        names.STEP_WAITING: list(waiting),
    } | (more or {})


def a_trace(*steps: dict[str, Any]) -> Trace:
    """Return a trace of these steps."""
    calls = Calls()
    for attributes in steps:
        calls.leaf("EngineCore.step_fn", **attributes)
    return calls.trace()


SEATS = {"b": ("max_num_seqs", "running=1 limit=1")}
BLOCKS = {"b": ("no_free_blocks", "needed=2 free=0")}
EVENTFUL = a_trace(
    a_step(1, {"a": (4, 0, "prefill")}, held={"a": ("token_budget", "budget=4 left=4 wanted=9 given=4"), **SEATS},
           waiting=("b",), more={names.STEP_NEW: ["a"]}),
    a_step(2, {"a": (5, 4, "prefill")}, held=BLOCKS, waiting=("b",)),
    a_step(3, {"a": (1, 9, "decode")}, held=BLOCKS, waiting=("b",)),
    a_step(4, {"a": (1, 10, "decode"), "b": (6, 16, "prefill")}, hits={"b": 16}, more={names.STEP_NEW: ["b"]}),
    a_step(5, {"a": (1, 11, "decode")}, held={"b": ("preempted", "by=a needed=1 free=0")}, waiting=("b",),
           more={names.STEP_PREEMPTED: ["b"]}),
    a_step(6, {"a": (1, 12, "decode"), "b": (6, 16, "prefill")}, hits={"b": 16}, more={names.STEP_RESUMED: ["b"]}),
)  # fmt: skip


def test_each_moment_is_found_once_with_its_reason():
    """Preemption, waiting, pieces and hits have their step, request, numbers and recorded reason."""
    found = [
        (one.kind, one.step, one.request_id, one.held and one.held.reason, one.values) for one in findings(EVENTFUL)
    ]
    assert found == [
        (
            "preempted",
            5,
            "b",
            "preempted",
            {"tokens": 22, "blocks": 1, "resumed": 6, "after": 1, "cached": 16, "again": 6},
        ),
        ("waited", 2, "b", "no_free_blocks", {"steps": 3, "mostly": 2}),
        ("pieces", 1, "a", "token_budget", {"chunks": 2, "sizes": "4 + 5"}),
        ("hit", 4, "b", None, {"tokens": 16, "blocks": 1, "size": 0, "rest": None}),
    ]


def test_an_aborted_request_has_its_sampled_tokens():
    """A request that left the engine is found in the step after, with the tokens sampled for it alone."""
    drawn = {names.STEP_SAMPLED: ["a"], names.STEP_SAMPLED_IDS: [7]}
    found = findings(
        a_trace(
            a_step(1, {"a": (4, 0, "prefill")}, more={names.STEP_NEW: ["a"], **drawn}),
            a_step(2, {"a": (1, 4, "decode")}, more=drawn),
            a_step(3, {}, more={names.STEP_ABORTED: ["a"]}),
            a_step(4, {"a": (4, 0, "prefill")}, more={names.STEP_NEW: ["a"], **drawn}),
            a_step(5, {}, more={names.STEP_ABORTED: ["a"]}),
        )
    )
    assert [(one.step, one.values) for one in found if one.kind == "aborted"] == [
        (3, {"tokens": 2, "reason": "", "delivered": None}),
        (5, {"tokens": 1, "reason": "", "delivered": None}),
    ]


@pytest.mark.parametrize(
    ("reason", "delivered", "sentences"),
    [
        ("abort", 1, [", of which 1 reached its caller; the rest was dropped", "cancelled it or stopped reading."]),
        ("abort", 2, [", which all reached its caller. Its caller cancelled"]),
        ("stop", 2, ["found a stop string in the text of request a", ", which all reached its caller."]),
    ],
)
def test_an_abort_has_its_cause_and_its_delivered_tokens(reason: str, delivered: int, sentences: list[str]):
    """The sentence about an aborted request has the cause, and how many of its tokens reached the caller."""
    trace = a_trace(
        a_step(1, {"a": (4, 0, "prefill")}, more={names.STEP_NEW: ["a"], **_drawn("a")}),
        a_step(2, {"a": (1, 4, "decode")}, more=_drawn("a")),
        a_step(3, {}, more={names.STEP_ABORTED: ["a"]}),
    )
    more = {names.GEN_AI_OUTPUT_TOKENS: delivered, names.GEN_AI_FINISH_REASONS: [reason]}
    sentence = _sentence(trace, "a", more)
    assert "after 2 sampled tokens" in sentence
    for part in sentences:
        assert part in sentence


@pytest.mark.parametrize(
    ("prompt", "limit"),
    [
        (23, "The other 7 prompt tokens do not fill a block"),
        (32, "the last prompt token must be computed"),
        (40, "The block after them was not in the cache"),
    ],
)
def test_a_hit_has_the_reason_why_it_is_not_longer(prompt: int, limit: str):
    """The sentence about a prefix cache hit has the reason why the other prompt tokens were computed."""
    calls = Calls()
    cache: dict[str, Any] = {names.KV_BLOCK_SIZE: 16, names.KV_NUM_BLOCKS: 10}
    calls.leaf("Scheduler.__init__", **cache)
    calls.leaf(
        "EngineCore.step_fn",
        **a_step(1, {"a": (prompt - 16, 16, "prefill")}, hits={"a": 16}, more={names.STEP_NEW: ["a"]}),
    )
    assert limit in _sentence(calls.trace(), "a", {names.GEN_AI_INPUT_TOKENS: prompt})


def _drawn(request_id: str) -> dict[str, Any]:
    return {names.STEP_SAMPLED: [request_id], names.STEP_SAMPLED_IDS: [7]}


def _sentence(trace: Trace, request_id: str, more: dict[str, Any]) -> str:
    """Return the only finding's sentence, of a run with a span of the request with these attributes."""
    attributes = {names.REQUEST_ID: request_id, **more}
    first, last = trace.spans[0].start_ns - 1, trace.spans[-1].end_ns
    life = Span("llm_request", f"{100:032x}", f"{100:016x}", None, first, last, attributes)
    trace = Trace([*trace.spans, life])
    (group,) = answer_view(trace, None, None, [], "en")["answer"]["findings"]
    return str(group["findings"][0]["sentence"])


def test_a_batch_that_shrinks_is_found_at_the_first_small_step():
    """A batch below half of its largest size in the last fifth of the steps is a finding; a short end is none."""
    full = {str(request): (1, 5, "decode") for request in range(4)}
    steps = [a_step(index, full if index < 8 else {"0": (1, 5, "decode")}) for index in range(1, 11)]
    (found,) = findings(a_trace(*steps))
    assert (found.kind, found.step, found.values) == ("shrinking", 8, {"size": 1, "largest": 4, "steps": 3})
    assert findings(a_trace(*steps[:8])) == ()


def test_a_slow_step_is_found_with_its_longest_part():
    """A step far above the median of its kind is found; the first of a kind, which warms up, is not."""
    calls = Calls()
    for index in range(1, 9):
        with calls("EngineCore.step_fn", **a_step(index, {"a": (1, 4 + index, "decode")})):
            calls.leaf("Scheduler.schedule")
            with calls("GPUModelRunner._model_forward"):
                calls.tick(90_000 if index in (1, 6) else 1000)
    (found,) = findings(calls.trace())
    assert (found.kind, found.step, found.values["part"]) == ("slow_step", 6, "forward")
    assert found.values["function"] == "GPUModelRunner._model_forward"
    assert found.values["time"] > 4 * found.values["median"]


def test_the_longest_wait_comes_first_and_the_list_opens():
    """The longest wait is shown first among many, and the page lists the rest behind a summary."""
    waiting = tuple(f"r{i}" for i in range(12))
    held = {one: ("max_num_seqs", "running=1 limit=1") for one in waiting}
    steps = [
        a_step(
            i + 1, {f"r{i}": (1, 0, "prefill")}, held=held, waiting=waiting[i + 1 :], more={names.STEP_NEW: [f"r{i}"]}
        )
        for i in range(12)
    ]
    trace = a_trace(*steps)
    waits = [one.values["steps"] for one in findings(trace) if one.kind == "waited"]
    assert waits == sorted(waits, reverse=True)
    assert len(waits) == 11
    page = shown_html(a_run_folder(trace.spans))
    part = page[page.index('id="answer"') : page.index("</section>")]
    assert part.count("#step=") == len(findings(trace))
    assert "and 5 more" in part


def test_variants_are_compared_with_the_run():
    """The page's first part says how many steps and preemptions a variant has, beside those of the run."""
    sentences = answer_view(
        EVENTFUL, None, None, [], "en", {"num_blocks=9": a_trace(a_step(1, {"a": (4, 0, "prefill")}))}
    )
    (variant,) = sentences["answer"]["variants"]
    assert variant["sentence"].startswith("With num_blocks=9: 1 step instead of 6, 0 preemptions instead of 1.")
    assert variant["address"] == "#engine=1&step=1"


def test_a_quiet_run_has_no_findings():
    """A run in which nothing waits or is shared has none, and the page says so."""
    assert findings(a_trace(a_step(1, {"a": (4, 0, "prefill")}), a_step(2, {"a": (1, 4, "decode")}))) == ()
    assert findings(Trace([])) == ()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_begins_with_them(lang):
    """The page's first part has a sentence for each, with an address of the step and the request."""
    page = shown_html(a_run_folder(EVENTFUL.spans), lang)
    part = page[page.index('id="answer"') : page.index("</section>")]
    assert re.findall(r'href="(#step=[^"]+)"', part) == [
        "#step=5&amp;request=b", "#step=2&amp;request=b", "#step=1&amp;request=a", "#step=4&amp;request=b"
    ]  # fmt: skip
    assert len(re.findall("<li>", part)) == 4


def test_rows_are_in_one_order_and_hits_are_told_apart():
    """Sampled tokens are in the order of scheduling; hits of a resumed request are apart from those of its prompt."""
    scheduled = {"user-7": (6, 16, "prefill"), "user-12": (6, 16, "prefill")}
    drawn = {names.STEP_SAMPLED: ["user-12", "user-7"], names.STEP_SAMPLED_IDS: [5, 6]}
    hits = dict.fromkeys(scheduled, 16)
    more = {names.STEP_NEW: ["user-7"], names.STEP_RESUMED: ["user-12"], **drawn}
    data = run_data(a_trace(a_step(1, scheduled, hits=hits, more=more)))
    assert [row[:2] for row in data["engines"][0]["steps"][0]["sampled"]] == [[0, 6], [1, 5]]
    assert [(row["tiny"], row.get("hit"), row.get("hitAgain")) for row in data["requests"]] == [
        ("7", 16, None),
        ("12", None, 16),
    ]


def test_requests_of_one_id_keep_their_own_numbers():
    """Hits and preemptions count for the request that had the id at that step, not for a later one of the same id."""
    hit = a_step(1, {"0": (6, 16, "prefill")}, hits={"0": 16}, more={names.STEP_NEW: ["0"]})
    preempted = a_step(2, {}, waiting=("0",), more={names.STEP_PREEMPTED: ["0"]})
    trace = a_trace(hit, preempted, a_step(3, {"0": (6, 0, "prefill")}, more={names.STEP_NEW: ["0"]}))
    first, _, third = trace.spans
    lives = [
        Span("llm_request", f"{i:032x}", f"{i:016x}", None, before.start_ns - 1, third.end_ns, {names.REQUEST_ID: "0"})
        for i, before in ((100, first), (101, third))
    ]
    rows = run_data(Trace([*trace.spans, *lives]))["requests"]
    assert [(row.get("hit"), row.get("preemptions")) for row in rows] == [(16, 1), (None, None)]
