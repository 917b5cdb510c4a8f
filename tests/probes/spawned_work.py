"""What the processes of test_processes.py do; a spawned process imports it."""

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
    """Something to record."""
    return 2 * x


@probe
def loads() -> None:
    """Works, also in a thread."""
    multiplies(1)
    thread = threading.Thread(target=multiplies, args=(2,), name="second")
    thread.start()
    thread.join()


def joins_again() -> None:
    """Does what vLLM's plugins do in each of its processes, and then works."""
    from tracellm.probes.join import join_recording

    join_recording()
    multiplies(1)


def looks_for_a_model() -> None:
    """Ends with 1 if no model's name would be replaced."""
    from tracellm.probes.join import replace_models

    sys.exit(not replace_models.cache_info().currsize)


@probe
def multiplies_often(times: int) -> None:
    """So many calls, and this one around them."""
    for x in range(times):
        multiplies(x)


def chosen() -> None:
    """Ends with 1 if of two functions of the engine only the first is wrapped, with another number if not."""
    from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
    from tracellm.engine.frontend.parallel_sampling import ParentRequest

    wrapped = (
        hasattr(ParentRequest.get_outputs, "__wrapped__"),
        hasattr(IncrementalDetokenizer.from_new_request, "__wrapped__"),
    )
    sys.exit({(True, False): 1}.get(wrapped, 2))


@probe
def lives_on(worked: Any, go_on: Any) -> None:
    """Works before and after the recording has ended."""
    multiplies(1)
    worked.set()
    go_on.wait()
    multiplies(2)


@probe
def works_and_waits(worked: Any) -> None:
    """Works, says so, and waits for its end."""
    multiplies(1)
    worked.set()
    threading.Event().wait()


def is_killed_at_its_end() -> None:
    """Works, and is killed while Python tidies up."""
    multiplies(1)
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)


@probe
def waits_to_be_killed(trace_file: str) -> None:
    """Works, waits until that is in the file, and dies."""
    multiplies(1)
    file = Path(f"{trace_file}-{os.getpid()}.records")
    while not (file.exists() and b"waits_to_be_killed" in file.read_bytes()):
        threading.Event().wait(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
