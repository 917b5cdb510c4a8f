"""Steps read from their spans, complete and damaged."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.ranges import format_ranges, parse_ranges
from tracellm.trace.steps import STEP_SPAN, Held, Sampled, ScheduledRequest, read_step, steps

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def step_span(attributes: dict[str, Any], start: int = 1) -> Span:
    """Return a step's span."""
    return Span(STEP_SPAN, "a" * 32, f"{start:016x}", None, start, start + 1, attributes)


def test_a_step():
    """Parallel arrays become one record for each request."""
    step = read_step(
        step_span(
            {
                names.STEP_INDEX: 3,
                names.STEP_KIND: "mixed",
                names.STEP_REQUESTS: ["0", "1"],
                names.STEP_TOKENS: [1, 20],
                names.STEP_COMPUTED: [9, 16],
                names.STEP_PHASES: ["decode", "prefill"],
                names.STEP_CACHED: [0, 16],
                names.STEP_NEW_BLOCKS: ["", "3-4,9"],
                names.STEP_NEW: ["1"],
                names.STEP_FINISHED: ["0"],
                names.STEP_FINISH_REASONS: ["length"],
                names.STEP_RUNNING: ["0", "1"],
                names.STEP_WAITING: ["2"],
                names.STEP_HELD: ["2"],
                names.STEP_HELD_REASONS: ["max_num_seqs"],
                names.STEP_HELD_DETAILS: ["limit=2 running=2"],
                names.STEP_BUDGET: 64,
                names.STEP_BLOCKS_FREE: 5,
                names.STEP_BLOCKS_TOTAL: 15,
                names.STEP_LOGITS: [2, 100],
                names.STEP_SAMPLED: ["0", "1"],
                names.STEP_SAMPLED_IDS: [7, 8],
                names.STEP_SAMPLED_TEXTS: ["a", "b"],
                names.STEP_SAMPLED_PROBS: [0.5, 0.25],
                names.STEP_CANDIDATES: ['[[7, "a", 0.5]]', "[]"],
            }
        )
    )
    assert step.requests == (
        ScheduledRequest("0", 1, 9, "decode", 0, ()),
        ScheduledRequest("1", 20, 16, "prefill", 16, (3, 4, 9)),
    )
    assert (step.index, step.kind, step.new, step.finished) == (3, "mixed", ("1",), {"0": "length"})
    assert step.held == (Held("2", "max_num_seqs", "limit=2 running=2"),)
    assert step.sampled == (Sampled("0", 7, "a", 0.5, '[[7, "a", 0.5]]'), Sampled("1", 8, "b", 0.25, "[]"))
    assert [one.candidates for one in step.sampled] == [[(7, "a", 0.5)], []]
    assert (step.token_budget, step.blocks_free, step.blocks_total, step.logits_shape) == (64, 5, 15, (2, 100))
    assert step.num_tokens == 21


def test_tokens_that_came_with_a_later_step():
    """Tokens and logits that later steps brought belong to the steps that they name, if these are recorded."""

    def step(index: int, **more: Any) -> Span:
        return step_span({names.STEP_INDEX: index, **more}, start=index)

    def brought(index: int, output_of: int, token: int) -> Span:
        sampled = {names.STEP_SAMPLED: ["0"], names.STEP_SAMPLED_IDS: [token], names.STEP_LOGITS: [1, 100]}
        return step(index, **{names.STEP_OUTPUT_OF: output_of, **sampled})

    found = steps(Trace([step(2), brought(3, 2, 7), brought(4, 3, 8), brought(5, 1, 9), step(6)]))
    tokens = {step.index: [one.token_id for one in step.sampled] for step in found}
    assert tokens == {2: [7], 3: [8], 4: [], 5: [9], 6: []}
    assert [step.logits_shape for step in found] == [(1, 100), (1, 100), (), (1, 100), ()]


def test_steps_are_in_order():
    """Steps are in the order of their start, and other spans are ignored."""
    trace = Trace(
        [step_span({names.STEP_INDEX: i}, start=i) for i in (2, 1)] + [Span("x", "a" * 32, "f" * 16, None, 0, 9)]
    )
    assert [step.index for step in steps(trace)] == [1, 2]


def test_a_step_without_text():
    """Without private attributes a step has the sampled requests without the tokens."""
    step = read_step(step_span({names.STEP_SAMPLED: ["0"], names.STEP_SAMPLED_PROBS: [0.5]}))
    assert step.sampled == (Sampled("0", None, None, 0.5, "[]"),)


anything = st.one_of(
    st.text(max_size=8),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.lists(st.text() | st.integers() | st.floats(), max_size=3),
)


@patient
@given(st.dictionaries(st.sampled_from([name for name in names.ATTRIBUTES if "step" in name]), anything))
def test_damaged_steps(attributes: dict[str, Any]):
    """A step with damaged attributes can be read."""
    read_step(step_span(attributes))


@patient
@given(st.lists(st.integers(0, 100_000)))
def test_ranges(numbers: list[int]):
    """Block ids survive formatting and reading, in their order."""
    assert list(parse_ranges(format_ranges(numbers))) == numbers


def test_ranges_are_short():
    """Consecutive ids are joined to ranges."""
    assert format_ranges([3, 4, 5, 9]) == "3-5,9"
    assert format_ranges([]) == ""


@patient
@given(st.text(alphabet="0123456789-, x", max_size=30))
def test_damaged_ranges(text: str):
    """A damaged text has no numbers, and never exceeds memory."""
    assert len(parse_ranges(text)) <= 10_000_000
