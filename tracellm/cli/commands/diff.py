"""`tracellm diff`: compares two earlier runs, from their folders alone."""

import click

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.folders import read_run
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.report.facts.coverage import notes
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text
from tracellm.trace.run_folder import RunFolder

__all__ = ["diff"]


@click.command(cls=Command, usage=["RUN_A", "RUN_B"], help="cli.help.diff")
@click.argument("names", nargs=-1)
@language_option
@option("--markdown", is_flag=True, help="cli.help.diff.markdown")
def diff(names: tuple[str, ...], lang: Language, markdown: bool) -> int:
    """Print how two runs differ. Returns 1 if a recording is damaged, else 0.

    Raises:
        CommandError: there are not two names, or one is not a run.
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
        print_out(diff_text(a, b, lang=lang, width=width_of_terminal()))
    return 1 if a.problems or b.problems else 0


def _open(name: str, lang: Language) -> RunFolder:
    """Return the run `name`, and print its problems with that name on stderr."""
    run = read_run(name, lang)
    for problem in run.problems:
        print_error(lang, "diff_problem", run=run.path, problem=problem_text(problem, lang))
    return run
