"""Start-up of a vLLM: from `LLM(...)` to an engine that waits for requests.

What it loads, and from where, is in loading.py. A CPU build has classes of its own for workers and model runners; their
calls are told as the worker's and the model runner's, as everywhere in this catalog.

vLLM: vllm/entrypoints/llm.py, vllm/engine/arg_utils.py, vllm/config/, vllm/v1/engine/core.py, vllm/v1/executor/.
"""

import sys
from pathlib import Path
from typing import Any

from tracellm.probes.catalog.engine import startup as ours
from tracellm.probes.catalog.helpers import argument
from tracellm.probes.catalog.token_texts import tokenizer_facts
from tracellm.probes.catalog.vllm import loading
from tracellm.probes.catalog.vllm.entries import at, heirs, like, plain, told_as, users_line
from tracellm.probes.catalog.vllm.request_context import know_engine
from tracellm.probes.catalog.vllm.workers import tell_workers
from tracellm.probes.wrapping.probe import Entry

__all__ = ["ENTRIES"]

_SECRETS = ("token", "password", "secret", "api_key")
_LONGEST_VALUE = 300

# -- LLM(...) and its settings ----------------------------------------------------------------------------------------


def _capture_llm(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    given = [("model", str(args[1]))] if len(args) > 1 else []
    told = ((name, "..." if name.endswith(_SECRETS) else str(value)[:_LONGEST_VALUE]) for name, value in kwargs.items())
    return users_line(), [*given, *told]


_SETTINGS = (
    ("model_config", ("served_model_name", "dtype", "seed", "max_model_len", "quantization", "enforce_eager")),
    ("cache_config", ("block_size", "gpu_memory_utilization", "num_gpu_blocks_override", "enable_prefix_caching")),
    ("cache_config", ("cache_dtype",)),
    ("scheduler_config", ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "policy")),
    ("scheduler_config", ("async_scheduling",)),
    ("parallel_config", ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")),
    ("parallel_config", ("distributed_executor_backend",)),
    ("device_config", ("device",)),
)
"""Of those a version does not have, nothing is told."""


def _capture_config(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    told = [("VLLM_ENABLE_V1_MULTIPROCESSING", str(_multiprocessing()))]
    for part, settings in _SETTINGS:
        holder = getattr(result, part, None)
        told += [(name, str(getattr(holder, name))[:_LONGEST_VALUE]) for name in settings if hasattr(holder, name)]
    return told


def _multiprocessing() -> int:
    """What vLLM reads of that variable; 1 where it is not set, as in all versions since 0.8."""
    return int(bool(getattr(sys.modules["vllm.envs"], "VLLM_ENABLE_V1_MULTIPROCESSING", True)))


# -- engines, and the tokenizer ---------------------------------------------------------------------------------------


def _capture_engine(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    engine = args[0]
    know_engine(engine)
    return _name_of(engine.model_config), tokenizer_facts(engine.output_processor.tokenizer)


def _name_of(model: Any) -> str:
    """As the user, or a client of the server, calls the model: the first of its names."""
    told = model.served_model_name
    return str(told[0] if isinstance(told, list | tuple) and told else told or model.model)


def _capture_core(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config, executor = argument(args, kwargs, 1, "vllm_config"), argument(args, kwargs, 2, "executor_class")
    model = config.model_config
    folder = None if model.skip_tokenizer_init or not Path(str(model.tokenizer)).is_dir() else str(model.tokenizer)
    return str(getattr(executor, "__name__", executor)), _name_of(model), folder or _fetched(model)


def _fetched(model: Any) -> str | None:
    """The folder of the hub's cache that the tokenizer is in; None where it is in none."""
    hub = sys.modules.get("huggingface_hub")
    if hub is None or model.skip_tokenizer_init:
        return None
    file = hub.try_to_load_from_cache(str(model.tokenizer), "tokenizer.json", revision=model.tokenizer_revision)
    return str(Path(file).parent) if isinstance(file, str) else None


# -- the KV cache -----------------------------------------------------------------------------------------------------


def _capture_kv_cache(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config = result[-1] if isinstance(result, tuple) else result  # 0.11.1 also returns the numbers of blocks
    groups = config.kv_cache_groups
    num_bytes = sum(tensor.size for tensor in config.kv_cache_tensors)
    return config.num_blocks, groups[0].kv_cache_spec.block_size if groups else 0, len(groups), num_bytes


_CORE = "v1.engine.core:EngineCore"
_WRAPPER = "v1.worker.worker_base:WorkerWrapperBase"
_EXECUTOR = "v1.executor.abstract:Executor"
_RPC = "UniProcExecutor.collective_rpc"
_CPU_WORKER, _CPU_RUNNER = "v1.worker.cpu_worker:CPUWorker", "v1.worker.cpu_model_runner:CPUModelRunner"
_RUNNER = "v1.worker.gpu_model_runner:GPUModelRunner"
_SECOND_RUNNER = "v1.worker.gpu.model_runner:GPUModelRunner"
_COORDINATORS = ("UnitaryKVCacheCoordinator", "HybridKVCacheCoordinator", "KVCacheCoordinatorNoPrefixCache")

ENTRIES = (
    like(ours.ENTRIES, "LLM.__init__", "entrypoints.llm:LLM.__init__", capture=_capture_llm),
    *plain("request", "v1.engine.llm_engine", "LLMEngine.from_engine_args", "LLMEngine.from_vllm_config"),
    like(
        ours.ENTRIES,
        "EngineArgs.create_engine_config",
        "engine.arg_utils:EngineArgs.create_engine_config",
        capture=_capture_config,
    ),
    *plain("request", "engine.arg_utils", "EngineArgs.create_model_config"),
    *plain("request", "v1.executor.abstract", "Executor.get_class"),
    *(
        like(ours.ENTRIES, "LLMEngine.__init__", f"v1.engine.{engine}.__init__", capture=_capture_engine)
        for engine in ("llm_engine:LLMEngine", "async_llm:AsyncLLM")
    ),
    *plain("request", "transformers_utils.tokenizer", "init_tokenizer_from_configs"),
    *plain("request", "renderers.registry", "renderer_from_config"),
    Entry(
        at("v1.engine.processor:Processor.__init__"),
        "step",
        other_targets=(at("v1.engine.input_processor:InputProcessor.__init__"),),
    ),
    *plain("step", "v1.engine.output_processor", "OutputProcessor.__init__"),
    like(ours.ENTRIES, "EngineCore.__init__", _CORE + ".__init__", capture=_capture_core),
    *plain("request", "v1.executor.abstract", "Executor.__init__"),
    *plain("request", "v1.executor.uniproc_executor", "UniProcExecutor._init_executor"),
    *plain("request", "v1.executor.multiproc_executor", "MultiprocExecutor._init_executor"),
    *(Entry(at(f"{_WRAPPER}.{method}"), "request", lifeline="Worker") for method in ("init_worker", "init_device")),
    *heirs("request", "v1.worker.gpu_worker", "Worker.__init__", "Worker.init_device", "Worker.load_model"),
    *told_as("Worker", "request", _CPU_WORKER, "init_device"),
    *told_as("GPUModelRunner", "request", _RUNNER, "__init__", "load_model"),
    *told_as("GPUModelRunner", "request", _CPU_RUNNER, "load_model"),
    *told_as("GPUModelRunner", "request", _SECOND_RUNNER, "__init__", "load_model"),
    *loading.ENTRIES,
    like(
        ours.ENTRIES,
        "EngineCore._initialize_kv_caches",
        _CORE + "._initialize_kv_caches",
        capture=_capture_kv_cache,
    ),
    *plain("request", "v1.executor.abstract", "Executor.get_kv_cache_specs"),
    like(ours.ENTRIES, "UniProcExecutor.determine_available_memory", _EXECUTOR + ".determine_available_memory"),
    *plain("request", "v1.executor.abstract", "Executor.initialize_from_config"),
    like(ours.ENTRIES, _RPC, "v1.executor.uniproc_executor:UniProcExecutor.collective_rpc"),
    like(
        ours.ENTRIES,
        _RPC,
        "v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        before=tell_workers,
    ),
    *plain("request", "v1.core.kv_cache_utils", "get_kv_cache_configs"),
    *heirs("step", "v1.worker.gpu_worker", "Worker.get_kv_cache_spec", "Worker.determine_available_memory"),
    *told_as("Worker", "step", _CPU_WORKER, "determine_available_memory"),
    Entry(at(_WRAPPER + ".initialize_from_config"), "step", lifeline="Worker"),
    *heirs("step", "v1.worker.gpu_worker", "Worker.initialize_from_config", "Worker.compile_or_warm_up_model"),
    *told_as("Worker", "step", _CPU_WORKER, "compile_or_warm_up_model"),
    *(
        entry
        for runner in (_RUNNER, _SECOND_RUNNER)
        for entry in told_as(
            "GPUModelRunner", "step", runner, "get_kv_cache_spec", "initialize_kv_cache", "profile_run"
        )
    ),
    *plain("request", "v1.core.sched.scheduler", "Scheduler.__init__"),
    *plain("step", "v1.core.kv_cache_manager", "KVCacheManager.__init__"),
    *plain("step", "v1.core.kv_cache_coordinator", *(f"{coordinator}.__init__" for coordinator in _COORDINATORS)),
    *plain("step", "v1.core.block_pool", "BlockPool.__init__"),
)
