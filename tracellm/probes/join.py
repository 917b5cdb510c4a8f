"""Joining the recording, and the model overrides, of the process that started this one.

A process joins when tracellm is imported in it, when it unpickles the process object that multiprocessing sends it, or
when vLLM calls `join_recording` through the entry point `vllm.general_plugins`: once, whichever comes first. In any
other process this returns at once.

`tracellm run --model NAME=PATH` works here for a real vLLM: its `EngineArgs` take the directory for the name. vLLM
looks for a model's files when the arguments are made (`__post_init__`, when offline) and when they become a
configuration (`create_engine_config`), which may be in another process, so both replace the name.
"""

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from tracellm.probes.propagation.processes import VARIABLE, RecordingHandle

__all__ = ["find_handle", "join", "join_recording", "replace_models"]

_ENGINE_ARGS = "vllm.engine.arg_utils:EngineArgs"


def join_recording() -> None:
    """Take part in the recording that this process was started in, if it does not yet."""
    if "TRACELLM_MODELS" in os.environ:
        replace_models()
    if VARIABLE in os.environ:
        join()


def find_handle(environment: Mapping[str, str], command_line: list[str], parent_pid: int) -> RecordingHandle | None:
    """Return the recording to join, if this process is multiprocessing's child of a recorded one."""
    if VARIABLE not in environment or "--multiprocessing-fork" not in command_line:
        return None
    try:
        handle = json.loads(environment[VARIABLE])
    except ValueError:
        return None
    return handle if isinstance(handle, dict) and handle.get("pid") == parent_pid else None


_joined_pid = 0


def join(handle: RecordingHandle | None = None) -> None:
    """Record this process as part of the recording `handle`, by default the one that it was started in.

    Further calls in the same process do nothing.
    """
    global _joined_pid
    handle = handle or find_handle(os.environ, sys.orig_argv, os.getppid())
    if handle is None or _joined_pid == os.getpid():
        return
    _joined_pid = os.getpid()
    from multiprocessing import current_process

    from tracellm.probes.context.clock import Clock
    from tracellm.probes.install.selection import Selection
    from tracellm.probes.recording import Recording

    name = handle.get("name") or current_process().name
    try:
        Recording(
            handle["folder"],
            clock=Clock(time.perf_counter_ns, *handle["clock"]) if handle["clock"] else None,
            selection=Selection.from_dict(handle["selection"]),
            ring=handle["ring"],
            text=handle["text"],
            script=name,
            process=name,
            joins=handle,
        ).start()
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        print(f"tracellm: what the process {name} does is not recorded: {error}", file=sys.stderr)  # noqa: T201


@functools.cache
def replace_models() -> None:
    """Replace vLLM's model names from now on, if TRACELLM_MODELS has any; further calls do nothing."""
    from tracellm.engine.config.envs import models
    from tracellm.probes.install.patcher import Patcher

    def replacing(method: Callable[..., Any]) -> Callable[..., Any]:
        def outer(self: Any, *args: Any, **kwargs: Any) -> Any:
            paths = models()
            name = str(self.model)
            for field in ("model", "tokenizer"):
                value = getattr(self, field, None)
                if value is not None and str(value) in paths:
                    setattr(self, field, paths[str(value)])
            if name in paths and not self.served_model_name:
                self.served_model_name = name
            return method(self, *args, **kwargs)

        return outer

    if models():
        Patcher({f"{_ENGINE_ARGS}.{name}": replacing for name in ("__post_init__", "create_engine_config")}, []).start()
