"""Start-up of a vLLM where it differs: its settings, and the files and parameters that it loads.

A CPU build has classes of its own for workers and model runners, whose spans are named as the GPU's. The sizes of the
weight files and their numbers of tensors are read from the files again, after the call: for safetensors files that is
a header.

vLLM: vllm/config/, vllm/v1/worker/, vllm/model_executor/model_loader/default_loader.py, base_loader.py.
"""

import sys
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from tracellm.probes.catalog.engine import startup as ours
from tracellm.probes.catalog.entries import argument, gives, like, vllm_only
from tracellm.probes.catalog.model_shape import device_name, model_config, model_shape
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.catalog.vllm.processes import attach_call_context
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "default_stop_tokens"]

# -- settings ---------------------------------------------------------------------------------------------------------

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


def _capture_config(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    multiprocessing = bool(getattr(sys.modules["vllm.envs"], "VLLM_ENABLE_V1_MULTIPROCESSING", True))
    variable = f"VLLM_ENABLE_V1_MULTIPROCESSING={int(multiprocessing)}"
    return {names.CONFIG: [variable, *ours.settings(result, _SETTINGS)]}


_stop_tokens: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()
"""Stop tokens of the model's configuration, by the OutputProcessor of each engine."""


def _capture_engine(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    engine = args[0]
    inputs = getattr(engine, "input_processor", None) or getattr(engine, "processor", None)
    eos = (getattr(inputs, "generation_config_fields", None) or {}).get("eos_token_id")
    _stop_tokens[engine.output_processor] = frozenset([eos] if isinstance(eos, int) else eos or ())
    return ours.capture_engine(args, kwargs, result)


def default_stop_tokens(output_processor: Any) -> frozenset[int]:
    """Return the stop tokens of the model's configuration, which no user chose."""
    return _stop_tokens.get(output_processor, frozenset())


# -- weights ----------------------------------------------------------------------------------------------------------

_MAX_HEADER = 100_000_000
"""Bytes that the safetensors format allows its header."""


def _capture_files(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return str(argument(args, kwargs, 1, "model_name_or_path")), [str(file) for file in result[1]]


def _files(facts: Any) -> dict[str, Any]:
    source, files = facts
    size = f"{len(files)} {'file' if len(files) == 1 else 'files'}, {_num_bytes(files)} bytes"
    return {names.LOAD_SOURCE: source, names.LOAD_FILES: [Path(file).name for file in files], names.RESULT: size}


def _num_bytes(files: list[str]) -> int:
    return sum(Path(file).stat().st_size for file in files if Path(file).is_file())


def _num_tensors(files: list[str]) -> int | None:
    """Return the number of tensors in safetensors files; None if a file is of another kind."""
    found = 0
    for file in map(Path, files):
        if file.suffix != ".safetensors" or not file.is_file():
            return None
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = msgspec.json.decode(opened.read(min(length, _MAX_HEADER)))
        found += len(header) - ("__metadata__" in header)
    return found


def _capture_weights(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    model = argument(args, kwargs, 1, "model")
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    return {
        names.LOAD_ARCHITECTURE: type(model).__name__,
        names.LOAD_PARAMETERS: count,
        names.LOAD_DTYPE: str(parameters[0].dtype).removeprefix("torch.") if parameters else "",
        **model_shape(model),
        **model_config(argument(args, kwargs, 2, "model_config").hf_config),
        names.RESULT: f"{count} parameters",
    }


def _complete_weights(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    if facts is None or "files" not in child_facts:
        return
    _, files = child_facts["files"]
    span.attributes[names.LOAD_BYTES] = _num_bytes(files)
    if (tensors := _num_tensors(files)) is not None:
        span.attributes[names.LOAD_TENSORS] = tensors
        span.attributes[names.RESULT] = f"{tensors} tensors, {facts[names.RESULT]}"


def _capture_device(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    parameters = list(argument(args, kwargs, 0, "model").parameters())
    num_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
    device = str(parameters[0].device) if parameters else ""
    return {
        names.LOAD_DEVICE: device,
        **(device_name(parameters[0].device) if parameters else {}),
        names.ARGUMENTS: ["model=Module"],
        names.RESULT: f"{num_bytes} bytes on {device}",
    }


def _capture_worker(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture which of several workers this is, and the size of its KV cache."""
    arguments = {names.ARGUMENTS: ["kv_cache_config=KVCacheConfig"]}
    if args[0].vllm_config.parallel_config.world_size == 1:
        return arguments
    groups = sys.modules["vllm.distributed.parallel_state"]
    tp_group, pp_group = groups.get_tp_group(), groups.get_pp_group()
    return {
        **arguments,
        names.WORKER_RANK: tp_group.rank,
        names.WORKER_TP_RANKS: list(tp_group.ranks),
        names.WORKER_PP_RANKS: list(pp_group.ranks),
        names.WORKER_KV_BYTES: sum(
            tensor.size for tensor in argument(args, kwargs, 1, "kv_cache_config").kv_cache_tensors
        ),
    }


_LOADER = "model_executor.model_loader.default_loader:DefaultModelLoader"
_SECOND_RUNNER = "v1.worker.gpu.model_runner:GPUModelRunner"

ENTRIES = (
    *vllm_only("request", "v1.engine.llm_engine:LLMEngine", "from_vllm_config"),
    like(ours.ENTRIES, "engine.arg_utils:EngineArgs.create_engine_config", capture=_capture_config),
    like(ours.ENTRIES, "v1.engine.llm_engine:LLMEngine.__init__", capture=_capture_engine),
    like(ours.ENTRIES, "v1.engine.async_llm:AsyncLLM.__init__", "LLMEngine.__init__", capture=_capture_engine),
    *vllm_only("request", "transformers_utils.tokenizer:", "init_tokenizer_from_configs", removed="0.32.0"),
    *vllm_only("request", "renderers.registry:", "renderer_from_config", added="0.32.0"),
    *vllm_only("request", "v1.executor.abstract:Executor", "__init__"),
    *vllm_only("request", "v1.executor.multiproc_executor:MultiprocExecutor", "_init_executor"),
    *vllm_only("request", "v1.worker.cpu_worker:CPUWorker", "init_device", shown_as="Worker"),
    *vllm_only("request", "v1.worker.gpu_model_runner:GPUModelRunner", "load_model", shown_as="GPUModelRunner"),
    *vllm_only("request", "v1.worker.cpu_model_runner:CPUModelRunner", "load_model", shown_as="GPUModelRunner"),
    *vllm_only("request", _SECOND_RUNNER, "__init__", "load_model", added="0.32.0", shown_as="GPUModelRunner"),
    *vllm_only("request", "model_executor.model_loader.base_loader:BaseModelLoader", "load_model"),
    *vllm_only(
        "request",
        _LOADER,
        "_prepare_weights",
        capture=_capture_files,
        attributes=_files,
        gives=gives("files"),
        gives_to="DefaultModelLoader.load_weights",
    ),
    *vllm_only("request", _LOADER, "load_weights", record=_capture_weights, observe=_complete_weights),
    *vllm_only(
        "request", "model_executor.model_loader.utils:", "process_weights_after_loading", record=_capture_device
    ),
    like(
        ours.ENTRIES,
        "v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        "UniProcExecutor.collective_rpc",
        before=attach_call_context,
    ),
    *vllm_only("request", "v1.core.kv_cache_utils:", "get_kv_cache_configs"),
    *vllm_only("step", "v1.worker.gpu_worker:Worker", "compile_or_warm_up_model", shown_as="Worker"),
    *vllm_only(
        "step",
        "v1.worker.cpu_worker:CPUWorker",
        "determine_available_memory",
        "compile_or_warm_up_model",
        shown_as="Worker",
    ),
    *vllm_only(
        "step",
        _SECOND_RUNNER,
        "get_kv_cache_spec",
        "profile_run",
        added="0.32.0",
        shown_as="GPUModelRunner",
    ),
    *vllm_only(
        "step",
        "v1.worker.gpu_model_runner:GPUModelRunner",
        "initialize_kv_cache",
        shown_as="GPUModelRunner",
        record=_capture_worker,
    ),
    *vllm_only(
        "step",
        _SECOND_RUNNER,
        "initialize_kv_cache",
        added="0.32.0",
        shown_as="GPUModelRunner",
        record=_capture_worker,
    ),
    *vllm_only("request", "v1.core.sched.scheduler:Scheduler", "__init__"),
    *vllm_only("step", "v1.core.kv_cache_coordinator:HybridKVCacheCoordinator", "__init__"),
    *vllm_only("step", "v1.core.kv_cache_coordinator:KVCacheCoordinatorNoPrefixCache", "__init__"),
)
