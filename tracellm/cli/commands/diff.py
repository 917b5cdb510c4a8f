"""`tracellm diff`: compares two earlier runs, from their folders alone."""

from pathlib import Path

import click

from tracellm.cli.errors import CommandError, print_error
from tracellm.cli.folders import read_run
from tracellm.cli.options import Command, language_option, option
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.report.facts.coverage import notes
from tracellm.report.texts import Language, text
from tracellm.report.wording.problems import problem_text
from tracellm.trace.run_folder import RunFolder

__all__ = ["diff"]


@click.command(cls=Command, usage=["RUN_A", "RUN_B"], help="cli.help.diff")
@click.argument("names", nargs=-1)
@language_option
@option("--markdown", is_flag=True, help="cli.help.diff.markdown")
@option("--html", metavar="[FILE]", is_flag=False, flag_value="diff.html", help="cli.help.diff.html")
def diff(names: tuple[str, ...], lang: Language, markdown: bool, html: str | None) -> int:
    """Print how two runs differ, or write it into the file `html`. Returns 1 if a recording is damaged, else 0.

    Raises:
        CommandError: there are not two names, one is not a run, or the file cannot be written.
    """
    from tracellm.report.diff import diff_markdown, diff_text

    if len(names) == 1 and html is not None:
        raise CommandError("diff_html_last", value=html)
    if len(names) != 2:
        raise CommandError("diff_two")
    if markdown and html is not None:
        raise CommandError("diff_formats")
    a, b = (_open(name, lang) for name in names)
    for run in (a, b):
        for note in notes(run.manifest, lang):
            print_error(lang, "note_of", run=run.path, note=note)
    if html is not None:
        _write_page(a, b, Path(html), lang)
        print_out(text(lang, "cli.diff.html", path=html))
    elif markdown:
        print_out(diff_markdown(a, b, lang=lang))
    else:
        print_out(diff_text(a, b, lang=lang, width=width_of_terminal()))
    return 1 if a.problems or b.problems else 0


def _write_page(a: RunFolder, b: RunFolder, path: Path, lang: Language) -> None:
    from tracellm.report.diff.page import diff_html

    page = diff_html(a, b, lang)
    try:
        path.write_text(page, encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError("diff_unwritable", path=path, reason=error.strerror or error) from None


def _open(name: str, lang: Language) -> RunFolder:
    """Return the run `name`, and print its problems with that name on stderr."""
    run = read_run(name, lang)
    for problem in run.problems:
        print_error(lang, "diff_problem", run=run.path, problem=problem_text(problem, lang))
    return run
