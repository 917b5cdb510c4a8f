"""Resolved settings of the engine, with all defaults filled in: plain data that every part of it reads.

`EngineArgs.create_engine_config` makes a `VllmConfig` once, at start-up. Afterwards only `EngineCore` changes it: it
sets the number of KV cache blocks in `CacheConfig` after measuring the memory.

vLLM: vllm/config/. Left out: LoRA, speculative decoding, quantization, compilation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tracellm.engine.config.hf_config import get_hf_text_config
from tracellm.engine.config.multimodal import MultiModalConfig
from tracellm.engine.config.pooler import PoolerConfig

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

__all__ = [
    "RECOMMENDED",
    "AsyncSchedulingReason",
    "CacheConfig",
    "DeviceConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "OpsChoice",
    "OpsReason",
    "ParallelConfig",
    "SchedulerConfig",
    "StructuredOutputsConfig",
    "VllmConfig",
]

RECOMMENDED = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
"""Sampling parameters that a generation_config.json can set."""


@dataclass
class ModelConfig:
    """Settings of the model; its sizes are in the checkpoint's config.json (`hf_config`)."""

    model: str
    """Directory of its files, or Hugging Face hub id."""
    tokenizer: str
    """Directory or hub id of the tokenizer."""
    served_model_name: str
    """Name as the user wrote it, such as `tiny`."""
    dtype: torch.dtype
    """Dtype of computation and KV cache."""
    seed: int
    max_model_len: int
    """Maximum number of tokens of prompt and output together."""
    hf_config: PretrainedConfig
    generation_config: str = "auto"
    """Source of the default sampling parameters: `auto` (the model), `vllm` (none), or a directory."""
    generation_config_fields: dict[str, Any] = field(default_factory=dict)
    """Contents of that generation_config.json; under `vllm` the model's, for its end-of-sequence tokens."""
    override_generation_config: dict[str, Any] = field(default_factory=dict)
    """Entries that replace the file's."""
    max_logprobs: int = 20
    """Maximum of a request's `logprobs` and `prompt_logprobs`; -1 is no limit."""
    logprobs_mode: str = "raw_logprobs"
    """`logprobs` or `logits`, `raw_` (before all processors) or `processed_` (as sampled from)."""
    skip_tokenizer_init: bool = False
    """Use no tokenizer: prompts are token ids, outputs have no text."""
    enforce_eager: bool = False
    """Capture no CUDA graphs; see worker/cudagraphs.py."""
    multimodal_config: MultiModalConfig | None = None
    """Settings of images and sounds; None for a text model."""
    max_tokens_per_mm_item: int = 0
    """Largest number of tokens of an image or a sound; 0 for a text model."""
    pooler_config: PoolerConfig | None = None
    """Settings of the pooler, complete but for `dimensions`; None for a model that generates."""

    @property
    def is_pooling_model(self) -> bool:
        """Whether the model returns vectors instead of new tokens."""
        return self.pooler_config is not None

    @property
    def runner_type(self) -> str:
        """Kind of the engine: `generate` or `pooling`."""
        return "pooling" if self.is_pooling_model else "generate"

    @property
    def truncation_side(self) -> str:
        """Side on which a text is cut to `truncate_prompt_tokens`: pooling keeps its beginning, as in vLLM."""
        return "right" if self.is_pooling_model else "left"

    @property
    def matryoshka_dimensions(self) -> list[int] | None:
        """Sizes for which the embeddings were trained to be cut; None is any, if `is_matryoshka`."""
        return getattr(self.hf_config, "matryoshka_dimensions", None)

    @property
    def is_matryoshka(self) -> bool:
        """True if the model was trained so that its embeddings can be cut."""
        return bool(self.matryoshka_dimensions or getattr(self.hf_config, "is_matryoshka", False))

    @property
    def hf_text_config(self) -> PretrainedConfig:
        """Part of config.json that describes the language model: `hf_config` itself for a text model."""
        return get_hf_text_config(self.hf_config)

    def get_vocab_size(self) -> int:
        """Return the number of rows of the embedding table; token ids are below it."""
        return self.hf_text_config.vocab_size

    def get_hidden_size(self) -> int:
        """Return the width of the hidden states."""
        return self.hf_text_config.hidden_size

    def get_num_layers(self) -> int:
        """Return the number of decoder layers."""
        return self.hf_text_config.num_hidden_layers

    def get_num_attention_heads(self) -> int:
        """Return the number of query heads per layer."""
        return self.hf_text_config.num_attention_heads

    def get_num_kv_heads(self) -> int:
        """Return the number of key and value heads per layer."""
        return getattr(self.hf_text_config, "num_key_value_heads", None) or self.get_num_attention_heads()

    def get_head_size(self) -> int:
        """Return the width of a head."""
        return (
            getattr(self.hf_text_config, "head_dim", None) or self.get_hidden_size() // self.get_num_attention_heads()
        )

    def try_get_generation_config(self) -> dict[str, Any]:
        """Return a copy of generation_config.json's contents; empty without the file."""
        return dict(self.generation_config_fields)

    def get_diff_sampling_param(self) -> dict[str, Any]:
        """Return the recommended sampling parameters; transformers' `max_new_tokens` is renamed to `max_tokens`."""
        recommended = {} if self.generation_config == "vllm" else self.try_get_generation_config()
        recommended |= self.override_generation_config
        found = {name: recommended[name] for name in RECOMMENDED if recommended.get(name) is not None}
        if "max_new_tokens" in found:
            found["max_tokens"] = found.pop("max_new_tokens")
        return found


