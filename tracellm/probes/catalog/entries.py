"""Building blocks of the catalog: lists of entries for one or both engines, and helpers that captures share.

Our engine has the names of vLLM 0.11.1, so most entries hold for both: `plain` makes them from our module and the
module of vLLM that `VLLM_MODULES` names for it. A capture runs inside the call, everything else after it (probe.py).
"""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracellm.probes.wrapping.call_site import Where, caller
from tracellm.probes.wrapping.probe import Entry, Gives, path_of
from tracellm.trace.names import Level

__all__ = ["argument", "called_by", "gives", "like", "ours_only", "plain", "users_line", "vllm_only"]

VLLM_MODULES = {
    "tracellm.engine.arg_utils": "vllm.engine.arg_utils",
    "tracellm.engine.async_llm": "vllm.v1.engine.async_llm",
    "tracellm.engine.core": "vllm.v1.engine.core",
    "tracellm.engine.core_client": "vllm.v1.engine.core_client",
    "tracellm.engine.core_launch": "vllm.v1.engine.utils",
    "tracellm.engine.core_proc": "vllm.v1.engine.core",
    "tracellm.engine.detokenizer": "vllm.v1.engine.detokenizer",
    "tracellm.engine.entrypoints.llm": "vllm.entrypoints.llm",
    "tracellm.engine.entrypoints.openai.api_server": "vllm.entrypoints.openai.api_server",
    "tracellm.engine.entrypoints.openai.serving_chat": "vllm.entrypoints.openai.serving_chat",
    "tracellm.engine.entrypoints.openai.serving_completion": "vllm.entrypoints.openai.serving_completion",
    "tracellm.engine.entrypoints.openai.serving_engine": "vllm.entrypoints.openai.serving_engine",
    "tracellm.engine.entrypoints.openai.serving_models": "vllm.entrypoints.openai.serving_models",
    "tracellm.engine.entrypoints.openai.serving_tokenization": "vllm.entrypoints.openai.serving_tokenization",
    "tracellm.engine.executor.abstract": "vllm.v1.executor.abstract",
    "tracellm.engine.executor.uniproc_executor": "vllm.v1.executor.uniproc_executor",
    "tracellm.engine.kv_cache.block_pool": "vllm.v1.core.block_pool",
    "tracellm.engine.kv_cache.kv_cache_coordinator": "vllm.v1.core.kv_cache_coordinator",
    "tracellm.engine.kv_cache.kv_cache_manager": "vllm.v1.core.kv_cache_manager",
    "tracellm.engine.kv_cache.single_type_kv_cache_manager": "vllm.v1.core.single_type_kv_cache_manager",
    "tracellm.engine.layers.*": "vllm.model_executor.layers.*",
    "tracellm.engine.llm_engine": "vllm.v1.engine.llm_engine",
    "tracellm.engine.logprobs": "vllm.v1.engine.logprobs",
    "tracellm.engine.models.*": "vllm.model_executor.models.*",
    "tracellm.engine.mp_base": "vllm.v1.engine.core_client",
    "tracellm.engine.mp_client": "vllm.v1.engine.core_client",
    "tracellm.engine.output_collector": "vllm.v1.engine.output_processor",
    "tracellm.engine.output_processor": "vllm.v1.engine.output_processor",
    "tracellm.engine.parallel_sampling": "vllm.v1.engine.parallel_sampling",
    "tracellm.engine.preprocess": "vllm.inputs.preprocess",
    "tracellm.engine.processor": "vllm.v1.engine.processor",
    "tracellm.engine.request": "vllm.v1.request",
    "tracellm.engine.request_state": "vllm.v1.engine.output_processor",
    "tracellm.engine.sample.logits_processor.builtin": "vllm.v1.sample.logits_processor.builtin",
    "tracellm.engine.sample.sampler": "vllm.v1.sample.sampler",
    "tracellm.engine.sched.scheduler": "vllm.v1.core.sched.scheduler",
    "tracellm.engine.serial_utils": "vllm.v1.serial_utils",
    "tracellm.engine.structured_output.backend_guidance": "vllm.v1.structured_output.backend_guidance",
    "tracellm.engine.structured_output.manager": "vllm.v1.structured_output",
    "tracellm.engine.worker.gpu_model_runner": "vllm.v1.worker.gpu_model_runner",
    "tracellm.engine.worker.gpu_worker": "vllm.v1.worker.gpu_worker",
    "tracellm.engine.worker.worker_base": "vllm.v1.worker.worker_base",
}
"""Modules of our engine, and the modules of vLLM 0.11.1 with the same classes and functions."""

_PROBES = str(Path(__file__).parents[1]) + os.sep


def plain(level: Level, home: str, *functions: str, later: str = "", **more: Any) -> list[Entry]:
    """Entries for functions of our engine, and for the same functions of vLLM.

    Args:
        level: how deep in the engine the functions sit.
        home: our module, without `tracellm.engine.`; `module:Class` for methods.
        functions: names of the functions or methods.
        later: module of a later vLLM that has the functions, `module:Class` for methods, without `vllm.`.
        more: `inherited` or `shown_as`, as for `ours_only`; fields of `Entry` that both engines share.
    """
    module, colon, class_name = home.partition(":")
    vllm_home = VLLM_MODULES[f"tracellm.engine.{module}"].removeprefix("vllm.") + colon + class_name
    return ours_only(level, home, *functions, **more) + vllm_only(level, vllm_home, *functions, later=later, **more)


def ours_only(level: Level, home: str, *functions: str, **more: Any) -> list[Entry]:
    """Entries for functions that only our engine has, or that vLLM needs other entries for.

    `inherited=True` names the spans by the class in `home`, not by the receiver's; `shown_as` names the class that the
    spans and their lifeline are named by.
    """
    return [_entry(f"tracellm.engine.{home}", function, level, **more) for function in functions]


def vllm_only(level: Level, home: str, *functions: str, later: str = "", **more: Any) -> list[Entry]:
    """Entries for functions that only vLLM has; `home` is given without `vllm.`."""
    return [
        _entry(
            f"vllm.{home}",
            function,
            level,
            other_targets=(_target(f"vllm.{later}", function),) if later else (),
            **more,
        )
        for function in functions
    ]


def _entry(
    home: str, function: str, level: Level, inherited: bool = False, shown_as: str | None = None, **more: Any
) -> Entry:
    if inherited:
        more["span_name"] = path_of(_target(home, function))
    if shown_as is not None:
        more |= {"lifeline": shown_as, "span_name": f"{shown_as}.{function}"}
    return Entry(_target(home, function), level, **more)


def _target(home: str, function: str) -> str:
    return f"{home}.{function}" if ":" in home else f"{home}:{function}"


def like(ours: Iterable[Entry], target: str, path: str | None = None, **changes: Any) -> Entry:
    """Copy an entry of our engine for a function of vLLM that does the same.

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


def called_by(matches: Callable[[Any], bool], max_frames: int = 40) -> bool:
    """Return whether `matches(code)` holds for one of the calls under way."""
    frame = sys._getframe(1)
    for _ in range(max_frames):
        if frame is None:
            return False
        if matches(frame.f_code):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def users_line() -> Where | None:
    """Return the line of the user's code that made the call being captured; None when the engine made it."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PROBES):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None and str(frame.f_globals.get("__name__")).startswith("vllm."):
        return None
    return caller()
