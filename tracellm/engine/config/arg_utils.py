"""From the arguments of `LLM(...)` to a `VllmConfig`: defaults, checks, and refusals that name the argument.

vLLM: vllm/engine/arg_utils.py::EngineArgs, which has some hundred and fifty. Those that name a feature that tracellm
does not have are known too (`NOT_HERE` in not_here.py), so a script written for vLLM is told which argument to drop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tracellm.engine.config import hf_config as hf
from tracellm.engine.config.errors import EngineError, did_you_mean
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.config.unsupported_args import NOT_HERE
from tracellm.engine.config.validation import NUMBER, Rule, anything, verify
from tracellm.engine.config.vllm_config import (
    RECOMMENDED,
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)

if TYPE_CHECKING:
    import torch

__all__ = ["AsyncEngineArgs", "EngineArgs"]

_NONE_IS_THE_DEFAULT = (
    *("seed", "block_size", "enable_prefix_caching", "enable_chunked_prefill"),
    *("hf_overrides", "override_generation_config"),
)
_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_POLICIES = ("fcfs", "priority")
_LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
_GIB = 1 << 30

UsageContext: TypeAlias = Literal["LLM_CLASS", "OPENAI_API_SERVER", "ENGINE_CONTEXT"]
"""Who makes the engine: `LLM` or a server. vLLM: vllm/usage/usage_lib.py::UsageContext, which has more."""


_RULES = (
    Rule("seed", int, lambda v: 0 <= v < 2**63, "a whole number, at least 0"),
    Rule(
        "max_model_len",
        int,
        lambda v: v >= 2,
        "a whole number of tokens, at least 2 (one of the prompt and one that is generated), or None",
    ),
    Rule("gpu_memory_utilization", NUMBER, lambda v: 0 < v <= 1, "a share of the memory, in (0, 1]"),
    Rule("block_size", int, _BLOCK_SIZES.__contains__, f"one of {', '.join(map(str, _BLOCK_SIZES))} (tokens)"),
    Rule(
        "num_gpu_blocks_override",
        int,
        lambda v: v >= 2,
        "a number of blocks, at least 2 (one is the null block), or None",
    ),
    Rule("kv_cache_memory_bytes", int, lambda v: v >= 1, "a whole number of bytes, at least 1, or None"),
    Rule("max_num_batched_tokens", int, lambda v: v >= 1, "a whole number of tokens, at least 1, or None"),
    Rule("max_num_seqs", int, lambda v: v >= 1, "a whole number of requests, at least 1, or None"),
    Rule("enable_prefix_caching", bool, anything, "True or False"),
    Rule("enable_chunked_prefill", bool, anything, "True or False"),
    Rule("long_prefill_token_threshold", int, lambda v: v >= 0, "a whole number of tokens (0 sets no bound)"),
    Rule("scheduling_policy", str, _POLICIES.__contains__, f"one of {', '.join(_POLICIES)}"),
    Rule("disable_hybrid_kv_cache_manager", bool, anything, "True or False"),
    Rule("max_logprobs", int, lambda v: v >= -1, "a whole number, at least 0, or -1 for no bound"),
    Rule("logprobs_mode", str, _LOGPROBS_MODES.__contains__, f"one of {', '.join(_LOGPROBS_MODES)}"),
    Rule("generation_config", (str, os.PathLike), lambda v: bool(str(v)), "`auto`, `vllm` or a directory"),
    Rule(
        "override_generation_config",
        dict,
        lambda v: v.keys() <= set(RECOMMENDED),
        f"a dict with any of {', '.join(RECOMMENDED)}",
    ),
    Rule(
        "hf_overrides",
        object,
        lambda v: isinstance(v, Mapping) or callable(v),
        "a dict of entries of config.json, or a function",
    ),
    Rule("served_model_name", str, lambda v: bool(v.strip()), "a name, or None"),
    Rule("skip_tokenizer_init", bool, anything, "True or False"),
    Rule("enforce_eager", bool, anything, "True or False"),
    Rule("attention_backend", str, anything, "the name of an implementation, or None"),
    Rule("async_scheduling", bool, anything, "True, False or None"),
    Rule("disable_log_stats", bool, anything, "True or False"),
)


@dataclass(kw_only=True)
class EngineArgs:
    """The arguments of `LLM(...)`, as given. Where `None` stays, the choice depends on the model and the device."""

    model: str | os.PathLike[str] = hf.EMBEDDED_MODEL
    tokenizer: str | os.PathLike[str] | None = None
    """Where the tokenizer is; `None`: with the model."""
    skip_tokenizer_init: bool = False
    served_model_name: str | None = None
    """What the model is called in recordings; `None`: as `model` says."""
    dtype: str | torch.dtype = "auto"
    hf_overrides: hf.HfOverrides = field(default_factory=dict)
    generation_config: str | os.PathLike[str] = "auto"
    override_generation_config: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: str = "fcfs"
    disable_hybrid_kv_cache_manager: bool = False
    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    enforce_eager: bool = False
    async_scheduling: bool | None = None
    """Schedule a step before the tokens of the one before are known; `None`: on a GPU."""
    attention_backend: str | None = None
    """Which implementation of the layers' operations: `torch`, `cpu` or `triton`; `None`: what suits the device."""
    disable_log_stats: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.model, (str, os.PathLike)) or not str(self.model).strip():
            raise EngineError(
                f"LLM: `model` must be a directory or a hub id, got {self.model!r}; "
                f"leave it out for the embedded one, `{hf.EMBEDDED_MODEL}`."
            )
        if self.tokenizer is not None and (
            not isinstance(self.tokenizer, (str, os.PathLike)) or not str(self.tokenizer).strip()
        ):
            raise EngineError(
                f"LLM: `tokenizer` must be a directory or a hub id, got {self.tokenizer!r}; "
                "leave it out for the one that lies with the model."
            )
        verify("LLM", self, _RULES)

    @classmethod
    def from_arguments(cls, **arguments: Any) -> EngineArgs:
        """Make the arguments from whatever names a user wrote.

        Raises:
            EngineError: an unknown name, a feature of vLLM that is not here, or a value that is not accepted.
        """
        own = list(cls.__dataclass_fields__)
        for name in [name for name in arguments if name not in own]:
            value = arguments.pop(name)
            if name == "multiprocess_mode":  # LLM's own, which does not come here
                raise EngineError(
                    "AsyncLLM has no argument `multiprocess_mode`: its engine core always has a process of its own. "
                    "Leave it out, or use LLM(..., multiprocess_mode=False) for an engine core in this process."
                )
            if name not in NOT_HERE:
                hint = did_you_mean(name, own + list(NOT_HERE))
                raise EngineError(f"LLM has no argument `{name}`.{hint} It takes: {', '.join(own)}.")
            if not any(value is accepted or value == accepted for accepted in NOT_HERE[name]):
                accepted = " or ".join(repr(accepted) for accepted in NOT_HERE[name])
                raise EngineError(
                    f"LLM: tracellm does not have `{name}`, which vLLM has: leave it out. "
                    f"Got {value!r}, only {accepted} is accepted."
                )
        for name in _NONE_IS_THE_DEFAULT:
            if arguments.get(name, "") is None:
                del arguments[name]
        return cls(**arguments)

    def create_engine_config(self, usage_context: UsageContext = "LLM_CLASS") -> VllmConfig:
        """Read the checkpoint's configuration and settle every setting; a server's defaults are for smaller steps.

        Raises:
            EngineError: settings that contradict each other or the model.
            ModelLoadError: the model's configuration cannot be read.
        """
        model_config = self.create_model_config()
        from tracellm.engine.model_executor.ops.choice import choose_ops  # needs torch, which has been imported now

        device_config = DeviceConfig(_device())
        return VllmConfig(
            model_config=model_config,
            cache_config=CacheConfig(
                block_size=self.block_size,
                gpu_memory_utilization=self.gpu_memory_utilization,
                num_gpu_blocks_override=self.num_gpu_blocks_override,
                kv_cache_memory_bytes=self.kv_cache_memory_bytes,
                enable_prefix_caching=self.enable_prefix_caching,
            ),
            scheduler_config=self._create_scheduler_config(
                model_config.max_model_len, device_config.device, usage_context
            ),
            device_config=device_config,
            ops_choice=choose_ops(self.attention_backend, device_config.device),
        )

    def create_model_config(self) -> ModelConfig:
        """The model's part of the settings."""
        model = hf.resolve_model(self.model)
        import_libraries("torch")
        hf_config = hf.get_config(model, self.hf_overrides)
        generation_config = str(self.generation_config)
        return ModelConfig(
            model=model,
            tokenizer=hf.resolve_model(self.tokenizer) if self.tokenizer is not None else model,
            served_model_name=self.served_model_name or str(self.model),
            dtype=hf.get_dtype(self.dtype, hf_config),
            seed=self.seed,
            max_model_len=hf.get_max_model_len(self.max_model_len, hf_config),
            hf_config=hf_config,
            generation_config=generation_config,
            generation_config_fields=(
                hf.get_generation_config(model, hf_config)
                if generation_config in ("auto", "vllm")
                else hf.get_generation_config(hf.resolve_model(generation_config))
            ),
            override_generation_config=self.override_generation_config,
            max_logprobs=self.max_logprobs,
            logprobs_mode=self.logprobs_mode,
            skip_tokenizer_init=self.skip_tokenizer_init,
            enforce_eager=self.enforce_eager,
        )

    def _create_scheduler_config(
        self, max_model_len: int, device: torch.device, usage_context: UsageContext
    ) -> SchedulerConfig:
        default_tokens, default_seqs = self.get_batch_defaults(device, usage_context)
        seqs = self.max_num_seqs or default_seqs
        tokens = self.max_num_batched_tokens
        if tokens is None:
            tokens = default_tokens if self.enable_chunked_prefill else max(max_model_len, default_tokens)
            tokens = min(tokens, seqs * max_model_len)
        if self.max_num_seqs is None:
            seqs = min(seqs, tokens)
        if tokens < seqs:
            raise EngineError(
                f"LLM: `max_num_batched_tokens` must be at least `max_num_seqs`, so that each of {seqs} running "
                f"requests can get its one token in a step; got {tokens}. Raise it, or lower `max_num_seqs`."
            )
        if tokens < max_model_len and not self.enable_chunked_prefill:
            raise EngineError(
                "LLM: without chunked prefill a whole prompt must fit in one step, so `max_num_batched_tokens` "
                f"({tokens}) must be at least `max_model_len` ({max_model_len}). Raise it, lower `max_model_len`, "
                "or use enable_chunked_prefill=True."
            )
        # Without both, vLLM drops the threshold; with prefix caching alone it still cuts prompts up.
        bounded = self.enable_chunked_prefill or self.enable_prefix_caching
        return SchedulerConfig(
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_model_len=max_model_len,
            enable_chunked_prefill=self.enable_chunked_prefill,
            long_prefill_token_threshold=self.long_prefill_token_threshold if bounded else 0,
            policy=self.scheduling_policy,
            disable_hybrid_kv_cache_manager=self.disable_hybrid_kv_cache_manager,
            async_scheduling=device.type == "cuda" if self.async_scheduling is None else self.async_scheduling,
            async_scheduling_reason=(
                "argument" if self.async_scheduling is not None else "gpu" if device.type == "cuda" else "cpu"
            ),
        )

    @staticmethod
    def get_batch_defaults(device: torch.device, usage_context: UsageContext = "LLM_CLASS") -> tuple[int, int]:
        """The token budget and the number of requests of a step, as vLLM 0.11.1 has them for this device and use."""
        if usage_context == "ENGINE_CONTEXT":  # an AsyncLLM without a server
            return 2048, 128
        serves = usage_context == "OPENAI_API_SERVER"
        if device.type == "cpu":
            return (2048, 128) if serves else (4096, 256)
        import torch

        properties = torch.cuda.get_device_properties(device)
        large = properties.total_memory >= 70 * _GIB and "a100" not in properties.name.lower()
        if serves:
            return (8192, 1024) if large else (2048, 256)
        return (16384, 1024) if large else (8192, 256)


@dataclass(kw_only=True)
class AsyncEngineArgs(EngineArgs):
    """The arguments of `AsyncLLM.from_engine_args`, which keeps statistics unless it is told otherwise."""

    disable_log_stats: bool = False
    enable_log_requests: bool = False


def _device() -> torch.device:
    """The first CUDA device where there is one, else the CPU."""
    import torch

    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
