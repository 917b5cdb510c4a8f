"""`tracellm show` and `tracellm report`: an earlier run again, from its folder alone."""

import click

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import find_run, open_run
from tracellm.cli.options import Command, detail_option, focus_option, language_option, level_of, open_option
from tracellm.cli.reports import (
    calltree_text,
    open_in_browser,
    print_depth_limit,
    sequence_text,
    steps_text,
    write_reports,
)
from tracellm.cli.stdout import print_out
from tracellm.report.texts import Language, text

__all__ = ["report", "show"]

_PARTS = ("sequence", "tree", "steps")


@click.command(cls=Command, usage=["[RUN]", "sequence|tree|steps"], help="cli.help.show")
@click.argument("what", nargs=-1)
@language_option
@detail_option
@focus_option
def show(what: tuple[str, ...], lang: Language, detail: str | None, focus: tuple[str, ...]) -> int:
    """Print one part of a run to stdout. `what` is the part, with the run folder before it unless it is the newest.

    Returns 1 when the recording is damaged, after what can be read of it was printed.

    Raises:
        CommandError: no such part, level or run, or a folder that is none.
    """
    level = level_of(detail)
    if not what:
        raise CommandError("show_nothing")
    *name, part = what
    if len(name) > 1:
        raise CommandError("show_too_many", value=name[1])
    if part not in _PARTS:
        if part and not name and (found := _known(part)):
            raise CommandError("show_what_of", run=found)
        raise CommandError("show_what", value=part)
    run = open_run(name[0] if name else None, lang)
    match part:
        case "sequence":
            print_depth_limit(run, level, lang)
            output = sequence_text(run, lang, detail=level, focus=focus)
        case "tree":
            output = calltree_text(run, lang)
        case _:
            output = steps_text(run, lang)
    print_out(output)
    return 1 if run.problems else 0


@click.command(cls=Command, usage=["[RUN]"], help="cli.help.report")
@click.argument("name", required=False)
@language_option
@detail_option
@focus_option
@open_option
def report(name: str | None, lang: Language, detail: str | None, focus: tuple[str, ...], open_report: bool) -> int:
    """Write the files that explain a run anew. Returns 1 when one could not be written, or the recording is damaged.

    Raises:
        CommandError: no such level or run, or a folder that is none.
    """
    level = level_of(detail)
    run = open_run(name, lang)
    print_depth_limit(run, level, lang)
    missing = write_reports(run, lang, detail=level, focus=focus)
    if "report.html" not in missing:
        print_out(text(lang, "cli.report", path=run.path / "report.html"))
        if open_report:
            open_in_browser(run.path / "report.html", lang)
    return 1 if missing or run.problems else 0


def _known(name: str) -> str | None:
    """The run that `name` means, if there is one."""
    try:
        return str(find_run(name))
    except CommandError:
        return None
