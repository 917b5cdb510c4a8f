"""`tracellm run`: a script as python would run it, recorded and explained when that was asked for."""

import atexit
import contextlib
import operator
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tracellm.cli.failure import print_mistake
from tracellm.cli.script import Script, run_script
from tracellm.cli.substitutes import Substitutes
from tracellm.cli.termination import finish_when_terminated
from tracellm.report.texts import text

if TYPE_CHECKING:
    from tracellm.cli.selection import Options

__all__ = ["run"]


def run(script: Script, options: "Options | None", substitutes: Substitutes) -> int:
    """Run `script`, with `substitutes` for what it names; with `options`, explain it.

    Raises:
        CommandError: the script cannot be run, or the run folder cannot be written.
        BaseException: whatever leaves the script, on its way to the interpreter.
    """
    script = substitutes.script(script).found()
    substitutes.take_effect()
    ended = _explain(script, options, substitutes) if options else _ignore
    run_script(script, ended=ended, print_error=print_mistake)
    return 0


def _ignore(error: BaseException | None) -> None:
    """Nobody asked."""


def _explain(script: Script, options: "Options", substitutes: Substitutes) -> Callable[[BaseException | None], None]:
    """Start recording; the explanation is written when the interpreter ends. Returns whom to tell the script's end."""
    from tracellm.cli.explanation import Explanation
    from tracellm.cli.folders import new_run_folder
    from tracellm.cli.render import open_in_browser

    folder = new_run_folder(script.stem, options.out)
    explanation = Explanation(
        folder,
        script=script.name,
        argv=[script.target, *script.args],
        lang=options.lang,
        detail=options.detail,
        selection=options.selection,
        ring=options.ring,
        keep_text=options.keep_text,
        quiet=options.quiet,
        substitutes=substitutes.as_manifest(),
    )
    process = os.getpid()
    outcome: list[BaseException | None] = [None]

    def finish(exit_status: int | None = None) -> None:
        """Runs after the script's threads and its own atexit functions, which may still generate."""
        if os.getpid() != process:
            return  # a forked child: the recording is its parent's
        error = outcome.pop()
        status = _exit_status(error) if exit_status is None else exit_status & 0xFF
        try:
            explanation.end(exit_status=status, error=None if isinstance(error, SystemExit) else error)
            if options.open_report:
                open_in_browser(explanation.folder / "report.html", options.lang)
        except KeyboardInterrupt:  # Ctrl-C while the reports were being written
            recorded = text(options.lang, "cli.recorded_only", folder=folder)
            print(text(options.lang, "cli.error", message=recorded), file=sys.stderr)
        if type(error) is KeyboardInterrupt:  # of a class derived from it, python makes an exception like any other
            _die_of_interrupt()

    exit_at_once = os._exit

    def finish_and_exit(status: int) -> NoReturn:
        """`os._exit` skips atexit functions, and so would lose what was recorded."""
        if outcome:
            finish(operator.index(status))
        exit_at_once(status)

    def finish_and_die(status: int) -> None:
        if outcome:  # else a second signal, while the first one's explanation is being written
            finish(status)

    os._exit = finish_and_exit
    explanation.start()
    atexit.register(finish)
    finish_when_terminated(finish_and_die)
    return lambda error: outcome.__setitem__(0, error)


def _die_of_interrupt() -> None:
    """Have the interpreter end by SIGINT, as after any KeyboardInterrupt that nobody caught.

    It remembers that there was one until it next runs code from source, which importing the reports did.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _exit_status(error: BaseException | None) -> int:
    """The exit status that python gives a script which this exception leaves."""
    match error:
        case None:
            return 0
        case SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case _ if type(error) is KeyboardInterrupt:
            return 128 + signal.SIGINT
        case _:
            return 1
