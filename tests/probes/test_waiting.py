"""A long waiting queue is recorded as its first requests by name and a count."""

from types import SimpleNamespace
from typing import Any

from tests.report.traces import Calls
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason
from tracellm.probes.catalog.engine import step as catalog
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.clock import Ids
from tracellm.report.wording.changes import changes
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import Step, steps

LIMIT = NotScheduledReason.max_num_seqs(1, 1)


def schedule_of(waiting: int) -> Any:
    """Return the schedule of a step with one running request and `waiting` others."""
    ids = [f"w{i}" for i in range(waiting)]
    none: Any = SimpleNamespace(
        req_ids=[], num_computed_tokens=[], new_block_ids=[], num_output_tokens=[], resumed_req_ids=[]
    )
    pool = SimpleNamespace(free_block_queue=SimpleNamespace(num_free_blocks=3), num_gpu_blocks=5)
    manager = SimpleNamespace(block_pool=pool, coordinator=SimpleNamespace(block_size=16))
    scheduler = SimpleNamespace(
        running=[SimpleNamespace(request_id="r")],
        waiting=[SimpleNamespace(request_id=one) for one in ids],
        requests={},
        kv_cache_manager=manager,
        max_num_scheduled_tokens=16,
        max_num_encoder_input_tokens=0,
    )
    output = SimpleNamespace(
        num_scheduled_tokens={"r": 16},
        scheduled_new_reqs=[SimpleNamespace(req_id="r", num_computed_tokens=0, block_ids=[[1]])],
        scheduled_cached_reqs=none,
        not_scheduled={},
        cut_short={"r": CutShort.token_budget(16, 40, 16)},
        waiting_reason=LIMIT,
        finished_req_ids=set(),
    )
    return catalog.give_schedule(catalog.capture_schedule((scheduler,), {}, output))["scheduled"]


def step_of(facts: Any, tracker: RequestTracker | None = None) -> Step:
    """Return the step whose span is completed with these facts."""
    span = Span(catalog.STEP, "0" * 32, "0" * 16, None, 0, 1)
    catalog.complete_step(tracker or RequestTracker(Ids.counting()), span, (None, True), {"scheduled": facts})
    calls = Calls()
    calls.leaf(catalog.STEP, **span.attributes)
    [step] = steps(calls.trace())
    return step


def test_a_short_queue_is_told_whole() -> None:
    """A queue within the limit is listed whole, without a count."""
    step = step_of(schedule_of(catalog.MAX_LISTED))
    assert len(step.waiting) == step.num_waiting == catalog.MAX_LISTED
    assert names.STEP_NUM_WAITING not in step.span.attributes
    assert len(step.held) == catalog.MAX_LISTED + 1


def test_of_a_long_queue_the_beginning_is_told() -> None:
    """A longer queue is listed up to the limit, and the report counts the rest."""
    step = step_of(schedule_of(5000))
    assert step.waiting == tuple(f"w{i}" for i in range(catalog.MAX_LISTED))
    assert step.num_waiting == 5000
    assert [one.request_id for one in step.held] == ["r", *step.waiting]
    [held] = [line for line in changes(step, "en") if "w0" in line]
    assert "w0, w1, w2, w3, w4, w5 and 4,994 more" in held or "w0, w1, w2, w3, w4, w5 and 4994 more" in held


def test_who_is_aborted_far_behind_is_told() -> None:
    """A request aborted far behind in the queue is recorded as aborted."""
    tracker = RequestTracker(Ids.counting())
    tracker.arrived("w4000")
    step_of(schedule_of(5000), tracker)
    after = {**schedule_of(10), "released": ["unknown", "w4000"]}
    assert step_of(after, tracker).aborted == ("w4000",)


def test_steps_of_outputs_that_are_never_sent_are_forgotten() -> None:
    """The tracker remembers a bounded number of outputs that are never sent."""
    tracker = RequestTracker(Ids.counting())
    for step in range(1, 6001):
        tracker.steps = step
        tracker.made_outputs([step + 0.5])
    assert tracker.step_of("OUTPUTS 0 1.5") is None
    assert tracker.step_of("OUTPUTS 0 6000.5") == 6000
    assert len(tracker._output_steps) < 5000
