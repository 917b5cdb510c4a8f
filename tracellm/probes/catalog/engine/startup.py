"""Start-up of the engine: settings, weights and the KV cache, from `LLM(...)` on.

vLLM: vllm/entrypoints/llm.py, vllm/engine/arg_utils.py, vllm/v1/engine/core.py, vllm/v1/executor/.
"""

import sys
from pathlib import Path
from typing import Any

from tracellm.probes.catalog.entries import argument, ours_only, plain, users_line, vllm_only
from tracellm.probes.catalog.model_shape import device_name, model_config, model_shape
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.token_texts import learn_tokenizer, learn_tokenizer_in, tokenizer_facts
from tracellm.probes.wrapping.summary import brief, caller_attributes, write
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "capture_engine", "learn_engine", "model_name", "settings"]

_SECRETS = ("token", "password", "secret", "api_key")
MAX_CHARACTERS = 300
"""Characters that are kept of an argument of `LLM(...)` and of a setting."""

# -- LLM(...) and its settings ----------------------------------------------------------------------------------------


def _capture_llm(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    model = [f"model={args[1]}"] if len(args) > 1 else []
    rest = (
        f"{name}={'...' if name.endswith(_SECRETS) else str(value)[:MAX_CHARACTERS]}" for name, value in kwargs.items()
    )
    return users_line(), [*model, *rest]


def _llm(facts: Any) -> dict[str, Any]:
    line, arguments = facts
    return {**caller_attributes(line), **({names.ARGUMENTS: arguments} if arguments else {})}


def settings(config: Any, parts: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    """Return settings of a `VllmConfig` as `name=value`; `parts` are sections with the names of their settings. Names
    that a version does not have are left out."""
    found = []
    for part, wanted in parts:
        section = getattr(config, part, None)
        for name in wanted:
            if hasattr(section, name):
                value = str(getattr(section, name))[:MAX_CHARACTERS].removeprefix("torch.")
                found.append(f"{name.removeprefix('served_')}={value}")
    return found


_SETTINGS = (
    ("model_config", ("served_model_name", "dtype", "seed", "max_model_len")),
    ("cache_config", ("block_size", "gpu_memory_utilization", "num_gpu_blocks_override", "enable_prefix_caching")),
    (
        "scheduler_config",
        ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "policy", "long_prefill_token_threshold"),
    ),
    ("device_config", ("device",)),
)


def _capture_config(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the settings; those of workers only if they have processes of their own, and sizes other than 1."""
    parallel, workers = result.parallel_config, []
    if parallel.distributed_executor_backend != "uni":
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        workers = [name for name in sizes if getattr(parallel, name) > 1]
        workers = ["distributed_executor_backend", *workers]
    parts = (*_SETTINGS, ("parallel_config", tuple(workers)))
    return {names.CONFIG: [*settings(result, parts), f"attention_backend={result.ops_choice.name}"]}


def _capture_libraries(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return {names.RESULT: ", ".join(f"{name} {sys.modules[name].__version__}" for name in args)}


# -- the front half's engine, and the engine core, which may have a process of its own --------------------------------


def capture_engine(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the model's name and the tokenizer of the `LLMEngine` or `AsyncLLM` whose method was called."""
    engine = args[0]
    return model_name(engine.model_config), tokenizer_facts(engine.output_processor.tokenizer)


def model_name(config: Any) -> str:
    """Return the name of a `ModelConfig` that users and clients call the model by: the first, if there are several."""
    served = config.served_model_name
    return str(served[0] if isinstance(served, list | tuple) and served else served or config.model)


def learn_engine(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Use this engine's model and tokenizer from now on."""
    if facts is not None:
        tracker.model, tokenizer = facts
        learn_tokenizer(tracker, tokenizer)


def _capture_core(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config, executor = argument(args, kwargs, 1, "vllm_config"), argument(args, kwargs, 2, "executor_class")
    return str(getattr(executor, "__name__", executor)), model_name(config.model_config), _folder(config.model_config)


def _folder(model: Any) -> str | None:
    """Return the folder that holds the tokenizer: that of the model, or the one in the Hugging Face cache."""
    if model.skip_tokenizer_init:
        return None
    if Path(str(model.tokenizer)).is_dir():
        return str(model.tokenizer)
    if (hub := sys.modules.get("huggingface_hub")) is None:
        return None
    revision = getattr(model, "tokenizer_revision", None)
    file = hub.try_to_load_from_cache(str(model.tokenizer), "tokenizer.json", revision=revision)
    return str(Path(file).parent) if isinstance(file, str) else None


def _core(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: ["vllm_config=VllmConfig", f"executor_class={facts[0]}"]}


def _learn_core(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is not None:
        _, tracker.model, folder = facts
        if folder is not None:
            learn_tokenizer_in(tracker, folder)


# -- weights ----------------------------------------------------------------------------------------------------------


def _capture_files(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    count = len(result.files)
    return {
        names.LOAD_SOURCE: str(result.source),
        names.LOAD_FILES: [path.name for path in result.files],
        names.RESULT: f"{count} {'file' if count == 1 else 'files'}, {result.num_bytes} bytes",
    }


def _capture_weights(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    model = argument(args, kwargs, 1, "model")
    return {
        names.LOAD_ARCHITECTURE: type(model).__name__,
        names.LOAD_BYTES: argument(args, kwargs, 2, "weight_files").num_bytes,
        names.LOAD_TENSORS: result.num_tensors,
        names.LOAD_PARAMETERS: result.num_parameters,
        names.LOAD_DTYPE: str(result.dtype).removeprefix("torch."),
        **model_shape(model),
        names.RESULT: f"{result.num_tensors} tensors, {result.num_parameters} parameters",
    }


def _capture_device(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return {
        names.LOAD_DEVICE: str(result.device),
        **device_name(result.device),
        names.RESULT: f"{result.num_bytes} bytes on {result.device}",
    }


def _capture_ops(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config = args[0].vllm_config
    seconds = config.ops_choice.compile_seconds
    return {
        names.LOAD_OPS: config.ops_choice.name,
        names.LOAD_OPS_REASON: config.ops_choice.reason,
        **({names.LOAD_COMPILE_SECONDS: seconds} if seconds else {}),
        **model_config(config.model_config.hf_config),
    }


# -- the KV cache, the scheduler, remote calls ------------------------------------------------------------------------


def _capture_memory(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return {names.KV_AVAILABLE: min(result), names.RESULT: f"{min(result)} bytes"}


def _capture_kv_cache(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config = result[-1] if isinstance(result, tuple) else result  # vLLM 0.11.1 also returns the numbers of blocks
    groups = config.kv_cache_groups
    block_size = groups[0].kv_cache_spec.block_size if groups else 0
    windows = [getattr(group.kv_cache_spec, "sliding_window", None) or 0 for group in groups]
    return {
        names.KV_NUM_BLOCKS: config.num_blocks,
        names.KV_BLOCK_SIZE: block_size,
        names.KV_NUM_GROUPS: len(groups),
        **({names.KV_WINDOWS: windows} if any(windows) else {}),
        names.KV_BYTES: sum(tensor.size for tensor in config.kv_cache_tensors),
        names.RESULT: f"{config.num_blocks} blocks of {block_size} tokens",
    }


def _capture_groups(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    groups = sys.modules["tracellm.engine.distributed.parallel_state"]
    rank = sys.modules["torch"].distributed.get_rank()
    tp_group, pp_group = groups.get_tp_group(), groups.get_pp_group()
    return {
        names.ARGUMENTS: [f"tensor_model_parallel_size={args[0]}", f"device={args[1]}"],
        names.WORKER_RANK: rank,
        names.WORKER_TP_RANKS: list(tp_group.ranks) if tp_group.world_size > 1 else [rank],
        names.WORKER_PP_RANKS: list(pp_group.ranks) if pp_group.world_size > 1 else [rank],
    }


def _capture_own_kv_cache(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the size of this worker's KV cache; the engine core's spans have that of a single one."""
    arguments = {names.ARGUMENTS: ["kv_cache_config=KVCacheConfig"]}
    if args[0].vllm_config.parallel_config.world_size == 1:
        return arguments
    config = argument(args, kwargs, 1, "kv_cache_config")
    return {**arguments, names.WORKER_KV_BYTES: sum(tensor.size for tensor in config.kv_cache_tensors)}


def _capture_scheduler(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config = args[0].scheduler_config
    return {
        names.SCHEDULER_ASYNC: config.async_scheduling,
        names.SCHEDULER_ASYNC_REASON: config.async_scheduling_reason,
    }


def _capture_rpc(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    method = argument(args, kwargs, 1, "method")
    only = result[0] if isinstance(result, list) and len(result) == 1 else result
    return str(method) if isinstance(method, str) else getattr(method, "__name__", "function"), brief(only)


def _rpc(facts: Any) -> dict[str, Any]:
    method, result = facts
    arguments = {names.ARGUMENTS: [f"method={method}"]}
    return arguments if result is None else {**arguments, names.RESULT: f"[{write(result)}]"}


_LOADER = "model_executor.model_loader.default_loader:DefaultModelLoader"
_UNIPROC = "executor.uniproc_executor:UniProcExecutor"
_MULTIPROC = "executor.multiproc_executor:MultiprocExecutor"
_RAY = "executor.ray_executor:RayDistributedExecutor"
_WORKER_PROC = "executor.multiproc_executor:WorkerProc"
_WRAPPER = "worker.worker_base:WorkerWrapperBase"
_WORKER = "worker.gpu_worker:Worker"
_RUNNER = "worker.gpu_model_runner:GPUModelRunner"
_MEMORY: dict[str, Any] = {"record": _capture_memory}

ENTRIES = (
    *plain(
        "request",
        "entrypoints.llm:LLM",
        "__init__",
        capture=_capture_llm,
        attributes=_llm,
        phase="startup",
        even_if_raises=True,
    ),
    *plain("request", "frontend.llm_engine:LLMEngine", "from_engine_args"),
    *ours_only("request", "config.arg_utils:EngineArgs", "create_engine_config", record=_capture_config),
    *plain("request", "config.arg_utils:EngineArgs", "create_model_config"),
    *ours_only("request", "config.libraries:", "import_libraries", record=_capture_libraries),
    *plain("request", "executor.abstract:Executor", "get_class"),
    *ours_only("request", "frontend.llm_engine:LLMEngine", "__init__", capture=capture_engine, observe=learn_engine),
    *ours_only("request", "frontend.llm_engine:", "get_tokenizer"),
    *plain("step", "frontend.processor:Processor", "__init__", later="v1.engine.input_processor:InputProcessor"),
    *plain("step", "frontend.output_processor:OutputProcessor", "__init__"),
    *plain(
        "request",
        "core.core:EngineCore",
        "__init__",
        inherited=True,
        capture=_capture_core,
        attributes=_core,
        observe=_learn_core,
    ),
    *ours_only("request", _UNIPROC, "__init__"),
    *plain("request", _UNIPROC, "_init_executor"),
    *ours_only("request", _MULTIPROC, "__init__", "_init_executor", "_start_workers", "shutdown"),
    *ours_only("request", _RAY, "__init__", "_init_executor", "_start_workers", "_place", "shutdown"),
    *ours_only("request", _WORKER_PROC, "__init__"),
    *ours_only("request", "executor.ray_executor:RayWorkerProc", "__init__", "init_worker"),
    *ours_only("request", "distributed.parallel_state:", "init_distributed_environment"),
    *ours_only("request", "distributed.parallel_state:", "initialize_model_parallel", record=_capture_groups),
    *plain("request", _WRAPPER, "init_worker", "init_device", lifeline="Worker"),
    *plain("request", _WORKER, "__init__", "init_device", "load_model", shown_as="Worker"),
    *plain("request", _RUNNER, "__init__", shown_as="GPUModelRunner"),
    *ours_only("request", _RUNNER, "load_model", record=_capture_ops),
    *ours_only("request", _LOADER, "load_model"),
    *ours_only("request", _LOADER, "_prepare_weights", record=_capture_files),
    *ours_only("request", _LOADER, "load_weights", record=_capture_weights),
    *ours_only("request", _LOADER, "place_on_device", record=_capture_device),
    *plain("request", "core.core:EngineCore", "_initialize_kv_caches", inherited=True, record=_capture_kv_cache),
    *ours_only("request", _UNIPROC, "get_kv_cache_specs", "initialize_from_config"),
    *ours_only("request", _MULTIPROC, "get_kv_cache_specs", "initialize_from_config"),
    *ours_only("request", _RAY, "get_kv_cache_specs", "initialize_from_config"),
    *vllm_only("request", "v1.executor.abstract:Executor", "get_kv_cache_specs", "initialize_from_config"),
    *ours_only("request", _UNIPROC, "determine_available_memory", **_MEMORY),
    *ours_only("request", _MULTIPROC, "determine_available_memory", **_MEMORY),
    *ours_only("request", _RAY, "determine_available_memory", **_MEMORY),
    *vllm_only("request", "v1.executor.abstract:Executor", "determine_available_memory", **_MEMORY),
    *plain("step", _UNIPROC, "collective_rpc", capture=_capture_rpc, attributes=_rpc, in_short=True),
    *ours_only("step", _MULTIPROC, "collective_rpc", capture=_capture_rpc, attributes=_rpc, in_short=True),
    *ours_only("step", _RAY, "collective_rpc", capture=_capture_rpc, attributes=_rpc, in_short=True),
    *ours_only("request", "core.kv_cache.kv_cache_utils:", "get_kv_cache_configs"),
    *plain("step", _WRAPPER, "initialize_from_config", lifeline="Worker"),
    *plain(
        "step", _WORKER, "get_kv_cache_spec", "determine_available_memory", "initialize_from_config", shown_as="Worker"
    ),
    *plain("step", _RUNNER, "get_kv_cache_spec", "profile_run", shown_as="GPUModelRunner"),
    *ours_only("step", _RUNNER, "initialize_kv_cache", shown_as="GPUModelRunner", record=_capture_own_kv_cache),
    *ours_only(
        "request", "core.sched.scheduler:Scheduler", "__init__", shown_as="Scheduler", record=_capture_scheduler
    ),
    *plain("step", "core.kv_cache.kv_cache_manager:KVCacheManager", "__init__"),
    *plain("step", "core.kv_cache.kv_cache_coordinator:UnitaryKVCacheCoordinator", "__init__"),
    *plain("step", "core.kv_cache.block_pool:BlockPool", "__init__"),
)
