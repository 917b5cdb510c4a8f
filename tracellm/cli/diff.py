"""`tracellm diff`: two earlier runs held against each other, from their folders alone."""

import shutil
from collections.abc import Sequence

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import find_run
from tracellm.cli.out import print_out
from tracellm.cli.render import tell
from tracellm.report.facts.coverage import notes
from tracellm.report.texts import Language
from tracellm.report.wording.problems import problem_text
from tracellm.trace.run_folder import RunFolder, RunFolderError

__all__ = ["diff"]

_NARROWEST, _WIDEST = 60, 140
"""Columns of the output, whatever the terminal has."""


def diff(names: Sequence[str], lang: Language, *, markdown: bool = False) -> int:
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
            tell(lang, "note_of", run=run.path, note=note)
    if markdown:
        print_out(diff_markdown(a, b, lang=lang))
    else:
        width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
        print_out(diff_text(a, b, lang=lang, width=width))
    return 1 if a.problems or b.problems else 0


def _open(name: str, lang: Language) -> RunFolder:
    """The run `name`; what is wrong with it is told on stderr, with its name, since there are two."""
    try:
        run = RunFolder.open(find_run(name))
    except RunFolderError as error:
        raise CommandError("run_folder", reason=problem_text(error.problem, lang)) from None
    for problem in run.problems:
        tell(lang, "diff_problem", run=run.path, problem=problem_text(problem, lang))
    return run
