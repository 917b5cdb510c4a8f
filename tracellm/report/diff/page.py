"""The comparison as one HTML page: the first difference, both runs step by step side by side, then the text's parts.

The page is made like a run's report, with the same views. Its script is `html/js/diff/main.js`.
"""

from functools import partial
from pathlib import Path
from typing import Any

from tracellm import __version__
from tracellm.report.diff import diff_parts
from tracellm.report.diff.steps import differences
from tracellm.report.diff.times import RUNS
from tracellm.report.facts.coverage import notes
from tracellm.report.facts.engines import step_positions
from tracellm.report.html.data import page_texts, run_data
from tracellm.report.html.items_data import has_pictures
from tracellm.report.html.page import document, environment
from tracellm.report.html.run_view import problems_view
from tracellm.report.texts import Language, text
from tracellm.report.wording.blocks import Block, Heading, Table
from tracellm.report.wording.safe_text import visible
from tracellm.trace.compare import Comparison, compare
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import Step

__all__ = ["diff_html"]


def diff_html(a: RunFolder, b: RunFolder, lang: Language = "en") -> str:
    """Return the comparison of two runs as an HTML document; `lang` is the language to show first.

    Raises:
        ValueError: there is no such language.
    """
    a, b = _without_folders(a, b)
    comparison = compare(a.trace, b.trace)
    return document(
        partial(_body, a, b, comparison),
        lang,
        script="diff/main.js",
        styles=("page.css", "steps.css", "diff.css"),
        data={**page_texts(lang, "diff.page.", "diff.steps."), **_data(a, b, comparison)},
        title=_title(a, b),
        version=__version__,
        pictures=has_pictures(a.trace) or has_pictures(b.trace),
    )


def _without_folders(a: RunFolder, b: RunFolder) -> tuple[RunFolder, RunFolder]:
    """Return both runs with the names of their folders as paths: the folders above may name their owner."""
    paths = [run.path.resolve() for run in (a, b)]
    kept = -2 if paths[0].name == paths[1].name and paths[0] != paths[1] else -1
    short_a, short_b = (
        RunFolder(Path(*path.parts[kept:]), run.manifest, run.trace, run.problems)
        for run, path in zip((a, b), paths, strict=True)
    )
    return short_a, short_b


def _title(a: RunFolder, b: RunFolder) -> str:
    return f"{visible(str(a.path))} ↔ {visible(str(b.path))}"


def _body(a: RunFolder, b: RunFolder, comparison: Comparison, lang: Language) -> str:
    """Return all sections in one language."""
    verdict, *parts = diff_parts(a, b, comparison, lang).items()
    runs = dict(zip(RUNS, (a, b), strict=True))
    return (
        environment()
        .get_template("diff.html")
        .render(
            t=partial(text, lang),
            title=_title(a, b),
            version=__version__,
            verdict=[_view(block) for block in verdict[1]],
            first=_first(comparison, lang),
            num_steps=dict(zip(runs, comparison.num_steps, strict=True)),
            parts={name: [_view(block) for block in blocks] for name, blocks in parts if blocks},
            problems=[(name, problem) for name, run in runs.items() for problem in problems_view(run, lang)],
            notes=[(name, note) for name, run in runs.items() for note in notes(run.manifest, lang)],
        )
    )


def _first(comparison: Comparison, lang: Language) -> dict[str, Any] | None:
    """Return the first pair of steps that differ; None without any, or if a run has no step at all."""
    if not all(comparison.num_steps) or not (found := comparison.different_steps):
        return None
    runs = [name for name, step in zip(RUNS, (found[0].a, found[0].b), strict=True) if step is not None]
    what = differences(found[0], lang) if len(runs) > 1 else text(lang, "diff.page.only", run=runs[0])
    return {"n": found[0].position, "what": what}


def _view(block: Block) -> dict[str, Any]:
    """Return a block for the template."""
    if isinstance(block, Table):
        return {"kind": "table", "title": block.title, "columns": block.columns, "rows": block.rows}
    return {"kind": "heading" if isinstance(block, Heading) else "paragraph", "text": block.text}


def _data(a: RunFolder, b: RunFolder, comparison: Comparison) -> dict[str, Any]:
    """Return both runs, the requests of a pair in rows of the same number, and the pairs of their steps."""
    in_a, in_b = step_positions(a.trace), step_positions(b.trace)

    def position(step: Step | None, known: dict[str, tuple[int, int]]) -> tuple[int, int] | None:
        return None if step is None else known[step.span.span_id]

    return {
        "a": run_data(a.trace, first=[(pair.a or pair.b).id for pair in comparison.requests]),  # type: ignore[union-attr]
        "b": run_data(b.trace, first=[(pair.b or pair.a).id for pair in comparison.requests]),  # type: ignore[union-attr]
        "names": {"a": str(a.path), "b": str(b.path)},
        "pairs": [
            {
                "n": pair.position,
                "a": position(pair.a, in_a),
                "b": position(pair.b, in_b),
                "differs": pair.differs,
            }
            for pair in comparison.steps
        ],
    }
