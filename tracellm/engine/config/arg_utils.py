"""Engine arguments: from the arguments of `LLM(...)` to a `VllmConfig`, with defaults, checks and clear errors.

`LLM` makes an `EngineArgs` and calls its `create_engine_config` once, at start-up; `AsyncLLM` calls `resolve_config`.

vLLM: vllm/engine/arg_utils.py::EngineArgs, which has some hundred and fifty arguments. Those of features that tracellm
does not have are listed in unsupported_args.py. vLLM validates with pydantic, which takes 0.2 s to import.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tracellm.engine.config import hf_config as hf
from tracellm.engine.config.errors import EngineError, did_you_mean
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.config.multimodal import MODALITIES, MultiModalConfig
from tracellm.engine.config.pooler import PoolerConfig, resolve_pooling
from tracellm.engine.config.unsupported_args import UNSUPPORTED_ARGS
from tracellm.engine.config.validation import NUMBER, Rule, all_are, anything, is_a, verify
from tracellm.engine.config.vllm_config import (
    RECOMMENDED,
    AsyncSchedulingReason,
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    ObservabilityConfig,
    ParallelConfig,
    SchedulerConfig,
    StructuredOutputsConfig,
    VllmConfig,
)
from tracellm.engine.distributed.utils import get_pp_indices
from tracellm.engine.model_executor.models.registry import is_text_generation_model
from tracellm.engine.multimodal.registry import MULTIMODAL_REGISTRY
from tracellm.engine.reasoning import ReasoningParserManager

if TYPE_CHECKING:
    import torch

    from tracellm.engine.executor.abstract import Executor

__all__ = ["AsyncEngineArgs", "EngineArgs", "resolve_config"]

logger = logging.getLogger(__name__)

_NONE_IS_DEFAULT = (
    *("seed", "block_size", "enable_prefix_caching", "enable_chunked_prefill"),
    *("hf_overrides", "override_generation_config", "limit_mm_per_prompt", "reasoning_parser"),
)
_BLOCK_SIZES = (1, 8, 16, 32, 64, 128, 256)
_EXECUTOR_BACKENDS = ("uni", "mp", "ray", "external_launcher")
_POLICIES = ("fcfs", "priority")
_RUNNERS = ("auto", "generate", "pooling")
_CONVERTS = ("auto", "none", "embed")
_LOGPROBS_MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
_GIB = 1 << 30

UsageContext: TypeAlias = Literal["LLM_CLASS", "OPENAI_API_SERVER", "ENGINE_CONTEXT"]
"""Entry point that makes the engine. vLLM: vllm/usage/usage_lib.py::UsageContext, which has more."""


_RULES = (
    Rule("seed", int, lambda v: 0 <= v < 2**63, "a whole number, at least 0"),
    Rule(
        "max_model_len",
        int,
        lambda v: v >= 2,
        "a whole number of tokens, at least 2 (one of the prompt and one that is generated), or None",
    ),
    Rule("gpu_memory_utilization", NUMBER, lambda v: 0 < v <= 1, "a fraction of the memory, in (0, 1]"),
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
    Rule("long_prefill_token_threshold", int, lambda v: v >= 0, "a whole number of tokens (0 is no limit)"),
    Rule("scheduling_policy", str, _POLICIES.__contains__, f"one of {', '.join(_POLICIES)}"),
    Rule("disable_hybrid_kv_cache_manager", bool, anything, "True or False"),
    Rule("max_logprobs", int, lambda v: v >= -1, "a whole number, at least 0, or -1 for no limit"),
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
    Rule("runner", str, _RUNNERS.__contains__, f"one of {', '.join(_RUNNERS)}"),
    Rule("convert", str, _CONVERTS.__contains__, f"one of {', '.join(_CONVERTS)}"),
    Rule("enforce_eager", bool, anything, "True or False"),
    Rule(
        "limit_mm_per_prompt",
        dict,
        lambda v: all(name in MODALITIES and is_a(most, int) and most >= 0 for name, most in v.items()),
        f"a dict of whole numbers by modality ({', '.join(MODALITIES)})",
    ),
    Rule("mm_processor_kwargs", dict, lambda v: all_are(str, bool)(list(v)), "a dict of arguments, or None"),
    Rule("mm_processor_cache_gb", NUMBER, lambda v: v >= 0, "a number of GiB, at least 0"),
    Rule("disable_chunked_mm_input", bool, anything, "True or False"),
    Rule("allowed_local_media_path", str, anything, "a directory, or an empty string for none"),
    Rule("allowed_media_domains", list, all_are(str, bool), "a list of host names, or None"),
    Rule("tensor_parallel_size", int, lambda v: v >= 1, "a whole number of workers, at least 1"),
    Rule("pipeline_parallel_size", int, lambda v: v >= 1, "a whole number of stages, at least 1"),
    Rule("data_parallel_size", int, lambda v: v >= 1, "a whole number of engine cores, at least 1"),
    Rule(
        "distributed_executor_backend",
        str,
        _EXECUTOR_BACKENDS.__contains__,
        "`uni`, `mp`, `ray`, `external_launcher` or None",
    ),
    Rule("attention_backend", str, anything, "the name of an implementation, or None"),
    Rule("async_scheduling", bool, anything, "True, False or None"),
    Rule(
        "reasoning_parser",
        str,
        lambda v: v in ("", *ReasoningParserManager.list_registered()),
        f"one of {', '.join(ReasoningParserManager.list_registered())}, or an empty string for none",
    ),
    Rule("otlp_traces_endpoint", str, lambda v: bool(v.strip()), "an address such as http://localhost:4317, or None"),
    Rule("disable_log_stats", bool, anything, "True or False"),
)


@dataclass(kw_only=True)
class EngineArgs:
    """Arguments of `LLM(...)`, as given. None leaves the choice to the model and the device."""

    model: str | os.PathLike[str] = hf.BUNDLED_MODEL
    tokenizer: str | os.PathLike[str] | None = None
    """Directory or hub id of the tokenizer; None is the model's."""
    skip_tokenizer_init: bool = False
    served_model_name: str | None = None
    """Name of the model in recordings; None is `model`."""
    runner: str = "auto"
    """`generate` (text) or `pooling` (vectors); `auto` reads the model's files."""
    convert: str = "auto"
    """`embed` makes a model that generates give embeddings, the default with `runner="pooling"`; `none` does not."""
    pooler_config: dict[str, Any] | PoolerConfig | None = None
    """Settings of the pooler, such as `{"pooling_type": "MEAN", "normalize": False}`; see config/pooler.py."""
    override_pooler_config: dict[str, Any] | PoolerConfig | None = None
    """Deprecated name of `pooler_config`."""
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
    limit_mm_per_prompt: dict[str, int] = field(default_factory=dict)
    """Maximum number of images and sounds in a prompt: `{"image": 2}`."""
    mm_processor_kwargs: dict[str, Any] | None = None
    """Arguments for the checkpoint's processor of images or sounds, such as `{"max_pixels": 200704}`."""
    mm_processor_cache_gb: float = 4
    disable_chunked_mm_input: bool = False
    """Compute all tokens of an image or a sound in one step."""
    allowed_local_media_path: str = ""
    """Directory of the files that requests to a server may name."""
    allowed_media_domains: list[str] | None = None
    """Hosts from which a server may fetch images and sounds."""
    async_scheduling: bool | None = None
    """Schedule a step before the previous step's tokens are known; None is True on a GPU."""
    tensor_parallel_size: int = 1
    """Workers that share each layer of the model, each a process."""
    pipeline_parallel_size: int = 1
    """Stages of the model, each with some of the layers and workers of its own."""
    data_parallel_size: int = 1
    """Engine cores of `AsyncLLM` and the server, each with a copy of the model and its own requests."""
    distributed_executor_backend: str | None = None
    """`uni` (a worker in the engine core's process), `mp` (a process for each worker) or `ray` (a Ray actor for each);
    None is `mp` for several."""
    attention_backend: str | None = None
    """Implementation of the layers' operations: `torch`, `cpu` or `triton`; None chooses by the device."""
    reasoning_parser: str = ""
    """Parser of the model's reasoning, after which constraints apply: `deepseek_r1` or `qwen3`; empty for none."""
    otlp_traces_endpoint: str | None = None
    """Address of an OpenTelemetry collector, to which a span of each finished request is sent."""
    disable_log_stats: bool = True

    def __post_init__(self) -> None:
        for name, default in (
            ("model", f"the bundled model, `{hf.BUNDLED_MODEL}`"),
            ("tokenizer", "the model's own"),
        ):
            value = getattr(self, name)
            if value is None and name == "tokenizer":
                continue
            if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
                raise EngineError(
                    f"LLM: `{name}` must be a directory or a hub id, got {value!r}; leave it out for {default}."
                )
        verify("LLM", self, _RULES)

    @classmethod
    def from_arguments(cls, **arguments: Any) -> EngineArgs:
        """Create the arguments from a user's keyword arguments.

        Raises:
            EngineError: an unknown name, an unsupported feature of vLLM, or an invalid value.
        """
        own = list(cls.__dataclass_fields__)
        if arguments.get("task") in ("embed", "embedding"):  # an older form, deprecated in vLLM 0.11.1
            warnings.warn("LLM: replace `task` by runner='pooling' and convert='embed'.", stacklevel=3)
            arguments = {"runner": "pooling", "convert": "embed", **arguments, "task": None}
        for name in [name for name in arguments if name not in own]:
            value = arguments.pop(name)
            if name == "multiprocess_mode":  # LLM's own, which does not come here
                raise EngineError(
                    "AsyncLLM has no argument `multiprocess_mode`: its engine core always has a process of its own. "
                    "Leave it out, or use LLM(..., multiprocess_mode=False) for an engine core in this process."
                )
            if name not in UNSUPPORTED_ARGS:
                hint = did_you_mean(name, own + list(UNSUPPORTED_ARGS))
                raise EngineError(f"LLM has no argument `{name}`.{hint} It takes: {', '.join(own)}.")
            accepted = UNSUPPORTED_ARGS[name]
            if value not in accepted and not (None in accepted and value in ({}, [], "")):
                raise EngineError(
                    f"LLM: tracellm does not have `{name}`, which vLLM has: leave it out. "
                    f"Got {value!r}, only {' or '.join(map(repr, accepted))} is accepted."
                )
        for name in _NONE_IS_DEFAULT:
            if arguments.get(name, "") is None:
                del arguments[name]
        return cls(**arguments)

    def create_engine_config(self, usage_context: UsageContext = "LLM_CLASS") -> VllmConfig:
        """Read the checkpoint's configuration and resolve every setting. A server's default steps are smaller.

        Raises:
            EngineError: settings that contradict each other or the model.
            ModelLoadError: the model's configuration cannot be read.
        """
        model_config = self.create_model_config()
        if (pooler_config := model_config.pooler_config) is not None and pooler_config.pooling_type != "LAST":
            logger.info('Only "last" pooling supports chunked prefill and prefix caching; disabling both.')
            self = copy(self)
            self.enable_chunked_prefill = self.enable_prefix_caching = False
        from tracellm.engine.model_executor.ops.choice import choose_ops  # needs torch, imported by now

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
            scheduler_config=self.create_scheduler_config(
                model_config.max_model_len, device_config.device, usage_context, pooler_config is not None
            ),
            device_config=device_config,
            ops_choice=choose_ops(self.attention_backend, device_config.device),
            parallel_config=self.create_parallel_config(model_config, device_config.device),
            structured_outputs_config=StructuredOutputsConfig(self.reasoning_parser),
            observability_config=ObservabilityConfig(self.otlp_traces_endpoint),
        )

    def create_parallel_config(self, model_config: ModelConfig, device: torch.device) -> ParallelConfig:
        """Return the division of the model between workers.

        Raises:
            EngineError: the heads or the layers cannot be divided, there are too few GPUs, or the settings contradict
                each other.
        """
        size, stages = self.tensor_parallel_size, self.pipeline_parallel_size
        world_size = size * stages
        asked = f"`tensor_parallel_size={size}`" if stages == 1 else f"`pipeline_parallel_size={stages}`"
        asked = f"{asked} x `tensor_parallel_size={size}`" if min(size, stages) > 1 else asked
        backend = self.distributed_executor_backend or ("mp" if world_size > 1 else "uni")
        if world_size > 1 and backend == "uni":
            raise EngineError(
                f"LLM: {asked} needs a process for each worker: leave out `distributed_executor_backend`, or give 'mp' "
                "or 'ray'."
            )
        if backend == "external_launcher" and world_size > size:
            raise EngineError("LLM: distributed_executor_backend='external_launcher' has no pipeline parallelism.")
        if stages > 1 and model_config.is_pooling_model:
            raise EngineError("LLM: pooling has no pipeline parallelism. Leave out `pipeline_parallel_size`.")
        if stages > 1 and self.async_scheduling:
            raise EngineError(
                "LLM: Async scheduling is not yet compatible with pipeline_parallel_size > 1. Leave out "
                "`async_scheduling`."
            )
        get_pp_indices(model_config.get_num_layers(), 0, stages)
        if (heads := model_config.get_num_attention_heads()) % size:
            raise EngineError(
                f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({size})."
            )
        if max(kv_heads := model_config.get_num_kv_heads(), size) % min(kv_heads, size):
            raise EngineError(
                f"Total number of key/value heads ({kv_heads}) must be divisible by tensor parallel size ({size}), or "
                "the size by their number."
            )
        if device.type == "cuda":
            import torch

            needed = world_size * self.data_parallel_size
            asked = (
                asked if self.data_parallel_size == 1 else f"`data_parallel_size={self.data_parallel_size}` x {asked}"
            )
            if backend != "ray" and needed > (available := torch.cuda.device_count()):
                raise EngineError(f"LLM: {asked} needs {needed} GPUs, and there are {available}.")
        return ParallelConfig(size, stages, backend, self.data_parallel_size)

    def create_model_config(self) -> ModelConfig:
        """Read the checkpoint's configuration and create the model's settings."""
        model = hf.resolve_model(self.model)
        import_libraries("torch")
        hf_config = hf.get_config(model, self.hf_overrides)
        generation_config = str(self.generation_config)
        pooler_config = resolve_pooling(
            self.runner,
            self.convert,
            self.pooler_config if self.override_pooler_config is None else self.override_pooler_config,
            hf.local_folder(model),
            is_text_generation_model(hf_config.architectures),
        )
        model_config = ModelConfig(
            model=model,
            tokenizer=hf.resolve_model(self.tokenizer) if self.tokenizer is not None else model,
            served_model_name=self.served_model_name or str(self.model),
            dtype=hf.get_dtype(self.dtype, hf_config, pooler_config is not None),
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
            pooler_config=pooler_config,
        )
        if MULTIMODAL_REGISTRY.supports_multimodal_inputs(hf_config):
            model_config.multimodal_config = MultiModalConfig(
                limit_per_prompt=self.limit_mm_per_prompt,
                mm_processor_kwargs=self.mm_processor_kwargs or {},
                mm_processor_cache_gb=self.mm_processor_cache_gb,
                allowed_local_media_path=self.allowed_local_media_path,
                allowed_media_domains=self.allowed_media_domains or [],
            )
            most = MULTIMODAL_REGISTRY.get_max_tokens_per_item_by_modality(model_config)
            model_config.max_tokens_per_mm_item = max(most.values(), default=0)
        return model_config

    def create_scheduler_config(
        self, max_model_len: int, device: torch.device, usage_context: UsageContext, is_pooling_model: bool = False
    ) -> SchedulerConfig:
        """Resolve the scheduler's settings for a model of this length.

        Raises:
            EngineError: settings that contradict each other or the model.
        """
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
                f"LLM: `max_num_batched_tokens` must be at least `max_num_seqs`, as each of {seqs} running "
                f"requests needs a token per step; got {tokens}. Raise it, or lower `max_num_seqs`."
            )
        if tokens < max_model_len and not self.enable_chunked_prefill:
            remedy = "Raise it, lower `max_model_len`, or use enable_chunked_prefill=True."
            if is_pooling_model:  # it may need whole prompts
                remedy = "Raise it or lower `max_model_len`."
            raise EngineError(
                "LLM: without chunked prefill a whole prompt must fit in one step, so `max_num_batched_tokens` "
                f"({tokens}) must be at least `max_model_len` ({max_model_len}). {remedy}"
            )
        # vLLM ignores the threshold only when both chunked prefill and prefix caching are off.
        has_threshold = self.enable_chunked_prefill or self.enable_prefix_caching
        if is_pooling_model and self.async_scheduling:
            raise EngineError("LLM: `async_scheduling` is for models that generate: leave it out for pooling.")
        by_default = device.type == "cuda" and self.pipeline_parallel_size == 1 and not is_pooling_model
        default_reason: AsyncSchedulingReason = "cpu" if device.type != "cuda" else "gpu"
        return SchedulerConfig(
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            max_model_len=max_model_len,
            enable_chunked_prefill=self.enable_chunked_prefill,
            long_prefill_token_threshold=self.long_prefill_token_threshold if has_threshold else 0,
            policy=self.scheduling_policy,
            disable_hybrid_kv_cache_manager=self.disable_hybrid_kv_cache_manager,
            disable_chunked_mm_input=self.disable_chunked_mm_input,
            async_scheduling=by_default if self.async_scheduling is None else self.async_scheduling,
            async_scheduling_reason=(
                "argument" if self.async_scheduling is not None else "pooling" if is_pooling_model else default_reason
            ),
        )

    @staticmethod
    def get_batch_defaults(device: torch.device, usage_context: UsageContext = "LLM_CLASS") -> tuple[int, int]:
        """Return vLLM 0.11.1's default token budget and number of requests of a step."""
        if usage_context == "ENGINE_CONTEXT":  # AsyncLLM without a server
            return 2048, 128
        is_server = usage_context == "OPENAI_API_SERVER"
        if device.type == "cpu":
            return (2048, 128) if is_server else (4096, 256)
        import torch

        properties = torch.cuda.get_device_properties(device)
        large = properties.total_memory >= 70 * _GIB and "a100" not in properties.name.lower()
        if is_server:
            return (8192, 1024) if large else (2048, 256)
        return (16384, 1024) if large else (8192, 256)


