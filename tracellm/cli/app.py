"""The arguments of the command, read with typer; `parse` gives back what to do, and nothing of typer is left running.

That matters to `tracellm run`: the script that it runs must not find typer's frames below it, nor its exception hook.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand
from typer.main import get_command

from tracellm.cli.errors import CommandError
from tracellm.cli.language import choose_language
from tracellm.report.texts import Language, text
from tracellm.trace.names import LEVELS, Level

__all__ = ["Job", "parse"]

Job = Callable[[], int]
"""What a command does once its arguments are read; returns the exit status."""


class _RunCommand(TyperCommand):
    """`run`: `-m MODULE` ends our options, as SCRIPT does and as python has it."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "SCRIPT | -m MODULE", "[ARGS]..."]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with_value = {name for option in self.params if not getattr(option, "is_flag", True) for name in option.opts}
        rest = iter(enumerate(args))
        for index, argument in rest:
            if argument.startswith("-m"):
                end = index + (2 if argument == "-m" else 1)
                args = [*args[:end], "--", *args[end:]]
                break
            if argument in with_value:
                next(rest, None)
            elif not argument.startswith("-") or argument == "--":
                break
        return cast(list[str], super().parse_args(ctx, args))


class _ShowCommand(TyperCommand):
    """`show`: one list of arguments to the parser, two things to people."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "[RUN]", "sequence|tree|steps"]


def parse(arguments: Sequence[str], lang: Language) -> Job:
    """What these arguments ask for.

    Raises:
        SystemExit: they ask for help or the version (0), or are not understood (2); all is said already.
    """
    jobs: list[Job] = []
    try:
        get_command(_build(lang, jobs.append))(list(arguments), prog_name="tracellm")
    except SystemExit as done:
        if done.code or not jobs:
            raise
    return jobs[0]


def _build(lang: Language, chosen: Callable[[Job], None]) -> typer.Typer:
    """The commands, with their help in one language; each hands what to do to `chosen`."""

    def say(key: str) -> str:
        return text(lang, f"cli.help.{key}")

    app = typer.Typer(
        help=text(lang, "cli.help"),
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    lang_option = typer.Option("--lang", metavar="en|zh", help=say("lang"), show_default=False)
    detail_option = typer.Option("--detail", metavar="LEVEL", help=say("detail"), show_default=False)
    focus_option = typer.Option("--focus", metavar="CLASS", help=say("focus"), show_default=False)
    open_option = typer.Option("--open", help=say("open"))

    @app.callback(invoke_without_command=True)
    def root(
        version: Annotated[bool, typer.Option("--version", help=say("version"), is_eager=True)] = False,
    ) -> None:
        if version:
            from tracellm import __version__

            typer.echo(f"tracellm {__version__}")
            raise typer.Exit

    @app.command(
        cls=_RunCommand,
        help=f"{say('run')}\n\n{say('run.more')}",
        short_help=say("run"),
        context_settings={"allow_interspersed_args": False},
    )
    def run(
        script: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
        module: Annotated[str | None, typer.Option("-m", metavar="MODULE", help=say("module"))] = None,
        explain: Annotated[bool, typer.Option("--explain", help=say("explain"))] = False,
        lang: Annotated[str | None, lang_option] = None,
        out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help=say("out"), show_default=False)] = None,
        detail: Annotated[str | None, detail_option] = None,
        focus: Annotated[list[str] | None, focus_option] = None,
        no_text: Annotated[bool, typer.Option("--no-text", help=say("no_text"))] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help=say("quiet"))] = False,
        open_report: Annotated[bool, open_option] = False,
    ) -> None:
        def job() -> int:
            from tracellm.cli.run import Options, run
            from tracellm.cli.script import Script

            given = list(script or [])
            if module is None and not given:
                raise CommandError("no_script")
            target = Script(module, True, given) if module is not None else Script(given[0], False, given[1:])
            options = Options(
                lang=choose_language(lang),
                out=out,
                detail=_level(detail),
                focus=tuple(focus or ()),
                keep_text=not no_text,
                quiet=quiet,
                open_report=open_report,
            )
            for option, value in (
                ("--out", out),
                ("--detail", detail),
                ("--focus", focus),
                ("--no-text", no_text),
                ("--open", open_report),
            ):
                if value and not explain:
                    raise CommandError("only_explain", option=option)
            return run(target, options if explain else None)

        chosen(job)

    @app.command(cls=_ShowCommand, help=f"{say('show')}\n\n{say('show.more')}", short_help=say("show"))
    def show(
        what: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
        lang: Annotated[str | None, lang_option] = None,
        detail: Annotated[str | None, detail_option] = None,
        focus: Annotated[list[str] | None, focus_option] = None,
    ) -> None:
        def job() -> int:
            from tracellm.cli.show import show

            return show(list(what or []), choose_language(lang), detail=_level(detail), focus=tuple(focus or ()))

        chosen(job)

    @app.command(help=f"{say('report')}\n\n{say('report.more')}", short_help=say("report"))
    def report(
        run: Annotated[str | None, typer.Argument(metavar="RUN", hidden=True)] = None,
        lang: Annotated[str | None, lang_option] = None,
        detail: Annotated[str | None, detail_option] = None,
        focus: Annotated[list[str] | None, focus_option] = None,
        open_report: Annotated[bool, open_option] = False,
    ) -> None:
        def job() -> int:
            from tracellm.cli.show import report

            level = _level(detail)
            return report(run, choose_language(lang), detail=level, focus=tuple(focus or ()), open_report=open_report)

        chosen(job)

    return app


def _level(value: str | None) -> Level | None:
    if value is None:
        return None
    for level in LEVELS:
        if value == level:
            return level
    raise CommandError("detail", value=value)
