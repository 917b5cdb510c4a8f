"""`tracellm diff`: two earlier runs held against each other, from their folders alone."""

import shutil

import click

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.folders import read_run
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out
from tracellm.report.facts.coverage import notes
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text
from tracellm.trace.run_folder import RunFolder

__all__ = ["diff"]

_NARROWEST, _WIDEST = 60, 140
"""Columns of the output, whatever the terminal has."""


@click.command(cls=Command, usage=["RUN_A", "RUN_B"], help="cli.help.diff")
@click.argument("names", nargs=-1)
@language_option
@option("--markdown", is_flag=True, help="cli.help.diff.markdown")
def diff(names: tuple[str, ...], lang: Language, markdown: bool) -> int:
    """Print how two runs differ. Returns 0 whether or not they do, 1 when a recording is damaged.

    Raises:
        CommandError: there are not two names, no such run, or a folder that is none.
    """
    from tracellm.report.diff import diff_markdown, diff_text

    if len(names) != 2:
        raise CommandError("diff_two")
    a, b = (_open(name, lang) for name in names)
    for run in (a, b):
        for note in notes(run.manifest, lang):
            print_error(lang, "note_of", run=run.path, note=note)
    if markdown:
        print_out(diff_markdown(a, b, lang=lang))
    else:
        width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
        print_out(diff_text(a, b, lang=lang, width=width))
    return 1 if a.problems or b.problems else 0


def _open(name: str, lang: Language) -> RunFolder:
    """The run `name`; what is wrong with it is printed on stderr, with its name, since there are two."""
    run = read_run(name, lang)
    for problem in run.problems:
        print_error(lang, "diff_problem", run=run.path, problem=problem_text(problem, lang))
    return run