@dataclass(kw_only=True)
class AsyncEngineArgs(EngineArgs):
    """Arguments of `AsyncLLM.from_engine_args`, which keeps statistics by default."""

    disable_log_stats: bool = False
    enable_log_requests: bool = False


def resolve_config(
    vllm_config: VllmConfig | str | os.PathLike[str] | None,
    executor_class: type[Executor] | None,
    log_stats: bool | None,
    engine_args: dict[str, Any],
) -> tuple[VllmConfig, bool]:
    """Return the settings, and whether to keep statistics, from either form of `AsyncLLM(...)`.

    vLLM has one form; `AsyncLLM(model=...)`, as its documents write it, fails there.

    Raises:
        EngineError: the two forms are mixed, or a setting is invalid.
    """
    if isinstance(vllm_config, VllmConfig):
        if engine_args:
            raise EngineError(
                f"AsyncLLM: a VllmConfig holds all settings and goes without `{next(iter(engine_args))}`. Give "
                "either a VllmConfig, or a model with its arguments."
            )
        return vllm_config, log_stats is not False
    if executor_class is not None or log_stats is not None:
        raise EngineError(
            "AsyncLLM: `executor_class` and `log_stats` go with a VllmConfig. With a model, leave the first out, and "
            "use `disable_log_stats` for the second."
        )
    if vllm_config is not None:
        if "model" in engine_args:
            raise EngineError(f"AsyncLLM: got two models, {vllm_config!r} and {engine_args['model']!r}.")
        engine_args = {"model": vllm_config, **engine_args}
    args = EngineArgs.from_arguments(**{"disable_log_stats": False, **engine_args})
    return args.create_engine_config("ENGINE_CONTEXT"), not args.disable_log_stats


def _device() -> torch.device:
    """Return the first CUDA device, or the CPU if there is none."""
    import torch

    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
