"""`tracellm show` and `tracellm report`: the reports of an earlier run, from its folder alone."""

import sys

import click

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import find_run, open_run
from tracellm.cli.options import Command, detail_option, focus_option, language_option, level_of, open_option
from tracellm.cli.reports import (
    FILE_WIDTH,
    calltree_text,
    classes_in_focus,
    open_in_browser,
    print_depth_limit,
    requests_text,
    sequence_text,
    step_text,
    steps_text,
    workers_text,
    write_reports,
)
from tracellm.cli.stdout import print_out, width_of_terminal
from tracellm.report.texts import Language, text

__all__ = ["report", "show"]

_PARTS = ("sequence", "tree", "requests", "steps", "workers")


@click.command(cls=Command, usage=["[RUN]", "sequence|tree|requests|steps|step N|workers"], help="cli.help.show")
@click.argument("what", nargs=-1)
@language_option
@detail_option
@focus_option
def show(what: tuple[str, ...], lang: Language, detail: str | None, focus: tuple[str, ...]) -> int:
    """Print one part of a run. `what` is the part's name, after the run's unless that is the newest run.

    The part `step` is followed by the step's number.

    Returns 1 if the recording is damaged; what can be read of it is still printed.

    Raises:
        CommandError: no such part, level, run or step.
    """
    level = level_of(detail)
    if not what:
        raise CommandError("show_nothing")
    *name, part = what
    number = ""
    if name and name[-1] == "step" and part not in _PARTS:
        number, part = part, name.pop()
    if len(name) > 1:
        raise CommandError("show_too_many", value=name[1])
    if part == "step" and not number:
        raise CommandError("show_which_step")
    if part not in (*_PARTS, "step"):
        if part and not name and (found := _found(part)):
            raise CommandError("show_what_of", run=found)
        raise CommandError("show_what", value=part)
    run = open_run(name[0] if name else None, lang)
    width = width_of_terminal() if sys.stdout.isatty() else FILE_WIDTH
    match part:
        case "sequence":
            print_depth_limit(run, level, lang)
            output = sequence_text(run, lang, detail=level, focus=focus)
        case "tree":
            output = calltree_text(run, lang, width)
        case "requests":
            output = requests_text(run, lang, width)
        case "step":
            output = step_text(run, number, lang, width)
        case "workers":
            output = workers_text(run, lang, width)
        case _:
            output = steps_text(run, lang, width)
    print_out(output)
    return 1 if run.problems else 0


@click.command(cls=Command, usage=["[RUN]"], help="cli.help.report")
@click.argument("name", required=False)
@language_option
@detail_option
@focus_option
@open_option
def report(name: str | None, lang: Language, detail: str | None, focus: tuple[str, ...], open_report: bool) -> int:
    """Write the reports of a run again. Returns 1 if one could not be written, or the recording is damaged.

    Raises:
        CommandError: no such level, run or class in focus.
    """
    level = level_of(detail)
    run = open_run(name, lang)
    classes_in_focus(run, focus, drawn=True)  # refuses unknown names before any file is replaced
    print_depth_limit(run, level, lang)
    missing = write_reports(run, lang, detail=level, focus=focus)
    if "report.html" not in missing:
        print_out(text(lang, "cli.report", path=run.path / "report.html"))
        if open_report:
            open_in_browser(run.path / "report.html", lang)
    return 1 if missing or run.problems else 0


def _found(name: str) -> str | None:
    """Return the folder of the run `name`, if there is one."""
    try:
        return str(find_run(name))
    except CommandError:
        return None
