"""`tracellm show` and `tracellm report`: an earlier run again, from its folder alone."""

from collections.abc import Sequence

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import find_run
from tracellm.cli.out import print_out
from tracellm.cli.render import (
    calltree_text,
    open_in_browser,
    sequence_text,
    steps_text,
    tell,
    tell_depth,
    tell_problems,
    write_reports,
)
from tracellm.report.texts import Language, text
from tracellm.report.wording.problems import problem_text
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder, RunFolderError

__all__ = ["open_run", "report", "show"]

_PARTS = ("sequence", "tree", "steps")


def show(what: Sequence[str], lang: Language, *, detail: Level | None = None, focus: Sequence[str] = ()) -> int:
    """Print one part of a run to stdout. `what` is the part, with the run folder before it unless it is the newest.

    Returns 1 when the recording is damaged, after what can be read of it was printed.

    Raises:
        CommandError: no such part, no such run, or a folder that is none.
    """
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
            tell_depth(run, detail, lang)
            output = sequence_text(run, lang, detail=detail, focus=focus)
        case "tree":
            output = calltree_text(run, lang)
        case _:
            output = steps_text(run, lang)
    print_out(output)
    return 1 if run.problems else 0


def report(
    name: str | None,
    lang: Language,
    *,
    detail: Level | None = None,
    focus: Sequence[str] = (),
    open_report: bool = False,
) -> int:
    """Write the files that explain a run anew. Returns 1 when one could not be written, or the recording is damaged.

    Raises:
        CommandError: no such run, or a folder that is none.
    """
    run = open_run(name, lang)
    tell_depth(run, detail, lang)
    missing = write_reports(run, lang, detail=detail, focus=focus)
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


def open_run(name: str | None, lang: Language) -> RunFolder:
    """The run `name`; what is wrong with it is told on stderr."""
    try:
        run = RunFolder.open(find_run(name))
    except RunFolderError as error:
        raise CommandError("run_folder", reason=problem_text(error.problem, lang)) from None
    tell_problems(run, lang)
    if run.manifest.get("status") == "running":
        tell(lang, "unfinished")
    return run
