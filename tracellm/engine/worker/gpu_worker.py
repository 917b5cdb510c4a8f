"""The worker: one device, the model on it, and the memory that is left for the KV cache.

"GPU" is vLLM's name: on a machine without CUDA this worker runs on the CPU (there CPUWorker, a subclass, does).
The older documents call it GPUWorker. vLLM: vllm/v1/worker/gpu_worker.py::Worker. Left out: distributed
initialization, LoRA, sleeping, profiling, warm-up.
"""

import torch

from tracellm.engine.config import VllmConfig
from tracellm.engine.errors import EngineError
from tracellm.engine.kv_cache.kv_cache_interface import FullAttentionSpec, KVCacheConfig
from tracellm.engine.model_runner_output import ModelRunnerOutput
from tracellm.engine.sched.output import SchedulerOutput
from tracellm.engine.worker import memory
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

__all__ = ["Worker"]


class Worker:
    """Owns the device and its `GPUModelRunner`."""

    model_runner: GPUModelRunner

    def __init__(self, vllm_config: VllmConfig) -> None:
        self.vllm_config = vllm_config
        self.device = vllm_config.device_config.device

    def init_device(self) -> None:
        """Take the device, and make the model runner for it.

        Raises:
            EngineError: the memory cannot hold the inputs of the largest possible step.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        try:
            self.model_runner = GPUModelRunner(self.vllm_config, self.device)
        except (MemoryError, RuntimeError) as error:  # NumPy's, PyTorch's
            if "allocate" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
                raise
            step = self.vllm_config.scheduler_config
            raise EngineError(
                f"There is no memory for the inputs of a step of max_num_batched_tokens={step.max_num_batched_tokens} "
                f"and max_num_seqs={step.max_num_seqs} (max_model_len={step.max_model_len}): lower them."
            ) from error

    def load_model(self) -> None:
        """See `GPUModelRunner.load_model`."""
        self.model_runner.load_model()

    def get_kv_cache_spec(self) -> dict[str, FullAttentionSpec]:
        """See `GPUModelRunner.get_kv_cache_spec`."""
        return self.model_runner.get_kv_cache_spec()

    def determine_available_memory(self) -> int:
        """How many bytes the KV cache may take.

        On CUDA: the share `gpu_memory_utilization` of the device's memory, less what the weights take and what a trial
        run of the largest possible step takes at its peak. On the CPU see `memory.cpu_kv_cache_bytes`.

        Raises:
            EngineError: the memory does not suffice for the model itself, or a setting is not a number.
        """
        if self.device.type == "cuda":
            return memory.profile_cuda(
                self.model_runner, self.device, self.vllm_config.cache_config.gpu_memory_utilization
            )
        return memory.cpu_kv_cache_bytes(self.vllm_config, self.get_kv_cache_spec())

    def initialize_cache(self, num_gpu_blocks: int, num_cpu_blocks: int) -> None:
        """Note the number of KV blocks in the configuration; there are none on the CPU beside a GPU."""
        self.vllm_config.cache_config.num_gpu_blocks = num_gpu_blocks

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """See `GPUModelRunner.initialize_kv_cache`."""
        self.model_runner.initialize_kv_cache(kv_cache_config)

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput:
        """See `GPUModelRunner.execute_model`."""
        return self.model_runner.execute_model(scheduler_output)
