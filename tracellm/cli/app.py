"""The command line, parsed with click. A command's module is imported only when the command is used.

A command returns its work as a function instead of doing it, so that no frame of click is below the script that
`tracellm run` runs.

vLLM: vllm/entrypoints/cli/main.py
"""

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
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
    "whatif": "whatif",
    "plan": "plan",
    "export": "export",
    "doctor": "doctor",
    "bench": "bench",
    "lab": "lab",
}
"""The module in `commands/` of each command, in the order of `--help`."""


class LazyGroup(Group):
    """The commands of tracellm. Their list in `--help` needs none of their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        if cmd_name not in _MODULES:
            return None
        command: click.Command = getattr(import_module(f"tracellm.cli.commands.{_MODULES[cmd_name]}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.

        Raises:
            CommandError: the first argument is a script instead of a command.
        """
        if args[0] not in _MODULES and (args[0].endswith(".py") or Path(args[0]).is_file()):
            raise CommandError("script_as_command", script=shlex.quote(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their short help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text(ctx.find_root().obj, f"cli.help.{name}.short")) for name in _MODULES])


@click.group(cls=LazyGroup, help="cli.help", context_settings={"max_content_width": 100})
@click.version_option(__version__, message="%(prog)s %(version)s", help="cli.help.version", cls=Option)
def cli() -> None:
    pass


_HELP: type[Exception] | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Error whose message is the help of a group without arguments, since click 8.2."""


def parse(arguments: Sequence[str], lang: Language) -> Job:
    """Return the work of the command in these arguments; help and messages are in `lang`.

    Raises:
        CommandError: the arguments begin with a script instead of a command.
        SystemExit: help or the version was printed (0), or the arguments are wrong (2).
    """
    try:
        job = cli.main(list(arguments), prog_name="tracellm", standalone_mode=False, obj=lang)
    except click.ClickException as error:
        if not isinstance(error, click.UsageError) or isinstance(error, _HELP):
            error.show()
        else:
            if error.ctx is not None:
                click.echo(error.ctx.get_usage(), err=True)
            click.echo(f"Error: {error.format_message()}", err=True)
            command = "tracellm" if error.ctx is None else error.ctx.command_path
            click.echo(text(lang, "cli.error.see_help", command=command), err=True)
        raise SystemExit(error.exit_code) from None
    if callable(job):
        return job
    raise SystemExit(0)


def run_command(arguments: Sequence[str]) -> NoReturn:
    """Run the command in these arguments; ends by SystemExit, or with the exception of the script that was run."""
    lang = language_of_arguments(arguments)
    try:
        status = parse(arguments, lang)()
    except CommandError as error:
        error.print(lang)
        status = 2
    sys.exit(status)
