"""SIGTERM while a script is being explained: the explanation is written, and then the process dies of it, as python's
would have at once. A script that handles the signal itself, as vLLM's server does, is not interfered with.
"""

import os
import signal
import threading
from collections.abc import Callable

__all__ = ["finish_when_terminated"]


def finish_when_terminated(finish: Callable[[int], None]) -> None:
    """Before this process is terminated call `finish` with the exit status that a shell would tell."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL or not _in_main_thread():
        return

    def terminated(signum: int, frame: object) -> None:
        try:
            finish(128 + signum)
        finally:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)

    forking = [False]

    def put_aside() -> None:
        """A fork is none of this, from its first moment: Python forgets signals that come before it has begun."""
        if signal.getsignal(signal.SIGTERM) is terminated and _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            forking[0] = True

    def take_up() -> None:
        if forking[0]:
            forking[0] = False
            signal.signal(signal.SIGTERM, terminated)

    def forget() -> None:
        put_aside()  # of a fork of another thread it was not
        forking[0] = False

    signal.signal(signal.SIGTERM, terminated)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=put_aside, after_in_parent=take_up, after_in_child=forget)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