@dataclass
class CacheConfig:
    """Settings of the paged KV cache."""

    block_size: int = 16
    """Tokens per block."""
    gpu_memory_utilization: float = 0.9
    """Share of the device's memory for weights, activations and KV cache."""
    num_gpu_blocks_override: int | None = None
    """Number of blocks, regardless of memory."""
    kv_cache_memory_bytes: int | None = None
    """Size of the KV cache, instead of a measured one."""
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None
    """Number of blocks, including the null block; set once the memory was measured."""


AsyncSchedulingReason: TypeAlias = Literal["argument", "cpu", "gpu", "pooling", "unasked"]
"""Origin of the setting: the argument `async_scheduling`, or the default on a CPU (off, as it computes steps itself), a
GPU (on, as the CPU prepares a step while the GPU computes), or for pooling (off, as no step waits for tokens);
`unasked` in configurations made by hand."""


@dataclass
class SchedulerConfig:
    """Settings of the scheduler."""

    max_num_batched_tokens: int
    """Token budget of a step."""
    max_num_seqs: int
    """Maximum number of requests in a step."""
    max_model_len: int
    enable_chunked_prefill: bool = True
    """Compute long prompts in chunks over several steps."""
    long_prefill_token_threshold: int = 0
    """Maximum chunk of a prompt in tokens; 0 is no limit."""
    policy: str = "fcfs"
    """Order of the waiting queue: `fcfs` (first come, first served) or `priority`."""
    disable_hybrid_kv_cache_manager: bool = False
    """Keep all blocks in all layers of a model with sliding windows in some."""
    disable_chunked_mm_input: bool = False
    """Compute the tokens of an image or sound in one step, never in several chunks."""
    max_num_encoder_input_tokens: int = field(init=False)
    """Tokens of images and sounds to encode in a step: `max_num_batched_tokens`, or those of the largest one."""
    encoder_cache_size: int = field(init=False)
    """Tokens whose encoder outputs are kept: `max_num_batched_tokens`, or those of the largest image or sound."""
    async_scheduling: bool = False
    """Schedule a step before the previous step's tokens are known; see core/sched/async_scheduler.py."""
    async_scheduling_reason: AsyncSchedulingReason = "unasked"
    """Origin of the setting."""

    def __post_init__(self) -> None:
        self.max_num_encoder_input_tokens = self.max_num_batched_tokens
        self.encoder_cache_size = self.max_num_batched_tokens


