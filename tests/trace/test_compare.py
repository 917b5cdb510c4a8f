"""Comparison of two traces as data: calls, steps, requests, messages and times."""

from typing import Any

import pytest

from tests.report.two_runs import Recorder, run_of
from tracellm.trace import names
from tracellm.trace.compare import compare
from tracellm.trace.model import Trace


def test_a_run_is_like_itself():
    """A run equals itself, even as two trace objects."""
    found = compare(run_of(), run_of())
    assert found.num_steps == (3, 3)
    assert (found.different_steps, found.different_calls) == ([], [])
    assert all(pair.same_output and pair.same_prompt for pair in found.requests)


def test_calls_are_counted_in_the_order_of_their_first():
    """Calls of only one run are counted: those of A first, in A's order, then those of B."""
    found = compare(run_of(), run_of(multiprocess=True))
    only_a = [(pair.name, pair.a) for pair in found.calls if not pair.b]
    only_b = [(pair.name, pair.b) for pair in found.calls if not pair.a]
    assert only_a == [
        ("InprocClient.__init__", 1), ("EngineCore.__init__", 1), ("InprocClient.add_request", 2),
        ("InprocClient.get_output", 3),
    ]  # fmt: skip
    assert only_b == [
        ("SyncMPClient.__init__", 1), ("EngineCoreProc.__init__", 1), ("SyncMPClient.add_request", 2),
        ("MsgpackEncoder.encode", 5), ("MsgpackDecoder.decode", 5), ("SyncMPClient.get_output", 3),
    ]  # fmt: skip


def test_an_inherited_method_is_one_call():
    """The same code in another class or process counts as the same call, made elsewhere."""
    found = compare(run_of(), run_of(multiprocess=True))
    [step] = [pair for pair in found.calls if pair.method == "step_fn"]
    assert (step.lifeline, step.lifeline_b, step.owner) == ("EngineCore", "EngineCoreProc", "EngineCore")
    assert (step.threads_a, step.threads_b, step.moved) == (("main",), ("EngineCore_0",), True)
    assert (step.a, step.b) == (3, 3)


def test_one_function_of_two_classes_is_not_guessed_at():
    """If two classes of one run have the code, neither is matched with the other run's."""
    one, two = Recorder(), Recorder()
    facts: dict[str, Any] = {"code.function.name": "layers.Linear.forward"}
    one.call("QKV.forward", **facts)
    two.call("Gate.forward", **facts)
    two.call("Up.forward", **facts)
    found = compare(one.trace(), two.trace())
    assert [(pair.name, pair.a, pair.b) for pair in found.calls] == [
        ("QKV.forward", 1, 0), ("Gate.forward", 0, 1), ("Up.forward", 0, 1),
    ]  # fmt: skip
    assert not any(pair.a and pair.b for pair in compare(two.trace(), one.trace()).calls)


def test_requests_with_other_names_are_matched_in_their_order():
    """Requests with different random names are matched in their order."""
    found = compare(run_of(), run_of(ids="cmpl-{}-x"))
    assert [(pair.number, pair.a.id, pair.b.id) for pair in found.requests if pair.a and pair.b] == [
        (0, "0", "cmpl-0-x"), (1, "1", "cmpl-1-x"),
    ]  # fmt: skip
    assert not found.different_steps


def test_requests_with_the_same_names_are_matched_by_them():
    """Requests with the same names are matched by name, even if submitted in another order."""
    other = run_of()
    first, second = [span for span in other.spans if span.name == "llm_request"]
    first.start_ns, second.start_ns = second.start_ns, first.start_ns
    found = compare(run_of(), Trace(other.spans, other.processes))
    assert not found.different_steps
    assert all(pair.a and pair.b and pair.a.id == pair.b.id for pair in found.requests)


def test_concurrent_requests_of_a_server_are_matched_by_what_they_ask():
    """Requests with new ids are matched by prompt and parameters, then by prompt, then in their order."""
    asked = [([1], ["seed=1"]), ([1], ["seed=2"]), ([2], []), ([3], ["top_k=4"]), ([4], [])]
    arrived = [([5], []), ([3], []), ([2], []), ([1], ["seed=2"]), ([1], ["seed=1"]), ([6], [])]

    def server(ids: str, requests: list[tuple[list[int], list[str]]]) -> Trace:
        trace = run_of(ids=ids, requests=len(requests))
        for span, (prompt, params) in zip(trace.named(names.REQUEST_SPAN), requests, strict=True):
            span.attributes |= {names.REQUEST_PROMPT_TOKENS: prompt, names.REQUEST_PARAMS: params}
        return trace

    found = compare(server("a-{}", asked), server("b-{}", arrived)).requests
    assert [(pair.a and pair.a.id, pair.b and pair.b.id) for pair in found] == [
        ("a-0", "b-4"), ("a-1", "b-3"), ("a-2", "b-2"), ("a-3", "b-1"), ("a-4", "b-0"), (None, "b-5"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "facets"),
    [
        ({"tokens": [100, 7, 102]}, [(2, ("sampled",))]),
        ({"blocks": 4}, [(1, ("blocks",))]),
        ({"steps": 2, "tokens": [100, 101]}, [(3, ("kind", "requests", "tokens", "blocks", "sampled"))]),
        ({"requests": 1}, [(at, ("requests", "tokens", "blocks", "sampled")) for at in (1,)]),
    ],
    ids=["a token", "blocks", "fewer steps", "fewer requests"],
)
def test_what_differs_in_a_step(changed: dict, facets: list):
    """Each difference of a step is reported by name, at that step."""
    found = compare(run_of(), run_of(**changed)).different_steps
    assert [(pair.position, pair.differs) for pair in found][: len(facets)] == facets


