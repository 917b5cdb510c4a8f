"""Two runs compared, for a reader: `tracellm diff`, as text or as Markdown.

    Same tokens, same 9 steps; B has 2 processes and 21 messages of 6.1 kB in all, which took 0.31 ms a step (4.0%).

The parts follow below that sentence, one module for each: the runs, times and messages, calls, steps, requests.
`tracellm.trace.compare` finds the differences, as data.
"""

from tracellm.report.diff.blocks import Block, Paragraph, markdown, plain
from tracellm.report.diff.calls import calls_part
from tracellm.report.diff.requests import requests_part
from tracellm.report.diff.runs import runs_alike, runs_part
from tracellm.report.diff.steps import steps_part
from tracellm.report.diff.times import boundary_part, times_part
from tracellm.report.diff.verdict import verdict
from tracellm.trace.compare import Comparison, compare
from tracellm.trace.run_folder import RunFolder

__all__ = ["diff_markdown", "diff_parts", "diff_text"]


def diff_text(a: RunFolder, b: RunFolder, *, lang: str = "en", width: int = 80) -> str:
    """Return the comparison as plain text, lines of at most `width` columns, ending in a newline."""
    first, *parts = diff_parts(a, b, lang)
    return plain([*first, *(block for part in parts for block in part)], max(width, 40))


def diff_markdown(a: RunFolder, b: RunFolder, *, lang: str = "en", level: int = 2) -> str:
    """Return the comparison as Markdown, its parts headed at `level`."""
    return markdown([block for part in diff_parts(a, b, lang) for block in part], level)


def diff_parts(a: RunFolder, b: RunFolder, lang: str) -> list[list[Block]]:
    """Return the first sentence, then each part with its heading."""
    comparison: Comparison = compare(a.trace, b.trace)
    alike = runs_alike(a, b)
    return [
        [Paragraph(verdict(a, b, comparison, alike, lang))],
        runs_part(a, b, lang),
        times_part(comparison, lang),
        boundary_part(comparison, lang),
        calls_part(comparison, lang),
        steps_part(comparison, lang),
        requests_part(comparison, lang),
    ]
