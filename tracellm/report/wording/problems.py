"""Problems of a run folder, in the reader's language."""

from collections.abc import Mapping
from typing import Any

from tracellm.report.texts import text
from tracellm.report.wording.safe_text import visible
from tracellm.trace.problems import Problem

__all__ = ["problem_text", "recording_problems"]


def problem_text(problem: str, lang: str) -> str:
    """Return the sentence for a problem; a text without a code is returned as it is."""
    return text(lang, f"problem.{problem.code}", **problem.values) if isinstance(problem, Problem) else problem


def recording_problems(manifest: Mapping[str, Any], lang: str) -> list[str]:
    """Return the problems that run.json has: those of the probes, and of sending spans to a collector."""
    probes = manifest.get("probes")
    if not isinstance(probes, Mapping):
        return []
    met, export = probes.get("problems"), probes.get("export")
    lines = [visible(str(problem)) for problem in met] if isinstance(met, list) else []
    return [*lines, *_unsent(export, lang)] if isinstance(export, Mapping) else lines


def _unsent(export: Mapping[str, Any], lang: str) -> list[str]:
    """Return one line, if anything went wrong with a collector."""
    lost, errors = export.get("lost"), export.get("errors")
    if not isinstance(errors, list) or not errors:
        return []
    reasons = text(lang, "collector.and").join(visible(str(error)) for error in errors)
    if export.get("endpoint") is None:
        return [text(lang, "collector.nowhere", reasons=reasons)]
    key = "unknown" if not isinstance(lost, int) else "lost" if lost else "other"
    endpoint = visible(str(export["endpoint"]))
    return [text(lang, f"collector.{key}", lost=lost, endpoint=endpoint, reasons=reasons)]
