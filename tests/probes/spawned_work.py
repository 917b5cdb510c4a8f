"""Functions that the processes of test_processes.py run; a spawned process imports this module."""

import atexit
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tracellm import probe

__all__ = [
    "chosen",
    "is_killed_at_its_end",
    "joins_again",
    "lives_on",
    "loads",
    "looks_for_a_model",
    "multiplies",
    "multiplies_often",
    "waits_to_be_killed",
]


@probe
def multiplies(x: int) -> int:
    """A function to record."""
    return 2 * x


@probe
def loads() -> None:
    """Work, also in a thread."""
    multiplies(1)
    thread = threading.Thread(target=multiplies, args=(2,), name="second")
    thread.start()
    thread.join()


def joins_again() -> None:
    """Load the plugin as vLLM does in each of its processes, then work."""
    from tracellm.probes.join import join_recording

    join_recording()
    multiplies(1)


def looks_for_a_model() -> None:
    """Exit with 1 if no model name is replaced."""
    from tracellm.probes.join import replace_models

    sys.exit(not replace_models.cache_info().currsize)


@probe
def multiplies_often(times: int) -> None:
    """Call `multiplies` many times within this one call."""
    for x in range(times):
        multiplies(x)


def chosen() -> None:
    """Exit with 1 if only the first of two engine functions is wrapped, with another status otherwise."""
    from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
    from tracellm.engine.frontend.parallel_sampling import ParentRequest

    wrapped = (
        hasattr(ParentRequest.get_outputs, "__wrapped__"),
        hasattr(IncrementalDetokenizer.from_new_request, "__wrapped__"),
    )
    sys.exit({(True, False): 1}.get(wrapped, 2))


@probe
def lives_on(worked: Any, go_on: Any) -> None:
    """Work before and after the end of the recording."""
    multiplies(1)
    worked.set()
    go_on.wait()
    multiplies(2)


@probe
def works_and_waits(worked: Any) -> None:
    """Work, report it, and wait for the end."""
    multiplies(1)
    worked.set()
    threading.Event().wait()


def is_killed_at_its_end() -> None:
    """Work, and die while Python shuts down."""
    multiplies(1)
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)


@probe
def waits_to_be_killed(trace_file: str) -> None:
    """Work, wait until that is in the file, and die."""
    multiplies(1)
    file = Path(f"{trace_file}-{os.getpid()}.records")
    while not (file.exists() and b"waits_to_be_killed" in file.read_bytes()):
        threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
