"""`tracellm show` and `tracellm report`: an earlier run again, from its folder alone."""

from collections.abc import Sequence

from tracellm.cli.errors import CommandError
from tracellm.cli.folders import find_run
from tracellm.cli.render import calltree_text, open_in_browser, sequence_text, steps_text, tell, write_reports
from tracellm.report.texts import Language, text
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder, RunFolderError

__all__ = ["report", "show"]

_PARTS = ("sequence", "tree", "steps")


def show(what: Sequence[str], lang: Language, *, detail: Level | None = None, focus: Sequence[str] = ()) -> int:
    """Print one part of a run to stdout. `what` is the part, with the run folder before it unless it is the newest.

    Raises:
        CommandError: no such part, no such run, or a folder that is none.
    """
    *name, part = what or [""]
    if len(name) > 1:
        raise CommandError("show_too_many", value=name[1])
    if part not in _PARTS:
        raise CommandError("show_what", value=part)
    try:
        run = RunFolder.open(find_run(name[0] if name else None))
    except RunFolderError as error:
        raise CommandError("run_folder", reason=error) from None
    for problem in run.problems:
        tell(lang, "problem", problem=problem)
    match part:
        case "sequence":
            output = sequence_text(run, lang, detail=detail, focus=focus)
        case "tree":
            output = calltree_text(run, lang)
        case _:
            output = steps_text(run, lang)
    print(output, end="" if output.endswith("\n") else "\n")
    return 0


def report(
    name: str | None,
    lang: Language,
    *,
    detail: Level | None = None,
    focus: Sequence[str] = (),
    open_report: bool = False,
) -> int:
    """Write the files that explain a run anew. Returns 1 when one could not be written.

    Raises:
        CommandError: no such run, or a folder that is none.
    """
    folder = find_run(name)
    try:
        missing = write_reports(folder, lang, detail=detail, focus=focus)
    except RunFolderError as error:
        raise CommandError("run_folder", reason=error) from None
    if "report.html" not in missing:
        print(text(lang, "cli.report", path=folder / "report.html"))
        if open_report:
            open_in_browser(folder / "report.html", lang)
    return 1 if missing else 0
