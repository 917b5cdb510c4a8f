"""The engine's settings with all defaults filled in and checked: plain data that every part of the engine reads.

`EngineArgs.create_engine_config` (arg_utils.py) makes a `VllmConfig` once, at start-up; nothing changes it afterwards
but `EngineCore`, which writes the number of KV blocks into `CacheConfig` when it has measured the memory.

vLLM: vllm/config/. Left out: parallelism, LoRA, speculative decoding, quantization, multimodal, compilation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

__all__ = [
    "RECOMMENDED",
    "AsyncSchedulingReason",
    "CacheConfig",
    "DeviceConfig",
    "ModelConfig",
    "OpsChoice",
    "OpsReason",
    "SchedulerConfig",
    "VllmConfig",
]

RECOMMENDED = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")
"""What a generation_config.json can recommend for sampling."""


@dataclass
class ModelConfig:
    """Which model, and how it computes. Sizes come from the checkpoint's config.json (`hf_config`)."""

    model: str
    """Where its files are: a directory, or a Hugging Face hub id."""
    tokenizer: str
    """The same for the tokenizer."""
    served_model_name: str
    """The name as the user wrote it (`tiny` for the embedded model)."""
    dtype: torch.dtype
    """In what the model computes and keeps its KV cache."""
    seed: int
    max_model_len: int
    """The most tokens of prompt and output together."""
    hf_config: PretrainedConfig
    generation_config: str = "auto"
    """Whose recommendations are the default sampling: `auto` (the model's), `vllm` (none), or those of a directory."""
    generation_config_fields: dict[str, Any] = field(default_factory=dict)
    """What that generation_config.json says; under `vllm` the model's, for its end-of-sequence tokens."""
    override_generation_config: dict[str, Any] = field(default_factory=dict)
    """What is recommended in place of the file's."""
    max_logprobs: int = 20
    """The most `logprobs` and `prompt_logprobs` that a request may ask for; -1 sets no bound."""
    logprobs_mode: str = "raw_logprobs"
    """What they are: `raw_` (before all processors) or `processed_` (what is sampled from), `logprobs` or `logits`."""
    skip_tokenizer_init: bool = False
    """No tokenizer: prompts are token ids, outputs have no text."""
    enforce_eager: bool = False
    """No CUDA graphs; see worker/cudagraphs.py."""

    def get_vocab_size(self) -> int:
        """Rows of the embedding table; token ids are below it."""
        return self.hf_config.vocab_size

    def get_hidden_size(self) -> int:
        """Width of the hidden states."""
        return self.hf_config.hidden_size

    def get_num_layers(self) -> int:
        """Decoder layers, each with its own KV cache."""
        return self.hf_config.num_hidden_layers

    def get_num_attention_heads(self) -> int:
        """Query heads of a layer."""
        return self.hf_config.num_attention_heads

    def get_num_kv_heads(self) -> int:
        """Key and value heads of a layer; fewer than the query heads under grouped-query attention."""
        return getattr(self.hf_config, "num_key_value_heads", None) or self.get_num_attention_heads()

    def get_head_size(self) -> int:
        """Width of one head."""
        return getattr(self.hf_config, "head_dim", None) or self.get_hidden_size() // self.get_num_attention_heads()

    def try_get_generation_config(self) -> dict[str, Any]:
        """What generation_config.json says, a copy; empty without one."""
        return dict(self.generation_config_fields)

    def get_diff_sampling_param(self) -> dict[str, Any]:
        """The sampling parameters that the model's makers recommend, in generation_config.json.

        Transformers' `max_new_tokens` is the `max_tokens` here.
        """
        recommended = {} if self.generation_config == "vllm" else self.try_get_generation_config()
        recommended |= self.override_generation_config
        found = {name: recommended[name] for name in RECOMMENDED if recommended.get(name) is not None}
        if "max_new_tokens" in found:
            found["max_tokens"] = found.pop("max_new_tokens")
        return found


@dataclass
class CacheConfig:
    """The paged KV cache."""

    block_size: int = 16
    """Tokens in a block."""
    gpu_memory_utilization: float = 0.9
    """The share of the device's memory that weights, activations and KV cache may take."""
    num_gpu_blocks_override: int | None = None
    """The number of blocks, whatever the memory would hold."""
    kv_cache_memory_bytes: int | None = None
    """The size of the KV cache, in place of a measured one."""
    enable_prefix_caching: bool = True
    num_gpu_blocks: int | None = None
    """The number of blocks, the null block among them; known once the memory was measured."""


AsyncSchedulingReason: TypeAlias = Literal["argument", "cpu", "gpu", "unasked"]
"""`async_scheduling` says so; the default on a CPU (off: it computes a step itself, and would gain nothing) or on a GPU
(on: the CPU prepares a step while the GPU computes); nobody has chosen."""


@dataclass
class SchedulerConfig:
    """What one step may hold."""

    max_num_batched_tokens: int
    """The token budget of a step."""
    max_num_seqs: int
    """The most requests in a step."""
    max_model_len: int
    enable_chunked_prefill: bool = True
    """May a prompt be computed in pieces over several steps?"""
    long_prefill_token_threshold: int = 0
    """No piece of a prompt is longer than this; 0 sets no bound."""
    policy: str = "fcfs"
    """Who waits in front: `fcfs` (first come, first served) or `priority`."""
    disable_hybrid_kv_cache_manager: bool = False
    """Should a model that mixes full attention and sliding windows keep all blocks in all layers?"""
    async_scheduling: bool = False
    """Is a step scheduled before the tokens of the one before are known? See sched/async_scheduler.py."""
    async_scheduling_reason: AsyncSchedulingReason = "unasked"
    """Who or what decided so."""


@dataclass
class DeviceConfig:
    """Where the model runs."""

    device: torch.device


OpsReason: TypeAlias = Literal[
    "argument", "environment", "cpu", "cpu_uncompiled", "gpu", "no_triton", "no_compiler", "unasked"
]
"""`attention_backend` says so, or TRACELLM_OPS; the default on a CPU, whose kernels could be compiled or not, or on
a GPU; a GPU, but the package triton, whose kernels are the default there, is not installed, or finds no C compiler;
nobody has chosen."""


@dataclass(frozen=True)
class OpsChoice:
    """Which implementation of the operations computes the layers; see ops/choice.py."""

    name: str = "torch"
    """`torch`, `cpu` or `triton`."""
    reason: OpsReason = "unasked"
    """Who or what decided so."""


@dataclass
class VllmConfig:
    """All settings together, as they are handed down through the engine."""

    model_config: ModelConfig
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    device_config: DeviceConfig
    ops_choice: OpsChoice = OpsChoice()
