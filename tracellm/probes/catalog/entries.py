"""Building blocks of the catalog: lists of entries for one or both engines, and helpers that captures share.

Our engine has the names of vLLM 0.11.1, so most entries hold for both: `plain` makes them from our module and the
module of vLLM that `VLLM_MODULES` names for it. A capture runs inside the call, everything else after it (probe.py).
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tracellm.probes.context.exceptions import is_probe_file
from tracellm.probes.wrapping.probe import Capture, Entry, Gives, path_of
from tracellm.probes.wrapping.summary import Where, caller
from tracellm.trace.names import Level

__all__ = ["ADDED", "REMOVED", "argument", "gives", "like", "ours_only", "plain", "users_line", "vllm_only"]

VLLM_MODULES = {
    "tracellm.engine.config.arg_utils": "vllm.engine.arg_utils",
    "tracellm.engine.frontend.async_llm": "vllm.v1.engine.async_llm",
    "tracellm.engine.core.core": "vllm.v1.engine.core",
    "tracellm.engine.ipc.core_client": "vllm.v1.engine.core_client",
    "tracellm.engine.ipc.launch": "vllm.v1.engine.utils",
    "tracellm.engine.core.core_proc": "vllm.v1.engine.core",
    "tracellm.engine.core.dp_core_proc": "vllm.v1.engine.core",
    "tracellm.engine.ipc.coordinator": "vllm.v1.engine.coordinator",
    "tracellm.engine.ipc.dp_client": "vllm.v1.engine.core_client",
    "tracellm.engine.frontend.detokenizer": "vllm.v1.engine.detokenizer",
    "tracellm.engine.entrypoints.llm": "vllm.entrypoints.llm",
    "tracellm.engine.entrypoints.openai.api_server": "vllm.entrypoints.openai.api_server",
    "tracellm.engine.entrypoints.openai.serving_chat": "vllm.entrypoints.openai.serving_chat",
    "tracellm.engine.entrypoints.openai.serving_completion": "vllm.entrypoints.openai.serving_completion",
    "tracellm.engine.entrypoints.openai.serving_engine": "vllm.entrypoints.openai.serving_engine",
    "tracellm.engine.entrypoints.openai.serving_models": "vllm.entrypoints.openai.serving_models",
    "tracellm.engine.entrypoints.openai.responses.serving": "vllm.entrypoints.openai.serving_responses",
    "tracellm.engine.entrypoints.openai.tokenize.serving": "vllm.entrypoints.openai.serving_tokenization",
    "tracellm.engine.executor.abstract": "vllm.v1.executor.abstract",
    "tracellm.engine.executor.uniproc_executor": "vllm.v1.executor.uniproc_executor",
    "tracellm.engine.core.kv_cache.block_pool": "vllm.v1.core.block_pool",
    "tracellm.engine.core.kv_cache.kv_cache_coordinator": "vllm.v1.core.kv_cache_coordinator",
    "tracellm.engine.core.kv_cache.kv_cache_manager": "vllm.v1.core.kv_cache_manager",
    "tracellm.engine.core.kv_cache.single_type_kv_cache_manager": "vllm.v1.core.single_type_kv_cache_manager",
    "tracellm.engine.model_executor.layers.*": "vllm.model_executor.layers.*",
    "tracellm.engine.frontend.llm_engine": "vllm.v1.engine.llm_engine",
    "tracellm.engine.frontend.logprobs": "vllm.v1.engine.logprobs",
    "tracellm.engine.model_executor.models.*": "vllm.model_executor.models.*",
    "tracellm.engine.model_executor.model_loader.default_loader": "vllm.model_executor.model_loader.default_loader",
    "tracellm.engine.ipc.mp_client": "vllm.v1.engine.core_client",
    "tracellm.engine.frontend.output_collector": "vllm.v1.engine.output_processor",
    "tracellm.engine.frontend.output_processor": "vllm.v1.engine.output_processor",
    "tracellm.engine.frontend.parallel_sampling": "vllm.v1.engine.parallel_sampling",
    "tracellm.engine.frontend.preprocess": "vllm.inputs.preprocess",
    "tracellm.engine.frontend.processor": "vllm.v1.engine.processor",
    "tracellm.engine.core.request": "vllm.v1.request",
    "tracellm.engine.multimodal.processing": "vllm.multimodal.processing",
    "tracellm.engine.sample.logits_processor": "vllm.v1.sample.logits_processor.builtin",
    "tracellm.engine.sample.sampler": "vllm.v1.sample.sampler",
    "tracellm.engine.core.sched.scheduler": "vllm.v1.core.sched.scheduler",
    "tracellm.engine.ipc.serial_utils": "vllm.v1.serial_utils",
    "tracellm.engine.core.structured_output.backend_guidance": "vllm.v1.structured_output.backend_guidance",
    "tracellm.engine.core.structured_output.manager": "vllm.v1.structured_output",
    "tracellm.engine.worker.gpu_model_runner": "vllm.v1.worker.gpu_model_runner",
    "tracellm.engine.worker.gpu_worker": "vllm.v1.worker.gpu_worker",
    "tracellm.engine.worker.worker_base": "vllm.v1.worker.worker_base",
}
"""Modules of tracellm's engine, and the modules of vLLM 0.11.1 with the same classes and functions."""

