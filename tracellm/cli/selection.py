"""How a user wants a run explained: what to record, which is refused at once when it names nothing, and the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracellm.cli.errors import CommandError
from tracellm.cli.render import tell
from tracellm.probes.selection import Selection
from tracellm.report.texts import Language, text
from tracellm.trace.names import LEVELS, Level

__all__ = ["Options", "level_of", "options_of", "ring_of", "selection_of"]


@dataclass(frozen=True)
class Options:
    """How to explain a run.

    Attributes:
        lang: the language of what is said and of the reports.
        out: the run folder; None for a new one.
        detail: how deep to draw; None for what tells most.
        selection: what to record.
        ring: how many spans of each process to keep; None for all.
        keep_text: are prompts and generated text recorded?
        quiet: no console log.
        open_report: open report.html in the browser at the end.
    """

    lang: Language
    out: Path | None
    detail: Level | None
    selection: Selection
    ring: int | None
    keep_text: bool
    quiet: bool
    open_report: bool


def options_of(
    lang: Language,
    *,
    out: Path | None,
    detail: str | None,
    focus: Sequence[str],
    only: Sequence[str],
    skip: Sequence[str],
    ring: str | None,
    keep_text: bool,
    quiet: bool,
    open_report: bool,
) -> Options:
    """The options as they were typed.

    Raises:
        CommandError: `detail`, `only`, `skip` or `ring` cannot be meant so.
    """
    level = level_of(detail)
    selection = selection_of(lang, level, focus, only, skip)
    return Options(lang, out, level, selection, ring_of(ring), keep_text, quiet, open_report)


def selection_of(
    lang: Language,
    detail: Level | None,
    focus: Sequence[str],
    only: Sequence[str],
    skip: Sequence[str],
) -> Selection:
    """What is to be recorded. A class in focus that the engine does not have may be one of the user's own, with
    @tracellm.probe: that is told on stderr, and no mistake.

    Raises:
        CommandError: a pattern of `only` or `skip` names nothing, or nothing that the other options leave.
    """
    chosen = Selection.of(detail, focus, only, skip)
    if chosen.has_patterns:
        from tracellm.probes.catalog import EVERY_ENGINE
        from tracellm.probes.choices import unmatched_patterns

        for wrong in unmatched_patterns(chosen, EVERY_ENGINE):
            names = ", ".join(wrong.names)
            near = text(lang, "cli.near", names=names) if wrong.why == "unknown" and names else ""
            if wrong.option == "focus":
                tell(lang, "focus_unknown", value=wrong.pattern, near=near)
            else:
                option = f"--{wrong.option}"
                raise CommandError(f"pattern.{wrong.why}", option=option, value=wrong.pattern, near=near, names=names)
    return chosen


def level_of(value: str | None) -> Level | None:
    """A level of detail.

    Raises:
        CommandError: there is no such level.
    """
    for level in LEVELS:
        if value == level:
            return level
    if value is not None:
        raise CommandError("detail", value=value)
    return None


def ring_of(value: int | str | None) -> int | None:
    """How many spans of each process are to be kept.

    Raises:
        CommandError: that is no number of spans.
    """
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise CommandError("ring", value=value)
    return number
