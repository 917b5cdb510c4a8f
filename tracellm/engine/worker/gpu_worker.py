"""The worker: one device, the model on it, and the memory left for the KV cache.

"GPU" is vLLM's name. Without CUDA this worker runs on the CPU; vLLM has a subclass for that, CPUWorker.

vLLM: vllm/v1/worker/gpu_worker.py::Worker, called GPUWorker in older documents. Left out: LoRA, sleeping, profiling,
warm-up.
"""

from dataclasses import replace

import torch

from tracellm.engine.config.vllm_config import DeviceConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig
from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
from tracellm.engine.distributed.parallel_state import (
    get_pp_group,
    init_distributed_environment,
    initialize_model_parallel,
)
from tracellm.engine.model_executor.models.utils import IntermediateTensors
from tracellm.engine.worker import memory
from tracellm.engine.worker.gpu_model_runner import GPUModelRunner
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, ModelRunnerOutput

__all__ = ["Worker"]


class Worker:
    """Owns the device and its `GPUModelRunner`; used by the executor through `WorkerWrapperBase`."""

    model_runner: GPUModelRunner

    def __init__(
        self, vllm_config: VllmConfig, local_rank: int = 0, rank: int = 0, distributed_init_method: str = ""
    ) -> None:
        """Store the configuration.

        Args:
            vllm_config: the engine's.
            local_rank: index among the engine core's workers on this machine. The attribute, the index of the GPU, also
                counts the workers of the engine cores before it.
            rank: index among all workers.
            distributed_init_method: where several workers meet; see `init_distributed_environment`.
        """
        parallel = vllm_config.parallel_config
        if parallel.distributed_executor_backend != "ray":  # Ray gives each worker a GPU
            local_rank += parallel.data_parallel_rank * parallel.world_size
        self.local_rank = local_rank
        self.rank = rank
        self.distributed_init_method = distributed_init_method
        if local_rank and vllm_config.device_config.device.type == "cuda":
            vllm_config = replace(vllm_config, device_config=DeviceConfig(torch.device("cuda", local_rank)))
        self.vllm_config = vllm_config
        self.device = vllm_config.device_config.device

    def init_device(self) -> None:
        """Select the device, join the other workers, and make the model runner.

        Raises:
            EngineError: the memory cannot hold the inputs of the largest possible step.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if (world_size := self.vllm_config.parallel_config.world_size) > 1:
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            init_distributed_environment(world_size, self.rank, self.distributed_init_method, backend)
            initialize_model_parallel(self.vllm_config.parallel_config.tensor_parallel_size, self.device)
        with memory.explain_large_steps(self.vllm_config.scheduler_config):
            self.model_runner = GPUModelRunner(self.vllm_config, self.device)

    def load_model(self) -> None:
        """See `GPUModelRunner.load_model`.

        Raises:
            EngineError: the memory cannot hold the weights.
        """
        remedy = "end other programs, use a smaller `dtype`, or raise `tensor_parallel_size` on more GPUs or machines"
        with memory.explain_out_of_memory("the weights", remedy):
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
        """Compute one step between the pipeline's neighbours; see `GPUModelRunner.execute_model`.

        Returns:
            None if `sample_tokens` must follow, or the output of a step that does not sample.

        Raises:
            EngineError: the memory cannot hold the step's activations.
        """
        received, pp_group = None, get_pp_group()
        if scheduler_output.total_num_scheduled_tokens and not pp_group.is_first_rank:
            received = IntermediateTensors(pp_group.recv_tensor_dict())
        purpose = f"a step of {scheduler_output.total_num_scheduled_tokens} tokens"
        with memory.explain_out_of_memory(purpose, "lower `max_num_batched_tokens` or end other programs"):
            output = self.model_runner.execute_model(scheduler_output, received)
        if isinstance(output, IntermediateTensors):
            pp_group.send_tensor_dict(output.tensors)
            return None
        return output

    def execute_dummy_batch(self) -> None:
        """Compute a token that belongs to no request, while another engine core has requests."""
        self.model_runner._dummy_run(1)

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput | AsyncModelRunnerOutput | None:
        """See `GPUModelRunner.sample_tokens`."""
        with memory.explain_out_of_memory("sampling", "lower `max_num_seqs` or end other programs"):
            return self.model_runner.sample_tokens(grammar_output)
