"""Start-up: from `LLM(...)` to an engine that waits for requests.

Worth telling: the settings that came out, which client was chosen and by which rule, what was loaded from where, and
how the memory became KV blocks.
"""

import sys
from typing import Any

from tracellm.probes.catalog.helpers import argument, capture_engine, learn_engine, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.token_texts import learn_tokenizer_in
from tracellm.probes.wrapping.probe import Entry
from tracellm.probes.wrapping.summary import brief, caller, caller_attributes, write
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

# -- LLM(...) and its settings ----------------------------------------------------------------------------------------


def _capture_llm(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    given = [("model", str(args[1]))] if len(args) > 1 else []
    return caller(), [*given, *((name, str(value)) for name, value in kwargs.items())]


def _llm(facts: Any) -> dict[str, Any]:
    where, arguments = facts
    told = [f"{name}={value}" for name, value in arguments]
    return {**caller_attributes(where), **({names.ARGUMENTS: told} if told else {})}


_SETTINGS = (
    ("model_config", ("served_model_name", "dtype", "seed", "max_model_len")),
    ("cache_config", ("block_size", "gpu_memory_utilization", "num_gpu_blocks_override", "enable_prefix_caching")),
    ("scheduler_config", ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "policy")),
    ("device_config", ("device",)),
)


