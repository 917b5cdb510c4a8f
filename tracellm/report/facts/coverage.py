"""Coverage of a recording, from run.json: its options, what is missing, what a ring dropped, and the cost.

Reports use it to distinguish "not recorded" from "did not happen".
"""

import shlex
from collections.abc import Mapping
from typing import Any

from tracellm.report.texts import text, texts
from tracellm.report.wording.quantities import byte_size, clip, duration, percent
from tracellm.report.wording.safe_text import visible
from tracellm.trace.names import LEVELS, Level

__all__ = [
    "cost",
    "deeper_than_recorded",
    "dropped_calls",
    "is_recorded",
    "notes",
    "numbers_in",
    "recording_options",
    "skipped_calls",
    "why_missing",
]

Manifest = Mapping[str, Any]

_MOST_FUNCTIONS = 3
"""Maximum number of functions named in a sentence."""

_TOO_MUCH = 1e18
"""Bound of plausible counts and times; a number in a damaged run.json may be larger, infinite or NaN."""

_IMPLIED = {"steps": ("schedules", "endings", "samples")}
"""Subjects that are also missing if another one is not recorded."""


def recording_options(manifest: Manifest) -> str:
    """Return the options that chose what was recorded, as typed: `--detail step --only Scheduler`; "" for all."""
    options = _mapping(manifest, "options")
    detail, focus = options.get("detail"), _list(options, "focus")
    arguments = []
    if detail in LEVELS and detail != ("step" if focus else LEVELS[-1]):
        arguments += ["--detail", str(detail)]
    for option in ("focus", "only", "skip"):
        for pattern in _list(options, option):
            arguments += [f"--{option}", visible(str(pattern))]
    return shlex.join(arguments)


def is_recorded(manifest: Manifest, subject: str) -> bool:
    """Return whether everything that a subject needs was recorded: `requests`, `steps`, ..."""
    return subject not in _left_out(manifest)


def deeper_than_recorded(manifest: Manifest, detail: Level | None) -> Level | None:
    """Return the level recorded, if it is not as deep as `detail` and no class has all its levels."""
    options = _mapping(manifest, "options")
    recorded = options.get("detail")
    if detail is None or recorded not in LEVELS or LEVELS.index(recorded) >= LEVELS.index(detail):
        return None
    if _list(options, "focus"):
        return None
    return recorded


def notes(manifest: Manifest, lang: str) -> list[str]:
    """Return the notes about parts that the recording lacks."""
    lines = []
    options = recording_options(manifest)
    if options:
        lacks = _lacks(manifest, lang)
        lines.append(text(lang, "recorded.lacks" if lacks else "recorded.chosen", options=options, lacks=lacks))
    lines += _depth(manifest, lang)
    ring = _mapping(manifest, "options").get("ring")
    if dropped := dropped_calls(manifest):
        lines.append(text(lang, "recorded.dropped", ring=ring if isinstance(ring, int) else 0, n=dropped))
    elif isinstance(ring, int) and "let_go" not in _mapping(manifest, "probes"):  # the run was killed, or goes on
        lines.append(text(lang, "recorded.ring", ring=ring))
    return [*lines, *_missing(_mapping(manifest, "probes"), lang)]


def _depth(manifest: Manifest, lang: str) -> list[str]:
    """Return a note about a long run that was not recorded at its first depth throughout."""
    probes, limit = _mapping(manifest, "probes"), _mapping(manifest, "options").get("depth_limit")
    steps = probes.get("deep_steps")
    if not isinstance(limit, int) or not 0 < limit < 1 << 60:
        return []
    size = byte_size(limit)
    if isinstance(steps, int) and steps > 0:
        return [text(lang, "recorded.deep_steps", steps=steps, size=size)]
    killed = "let_go" not in probes  # or it goes on
    return [text(lang, "recorded.depth_limit", size=size)] if killed or isinstance(steps, int) else []


def _missing(probes: Manifest, lang: str) -> list[str]:
    """Return a note about probes without a target in this version of the engine."""
    engine, targets = _mapping(probes, "engine"), _list(probes, "missing")
    if not engine or not targets:
        return []
    shown, more = clip([visible(str(target).rpartition(":")[2]) for target in targets], _MOST_FUNCTIONS)
    known = {"tracellm": "tracellm", "vllm": "vLLM"}.get(str(engine.get("name")), str(engine.get("name")))
    values = {
        "n": len(targets),
        "probes": engine.get("probes") if isinstance(engine.get("probes"), int) else len(targets),
        "engine": visible(f"{known} {engine.get('version')}"),
        "functions": ", ".join([*shown, "…"] if more else shown),
    }
    return [text(lang, "recorded.missing", **values)]


