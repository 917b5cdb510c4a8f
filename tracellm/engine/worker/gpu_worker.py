"""The worker: one device, the model on it, and the memory left for the KV cache.

"GPU" is vLLM's name. Without CUDA this worker runs on the CPU; vLLM has a subclass for that, CPUWorker.

vLLM: vllm/v1/worker/gpu_worker.py::Worker, called GPUWorker in older documents. Left out: distributed
initialization, LoRA, sleeping, profiling, warm-up.
"""

import torch

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig
from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
from tracellm.engine.worker import memory
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, ModelRunnerOutput

__all__ = ["Worker"]


class Worker:
    """Owns the device and its `GPUModelRunner`; used by the executor through `WorkerWrapperBase`."""

    model_runner: GPUModelRunner

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.vllm_config = vllm_config
        self.device = vllm_config.device_config.device

    def init_device(self) -> None:
        """Select the device, and make the model runner for it.

        Raises:
            EngineError: the memory cannot hold the inputs of the largest possible step.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        with memory.explain_out_of_memory(self.vllm_config.scheduler_config):
            self.model_runner = GPUModelRunner(self.vllm_config, self.device)

    def load_model(self) -> None:
        """See `GPUModelRunner.load_model`."""
        self.model_runner.load_model()

    def get_kv_cache_spec(self) -> dict[str, AttentionSpec]:
        """See `GPUModelRunner.get_kv_cache_spec`."""
        return self.model_runner.get_kv_cache_spec()

    def determine_available_memory(self) -> int:
        """Return the KV cache's size limit in bytes: `kv_cache_memory_bytes` if it is set.

        Otherwise, on CUDA: the share `gpu_memory_utilization` of the device's memory, minus the peak memory of weights
        and a dummy run of the largest possible step. On the CPU: see `memory.cpu_kv_cache_bytes`.

        Raises:
            EngineError: the memory does not suffice for the model itself, or a setting is not a number.
        """
        if (num_bytes := self.vllm_config.cache_config.kv_cache_memory_bytes) is not None:
            return memory.requested_kv_cache_bytes(num_bytes, self.device)
        if self.device.type == "cuda":
            return memory.profile_cuda(
                self.model_runner, self.device, self.vllm_config.cache_config.gpu_memory_utilization
            )
        return memory.cpu_kv_cache_bytes(self.vllm_config, self.get_kv_cache_spec())

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        """Set the number of KV cache blocks in the configuration; `num_cpu_blocks` is unused: there is no swapping."""
        self.vllm_config.cache_config.num_gpu_blocks = num_gpu_blocks

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """Make the KV cache and capture CUDA graphs; in vLLM the latter is an RPC of its own."""
        self.model_runner.initialize_kv_cache(kv_cache_config)
        self.model_runner.capture_model()

    def prefault_kv_cache(self) -> None:
        """See `GPUModelRunner.prefault_kv_cache`."""
        self.model_runner.prefault_kv_cache()

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """See `GPUModelRunner.execute_model`."""
        return self.model_runner.execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | AsyncModelRunnerOutput:
        """See `GPUModelRunner.sample_tokens`."""
        return self.model_runner.sample_tokens(grammar_output)