def test_other_tokens_are_another_output():
    """Different tokens are a different output even with equal text and length; the prompt is the same."""
    pair = compare(run_of(), run_of(tokens=[100, 7, 102])).requests[0]
    assert (pair.same_output, pair.same_prompt) == (False, True)


def test_tokens_after_a_stop_string_are_no_output():
    """Tokens that the engine core sampled before the abort of a stop string reached it are not compared."""
    runs = run_of(steps=3, tokens=[1, 2, 3]), run_of(steps=3, tokens=[1, 2, 4])
    for trace in runs:
        for span in trace.named(names.REQUEST_SPAN):
            span.attributes |= {names.GEN_AI_OUTPUT_TOKENS: 2, names.REQUEST_STOPPED_BY: "stop_string"}
    assert all(pair.same_output for pair in compare(*runs).requests)


def test_what_was_not_recorded_is_not_said_to_be_the_same():
    """Without recorded text, prompts and tokens are unknown, and only counts and ends are compared."""
    found = compare(run_of(), run_of(text=False))
    assert not found.different_steps
    assert [(pair.same_output, pair.same_prompt) for pair in found.requests] == [(None, None)] * 2
    assert compare(run_of(), run_of(text=False, steps=2)).requests[0].same_output is False


def test_messages_by_type():
    """Messages have count, bytes and transit times by type; a run in one process has none."""
    one, two = compare(run_of(), run_of(multiprocess=True)).boundaries
    assert (one.types, one.all.count, one.all.bytes, one.all.whole.total_ns) == ((), 0, 0, 0)
    assert [(tally.type, tally.count, tally.bytes) for tally in two.types] == [("ADD", 2, 600), ("OUTPUTS", 3, 360)]
    assert (two.all.encode.median_ns, two.all.way.median_ns, two.all.decode.median_ns) == (4000, 30_000, 6000)
    assert two.all.whole.total_ns == 5 * 40_000


def test_a_message_that_nobody_received_is_counted():
    """A message without a receive is counted, without a transit time."""
    made = Recorder()
    made.message("ADD 0", 300, True)
    made.spans.pop()
    tally = compare(made.trace(), made.trace()).boundaries[0].all
    assert (tally.count, tally.unreceived, tally.way.total_ns, tally.encode.total_ns) == (1, 1, 0, 4000)


def test_times():
    """Times are split into start-up, steps, between steps, and with requests; time between batches is in neither."""
    times = compare(run_of(), Trace([])).times
    assert times[0].startup_ns == 2_000_000
    assert (times[0].steps.median_ns, times[0].between.median_ns) == (1_000_000, 30_000)
    assert times[0].requests_ns == 2 * 20_000 + 3 * 1_030_000
    assert times[1].steps.total_ns == times[1].requests_ns == times[1].startup_ns == 0


def test_idle_time_is_not_between_steps():
    """Time from a batch's last step to the next batch's first is not between steps."""
    made = Recorder()
    for batch in range(2):
        life = made.span("llm_request", made.now, 0)
        life.attributes["tracellm.request.id"] = str(batch)
        for _ in range(2):
            made.call("EngineCore.step_fn", 100).attributes["tracellm.step.requests"] = [str(batch)]
            made.now += 7
        life.end_ns = made.now * 1000
        made.now += 5000
    between = compare(made.trace(), Trace([])).times[0].between
    assert (between.median_ns, between.most_ns) == (7000, 7000)


@pytest.mark.parametrize("other", [Trace([]), run_of(steps=0)], ids=["empty", "no step"])
def test_nothing_to_compare_is_no_error(other: Trace):
    """An empty trace, or one without steps, can be compared either way."""
    for pair in ((run_of(), other), (other, run_of()), (other, other)):
        found = compare(*pair)
        assert found.num_steps == tuple(
            len([span for span in trace.spans if span.method == "step_fn"]) for trace in pair
        )


def test_steps_without_requests_are_set_aside():
    """A step without scheduled requests is counted, but not compared."""
    other = run_of()
    [*_, last] = [span for span in other.spans if span.method == "step_fn"]
    made = Recorder()
    made.now = last.end_ns // 1000 + 500
    empty = made.call("EngineCore.step_fn", 7)
    found = compare(run_of(), Trace([*other.spans, empty], other.processes))
    assert (found.num_steps, found.empty_steps, found.different_steps) == ((3, 3), (0, 1), [])
    assert found.times[1].steps.median_ns == 1_000_000
