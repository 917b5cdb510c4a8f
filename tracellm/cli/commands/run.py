"""`tracellm run`: runs a script as python would; with --explain, records and explains it.

`--engine` and `--model` override what the script names: what `import vllm` gives, and the folders of models. Both hold
for the processes that the script starts, too.
"""

import atexit
import json
import operator
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from tracellm.cli.errors import CommandError, print_error, print_mistake, require_posix
from tracellm.cli.options import Command, Option, Options, explain_options, option, options_of
from tracellm.cli.script import Script, run_script
from tracellm.cli.signals import die_of_interrupt, finish_when_terminated
from tracellm.report.texts import Language

__all__ = ["Overrides", "overrides_of", "run"]

_BUNDLED = ("tiny", "tiny-vl", "tiny-tools")  # BUNDLED_MODELS of the engine, without importing it
_ENGINE = "tracellm"


class _RunCommand(Command):
    """The command `run`, whose own options end at SCRIPT or `-m MODULE`, as python's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click."""
        options = [option for option in self.params if isinstance(option, Option)]
        takes_value = {name for option in options if not option.is_flag for name in option.opts}
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
    **values: Any,
) -> int:
    """Run a script; with --explain, record and explain it.

    Raises:
        CommandError: the script cannot be run, or the run folder cannot be written.
        BaseException: any exception of the script, for the interpreter.
    """
    require_posix()
    if module is None and not script:
        raise CommandError("no_script")
    target = Script(script[0], False, script[1:]) if module is None else Script(module, True, script)
    overrides = overrides_of(engine, models)
    options = options_of(lang, explain=explain, **values)
    misplaced = ", ".join(_misplaced_options(target))
    target = overrides.script(target).found()
    if misplaced and not values["quiet"]:
        print_error(lang, "misplaced", options=misplaced, script=target.name)
    overrides.take_effect()
    ended = _explain(target, options, overrides) if options else _ignore
    run_script(target, ended=ended, print_error=print_mistake)
    return 0


def _misplaced_options(script: Script) -> Iterator[str]:
    """Yield the options of `tracellm run` among a script's arguments, except those that its source mentions.

    Only --explain counts for modules and commands, which have other sources: `vllm serve` has its own --model.
    """
    options = {name for option in run.params if isinstance(option, Option) for name in option.opts}
    source = None
    if not script.is_module and Path(script.target).is_file():
        source = Path(script.target).read_bytes()
    for argument in dict.fromkeys(argument.partition("=")[0] for argument in script.args):
        if argument == "--":
            return
        if argument.startswith("--") and argument in options:
            mentioned = argument != "--explain" if source is None else argument.encode() in source
            if not mentioned:
                yield argument


def _ignore(error: BaseException | None) -> None:
    """Do nothing: without --explain the end of the script is of no interest."""


def _explain(script: Script, options: Options, overrides: "Overrides") -> Callable[[BaseException | None], None]:
    """Start recording; the reports are written when the interpreter ends.

    Returns the function to call with the exception that ended the script, or None.
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

    def finish(exit_status: int | None = None, terminated: bool = False) -> None:
        """Run after the script's threads and its own atexit functions, which may still generate."""
        if os.getpid() != process:
            return  # a forked child; its parent writes the reports
        error = outcome.pop()
        status = _exit_status(error) if exit_status is None else exit_status & 0xFF
        error_shown = None if isinstance(error, SystemExit) else error
        try:
            explanation.end(exit_status=status, error=error_shown, terminated=terminated)
            if options.open_report:
                open_in_browser(explanation.folder / "report.html", options.lang)
        except KeyboardInterrupt:  # Ctrl-C while the reports are written
            print_error(options.lang, "recorded_only", folder=explanation.shown)
        if type(error) is KeyboardInterrupt:  # python treats its subclasses as any other exception
            die_of_interrupt()

    exit_at_once = os._exit

    def finish_and_exit(status: int) -> NoReturn:
        """Finish first: `os._exit` skips atexit functions, and would lose the recording."""
        if outcome:
            finish(operator.index(status))
        exit_at_once(status)

    def finish_and_die(status: int) -> None:
        if outcome:  # else this is a second signal, while the reports are written
            finish(status, terminated=True)

    os._exit = finish_and_exit
    explanation.start()
    atexit.register(finish)
    finish_when_terminated(finish_and_die)
    return lambda error: outcome.__setitem__(0, error)


def _exit_status(error: BaseException | None) -> int:
    """Return the exit status of python for a script that ends with this exception."""
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


# -- --engine and --model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overrides:
    """The options `--engine` and `--model`, checked.

    Attributes:
        engine: `tracellm` if `import vllm` gives tracellm's engine; None for the installed vLLM.
        models: the directory to load for each name of a model.
    """

    engine: str | None
    models: dict[str, str]

    def script(self, script: Script) -> Script:
        """Return the program to run: for the command `vllm`, the one of tracellm's engine."""
        if self.engine is None or script.is_module or script.target != "vllm" or Path("vllm").exists():
            return script
        return Script("vllm.entrypoints.cli.main", True, script.args)

    def take_effect(self) -> None:
        """Apply the overrides to this process and those that it starts."""
        if self.models:
            from tracellm.engine.config.envs import MODELS
            from tracellm.probes.join import replace_models

            os.environ[MODELS] = json.dumps(self.models)
            replace_models()
        if self.engine is not None:
            from tracellm.as_vllm import activate

            activate()

    def as_manifest(self) -> dict[str, str | dict[str, str] | None]:
        """Return the entries for the options in run.json."""
        return {"engine": self.engine, "models": self.models}


def overrides_of(engine: str | None, models: Sequence[str]) -> Overrides:
    """Check `--engine NAME` and each `--model NAME=PATH`.

    Raises:
        CommandError: there is no such engine, a model is not given as NAME=PATH, or its directory is missing.
    """
    if engine not in (None, _ENGINE):
        raise CommandError("engine", value=engine)
    chosen: dict[str, str] = {}
    for value in models:
        name, _, path = value.partition("=")
        if not name or not path:
            raise CommandError("model_form", value=value)
        if name in chosen:
            raise CommandError("model_twice", name=name)
        chosen[name] = _directory(name, path)
    return Overrides(engine, chosen)


def _directory(name: str, path: str) -> str:
    if path in _BUNDLED:
        return str(Path(__file__).parents[2] / path.replace("-", "_"))
    directory = Path(path).expanduser().absolute()  # a shell leaves the ~ of NAME=~ alone, and a script may os.chdir
    if not directory.is_dir():
        raise CommandError("model_missing", name=name, path=path)
    if not (directory / "config.json").is_file():
        raise CommandError("model_no_config", name=name, path=path)
    return str(directory)
