"""What reports tell of, and the functions that must be recorded for it: where a selection leaves one out, run.json says
what cannot be told, and no report takes "not recorded" for "did not happen".
"""

from collections.abc import Collection

from tracellm.probes.wrapping.probe import path_of

__all__ = ["SAMPLERS", "SUBJECTS", "lacking"]

_CORE = "tracellm.engine.core.core:EngineCore"
_CODEC = "tracellm.engine.ipc.serial_utils:Msgpack"
_LOADER = "tracellm.engine.model_executor.model_loader.default_loader:DefaultModelLoader"
_OUTPUT_PROCESSOR = "tracellm.engine.frontend.output_processor:OutputProcessor"

_VLLM_CLIENT = "vllm.v1.engine.core_client:EngineCoreClient"
_VLLM_CORE = "vllm.v1.engine.core:EngineCore"
_VLLM_CODEC = "vllm.v1.serial_utils:Msgpack"
_VLLM_LOADER = "vllm.model_executor.model_loader"
_VLLM_OUTPUTS = "vllm.v1.engine.output_processor"
_VLLM_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"

SUBJECTS: dict[str, tuple[str, ...]] = {
    "client": (
        "tracellm.engine.ipc.core_client:EngineCoreClient.make_client",
        "tracellm.engine.ipc.core_client:EngineCoreClient.make_async_mp_client",
        f"{_VLLM_CLIENT}.make_client",
        f"{_VLLM_CLIENT}.make_async_mp_client",
    ),
    "load": (
        f"{_LOADER}._prepare_weights",
        f"{_LOADER}.load_weights",
        f"{_LOADER}.place_on_device",
        f"{_VLLM_LOADER}.default_loader:DefaultModelLoader._prepare_weights",
        f"{_VLLM_LOADER}.default_loader:DefaultModelLoader.load_weights",
        f"{_VLLM_LOADER}.utils:process_weights_after_loading",
    ),
    "cache": (f"{_CORE}._initialize_kv_caches", f"{_VLLM_CORE}._initialize_kv_caches"),
    "requests": (  # their lives, which are told whole or not at all
        "tracellm.engine.frontend.llm_engine:LLMEngine._add_request",
        "tracellm.engine.frontend.async_llm:AsyncLLM._add_request",
        f"{_OUTPUT_PROCESSOR}.process_outputs",
        f"{_OUTPUT_PROCESSOR}.abort_requests",
        f"{_OUTPUT_PROCESSOR}.propagate_error",
        "tracellm.engine.frontend.output_processor:RequestOutputCollector.put",
        f"{_VLLM_OUTPUTS}:OutputProcessor.add_request",
        f"{_VLLM_OUTPUTS}:OutputProcessor.process_outputs",
        f"{_VLLM_OUTPUTS}:OutputProcessor.abort_requests",
        f"{_VLLM_OUTPUTS}:OutputProcessor.propagate_error",
        f"{_VLLM_OUTPUTS}:RequestOutputCollector.put",
    ),
    "steps": (f"{_CORE}.step_fn", f"{_VLLM_CORE}.step", f"{_VLLM_CORE}.step_with_batch_queue"),
    "schedules": ("tracellm.engine.core.sched.scheduler:Scheduler.schedule", f"{_VLLM_SCHEDULER}.schedule"),
    "endings": (
        "tracellm.engine.core.sched.scheduler:Scheduler.update_from_output",
        f"{_VLLM_SCHEDULER}.update_from_output",
    ),
    "samples": (
        "tracellm.engine.worker.gpu_model_runner:GPUModelRunner._sample",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._sample",
    ),
    "messages": tuple(
        f"{codec}{method}"
        for codec in (_CODEC, _VLLM_CODEC)
        for method in ("Encoder.encode", "Encoder.encode_into", "Decoder.decode")
    ),
}
"""Of each subject the targets of the catalog's entries that it takes, in the one engine and in the other."""

SAMPLERS = ("tracellm.engine.sample.sampler:Sampler.sample", "vllm.v1.sample.sampler:Sampler.sample")
"""Entries that know which tokens were left to draw from."""

_ENGINES = {"tracellm": "tracellm.engine.", "vllm": "vllm."}


def lacking(chosen: Collection[str], unchosen: Collection[str], engine: str | None) -> dict[str, list[str]]:
    """The subjects that cannot be told where these targets are chosen and those are not, with the functions it takes.

    An engine of which nothing is chosen is not meant, as ours with `--only vllm`. Before it is known which `engine` is
    used, what any lacks counts; functions are named as the one that was used has them.
    """
    homes = [home for home in _ENGINES.values() if any(target.startswith(home) for target in chosen)]
    meant = tuple(homes or _ENGINES.values())
    found = {}
    for subject, targets in SUBJECTS.items():
        lacks = [target for target in targets if target in unchosen and target.startswith(meant)]
        of_used = [target for target in lacks if engine is not None and target.startswith(_ENGINES[engine])]
        if lacks:
            found[subject] = list(dict.fromkeys(map(path_of, of_used or lacks)))
    return found
