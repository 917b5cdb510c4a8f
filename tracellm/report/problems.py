"""What is wrong with a run folder, in the reader's language."""

from collections.abc import Mapping
from typing import Any

from tracellm.report.texts import text
from tracellm.report.visible import visible
from tracellm.trace.problems import Problem

__all__ = ["problem_text", "recording_problems"]


def problem_text(problem: str, lang: str) -> str:
    """The sentence for a problem; one that has no code is given as it is."""
    return text(lang, f"problem.{problem.code}", **problem.values) if isinstance(problem, Problem) else problem


def recording_problems(manifest: Mapping[str, Any]) -> list[str]:
    """What the probes ran into, as run.json tells it: a process they could not follow, a call they could not read."""
    probes = manifest.get("probes")
    met = probes.get("problems") if isinstance(probes, Mapping) else None
    return [visible(str(problem)) for problem in met] if isinstance(met, list) else []
