"""Signals: an explanation is written before the process dies of one, as python would have at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["die_of_interrupt", "finish_when_terminated", "interrupt_on_signals"]


def finish_when_terminated(finish: Callable[[int], None]) -> None:
    """Before this process dies of SIGTERM call `finish` with the exit status that a shell would show.

    A script that handles the signal itself, as vLLM's server does, is not interfered with.
    """
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
    os.register_at_fork(before=put_aside, after_in_parent=take_up, after_in_child=forget)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def die_of_interrupt() -> None:
    """Have the interpreter end by SIGINT, as after any KeyboardInterrupt that nobody caught.

    It remembers that there was one until it next runs code from source, which importing the reports did.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def interrupt_on_signals() -> dict[int, Any]:
    """Make SIGTERM the same as Ctrl-C. Returns the handlers that were there before."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    return {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