def dropped_calls(manifest: Manifest) -> int:
    """Return the number of calls that a ring did not keep."""
    dropped = _mapping(manifest, "probes").get("let_go")
    return dropped if isinstance(dropped, int) and dropped > 0 else 0


def skipped_calls(manifest: Manifest, lang: str) -> list[str]:
    """Return a note about calls that the live log skipped, as it fell behind."""
    missed = _mapping(manifest, "probes").get("unheard")
    return [text(lang, "recorded.skipped", n=missed)] if isinstance(missed, int) and missed > 0 else []


def cost(manifest: Manifest, lang: str, of_generation: float | None = None) -> list[str]:
    """Return the cost of recording, and the number of spans sent to a collector, as far as run.json has them.

    `of_generation` is the recording's share of generation (`recording_time.share_of_generation`), if known. Spans that
    did not arrive at the collector are a problem (`wording/problems.py`).
    """
    probes = _mapping(manifest, "probes")
    writer, conversion = _mapping(probes, "writer"), _mapping(probes, "conversion")
    lines = []
    if of_probes := numbers_in(probes, "calls", "seconds"):
        parts = [text(lang, "recorded.cost.probes", calls=of_probes["calls"], time=duration(of_probes["seconds"]))]
        if written := numbers_in(writer, "seconds", "bytes"):
            took, size = duration(written["seconds"]), byte_size(int(written["bytes"]))
            parts.append(text(lang, "recorded.cost.bytes", time=took, bytes=size))
        else:
            parts += [text(lang, "recorded.cost.written", time=duration(n)) for n in _number(writer, "seconds")]
        parts += [text(lang, "recorded.cost.run", share=percent(n)) for n in _number(probes, "share")]
        if of_generation is not None:
            parts.append(text(lang, "recorded.cost.generation", share=percent(of_generation)))
        parts += [text(lang, "recorded.cost.longest", time=duration(n / 1e3)) for n in _number(writer, "longest_ms")]
        lines.append(text(lang, "recorded.cost", parts=text(lang, "recorded.and").join(parts)))
    lines += [text(lang, "recorded.lost", n=n) for n in _number(writer, "lost") if n > 0]
    lines += [text(lang, "recorded.converted", time=duration(n)) for n in _number(conversion, "seconds")]
    export = _mapping(probes, "export")
    if isinstance(sent := export.get("sent"), int) and sent:
        lines.append(text(lang, "recorded.sent", endpoint=visible(str(export.get("endpoint"))), n=sent))
    return lines


def _number(holder: Manifest, key: str) -> list[float]:
    """Return an entry, if it is a plausible number; else nothing."""
    return list(numbers_in(holder, key).values())


def why_missing(manifest: Manifest, lang: str, *subjects: str) -> list[str]:
    """Return a sentence for each missing subject: the functions it needs, and the options that left them out."""
    left_out, lines = _left_out(manifest), []
    for subject in subjects:
        if isinstance(functions := left_out.get(subject), list):
            shown, more = clip([visible(str(function)) for function in functions], _MOST_FUNCTIONS)
            values = {"functions": ", ".join([*shown, "…"] if more else shown), "options": recording_options(manifest)}
            lines.append(text(lang, "recorded.unrecorded", subject=text(lang, f"recorded.subject.{subject}"), **values))
            if subject in _IMPLIED:
                break
    return lines


def _lacks(manifest: Manifest, lang: str) -> str:
    """Return the missing subjects, a word each."""
    left_out = _left_out(manifest)
    implied = {missing for subject in left_out for missing in _IMPLIED.get(subject, ())}
    keys = [f"recorded.subject.{subject}" for subject in left_out if subject not in implied]
    return text(lang, "recorded.and").join(text(lang, key) for key in keys if key in texts(lang))


def _left_out(manifest: Manifest) -> Manifest:
    return _mapping(_mapping(manifest, "probes"), "left_out")


def _mapping(holder: Manifest, key: str) -> Manifest:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(holder: Manifest, key: str) -> list[Any]:
    found = holder.get(key)
    return found if isinstance(found, list) else []


def numbers_in(holder: Manifest, *keys: str) -> dict[str, float]:
    """Return these entries, if each is a plausible number; else nothing."""
    numbers = {key: value for key in keys if isinstance(value := holder.get(key), int | float)}
    found = {key: value for key, value in numbers.items() if abs(value) < _TOO_MUCH}
    return found if len(found) == len(keys) else {}
