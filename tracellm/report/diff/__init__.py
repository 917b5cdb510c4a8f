"""Two runs compared, for a reader: `tracellm diff`, as text, as Markdown or as a page (`page.py`).

    Same tokens, same 9 steps; B has 2 processes and 21 messages of 6.1 kB in all, which took 0.31 ms a step (4.0%).

The parts follow below that sentence, one module for each: the runs, times and messages, calls, steps, requests.
`tracellm.trace.compare` finds the differences, as data.
"""

from tracellm.report.diff.calls import calls_part
from tracellm.report.diff.requests import requests_part
from tracellm.report.diff.runs import runs_alike, runs_part
from tracellm.report.diff.steps import steps_part
from tracellm.report.diff.times import boundary_part, times_part
from tracellm.report.diff.verdict import verdict
from tracellm.report.wording.blocks import Block, Paragraph, markdown, plain
from tracellm.trace.compare import Comparison, compare
from tracellm.trace.run_folder import RunFolder

__all__ = ["diff_markdown", "diff_parts", "diff_text"]


def diff_text(a: RunFolder, b: RunFolder, *, lang: str = "en", width: int = 80) -> str:
    """Return the comparison as plain text, lines of at most `width` columns, ending in a newline."""
    parts = diff_parts(a, b, compare(a.trace, b.trace), lang)
    return plain([block for part in parts.values() for block in part], max(width, 40))


def diff_markdown(a: RunFolder, b: RunFolder, *, lang: str = "en", level: int = 2) -> str:
    """Return the comparison as Markdown, its parts headed at `level`."""
    parts = diff_parts(a, b, compare(a.trace, b.trace), lang)
    return markdown([block for part in parts.values() for block in part], level)


def diff_parts(a: RunFolder, b: RunFolder, comparison: Comparison, lang: str) -> dict[str, list[Block]]:
    """Return the first sentence, then each part with its heading, by name."""
    return {
        "verdict": [Paragraph(verdict(a, b, comparison, runs_alike(a, b), lang))],
        "runs": runs_part(a, b, lang),
        "times": times_part(comparison, lang),
        "boundary": boundary_part(comparison, lang),
        "calls": calls_part(comparison, lang),
        "steps": steps_part(comparison, lang),
        "requests": requests_part(comparison, lang),
    }
