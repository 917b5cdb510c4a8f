"""Times of a step's parts, and of the front end's work on its outputs."""

from typing import Any

import pytest

from tests.report.processes import served, sync_run
from tests.report.traces import Calls
from tracellm.report.facts.recording_time import recording_by_step
from tracellm.report.facts.steps.parts import output_times, parts_by_step
from tracellm.trace import names
from tracellm.trace.model import Trace


def _run(steps: int) -> Trace:
    """Return a run in which each step has all parts, and its outputs are processed after it, in the same process."""
    calls = Calls()
    for _ in range(steps):
        with calls("LLMEngine.step", "request"):
            with calls("EngineCore.step_fn"):
                calls.leaf("Scheduler.schedule")
                with calls("GPUModelRunner.execute_model"):
                    calls.leaf("GPUModelRunner._update_states")
                    calls.leaf("GPUModelRunner._prepare_inputs")
                    calls.leaf("GPUModelRunner._model_forward")
                    calls.leaf("Qwen2ForCausalLM.compute_logits")
                    calls.leaf("GPUModelRunner._sample")
                calls.leaf("Scheduler.update_from_output")
            with calls("OutputProcessor.process_outputs"):
                calls.leaf("FastIncrementalDetokenizer.update")
    return calls.trace()


def test_the_parts_of_a_step_are_in_order():
    """Each part has the time of its calls: the inputs that of two, and the logits their own beside the forward pass."""
    assert (
        list(parts_by_step(_run(2)).values())
        == [{"schedule": 1000, "prepare": 2000, "forward": 1000, "logits": 1000, "sample": 1000, "process": 1000}] * 2
    )


def test_outputs_in_the_same_process_belong_to_the_step_before():
    """Each step has the time of the call that processed its outputs; the last one has none, if it never came."""
    trace = _run(3)
    assert [output_times(trace)[span.span_id] for span in trace.named("EngineCore.step_fn")] == [3000] * 3
    cut = Trace(trace.spans[:-2])
    assert len(output_times(cut)) == 2


@pytest.mark.parametrize("trace", [sync_run(3, 5), served(2, 5)], ids=["LLM", "server"])
def test_outputs_in_another_process_are_found_by_their_message(trace: Trace):
    """With the engine core in its own process, each batch of outputs belongs to one step that ended before."""
    found = output_times(trace)
    assert len(found) == len(trace.named("OutputProcessor.process_outputs"))
    assert all(trace.by_id[id].name == "EngineCore.step_fn" for id in found)


def test_a_part_is_without_the_recording_in_its_calls():
    """The recording's time in a part, also that in calls within it, is not the part's: parts and recording add up."""
    calls = Calls()
    outer: dict[str, Any] = {names.RECORDING_DURATION: 200}
    inner: dict[str, Any] = {names.RECORDING_DURATION: 300}
    with calls("EngineCore.step_fn") as step:
        with calls("GPUModelRunner._sample", **outer):
            calls.leaf("Sampler.forward", **inner)
        calls.leaf("Scheduler.schedule")
    trace = calls.trace()
    (parts,) = parts_by_step(trace).values()
    assert parts == {"schedule": 1000, "sample": 3000 - 500}
    assert sum(parts.values()) + recording_by_step(trace)[step.span_id] <= step.duration_ns
