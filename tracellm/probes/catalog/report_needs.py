"""Subjects of reports, and the functions that must be recorded for each.

When a selection leaves out one of them, run.json lists the subject as unrecorded, so that no report takes "not
recorded" for "did not happen".
"""

from collections.abc import Collection

from tracellm.probes.catalog.entries import ours_only, plain, vllm_only
from tracellm.probes.wrapping.probe import path_of

__all__ = ["SAMPLERS", "SUBJECTS", "SUBMISSIONS", "lacking"]

_LOADER = "model_executor.model_loader.default_loader:DefaultModelLoader"
_OUTPUTS = "frontend.output_processor:OutputProcessor"

_ENTRIES = {
    "client": plain("request", "ipc.core_client:EngineCoreClient", "make_client", "make_async_mp_client"),
    "load": (
        *plain("request", _LOADER, "_prepare_weights", "load_weights"),
        *ours_only("request", _LOADER, "place_on_device"),
        *vllm_only("request", "model_executor.model_loader.utils:", "process_weights_after_loading"),
    ),
    "cache": plain("request", "core.core:EngineCore", "_initialize_kv_caches"),
    "requests": (  # request spans are recorded whole or not at all
        *ours_only("request", "frontend.llm_engine:LLMEngine", "_add_request"),
        *ours_only("request", "frontend.async_llm:AsyncLLM", "_add_request"),
        *vllm_only("request", "v1.engine.output_processor:OutputProcessor", "add_request"),
        *plain("request", _OUTPUTS, "process_outputs", "abort_requests", "propagate_error"),
        *plain("request", "frontend.output_collector:RequestOutputCollector", "put"),
    ),
    "steps": (
        *ours_only("step", "core.core:EngineCore", "step_fn"),
        *vllm_only("step", "v1.engine.core:EngineCore", "step", "step_with_batch_queue"),
    ),
    "schedules": plain("step", "core.sched.scheduler:Scheduler", "schedule"),
    "endings": plain("step", "core.sched.scheduler:Scheduler", "update_from_output"),
    "samples": plain("step", "worker.gpu_model_runner:GPUModelRunner", "_sample"),
    "messages": (
        *plain("step", "ipc.serial_utils:MsgpackEncoder", "encode", "encode_into"),
        *plain("step", "ipc.serial_utils:MsgpackDecoder", "decode"),
    ),
}

SUBJECTS = {subject: tuple(entry.target for entry in entries) for subject, entries in _ENTRIES.items()}
"""Targets of the entries that each subject needs, in tracellm's engine and in vLLM."""

SAMPLERS = tuple(entry.target for entry in plain("layer", "sample.sampler:Sampler", "sample"))
"""Entries that record how many tokens were left to draw from."""

SUBMISSIONS = frozenset(
    entry.target
    for entry in (
        *ours_only("request", "frontend.llm_engine:LLMEngine", "_add_request"),
        *ours_only("request", "frontend.async_llm:AsyncLLM", "_add_request"),
        *plain("request", _OUTPUTS, "add_request"),
        *ours_only("step", "core.sched.scheduler:Scheduler", "add_request"),
        *vllm_only("step", "v1.core.sched.scheduler:Scheduler", "add_request"),
    )
)
"""Targets of the entries that record how a request was submitted and that it reached the scheduler; a ring keeps
their records longer."""

_ENGINES = {"tracellm": "tracellm.engine.", "vllm": "vllm."}


def lacking(chosen: Collection[str], unchosen: Collection[str], engine: str | None) -> dict[str, list[str]]:
    """Return the subjects that a selection makes impossible, each with the functions it lacks.

    Args:
        chosen: selected targets. An engine without any is not considered, as tracellm's with `--only vllm`.
        unchosen: targets that are left out.
        engine: engine that was used; while it is None, a subject counts if any engine lacks a function.
    """
    prefixes = [prefix for prefix in _ENGINES.values() if any(target.startswith(prefix) for target in chosen)]
    considered = tuple(prefixes or _ENGINES.values())
    found = {}
    for subject, targets in SUBJECTS.items():
        lacks = [target for target in targets if target in unchosen and target.startswith(considered)]
        of_used = [target for target in lacks if engine is not None and target.startswith(_ENGINES[engine])]
        if lacks:
            found[subject] = list(dict.fromkeys(map(path_of, of_used or lacks)))
    return found
