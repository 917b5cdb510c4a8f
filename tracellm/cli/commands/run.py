"""`tracellm run`: a script as python would run it, recorded and explained when that was given for."""

import atexit
import operator
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import click

from tracellm.cli.errors import CommandError, print_error, print_mistake, require_posix
from tracellm.cli.options import Command, Option, Options, explain_options, option, options_of
from tracellm.cli.overrides import Overrides, overrides_of
from tracellm.cli.script import Script, run_script
from tracellm.cli.signals import die_of_interrupt, finish_when_terminated
from tracellm.report.texts import Language

__all__ = ["run"]


class _RunCommand(Command):
    """`-m MODULE` ends our options, as SCRIPT does and as python has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click."""
        takes_value = {
            name for option in self.params if isinstance(option, Option) and not option.is_flag for name in option.opts
        }
        rest = iter(enumerate(args))
        for index, argument in rest:
            if argument.startswith("-m"):
                end = index + (2 if argument == "-m" else 1)
                if end <= len(args):
                    args = [*args[:end], "--", *args[end:]]
                break
            if argument in takes_value:
                next(rest, None)
            elif not argument.startswith("-") or argument == "--":
                break
        return super().parse_args(ctx, args)


@click.command(
    cls=_RunCommand,
    usage=["SCRIPT | -m MODULE", "[ARGS]..."],
    help="cli.help.run",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
@option("-m", "module", metavar="MODULE", help="cli.help.module")
@option("--explain", is_flag=True, help="cli.help.explain")
@option("--convert", type=click.Choice(["now", "later"]), metavar="now|later", help="cli.help.convert")
@option("--engine", metavar="NAME", help="cli.help.engine")
@option("--model", "models", multiple=True, metavar="NAME=PATH", help="cli.help.model")
@explain_options
def run(
    script: tuple[str, ...],
    module: str | None,
    explain: bool,
    engine: str | None,
    models: tuple[str, ...],
    lang: Language,
    **given: Any,
) -> int:
    """Run a script; with --explain, record and explain it.

    Raises:
        CommandError: the script cannot be run, or the run folder cannot be written.
        BaseException: whatever leaves the script, on its way to the interpreter.
    """
    require_posix()
    if module is None and not script:
        raise CommandError("no_script")
    target = Script(script[0], False, script[1:]) if module is None else Script(module, True, script)
    overrides = overrides_of(engine, models)
    options = options_of(lang, explain=explain, **given)
    target = overrides.script(target).found()
    overrides.take_effect()
    ended = _explain(target, options, overrides) if options else _ignore
    run_script(target, ended=ended, print_error=print_mistake)
    return 0


def _ignore(error: BaseException | None) -> None:
    """Do nothing: without --explain nobody needs the script's end."""


def _explain(script: Script, options: Options, overrides: Overrides) -> Callable[[BaseException | None], None]:
    """Start recording; the explanation is written when the interpreter ends. Returns the function to call
    with the exception that ended the script.
    """
    from tracellm.cli.explanation import Explanation
    from tracellm.cli.reports import open_in_browser

    explanation = Explanation.from_options(
        options,
        script.stem,
        script=script.name,
        argv=[script.target, *script.args],
        overrides=overrides.as_manifest(),
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
            print_error(options.lang, "recorded_only", folder=explanation.shown)
        if type(error) is KeyboardInterrupt:  # of a class derived from it, python makes an exception like any other
            die_of_interrupt()

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
