"""The reports of a run, written from its folder alone; `tracellm.report` makes the text of each.

Nothing here needs torch. Each report's module is imported when it is used.
"""

import os
import sys
import webbrowser
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tracellm.cli.errors import CommandError, print_error
from tracellm.report.facts.coverage import deeper_than_recorded, notes, why_missing
from tracellm.report.texts import Language, text
from tracellm.report.wording.problems import problem_text, recording_problems
from tracellm.trace.names import Level
from tracellm.trace.ranges import format_ranges
from tracellm.trace.run_folder import RunFolder

__all__ = [
    "FILE_WIDTH",
    "calltree_text",
    "classes_in_focus",
    "matching_classes",
    "open_in_browser",
    "print_depth_limit",
    "print_problems",
    "recorded_classes",
    "recorded_names",
    "requests_text",
    "sequence_picture",
    "sequence_text",
    "step_text",
    "steps_text",
    "workers_text",
    "write_reports",
]

FILE_WIDTH = 100
"""Columns of the text reports in files and pipes."""


def print_problems(run: RunFolder, lang: Language) -> None:
    """Print on stderr what is missing or damaged in a run folder, and what was not recorded."""
    for damage in run.problems:
        print_error(lang, "problem", problem=problem_text(damage, lang))
    for problem in recording_problems(run.manifest, lang):
        print_error(lang, "recording", problem=problem)


def print_depth_limit(run: RunFolder, detail: Level | None, lang: Language) -> None:
    """Print a line on stderr if the run was recorded less deep than `detail`."""
    if recorded := deeper_than_recorded(run.manifest, detail):
        print_error(lang, "not_so_deep", recorded=recorded)


def classes_in_focus(run: RunFolder, focus: Sequence[str], *, drawn: bool) -> tuple[str, ...]:
    """Return the classes of a run that `focus` names, by name or pattern.

    `drawn`: only those of a sequence diagram, or else functions of it, such as one with `@tracellm.probe`.

    Raises:
        CommandError: a name matches no class with a call in the run.
    """
    if not focus:
        return ()
    from tracellm.report.diagram.sequence import drawn_functions, drawn_lifelines

    classes = sorted(drawn_lifelines(run.trace)) if drawn else recorded_classes(run)
    functions = drawn_functions(run.trace) if drawn else []
    found: dict[str, None] = {}
    for name in focus:
        matches = matching_classes(name, classes) or matching_classes(name, functions)
        if not matches:
            raise CommandError("focus", value=name, known=", ".join(classes))
        found |= dict.fromkeys(matches)
    return tuple(found)


def recorded_classes(run: RunFolder) -> list[str]:
    """Return the names of the classes with a call in the run."""
    return sorted({span.lifeline for span in run.trace.spans})


def recorded_names(run: RunFolder) -> list[str]:
    """Return the names of the classes with a call in the run, and of the functions."""
    from tracellm.report.diagram.sequence import drawn_functions

    return [*recorded_classes(run), *drawn_functions(run.trace)]


def matching_classes(name: str, classes: Sequence[str]) -> list[str]:
    """Return the class of this name, or else all that match it as a pattern."""
    return [name] if name in classes else [each for each in classes if fnmatchcase(each, name)]


def sequence_text(run: RunFolder, lang: Language, *, detail: Level | None = None, focus: Sequence[str] = ()) -> str:
    """Return the sequence diagram, as Mermaid.

    Raises:
        CommandError: a name in `focus` matches no class with a call in the run.
    """
    from tracellm.report.diagram.sequence import sequence_diagram

    classes = classes_in_focus(run, focus, drawn=True)
    diagram = sequence_diagram(run.trace, detail=detail, focus=classes, lang=lang)
    return _with_notes(diagram, run, lang, mark="%% ")


def sequence_picture(run: RunFolder, lang: Language, *, detail: Level | None = None, focus: Sequence[str] = ()) -> str:
    """Return the diagram of `sequence_text` as a static SVG."""
    from tracellm.report.diagram.sequence import sequence
    from tracellm.report.diagram.svg import to_svg

    return to_svg(sequence(run.trace, detail=detail, focus=classes_in_focus(run, focus, drawn=True), lang=lang))


