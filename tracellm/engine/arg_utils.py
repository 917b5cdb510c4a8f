"""From the arguments of `LLM(...)` to a `VllmConfig`: defaults, checks, and refusals that name the argument.

vLLM: vllm/engine/arg_utils.py::EngineArgs, which has some hundred and fifty. Those that name a feature that tracellm
does not have are known here too (`NOT_HERE`), so that a script written for vLLM is told which argument to drop.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracellm.engine import hf_config as hf
from tracellm.engine.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from tracellm.engine.errors import EngineError, did_you_mean
from tracellm.engine.libraries import import_libraries
from tracellm.engine.validation import NUMBER, Rule, verify

if TYPE_CHECKING:
    import torch

__all__ = ["NOT_HERE", "EngineArgs"]

_NONE_IS_THE_DEFAULT = ("seed", "block_size", "enable_prefix_caching", "enable_chunked_prefill")
_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_GIB = 1 << 30


def _any(value: object) -> bool:
    return True


_RULES = (
    Rule("seed", int, lambda v: 0 <= v < 2**63, "a whole number, at least 0"),
    Rule("max_model_len", int, lambda v: v >= 1, "a whole number of tokens, at least 1, or None"),
    Rule("gpu_memory_utilization", NUMBER, lambda v: 0 < v <= 1, "a share of the memory, in (0, 1]"),
    Rule("block_size", int, _BLOCK_SIZES.__contains__, f"one of {', '.join(map(str, _BLOCK_SIZES))} (tokens)"),
    Rule(
        "num_gpu_blocks_override",
        int,
        lambda v: v >= 2,
        "a number of blocks, at least 2 (one is the null block), or None",
    ),
    Rule("max_num_batched_tokens", int, lambda v: v >= 1, "a whole number of tokens, at least 1, or None"),
    Rule("max_num_seqs", int, lambda v: v >= 1, "a whole number of requests, at least 1, or None"),
    Rule("enable_prefix_caching", bool, _any, "True or False"),
    Rule("enable_chunked_prefill", bool, _any, "True or False"),
    Rule("enforce_eager", bool, _any, "True or False"),
    Rule("disable_log_stats", bool, _any, "True or False"),
)

NOT_HERE: dict[str, tuple[Any, ...]] = {
    "allowed_local_media_path": ("",),
    "allowed_media_domains": (None,),
    "async_scheduling": (False,),
    "compilation_config": (None, 0, {}),
    "convert": ("auto", "none"),
    "cpu_offload_gb": (0,),
    "data_parallel_size": (1,),
    "disable_custom_all_reduce": (False, True),
    "distributed_executor_backend": (None, "uni"),
    "enable_lora": (False,),
    "enable_sleep_mode": (False,),
    "generation_config": ("auto",),
    "hf_overrides": (None, {}),
    "hf_token": (None,),
    "kv_cache_dtype": ("auto",),
    "kv_cache_memory_bytes": (None,),
    "kv_transfer_config": (None,),
    "limit_mm_per_prompt": (None, {}),
    "load_format": ("auto", "safetensors"),
    "logits_processors": (None, []),
    "mm_processor_kwargs": (None, {}),
    "override_generation_config": (None, {}),
    "override_pooler_config": (None,),
    "pipeline_parallel_size": (1,),
    "pooler_config": (None,),
    "quantization": (None,),
    "revision": (None,),
    "runner": ("auto", "generate"),
    "scheduling_policy": ("fcfs",),
    "skip_tokenizer_init": (False,),
    "speculative_config": (None,),
    "structured_outputs_config": (None, {}),
    "swap_space": (0, 4),
    "tensor_parallel_size": (1,),
    "tokenizer_mode": ("auto",),
    "tokenizer_revision": (None,),
    "trust_remote_code": (False,),
}
"""Arguments of vLLM for what tracellm does not have, with the values that ask for nothing and so are accepted."""


@dataclass(kw_only=True)
class EngineArgs:
    """The arguments of `LLM(...)`, as given. Where `None` stays, the choice depends on the model and the device."""

    model: str | os.PathLike[str] = hf.EMBEDDED_MODEL
    tokenizer: str | os.PathLike[str] | None = None
    """Where the tokenizer is; `None`: with the model."""
    dtype: str | torch.dtype = "auto"
    seed: int = 0
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    num_gpu_blocks_override: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    enforce_eager: bool = False
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

    def create_engine_config(self) -> VllmConfig:
        """Read the checkpoint's configuration and settle every setting.

        Raises:
            EngineError: settings that contradict each other or the model.
            ModelLoadError: the model's configuration cannot be read.
        """
        model_config = self.create_model_config()
        device_config = DeviceConfig(_device())
        return VllmConfig(
            model_config=model_config,
            cache_config=CacheConfig(
                block_size=self.block_size,
                gpu_memory_utilization=self.gpu_memory_utilization,
                num_gpu_blocks_override=self.num_gpu_blocks_override,
                enable_prefix_caching=self.enable_prefix_caching,
            ),
            scheduler_config=self._create_scheduler_config(model_config.max_model_len, device_config.device),
            device_config=device_config,
        )

    def create_model_config(self) -> ModelConfig:
        """The model's part of the settings."""
        model = hf.resolve_model(self.model)
        import_libraries()
        hf_config = hf.get_config(model)
        return ModelConfig(
            model=model,
            tokenizer=hf.resolve_model(self.tokenizer) if self.tokenizer is not None else model,
            served_model_name=str(self.model),
            dtype=hf.get_dtype(self.dtype, hf_config),
            seed=self.seed,
            max_model_len=hf.get_max_model_len(self.max_model_len, hf_config),
            hf_config=hf_config,
            generation_config=hf.get_generation_config(model),
            enforce_eager=self.enforce_eager,
        )

    def _create_scheduler_config(self, max_model_len: int, device: torch.device) -> SchedulerConfig:
        default_tokens, default_seqs = self.get_batch_defaults(device)
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
        return SchedulerConfig(
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_model_len=max_model_len,
            enable_chunked_prefill=self.enable_chunked_prefill,
        )

    @staticmethod
    def get_batch_defaults(device: torch.device) -> tuple[int, int]:
        """The token budget and the number of requests of a step, as vLLM 0.11.1's `LLM` has them for this device."""
        if device.type == "cpu":
            return 4096, 256
        import torch

        properties = torch.cuda.get_device_properties(device)
        large = properties.total_memory >= 70 * _GIB and "a100" not in properties.name.lower()
        return (16384, 1024) if large else (8192, 256)


def _device() -> torch.device:
    """The first CUDA device where there is one, else the CPU."""
    import torch

    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
