"""Tests that a replayed decode step needs nothing from the host: the captured launches give the right tokens.

The interpreter has no graphs. The captured calls are repeated instead, with the plan and the arguments of the capture.
tests/engine/worker/test_cudagraphs.py has the tests on a GPU.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.engine.worker.driver import Driver, make_config, runner_of, start_executor
from tests.engine.worker.test_gpu_model_runner import job
from tracellm.engine.config.vllm_config import OpsChoice
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.worker import cudagraphs
from tracellm.engine.worker.cudagraphs import CudaGraphs, make_decode_forward
from tracellm.probes.catalog.engine.runner import ENTRIES
from tracellm.trace import names

pytest.importorskip("triton")

from tracellm.engine.attention.backends import triton_attn


class Again(CudaGraphs):
    """Graph whose replay repeats the captured calls."""

    replayed: list[int]

    def capture(self, make_forward: Callable[[int], Callable[[], Tensor]]) -> None:
        """Capture the graphs, the largest first, as on a GPU."""
        self.replayed = []
        self.forwards = {size: make_forward(size) for size in reversed(self.sizes)}
        for forward in self.forwards.values():
            forward()

    def replay(self, size: int) -> Tensor:
        """Repeat the captured launches with the current contents of the buffers."""
        self.replayed.append(size)
        return self.forwards[size]()


def watch(runner: Any) -> list[dict[str, Any]]:
    """Return a list to which every step appends what the probe of its inputs records."""
    (entry,) = (entry for entry in ENTRIES if entry.target.endswith("._prepare_inputs"))
    assert entry.attributes is not None
    assert entry.capture is not None
    prepare, capture, attributes = runner._prepare_inputs, entry.capture, entry.attributes
    step_attributes: list[Any] = []

    def prepare_inputs(scheduler_output: SchedulerOutput) -> Any:
        inputs = prepare(scheduler_output)
        step_attributes.append(attributes(capture((runner, scheduler_output), {}, inputs)))
        return inputs

    runner._prepare_inputs = prepare_inputs
    return step_attributes


def test_a_replayed_step_gives_the_tokens_of_an_eager_one(
    qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replayed steps give the greedy tokens of eager ones, for batches of 1 to 3 in graphs of 1, 2 and 4.

    Unowned blocks are full of NaN, and contexts are split into more parts than there were tokens at capture. A
    recording has each step's graph, its padding, and the reason.
    """
    monkeypatch.setattr(triton_attn, "PARTITION", 4)
    monkeypatch.setattr(cudagraphs, "_TUNED_LENGTH", 5)
    outputs = []
    for name in ("torch", "triton"):
        config = make_config(qwen2_checkpoint, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=32)
        config.ops_choice = OpsChoice(name, "argument")
        executor = start_executor(config, num_blocks=16)
        runner: Any = runner_of(executor)
        step_attributes = watch(runner)
        if name == "triton":
            runner.prefault_kv_cache()  # old contents may make NumPy warn
            runner.cudagraphs = Again([1, 2, 4])
            runner.cudagraphs.capture(partial(make_decode_forward, runner))
        driver = Driver(executor, num_blocks=16)
        jobs = [job(f"{i}-of-three", 3 + 2 * i, max_tokens=2 + i) for i in range(3)]
        driver.run(jobs, max_chunk=32, pause=0)
        outputs.append([each.output for each in jobs])
        if name == "triton":
            assert set(runner.cudagraphs.replayed) == {1, 2, 4}
            replayed = [one for one in step_attributes if names.CUDAGRAPH_SIZE in one]
            assert [one[names.CUDAGRAPH_SIZE] for one in replayed] == runner.cudagraphs.replayed
            assert {one[names.CUDAGRAPH_PADDING] for one in replayed} == {0, 1}
            assert {one[names.CUDAGRAPH_REASON] for one in step_attributes} == {"decode", "prompt"}
        else:
            assert not any(names.CUDAGRAPH_REASON in one for one in step_attributes)
    assert outputs[0] == outputs[1]