def _capture_config(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    told = [(name, str(getattr(getattr(result, part), name))) for part, settings in _SETTINGS for name in settings]
    return [*told, ("attention_backend", result.ops_choice.name)]


def _config(facts: Any) -> dict[str, Any]:
    return {names.CONFIG: [f"{name.removeprefix('served_')}={value.removeprefix('torch.')}" for name, value in facts]}


def _capture_libraries(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return [(name, str(sys.modules[name].__version__)) for name in args]


def _libraries(facts: Any) -> dict[str, Any]:
    return {names.RESULT: ", ".join(f"{name} {version}" for name, version in facts)}


# -- the engine core, which may have a process of its own -------------------------------------------------------------


def _capture_core(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config, executor = argument(args, kwargs, 1, "vllm_config"), argument(args, kwargs, 2, "executor_class")
    model = config.model_config
    return executor.__name__, model.served_model_name, None if model.skip_tokenizer_init else str(model.tokenizer)


def _core(facts: Any) -> dict[str, Any]:
    return {names.ARGUMENTS: ["vllm_config=VllmConfig", f"executor_class={facts[0]}"]}


def _learn_core(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None:
        _, tracker.model, tokenizer = facts
        if tokenizer is not None:
            learn_tokenizer_in(tracker, tokenizer)


# -- loading ----------------------------------------------------------------------------------------------------------


def _capture_found(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return str(result.source), [path.name for path in result.files], result.num_bytes


def _found(facts: Any) -> dict[str, Any]:
    source, files, num_bytes = facts
    told = f"{len(files)} {'file' if len(files) == 1 else 'files'}, {num_bytes} bytes"
    return {names.LOAD_SOURCE: source, names.LOAD_FILES: files, names.RESULT: told}


def _capture_read(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    model, files = argument(args, kwargs, 1, "model"), argument(args, kwargs, 2, "weight_files")
    return type(model).__name__, files.num_bytes, result.num_tensors, result.num_parameters, str(result.dtype)


def _read(facts: Any) -> dict[str, Any]:
    architecture, num_bytes, tensors, parameters, dtype = facts
    return {
        names.LOAD_ARCHITECTURE: architecture,
        names.LOAD_BYTES: num_bytes,
        names.LOAD_TENSORS: tensors,
        names.LOAD_PARAMETERS: parameters,
        names.LOAD_DTYPE: dtype.removeprefix("torch."),
        names.RESULT: f"{tensors} tensors, {parameters} parameters",
    }


def _capture_placed(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return str(result.device), result.num_bytes


def _placed(facts: Any) -> dict[str, Any]:
    device, num_bytes = facts
    return {names.LOAD_DEVICE: device, names.RESULT: f"{num_bytes} bytes on {device}"}


def _capture_ops(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    choice = args[0].vllm_config.ops_choice
    return choice.name, choice.reason


def _ops(facts: Any) -> dict[str, Any]:
    return {names.LOAD_OPS: facts[0], names.LOAD_OPS_REASON: facts[1]}


# -- the KV cache -----------------------------------------------------------------------------------------------------


def _capture_memory(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return min(result)


def _memory(facts: Any) -> dict[str, Any]:
    return {names.KV_AVAILABLE: facts, names.RESULT: f"{facts} bytes"}


def _capture_kv_cache(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    groups = result.kv_cache_groups
    num_bytes = sum(tensor.size for tensor in result.kv_cache_tensors)
    return result.num_blocks, groups[0].kv_cache_spec.block_size, len(groups), num_bytes


def _kv_cache(facts: Any) -> dict[str, Any]:
    num_blocks, block_size, num_groups, num_bytes = facts
    return {
        names.KV_NUM_BLOCKS: num_blocks,
        names.KV_BLOCK_SIZE: block_size,
        names.KV_NUM_GROUPS: num_groups,
        names.KV_BYTES: num_bytes,
        names.RESULT: f"{num_blocks} blocks of {block_size} tokens",
    }


# -- the scheduler ----------------------------------------------------------------------------------------------------


def _capture_scheduler(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    config = args[0].scheduler_config
    return config.async_scheduling, config.async_scheduling_reason


def _scheduler(facts: Any) -> dict[str, Any]:
    return {names.SCHEDULER_ASYNC: facts[0], names.SCHEDULER_ASYNC_REASON: facts[1]}


# -- collective_rpc: which method it asks for is the point ------------------------------------------------------------


def _capture_rpc(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    method = argument(args, kwargs, 1, "method")
    only = result[0] if isinstance(result, list) and len(result) == 1 else result
    return str(method) if isinstance(method, str) else getattr(method, "__name__", "function"), brief(only)


def _rpc(facts: Any) -> dict[str, Any]:
    method, result = facts
    told = {names.ARGUMENTS: [f"method={method}"]}
    return told if result is None else {**told, names.RESULT: f"[{write(result)}]"}


_CORE = "tracellm.engine.core.core:EngineCore"
_WRAPPER = "tracellm.engine.worker.worker_base:WorkerWrapperBase"
_LOADER = "tracellm.engine.model_executor.model_loader.default_loader:DefaultModelLoader"
_EXECUTOR = "tracellm.engine.executor.uniproc_executor:UniProcExecutor"

ENTRIES = (
    Entry(
        "tracellm.engine.entrypoints.llm:LLM.__init__",
        "request",
        _capture_llm,
        _llm,
        phase="startup",
        even_if_raises=True,
    ),
    *plain("request", "frontend.llm_engine", "LLMEngine.from_engine_args"),
    Entry("tracellm.engine.config.arg_utils:EngineArgs.create_engine_config", "request", _capture_config, _config),
    *plain("request", "config.arg_utils", "EngineArgs.create_model_config"),
    Entry("tracellm.engine.config.libraries:import_libraries", "request", _capture_libraries, _libraries),
    *plain("request", "executor.abstract", "Executor.get_class"),
    Entry("tracellm.engine.frontend.llm_engine:LLMEngine.__init__", "request", capture_engine, observe=learn_engine),
    *plain("request", "frontend.llm_engine", "get_tokenizer"),
    *plain("step", "frontend.processor", "Processor.__init__"),
    *plain("step", "frontend.output_processor", "OutputProcessor.__init__"),
    Entry(_CORE + ".__init__", "request", _capture_core, _core, observe=_learn_core, span_name="EngineCore.__init__"),
    *plain("request", "executor.uniproc_executor", "UniProcExecutor.__init__", "UniProcExecutor._init_executor"),
    Entry(_WRAPPER + ".init_worker", "request", lifeline="Worker"),
    Entry(_WRAPPER + ".init_device", "request", lifeline="Worker"),
    *plain("request", "worker.gpu_worker", "Worker.__init__", "Worker.init_device", "Worker.load_model"),
    *plain("request", "worker.gpu_model_runner", "GPUModelRunner.__init__"),
    Entry("tracellm.engine.worker.gpu_model_runner:GPUModelRunner.load_model", "request", _capture_ops, _ops),
    *plain("request", "model_executor.model_loader.default_loader", "DefaultModelLoader.load_model"),
    Entry(_LOADER + "._prepare_weights", "request", _capture_found, _found),
    Entry(_LOADER + ".load_weights", "request", _capture_read, _read),
    Entry(_LOADER + ".place_on_device", "request", _capture_placed, _placed),
    Entry(
        _CORE + "._initialize_kv_caches",
        "request",
        _capture_kv_cache,
        _kv_cache,
        span_name="EngineCore._initialize_kv_caches",
    ),
    *plain("request", "executor.uniproc_executor", "UniProcExecutor.get_kv_cache_specs"),
    Entry(_EXECUTOR + ".determine_available_memory", "request", _capture_memory, _memory),
    *plain("request", "executor.uniproc_executor", "UniProcExecutor.initialize_from_config"),
    Entry(_EXECUTOR + ".collective_rpc", "step", _capture_rpc, _rpc, in_short=True),
    *plain("request", "core.kv_cache.kv_cache_utils", "get_kv_cache_config"),
    *plain("step", "worker.gpu_worker", "Worker.get_kv_cache_spec", "Worker.determine_available_memory"),
    Entry(_WRAPPER + ".initialize_from_config", "step", lifeline="Worker"),
    *plain("step", "worker.gpu_worker", "Worker.initialize_from_config"),
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner.get_kv_cache_spec", "GPUModelRunner.initialize_kv_cache"),
    *plain("step", "worker.gpu_model_runner", "GPUModelRunner.profile_run"),
    Entry(
        "tracellm.engine.core.sched.scheduler:Scheduler.__init__",
        "request",
        _capture_scheduler,
        _scheduler,
        lifeline="Scheduler",
        span_name="Scheduler.__init__",
    ),
    *plain("step", "core.kv_cache.kv_cache_manager", "KVCacheManager.__init__"),
    *plain("step", "core.kv_cache.kv_cache_coordinator", "UnitaryKVCacheCoordinator.__init__"),
    *plain("step", "core.kv_cache.block_pool", "BlockPool.__init__"),
)