@dataclass(frozen=True)
class ParallelConfig:
    """Division of the model between workers, and of the requests between engine cores.

    vLLM: vllm/config/parallel.py::ParallelConfig. Left out: expert parallelism.
    """

    tensor_parallel_size: int = 1
    """Workers that share each layer."""
    pipeline_parallel_size: int = 1
    """Stages, each with some of the layers."""
    distributed_executor_backend: str = "uni"
    """`uni`: one worker in the engine core's process; `mp`: a process for each worker; `ray`: a Ray actor for each;
    `external_launcher`: one worker in each of the processes that a launcher such as torchrun starts."""
    data_parallel_size: int = 1
    """Engine cores, each with a copy of the model and its own requests."""
    data_parallel_rank: int = 0
    """Index of this engine core."""
    data_parallel_init_method: str = ""
    """Meeting point of the engine cores, such as `file:///tmp/dp_group`."""

    @property
    def world_size(self) -> int:
        """Number of workers of an engine core."""
        return self.pipeline_parallel_size * self.tensor_parallel_size

    @property
    def engine_name(self) -> str:
        """Name of this engine core's process: `EngineCore_0`, with several `EngineCore_DP1` as in vLLM."""
        return f"EngineCore_DP{self.data_parallel_rank}" if self.data_parallel_size > 1 else "EngineCore_0"

    def worker_name(self, rank: int) -> str:
        """Return the name of a worker's process, as in vLLM: `Worker_DP0_PP0_TP1`, `Worker_TP1`, `Worker`."""
        stage, index = divmod(rank, self.tensor_parallel_size)
        dp = f"_DP{self.data_parallel_rank}" if self.data_parallel_size > 1 else ""
        pp = f"_PP{stage}" if self.pipeline_parallel_size > 1 else ""
        tp = f"_TP{index}" if self.tensor_parallel_size > 1 else ""
        return f"Worker{dp}{pp}{tp}"


@dataclass
class DeviceConfig:
    """Device that the model runs on."""

    device: torch.device


@dataclass(frozen=True)
class ObservabilityConfig:
    """Settings of tracing.

    vLLM: vllm/config/observability.py::ObservabilityConfig. Left out: `collect_detailed_traces`, unused in vLLM V1.
    """

    otlp_traces_endpoint: str | None = None
    """Address of a collector for the spans of finished requests; see frontend/tracing.py."""


OpsReason: TypeAlias = Literal[
    "argument", "environment", "cpu", "cpu_uncompiled", "gpu", "no_triton", "no_compiler", "unasked"
]
"""Origin of the choice: the argument `attention_backend`, the variable TRACELLM_OPS, or the default on a CPU (with or
without compiled kernels) or a GPU (with triton, without the package, or without the C compiler it needs); `unasked` in
configurations made by hand."""


@dataclass(frozen=True)
class OpsChoice:
    """Implementation of the layers' operations; see model_executor/ops/choice.py."""

    name: str = "torch"
    """`torch`, `cpu` or `triton`."""
    reason: OpsReason = "unasked"
    """Origin of the setting."""
    compile_seconds: float = 0.0
    """Time that the start-up waited for the compiler of the CPU's kernels; 0 if they were in the cache."""


@dataclass(frozen=True)
class StructuredOutputsConfig:
    """Settings of structured outputs.

    vLLM: vllm/config/structured_outputs.py::StructuredOutputsConfig. Left out: other backends, constraints
    within the reasoning.
    """

    reasoning_parser: str = ""
    """Parser that finds the end of the reasoning, after which constraints apply; empty for models without reasoning."""


@dataclass
class VllmConfig:
    """All settings of an engine."""

    model_config: ModelConfig
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    device_config: DeviceConfig
    ops_choice: OpsChoice = OpsChoice()
    parallel_config: ParallelConfig = ParallelConfig()
    structured_outputs_config: StructuredOutputsConfig = StructuredOutputsConfig()
    observability_config: ObservabilityConfig = ObservabilityConfig()

    def with_hf_config(self, hf_config: PretrainedConfig) -> VllmConfig:
        """Return a copy for a part of the model, with the part's config."""
        return replace(self, model_config=replace(self.model_config, hf_config=hf_config))

    def with_data_parallel_rank(self, rank: int, init_method: str) -> VllmConfig:
        """Return a copy for one of several engine cores, which meet at `init_method`."""
        parallel_config = replace(self.parallel_config, data_parallel_rank=rank, data_parallel_init_method=init_method)
        return replace(self, parallel_config=parallel_config)