LATER_HOMES = {
    "vllm.entrypoints.openai.serving_chat:OpenAIServingChat": "chat_completion.serving:OpenAIServingChat",
    "vllm.entrypoints.openai.serving_completion:OpenAIServingCompletion": "completion.serving:OpenAIServingCompletion",
    "vllm.entrypoints.openai.serving_responses:OpenAIServingResponses": "responses.serving:OpenAIServingResponses",
    "vllm.entrypoints.openai.serving_models:OpenAIServingModels": "models.serving:OpenAIServingModels",
}
"""Classes of vLLM 0.11.1, and where later versions have them in `vllm.entrypoints.openai`."""

ADDED: dict[str, str] = {}
"""Targets that only later versions of vLLM have, and the first version known to have them; set by `vllm_only`."""
REMOVED: dict[str, str] = {}
"""Targets without a counterpart in later versions of vLLM, and the first version known to be without them; set by
`vllm_only`."""


def plain(
    level: Level, home: str, *functions: str, later: str = "", added: str = "", removed: str = "", **more: Any
) -> list[Entry]:
    """Return entries for functions of tracellm's engine, and for the same functions of vLLM.

    Args:
        level: how deep in the engine the functions sit.
        home: `module:` for functions, `module:Class` for methods; without `tracellm.engine.`.
        functions: names of the functions or methods.
        later: home of the functions in a later vLLM, without `vllm.`.
        added: first version of vLLM known to have the functions.
        removed: first version of vLLM known to be without them.
        more: `inherited`, `shown_as` and `record`, as for `ours_only`; fields of `Entry` that both engines share.
    """
    module, colon, class_name = home.partition(":")
    vllm_home = VLLM_MODULES[f"tracellm.engine.{module}"].removeprefix("vllm.") + colon + class_name
    return [
        *ours_only(level, home, *functions, **more),
        *vllm_only(level, vllm_home, *functions, later=later, added=added, removed=removed, **more),
    ]


def ours_only(level: Level, home: str, *functions: str, **more: Any) -> list[Entry]:
    """Return entries for functions that only tracellm's engine has, or that vLLM needs other entries for.

    `inherited=True` names the spans by the class in `home`, not by the receiver's; `shown_as` is the class that spans
    and lifeline are named by; `record` is a capture that returns attributes.
    """
    return [_entry(f"tracellm.engine.{home}", function, level, **more) for function in functions]


def vllm_only(
    level: Level, home: str, *functions: str, later: str = "", added: str = "", removed: str = "", **more: Any
) -> list[Entry]:
    """Entries for functions that only vLLM has; `home` is given without `vllm.`."""
    entries = []
    if f"vllm.{home}" in LATER_HOMES:
        later = f"entrypoints.openai.{LATER_HOMES[f'vllm.{home}']}"
    for function in functions:
        other_targets = (_target(f"vllm.{later}", function),) if later else ()
        entries.append(_entry(f"vllm.{home}", function, level, other_targets=other_targets, **more))
    for versions, version in ((ADDED, added), (REMOVED, removed)):
        versions.update(dict.fromkeys([entry.target for entry in entries if version], version))
    return entries


def _entry(
    home: str,
    function: str,
    level: Level,
    *,
    inherited: bool = False,
    shown_as: str | None = None,
    record: Capture | None = None,
    **more: Any,
) -> Entry:
    target = _target(home, function)
    if inherited:
        more["span_name"] = path_of(target)
    if shown_as is not None:
        more |= {"lifeline": shown_as, "span_name": f"{shown_as}.{function}"}
    if record is not None:
        more |= {"capture": record, "attributes": dict}
    return Entry(target, level, **more)


def _target(home: str, function: str) -> str:
    return f"{home}{function}" if home.endswith(":") else f"{home}.{function}"


def like(ours: Iterable[Entry], target: str, path: str | None = None, **changes: Any) -> Entry:
    """Copy an entry of tracellm's engine for a function of vLLM that does the same.

    Args:
        ours: entries to search.
        target: function of vLLM, without `vllm.`.
        path: function of ours (`Class.method`) where its name differs.
        changes: fields that differ.

    Raises:
        LookupError: no entry is about the function.
    """
    path = path or path_of(target)
    for entry in ours:
        if path_of(entry.target) == path:
            return replace(entry, target=f"vllm.{target}", **changes)
    raise LookupError(f"our engine's catalog has no entry for {path}")


def gives(name: str) -> Gives:
    """Give a call's facts to the enclosing call under this name (`Entry.gives`)."""
    return lambda facts: {name: facts}


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str, otherwise: Any = None) -> Any:
    """Return the argument `name`, which has this index when passed by position (0 is self, if there is one)."""
    return args[index] if len(args) > index else kwargs.get(name, otherwise)


def users_line() -> Where | None:
    """Return the line of the user's code that made the call being captured; None when the engine made it."""
    frame = sys._getframe(1)
    while frame is not None and is_probe_file(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None and str(frame.f_globals.get("__name__")).startswith("vllm."):
        return None
    return caller()
