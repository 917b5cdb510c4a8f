"""One of several engine cores (data parallelism), which step together and stop together.

Each has a copy of the model and requests of its own. In a model with experts on several engine cores each step needs
all of them, so they run in *waves*: while any has a request, all make steps, and one without requests computes a token
that belongs to none. Every 32 steps they agree, by an all-reduce, whether any has a request left; if not, the wave
ends. The coordinator (ipc/coordinator.py) starts the next one.

No model of tracellm has experts, and could do without waves. vLLM 0.11.1 has them for all models, later versions for
those with experts.

vLLM: vllm/v1/engine/core.py::DPEngineCoreProc. Difference: an engine core that waits for the others can be ended.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.core_proc import EngineCoreProc
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType
from tracellm.engine.metrics.stats import SchedulerStats

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import ParallelConfig, VllmConfig
    from tracellm.engine.core.request import Request

__all__ = ["DPEngineCoreProc", "stateless_init_dp_group"]

_SYNC_INTERVAL = 32
"""Steps between all-reduces, as in vLLM 0.11.1."""
_GROUP_TIMEOUT = timedelta(days=1)
"""Longest wait for another engine core, whose step may take long."""
_POLL_INTERVAL = 0.0005
"""Seconds between checks whether an all-reduce has ended."""
_END_TIMEOUT = 2.0
"""Seconds in which the client ends this engine core, and reports the end of another one that broke the group."""


class DPEngineCoreProc(EngineCoreProc):
    """An engine core that steps together with others.

    Attributes:
        step_counter: steps of the current wave.
        current_wave: number of the current wave, or of the next one.
        engines_running: whether a wave is running.
    """

    dp_group: dist.ProcessGroup

    def _init_data_parallel(self, vllm_config: VllmConfig) -> None:
        self.step_counter = self.current_wave = 0
        self.engines_running = False
        self.last_counts = (0, 0)
        self.request_waves: dict[str, int] = {}
        """Waves of the requests in the input queue, by id."""
        self.dp_rank = vllm_config.parallel_config.data_parallel_rank
        self.dp_group = stateless_init_dp_group(vllm_config.parallel_config)

    def preprocess_add_request(self, request: EngineCoreRequest) -> Request:
        """See `EngineCore.preprocess_add_request`. Keep the wave in which the client sent the request."""
        self.request_waves[request.request_id] = request.current_wave
        return super().preprocess_add_request(request)

    def add_request(self, request: Request) -> None:
        """Add a request; one that was sent in an earlier wave makes the coordinator start the next."""
        request_wave = self.request_waves.pop(request.request_id, self.current_wave)
        if request_wave > self.current_wave:
            self.current_wave = request_wave
        elif request_wave < self.current_wave and not self.engines_running:
            self.output_queue.put_nowait((-1, EngineCoreOutputs(start_wave=self.current_wave)))
        self.engines_running = True  # also for a request that is aborted before its first step; vLLM forgets that
        super().add_request(request)

    def _handle_client_request(self, request_type: EngineCoreRequestType, request: Any) -> None:
        if request_type is not EngineCoreRequestType.START_DP_WAVE:
            return super()._handle_client_request(request_type, request)
        new_wave, exclude_engine_index = request
        if exclude_engine_index != self.dp_rank and new_wave >= self.current_wave:
            self.current_wave = new_wave
            self.engines_running = True

    def has_work(self) -> bool:
        """Return whether a step has anything to do, for this engine core or for others."""
        return self.engines_running or super().has_work()

    def run_busy_loop(self) -> None:
        """Handle input and run a step, repeatedly, in step with the other engine cores."""
        while True:
            self._process_input_queue()
            executed = EngineCore.has_work(self) and self._process_engine_step()
            self._maybe_publish_request_counts()
            local_unfinished_reqs = self.scheduler.has_unfinished_requests()
            if not executed:
                if not local_unfinished_reqs and not self.engines_running:
                    continue  # an abort was handled
                self.execute_dummy_batch()
            self.engines_running = self._has_global_unfinished_reqs(local_unfinished_reqs)
            if not self.engines_running:
                self._end_wave()

    def execute_dummy_batch(self) -> None:
        """Compute a token that belongs to no request, because other engine cores are computing."""
        self.model_executor.collective_rpc("execute_dummy_batch")

    def _end_wave(self) -> None:
        if self.dp_rank == 0:
            self.output_queue.put_nowait((-1, EngineCoreOutputs(wave_complete=self.current_wave)))
        self.current_wave += 1
        self.step_counter = 0

    def _maybe_publish_request_counts(self) -> None:
        """Send the numbers of running and waiting requests to the coordinator, if they have changed."""
        if (counts := self.scheduler.get_request_counts()) != self.last_counts:
            self.last_counts = counts
            stats = SchedulerStats(*counts, step_counter=self.step_counter, current_wave=self.current_wave)
            self.output_queue.put_nowait((-1, EngineCoreOutputs(scheduler_stats=stats)))

    def _has_global_unfinished_reqs(self, local_unfinished: bool) -> bool:
        """Count a step; return whether the wave goes on. In every 32nd step the engine cores agree about that."""
        self.step_counter += 1
        if self.step_counter % _SYNC_INTERVAL:
            return True
        return self._agree(local_unfinished)

    def _agree(self, local_unfinished: bool) -> bool:
        """Wait for the other engine cores, and return whether any has an unfinished request.

        Raises:
            RuntimeError: another one has ended, and the client has not ended this one.
            SystemExit: SIGTERM was received.
        """
        unfinished = torch.tensor([local_unfinished], dtype=torch.int32)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(dist.ReduceOp.MAX)
        try:
            work = self.dp_group.allreduce([unfinished], options)
            while not work.is_completed():
                self._sleep()
            work.wait()
        except RuntimeError:
            deadline = time.monotonic() + _END_TIMEOUT
            while time.monotonic() < deadline:
                self._sleep()
            raise
        return bool(unfinished.item())

    def _sleep(self) -> None:
        time.sleep(_POLL_INTERVAL)
        if self.shutdown_requested:
            raise SystemExit(0)


def stateless_init_dp_group(parallel_config: ParallelConfig) -> dist.ProcessGroup:
    """Join the group of the engine cores, which is not PyTorch's default group; waits until all have.

    vLLM: vllm/config/parallel.py::ParallelConfig.stateless_init_dp_group.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    rank, size = parallel_config.data_parallel_rank, parallel_config.data_parallel_size
    store, _, _ = next(rendezvous(parallel_config.data_parallel_init_method, rank, size))
    return cast("dist.ProcessGroup", dist.ProcessGroupGloo(store, rank, size, _GROUP_TIMEOUT))
