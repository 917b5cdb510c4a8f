"""The reports of a run, made from its folder alone: `tracellm.report` makes each, this module prints and writes them.

Nothing here needs torch. Each renderer is imported when it is used.
"""

import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tracellm.cli.errors import CommandError, print_error
from tracellm.report.facts.coverage import deeper_than_recorded, notes, why_missing
from tracellm.report.texts import Language, text
from tracellm.report.wording.problems import problem_text, recording_problems
from tracellm.trace.names import Level
from tracellm.trace.run_folder import RunFolder

__all__ = [
    "calltree_text",
    "classes_in_focus",
    "open_in_browser",
    "print_depth_limit",
    "print_problems",
    "sequence_text",
    "steps_text",
    "write_reports",
]


def print_problems(run: RunFolder, lang: Language) -> None:
    """Print what is missing or damaged in a run folder, and what was not recorded, on stderr."""
    for problem in run.problems:
        print_error(lang, "problem", problem=problem_text(problem, lang))
    for met in recording_problems(run.manifest, lang):
        print_error(lang, "recording", problem=met)


def print_depth_limit(run: RunFolder, detail: Level | None, lang: Language) -> None:
    """Print on stderr that a run holds nothing as deep as is asked for, if that is so."""
    if recorded := deeper_than_recorded(run.manifest, detail):
        print_error(lang, "not_so_deep", recorded=recorded)


def classes_in_focus(run: RunFolder, focus: Sequence[str], *, drawn: bool) -> tuple[str, ...]:
    """The classes of a run that `focus` names, each by its name or a pattern, as when it was recorded; those that a
    sequence diagram has, if it is to be `drawn`.

    Raises:
        CommandError: no call of the run is one of a class that `focus` names.
    """
    if not focus:
        return ()
    from tracellm.report.diagram.sequence import drawn_lifelines

    known = sorted(drawn_lifelines(run.trace) if drawn else {span.lifeline for span in run.trace.spans})
    found: dict[str, None] = {}
    for name in focus:
        meant = [name] if name in known else [one for one in known if fnmatchcase(one, name)]
        if not meant:
            raise CommandError("focus", value=name, known=", ".join(known))
        found |= dict.fromkeys(meant)
    return tuple(found)


def sequence_text(run: RunFolder, lang: Language, *, detail: Level | None = None, focus: Sequence[str] = ()) -> str:
    """The sequence diagram, as Mermaid.

    Raises:
        CommandError: no call of the run is one of a class that `focus` names.
    """
    from tracellm.report.diagram.sequence import sequence_diagram

    classes = classes_in_focus(run, focus, drawn=True)
    diagram = sequence_diagram(run.trace, detail=detail, focus=classes, lang=lang)
    return _with_notes(diagram, run, lang, mark="%% ")


def calltree_text(run: RunFolder, lang: Language) -> str:
    """The call tree, repeated work folded, with counts and times."""
    from tracellm.report.calltree import calltree

    return _with_notes(calltree(run.trace, lang=lang), run, lang)


def steps_text(run: RunFolder, lang: Language) -> str:
    """The engine's steps as a table."""
    from tracellm.report.steps_table import steps_table

    why = why_missing(run.manifest, lang, "steps", "schedules", "endings", "samples")
    return _with_notes(steps_table(run.trace, lang=lang), run, lang, further=why)


def _with_notes(output: str, run: RunFolder, lang: Language, mark: str = "", further: Sequence[str] = ()) -> str:
    """Add the notes on the recording below."""
    lines = [f"{mark}{note}\n" for note in (*further, *notes(run.manifest, lang))]
    blank = "\n" if lines and not mark else ""
    return "".join([output.rstrip("\n"), "\n", blank, *lines]) if lines else output


def html_text(run: RunFolder, lang: Language) -> str:
    """The page: what ran, why this client, the sequence diagram, the call tree and the steps."""
    from tracellm.report.html import report_html

    return report_html(run, lang)


def write_reports(
    run: RunFolder,
    lang: Language,
    *,
    detail: Level | None = None,
    focus: Sequence[str] = (),
    shown: Path | None = None,
) -> set[str]:
    """Write sequence.mmd, calltree.txt and report.html into a run folder, and print on stderr what could not be.

    Returns the names of the files that were not written. `shown` is the folder as the user knows it.
    """
    writers: dict[str, Callable[[], str]] = {
        "sequence.mmd": lambda: sequence_text(run, lang, detail=detail, focus=focus),
        "calltree.txt": lambda: calltree_text(run, lang),
        "report.html": lambda: html_text(run, lang),
    }
    missing = set()
    for name, write in writers.items():
        try:
            (run.path / name).write_text(write(), encoding="utf-8", errors="replace")
        except CommandError as error:
            reason = error.message(lang)
        except OSError as error:
            reason = error.strerror or str(error)
        except Exception as error:  # a fault in one report must not take the others, nor the recording, with it
            reason = f"{type(error).__name__}: {error}"
        else:
            continue
        missing.add(name)
        recorded = text(lang, "cli.error.recorded_only", folder=shown or run.path)
        print_error(lang, "render", file=name, reason=reason, recorded=recorded)
    return missing


def open_in_browser(page: Path, lang: Language) -> None:
    """Open a file in the browser; without a screen to open one on, print a line."""
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not (screen and webbrowser.open(page.absolute().as_uri())):
        print(text(lang, "cli.open.none", path=page), file=sys.stderr)
