"""Tests of a request's times, from the scheduler's events to `RequestOutput.metrics`."""

import time

import pytest

from tests.engine.sched.harness import make_request, make_scheduler, run_step
from tracellm import LLM, SamplingParams
from tracellm.engine.ipc.messages import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, FinishReason
from tracellm.engine.metrics.stats import IterationStats, RequestStateStats

QUEUED, SCHEDULED, PREEMPTED = EngineCoreEventType


def events_by_step(log_stats: bool) -> list[dict[str, list[EngineCoreEventType] | None]]:
    """Run two requests, one of which is preempted; return the events of each output, by step."""
    scheduler = make_scheduler(num_gpu_blocks=4, block_size=4, max_model_len=12, enable_prefix_caching=False)
    scheduler.log_stats = log_stats
    for name in "ab":
        scheduler.add_request(make_request(name, 4, max_tokens=8, block_size=None))
    steps = []
    while scheduler.has_unfinished_requests():
        _, outputs = run_step(scheduler)
        steps.append(
            {
                output.request_id: None if output.events is None else [event.type for event in output.events]
                for output in (outputs[0].outputs if outputs else ())
            }
        )
    return steps


def test_events_come_with_the_next_token():
    """Events come with the next token: queued and scheduled with the first, preempted with a later one."""
    steps = events_by_step(log_stats=True)
    assert steps[0] == {"a": [QUEUED, SCHEDULED], "b": [QUEUED, SCHEDULED]}
    assert [step["a"] for step in steps[1:] if "a" in step] == [None] * 7
    later = [step["b"] for step in steps[1:] if step.get("b")]
    assert later == [[PREEMPTED, SCHEDULED]]


def test_nothing_is_noted_when_nobody_keeps_statistics():
    """Without statistics no output has events."""
    assert {events and tuple(events) for step in events_by_step(False) for events in step.values()} == {None}


def test_events_have_the_schedulers_time():
    """A request is queued when it is added and scheduled when the step begins, on the monotonic clock."""
    scheduler = make_scheduler()
    scheduler.log_stats = True
    times = [time.monotonic()]
    scheduler.add_request(make_request("a", 4))
    times.append(time.monotonic())
    _, outputs = run_step(scheduler)
    events = outputs[0].outputs[0].events
    assert events is not None
    queued, scheduled = events
    assert times[0] <= queued.timestamp <= times[1] <= scheduled.timestamp <= outputs[0].timestamp


def test_the_times_between():
    """Queue, prefill, decode and inference times follow from events and step ends, and ignore a preemption."""
    stats, its = IterationStats(iteration_timestamp=107.0), RequestStateStats(arrival_time=100.0)
    events = [EngineCoreEvent(QUEUED, 10.0), EngineCoreEvent(SCHEDULED, 11.0)]
    stats.update_from_output(EngineCoreOutput("r", [1], events=events), 14.0, True, 5, its)
    again = [EngineCoreEvent(PREEMPTED, 15.0), EngineCoreEvent(SCHEDULED, 16.0)]
    stats.update_from_output(EngineCoreOutput("r", [2, 3], events=again), 22.0, False, 5, its)
    assert (its.queued_time, its.prefill_time, its.decode_time, its.inference_time) == (1.0, 3.0, 8.0, 11.0)
    assert (its.mean_time_per_output_token, its.first_token_latency) == (4.0, 7.0)
    assert (stats.num_prompt_tokens, stats.num_generation_tokens, stats.num_preempted_reqs) == (5, 3, 1)
    assert (stats.time_to_first_tokens_iter, stats.inter_token_latencies_iter) == ([7.0], [8.0])
    stats.update_from_finished_request(FinishReason.LENGTH, 5, 3, its)
    (finished,) = stats.finished_requests
    assert (finished.e2e_latency, finished.queued_time, finished.prefill_time) == (7.0, 1.0, 3.0)


def test_one_token_has_no_time_between_tokens():
    """The mean time per output token leaves out the first token, so it is 0 for one token."""
    its = RequestStateStats(num_generation_tokens=1, first_token_ts=3.0, last_token_ts=3.0)
    assert its.mean_time_per_output_token == 0.0


@pytest.mark.parametrize("num_blocks", [3, 40])
def test_metrics_of_a_real_run(qwen2_checkpoint, num_blocks):
    """With `disable_log_stats=False` every output has its times in order, even when requests wait for blocks."""
    llm = LLM(
        str(qwen2_checkpoint),
        dtype="float32",
        max_model_len=32,
        block_size=16,
        num_gpu_blocks_override=num_blocks,
        disable_log_stats=False,
    )
    before, monotonic = time.time(), time.monotonic()
    prompts = [{"prompt_token_ids": [n, n + 1, n + 2]} for n in range(3)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=20, ignore_eos=True), use_tqdm=False)
    after = time.time()
    of_each = [output.metrics for output in outputs if output.metrics is not None]
    assert len(of_each) == 3
    for metrics in of_each:
        assert before <= metrics.arrival_time <= after
        assert 0 < metrics.first_token_latency <= after - before
        moments = [metrics.queued_ts, metrics.scheduled_ts, metrics.first_token_ts, metrics.last_token_ts]
        assert monotonic < moments[0]
        assert moments == sorted(moments)
        assert moments[-1] <= time.monotonic()
        assert metrics.num_generation_tokens == 20
    first, last = of_each[0], of_each[-1]
    if num_blocks == 3:
        assert last.scheduled_ts > first.last_token_ts, "it waited for the first one's blocks"
    else:
        assert last.scheduled_ts == first.scheduled_ts, "they began in the same step"


def test_no_metrics_unless_asked_for(qwen2_checkpoint):
    """Without statistics `metrics` is None."""
    llm = LLM(str(qwen2_checkpoint), dtype="float32", max_model_len=32)
    (output,) = llm.generate("hello", SamplingParams(max_tokens=1), use_tqdm=False)
    assert output.metrics is None
