"""What reports tell of, and the functions that must be recorded for it: where a selection leaves one out, run.json says
what cannot be told, and no report takes "not recorded" for "did not happen".
"""

__all__ = ["SUBJECTS"]

_CORE = "tracellm.engine.core:EngineCore"
_CODEC = "tracellm.engine.serial_utils:Msgpack"
_LOADER = "tracellm.engine.model_loader.default_loader:DefaultModelLoader"
_OUTPUT_PROCESSOR = "tracellm.engine.output_processor:OutputProcessor"

SUBJECTS: dict[str, tuple[str, ...]] = {
    "client": (
        "tracellm.engine.core_client:EngineCoreClient.make_client",
        "tracellm.engine.core_client:EngineCoreClient.make_async_mp_client",
    ),
    "load": (f"{_LOADER}._prepare_weights", f"{_LOADER}.load_weights", f"{_LOADER}.place_on_device"),
    "cache": (f"{_CORE}._initialize_kv_caches",),
    "requests": (  # their lives, which are told whole or not at all
        "tracellm.engine.llm_engine:LLMEngine._add_request",
        "tracellm.engine.async_llm:AsyncLLM._add_request",
        f"{_OUTPUT_PROCESSOR}.process_outputs",
        f"{_OUTPUT_PROCESSOR}.abort_requests",
        f"{_OUTPUT_PROCESSOR}.propagate_error",
        "tracellm.engine.output_collector:RequestOutputCollector.put",
    ),
    "steps": (f"{_CORE}.step_fn",),
    "schedules": ("tracellm.engine.sched.scheduler:Scheduler.schedule",),
    "endings": ("tracellm.engine.sched.scheduler:Scheduler.update_from_output",),
    "samples": ("tracellm.engine.worker.gpu_model_runner:GPUModelRunner._sample",),
    "messages": (f"{_CODEC}Encoder.encode", f"{_CODEC}Encoder.encode_into", f"{_CODEC}Decoder.decode"),
}
"""Of each subject the targets of the catalog's entries that it takes."""
