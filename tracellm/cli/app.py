"""The command line, read with click: a lazy group, whose commands are imported when they are asked for.

A command returns its work instead of doing it, so that nothing of click is left running when the work begins. That
matters to `tracellm run`: the script that it runs must find as little as possible below it.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from tracellm import __version__
from tracellm.cli.errors import CommandError
from tracellm.cli.options import Group, Job, Option, language_of_arguments
from tracellm.report.texts import Language, text

__all__ = ["parse", "run_command"]

_MODULES = {
    "run": "run",
    "serve": "serve",
    "show": "show",
    "report": "show",
    "diff": "diff",
    "check": "check",
    "export": "export",
    "doctor": "doctor",
    "bench": "bench",
}
"""The commands in the order in which people meet them, each with its module in `commands/`."""


class LazyGroup(Group):
    """Imports a command's module when the command is asked for; lists all of them from their texts alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        if cmd_name not in _MODULES:
            return None
        command: click.Command = getattr(import_module(f"tracellm.cli.commands.{_MODULES[cmd_name]}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their short help, for which none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text(ctx.find_root().obj, f"cli.help.{name}.short")) for name in _MODULES])


@click.group(
    cls=LazyGroup,
    help="cli.help",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="cli.help.version", cls=Option)
def _tracellm() -> None:
    pass


def parse(arguments: Sequence[str], lang: Language) -> Job:
    """The work that these arguments ask for; help and messages are in `lang`.

    Raises:
        SystemExit: they ask for help or the version (0), or are not understood (2); the output is complete then.
    """
    try:
        job = _tracellm.main(list(arguments), prog_name="tracellm", standalone_mode=False, obj=lang)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError):
            command = error.ctx.command_path if error.ctx is not None else "tracellm"
            click.echo(text(lang, "cli.error.see_help", command=command), err=True)
        raise SystemExit(error.exit_code) from None
    if callable(job):
        return job  # what the command returned, passed on by click
    raise SystemExit(0)


def run_command(arguments: Sequence[str]) -> NoReturn:
    """Do what these arguments ask for; ends by SystemExit, or with whatever ended the script that was run."""
    lang = language_of_arguments(arguments)
    job = parse(arguments, lang)
    try:
        status = job()
    except CommandError as error:
        error.print(lang)
        status = 2
    sys.exit(status)