def calltree_text(run: RunFolder, lang: Language, width: int = FILE_WIDTH) -> str:
    """Return the call tree, repeated work folded, with counts and times, `width` columns wide."""
    from tracellm.report.calltree import calltree

    return _with_notes(calltree(run.trace, lang=lang, width=width), run, lang)


def requests_text(run: RunFolder, lang: Language, width: int = FILE_WIDTH) -> str:
    """Return the list of all requests, `width` columns wide."""
    from tracellm.report.requests_list import requests_list

    return _with_notes(
        requests_list(run.trace, lang, width), run, lang, further=why_missing(run.manifest, lang, "requests")
    )


def steps_text(run: RunFolder, lang: Language, width: int = FILE_WIDTH) -> str:
    """Return the table of the engine's steps, `width` columns wide."""
    from tracellm.report.steps_table import steps_table

    why = why_missing(run.manifest, lang, "steps", "schedules", "endings", "samples")
    return _with_notes(steps_table(run.trace, lang=lang, width=width), run, lang, further=why)


def step_text(run: RunFolder, number: str, lang: Language, width: int = FILE_WIDTH) -> str:
    """Return the state of one step, `width` columns wide.

    Raises:
        CommandError: `number` is not the number of a recorded step.
    """
    from tracellm.report import step_text

    known = step_text.step_numbers(run.trace)
    if not number.isdecimal() or int(number) not in known:
        raise CommandError("step_unknown" if known else "step_none", value=number, known=format_ranges(known))
    output = step_text.step_text(run.trace, int(number), lang=lang, width=width)
    why = why_missing(run.manifest, lang, "steps", "schedules", "endings", "samples")
    return _with_notes(output, run, lang, further=why)


def workers_text(run: RunFolder, lang: Language, width: int = FILE_WIDTH) -> str:
    """Return the workers of a run with several, `width` columns wide: their parts of the model, and their time."""
    from tracellm.report import workers

    return _with_notes(workers.workers_text(run.trace, lang=lang, width=width), run, lang)


def _with_notes(output: str, run: RunFolder, lang: Language, mark: str = "", further: Sequence[str] = ()) -> str:
    """Return the output with the notes on the recording below it."""
    lines = [f"{mark}{note}\n" for note in (*further, *notes(run.manifest, lang))]
    blank = "\n" if lines and not mark else ""
    return "".join([output.rstrip("\n"), "\n", blank, *lines]) if lines else output


def _page(run: RunFolder, lang: Language) -> str:
    from tracellm.report.html import report_html

    return report_html(run, lang)


def write_reports(
    run: RunFolder,
    lang: Language,
    *,
    detail: Level | None = None,
    focus: Sequence[str] = (),
    shown: Path | None = None,
    only: Collection[str] = ("sequence.mmd", "calltree.txt", "report.html"),
) -> set[str]:
    """Write the reports in `only` into a run folder; print on stderr why a file is missing.

    Returns the names of the missing files. `shown` is the folder's path for messages.
    """
    writers: dict[str, Callable[[], str]] = {
        "sequence.mmd": lambda: sequence_text(run, lang, detail=detail, focus=focus),
        "calltree.txt": lambda: calltree_text(run, lang),
        "report.html": lambda: _page(run, lang),
    }
    missing = set()
    for name in only:
        try:
            (run.path / name).write_text(writers[name](), encoding="utf-8", errors="replace")
        except CommandError as error:
            reason = error.message(lang)
        except OSError as error:
            reason = error.strerror or str(error)
        except Exception as error:  # a fault in one report must not prevent the others
            reason = f"{type(error).__name__}: {error}"
        else:
            continue
        missing.add(name)
        recorded = text(lang, "cli.error.recorded_only", folder=shown or run.path)
        print_error(lang, "render", file=name, reason=reason, recorded=recorded)
    return missing


def open_in_browser(page: Path, lang: Language) -> None:
    """Open a file in the browser, or print a line if there is no display."""
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not (screen and webbrowser.open(page.absolute().as_uri())):
        print(text(lang, "cli.open.none", path=page), file=sys.stderr)
