"""The directory of a client's sockets: files that only this user may reach, removed by whoever is left in the end.

The client makes it (mp_base.py) and removes it (mp_resources.py). When the client's process is killed, the engine
core's process sees that and does it instead.

vLLM has no counterpart: its sockets are files in the folder for temporary files (vllm/utils: get_open_zmq_ipc_path).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from multiprocessing.connection import wait
from pathlib import Path

__all__ = ["end_with_parent", "make_socket_directory", "remove_socket_directory"]

_LONGEST_PATH = 90  # characters: the address of an ipc socket may have 107


def make_socket_directory() -> str:
    """A new directory that only this user may enter, for the sockets of one client."""
    usual = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="tracellm-", dir=usual if len(usual) < _LONGEST_PATH - 20 else "/tmp")


def remove_socket_directory(directory: str) -> None:
    """Remove the directory of the sockets with what is left in it; the owner's process may have done so."""
    if Path(directory).is_dir():
        shutil.rmtree(directory, ignore_errors=True)


def end_with_parent(directory: str) -> None:
    """When the parent is gone, for whatever reason, clean up in its place, and end."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        remove_socket_directory(directory)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="EndWithParent", daemon=True).start()
