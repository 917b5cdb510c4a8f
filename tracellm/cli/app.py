"""The arguments of the command, read with click; `parse` gives back what to do, and nothing of click is left running.

That matters to `tracellm run`: the script that it runs must find as little as possible below it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from tracellm.cli.bench.command import bench_command
from tracellm.cli.errors import CommandError
from tracellm.cli.language import choose_language
from tracellm.cli.serve_command import serve_command
from tracellm.report.texts import Language, text

__all__ = ["Job", "parse"]

Job = Callable[[], int]
"""What a command does once its arguments are read; returns the exit status."""


class _Group(click.Group):
    """The commands in the order in which people meet them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class _Command(click.Command):
    """A command whose usage line is written by hand, where click would show how its arguments are parsed."""

    def __init__(self, *args: Any, usage: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._usage = usage

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", *self._usage]


class _RunCommand(_Command):
    """`run`: `-m MODULE` ends our options, as SCRIPT does and as python has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
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


def parse(arguments: Sequence[str], lang: Language) -> Job:
    """What these arguments ask for.

    Raises:
        SystemExit: they ask for help or the version (0), or are not understood (2); all is said already.
    """
    try:
        job = _build(lang).main(list(arguments), prog_name="tracellm", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError):
            command = error.ctx.command_path if error.ctx is not None else "tracellm"
            click.echo(text(lang, "cli.error.see_help", command=command), err=True)
        raise SystemExit(error.exit_code) from None
    if callable(job):
        return job  # what the command below returned, passed on by click
    raise SystemExit(0)


def _build(lang: Language) -> click.Group:
    """The commands, with their help in one language; each returns what to do."""

    def say(key: str) -> str:
        return text(lang, f"cli.help.{key}")

    from tracellm import __version__

    lang_option = click.option("--lang", "language", metavar="en|zh", help=say("lang"))
    detail_option = click.option("--detail", metavar="LEVEL", help=say("detail"))
    focus_option = click.option("--focus", multiple=True, metavar="CLASS", help=say("focus"))
    record_options = [
        click.option("--detail", metavar="LEVEL", help=say("record_detail")),
        click.option("--focus", multiple=True, metavar="CLASS", help=say("record_focus")),
        click.option("--only", multiple=True, metavar="PATTERN", help=say("only")),
        click.option("--skip", multiple=True, metavar="PATTERN", help=say("skip")),
        click.option("--ring", metavar="N", help=say("ring")),
    ]
    open_option = click.option("--open", "open_report", is_flag=True, help=say("open"))
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

    @click.group(cls=_Group, help=text(lang, "cli.help"), context_settings=settings)
    @click.version_option(__version__, message="%(prog)s %(version)s", help=say("version"))
    @click.help_option("-h", "--help", help=say("help"))
    def group() -> None:
        pass

    @group.command(
        cls=_RunCommand,
        usage=["SCRIPT | -m MODULE", "[ARGS]..."],
        help=f"{say('run')}\n\n{say('run.more')}",
        short_help=say("run.short"),
        context_settings={"allow_interspersed_args": False},
    )
    @click.argument("script", nargs=-1, type=click.UNPROCESSED)
    @click.option("-m", "module", metavar="MODULE", help=say("module"))
    @click.option("--explain", is_flag=True, help=say("explain"))
    @click.option("--engine", metavar="NAME", help=say("engine"))
    @click.option("--model", "models", multiple=True, metavar="NAME=PATH", help=say("model"))
    @lang_option
    @click.option("--out", type=Path, metavar="DIR", help=say("out"))
    @_all(record_options)
    @click.option("--no-text", is_flag=True, help=say("no_text"))
    @click.option("--quiet", "-q", is_flag=True, help=say("quiet"))
    @open_option
    @click.help_option("-h", "--help", help=say("help"))
    def run(
        script: tuple[str, ...],
        module: str | None,
        explain: bool,
        engine: str | None,
        models: tuple[str, ...],
        language: str | None,
        out: Path | None,
        no_text: bool,
        quiet: bool,
        open_report: bool,
        **asked: Any,
    ) -> Job:
        given = {"out": out, **asked, "no-text": no_text, "open": open_report}

        def job() -> int:
            from tracellm.cli.run import run
            from tracellm.cli.script import Script
            from tracellm.cli.substitutes import substitutes_of

            if module is None and not script:
                raise CommandError("no_script")
            target = Script(script[0], False, script[1:]) if module is None else Script(module, True, script)
            lang = choose_language(language)
            substitutes = substitutes_of(engine, models)
            if explain:
                from tracellm.cli.selection import options_of

                options = options_of(
                    lang, out=out, keep_text=not no_text, quiet=quiet, open_report=open_report, **asked
                )
                return run(target, options, substitutes)
            for option, value in given.items():
                if value:
                    raise CommandError("only_explain", option=f"--{option}")
            return run(target, None, substitutes)

        return job

    group.add_command(serve_command(lang))

    @group.command(
        cls=_Command,
        usage=["[RUN]", "sequence|tree|steps"],
        help=f"{say('show')}\n\n{say('show.more')}",
        short_help=say("show.short"),
    )
    @click.argument("what", nargs=-1)
    @lang_option
    @detail_option
    @focus_option
    @click.help_option("-h", "--help", help=say("help"))
    def show(what: tuple[str, ...], language: str | None, detail: str | None, focus: tuple[str, ...]) -> Job:
        def job() -> int:
            from tracellm.cli.selection import level_of
            from tracellm.cli.show import show

            return show(what, choose_language(language), detail=level_of(detail), focus=focus)

        return job

    @group.command(
        cls=_Command,
        usage=["[RUN]"],
        help=f"{say('report')}\n\n{say('report.more')}",
        short_help=say("report.short"),
    )
    @click.argument("name", required=False)
    @lang_option
    @detail_option
    @focus_option
    @open_option
    @click.help_option("-h", "--help", help=say("help"))
    def report(
        name: str | None, language: str | None, detail: str | None, focus: tuple[str, ...], open_report: bool
    ) -> Job:
        def job() -> int:
            from tracellm.cli.selection import level_of
            from tracellm.cli.show import report

            lang = choose_language(language)
            return report(name, lang, detail=level_of(detail), focus=focus, open_report=open_report)

        return job

    @group.command(
        cls=_Command,
        usage=["RUN_A", "RUN_B"],
        help=f"{say('diff')}\n\n{say('diff.more')}",
        short_help=say("diff.short"),
    )
    @click.argument("names", nargs=-1)
    @lang_option
    @click.option("--markdown", is_flag=True, help=say("diff.markdown"))
    @click.help_option("-h", "--help", help=say("help"))
    def diff(names: tuple[str, ...], language: str | None, markdown: bool) -> Job:
        def job() -> int:
            from tracellm.cli.diff import diff

            return diff(names, choose_language(language), markdown=markdown)

        return job

    @group.command(
        cls=_Command,
        usage=["[RUN]", "--expect FILE"],
        help=f"{say('check')}\n\n{say('check.more')}",
        short_help=say("check.short"),
    )
    @click.argument("name", required=False)
    @click.option("--expect", metavar="FILE", help=say("check.expect"))
    @click.option("--phase", metavar="PHASE", help=say("check.phase"))
    @lang_option
    @click.help_option("-h", "--help", help=say("help"))
    def check(name: str | None, expect: str | None, phase: str | None, language: str | None) -> Job:
        def job() -> int:
            from tracellm.cli.check import check

            return check(name, expect, choose_language(language), phase=phase)

        return job

    @group.command(
        cls=_Command,
        usage=["[RUN]", "--to FORMAT"],
        help=f"{say('export')}\n\n{say('export.more')}",
        short_help=say("export.short"),
    )
    @click.argument("name", required=False)
    @click.option("--to", metavar="FORMAT", help=say("export.to"))
    @click.option("--out", metavar="FILE", help=say("export.out"))
    @click.option("--detail", metavar="LEVEL", help=say("export.detail"))
    @click.option("--focus", multiple=True, metavar="CLASS", help=say("export.focus"))
    @lang_option
    @click.help_option("-h", "--help", help=say("help"))
    def export(
        name: str | None,
        to: str | None,
        out: str | None,
        detail: str | None,
        focus: tuple[str, ...],
        language: str | None,
    ) -> Job:
        def job() -> int:
            from tracellm.cli.export import export
            from tracellm.cli.selection import level_of

            return export(name, to, choose_language(language), out=out, detail=level_of(detail), focus=focus)

        return job

    @group.command(cls=_Command, usage=[], help=say("doctor"), short_help=say("doctor.short"))
    @click.option("--json", "as_json", is_flag=True, help=say("doctor.json"))
    @lang_option
    @click.help_option("-h", "--help", help=say("help"))
    def doctor(as_json: bool, language: str | None) -> Job:
        def job() -> int:
            from tracellm.cli.doctor import doctor

            return doctor(choose_language(language), as_json=as_json)

        return job

    group.add_command(bench_command(lang))
    return group


def _all(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Several options of a command at once."""

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add
