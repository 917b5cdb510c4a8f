"""What is wrong with a run folder, in the reader's language."""

from tracellm.report.texts import text
from tracellm.trace.problems import Problem

__all__ = ["problem_text"]


def problem_text(problem: str, lang: str) -> str:
    """The sentence for a problem; one that has no code is given as it is."""
    return text(lang, f"problem.{problem.code}", **problem.values) if isinstance(problem, Problem) else problem
