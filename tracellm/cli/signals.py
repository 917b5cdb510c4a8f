"""Signal handlers, which write the reports of a run before the process dies of the signal."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["die_of_interrupt", "finish_when_terminated", "interrupt_on_signals"]


def finish_when_terminated(finish: Callable[[int], None]) -> None:
    """Call `finish` with the exit status of a shell, 143, before this process dies of SIGTERM.

    A handler that the script installs, as vLLM's server does, replaces this one.
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

    def before_fork() -> None:
        """Remove the handler for the child: Python would drop a signal that arrives before the child has started."""
        if signal.getsignal(signal.SIGTERM) is terminated and _in_main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            forking[0] = True

    def after_in_parent() -> None:
        if forking[0]:
            forking[0] = False
            signal.signal(signal.SIGTERM, terminated)

    def after_in_child() -> None:
        before_fork()  # removes it also after a fork by another thread
        forking[0] = False

    signal.signal(signal.SIGTERM, terminated)
    os.register_at_fork(before=before_fork, after_in_parent=after_in_parent, after_in_child=after_in_child)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def die_of_interrupt() -> None:
    """Make the interpreter die of SIGINT at its end, as after any uncaught KeyboardInterrupt.

    Importing the reports reset its flag for that, since running code from source does.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def interrupt_on_signals() -> dict[int, Any]:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt. Returns the earlier handlers."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    return {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
