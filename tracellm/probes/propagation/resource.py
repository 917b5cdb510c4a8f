"""The process that records, as the OTLP resource in its file describes it."""

import os
import platform
import socket
from typing import Any

from tracellm import __version__
from tracellm.probes.context.clock import Clock
from tracellm.trace import names
from tracellm.trace.model import Process

__all__ = ["this_process"]


def this_process(name: str, clock: Clock, parent_pid: int | None) -> Process:
    """This process, under the name of what it is in the engine; `parent_pid` is that of a process that records too."""
    attributes: dict[str, Any] = {
        names.SERVICE_NAME: "tracellm",
        names.SERVICE_VERSION: __version__,
        names.PROCESS_PID: os.getpid(),
        names.PROCESS_NAME: name,
        names.PROCESS_RUNTIME: platform.python_version(),
        names.HOST_NAME: socket.gethostname(),
        names.CLOCK_WALL: clock.wall_ns,
        names.CLOCK_MONOTONIC: clock.monotonic_ns,
    }
    if parent_pid is not None:
        attributes[names.PROCESS_PARENT_PID] = parent_pid
    return Process(os.getpid(), name, attributes)
