"""How a process joins the recording of the process that started it.

It does so when tracellm is imported in it, with the process object that multiprocessing sends it, or when a vLLM calls
`join_recording` in it through the entry point `vllm.general_plugins`: once, whichever comes first. By then it also
finds the models that `tracellm run --model` has replaced. Everywhere else this does nothing, and at once.
"""

import json
import os
import sys
import time
from collections.abc import Mapping

from tracellm.probes.propagation.child_processes import VARIABLE, RecordingHandle

__all__ = ["invited", "join", "join_recording"]


def join_recording() -> None:
    """Take part in the recording that this process was started in, if it does not do so already."""
    if "TRACELLM_MODELS" in os.environ:
        from tracellm.probes.install.model_overrides import replace_models

        replace_models()
    if VARIABLE in os.environ:
        join()


def invited(environment: Mapping[str, str], command_line: list[str], parent_pid: int) -> RecordingHandle | None:
    """The recording that this process is to join, if it is multiprocessing's child of a process that records."""
    if VARIABLE not in environment or "--multiprocessing-fork" not in command_line:
        return None
    try:
        told = json.loads(environment[VARIABLE])
    except ValueError:
        return None
    return told if isinstance(told, dict) and told.get("pid") == parent_pid else None


_joined = 0  # the pid of the process that has


def join(told: RecordingHandle | None = None) -> None:
    """Record, if this process was started by one that does: once, however often this is called.

    Called when tracellm is imported, if VARIABLE is set, by vLLM's plugins, and with what the process is sent to do,
    where it is `told`.
    """
    global _joined
    told = told or invited(os.environ, sys.orig_argv, os.getppid())
    if told is None or _joined == os.getpid():
        return
    _joined = os.getpid()
    from multiprocessing import current_process

    from tracellm.probes.context.clock import Clock
    from tracellm.probes.install.selection import Selection
    from tracellm.probes.recording import Recording

    name = current_process().name
    try:
        Recording(
            told["folder"],
            clock=Clock(time.perf_counter_ns, *told["clock"]) if told["clock"] else None,
            selection=Selection.from_dict(told["selection"]),
            ring=told["ring"],
            text=told["text"],
            script=name,
            process=name,
            joins=told,
        ).start()
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        print(f"tracellm: what the process {name} does is not recorded: {error}", file=sys.stderr)  # noqa: T201
