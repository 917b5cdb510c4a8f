"""A trace as a sequence diagram: a lifeline for each class, an arrow for each important call.

The passes are run here; each is a function from a `DiagramTree` to a `DiagramTree`.
"""

from collections.abc import Callable, Collection
from functools import partial

from tracellm.report.diagram.key_calls import choose, choose_all
from tracellm.report.diagram.layout import lay_out
from tracellm.report.diagram.lifelines import name_lifelines
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram
from tracellm.report.diagram.story import DiagramTree, is_story, order_by_cause
from tracellm.report.tree.folded import fold_calls, folded
from tracellm.report.tree.invariants import run_passes
from tracellm.report.tree.nodes import call_tree
from tracellm.report.tree.select import down_to, focus_on, lifeline_names
from tracellm.report.tree.step_groups import condense
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.names import Level

__all__ = ["LIMIT", "drawn_lifelines", "sequence", "sequence_diagram"]

LIMIT = 60
"""Default number of arrows of a diagram, returns included."""


def sequence(
    trace: Trace,
    *,
    detail: Level | None = None,
    focus: Collection[str] = (),
    limit: int | None = LIMIT,
    lang: str = "en",
) -> Diagram:
    """Return the sequence diagram of a run.

    Args:
        trace: the recording.
        detail: draw every call down to this level; for steps that made the same calls as earlier steps, one call only.
            Without it, the most important calls are drawn, `limit` arrows in all.
        focus: names of lifelines: draw every call into or out of these, and the calls that lead there.
        limit: the most arrows, returns included; None, or a `detail` or `focus`, for no limit.
        lang: the language of notes and loops.

    Raises:
        ValueError: `detail` is not a level, or `focus` names a lifeline that the trace does not have.
    """
    return _sequence(trace, detail, tuple(focus), limit, lang)


@per_trace
def drawn_lifelines(trace: Trace) -> list[str]:
    """Return the names that `focus` may have, in the order of the first calls; messages are arrows, and have none."""
    return lifeline_names(run_passes(DiagramTree(trace, call_tree(trace)), order_by_cause).roots)


@per_trace
def _sequence(trace: Trace, detail: Level | None, focus: tuple[str, ...], limit: int | None, lang: str) -> Diagram:
    """Return the diagram, made once for a trace: it is written as Mermaid and drawn on the page."""
    several = is_story(trace)
    passes: list[Callable[[DiagramTree], DiagramTree]] = []
    if several or detail is not None or focus:
        roots = call_tree(trace)
        passes += [order_by_cause]
        passes += [partial(focus_on, lifelines=focus)] if focus else []
        passes += [partial(down_to, level=detail)] if detail is not None else []
        passes += [fold_calls]
    else:
        roots = folded(trace).roots
    if detail is not None or focus or limit is None:
        passes += [choose_all]
    else:
        most = max(4, limit // (8 if several else 6))  # groups of steps; each brings a message, too
        passes += [partial(condense, most=most), partial(choose, limit=limit)]
    tree = run_passes(DiagramTree(trace, roots, lang=lang), *passes, name_lifelines, lay_out)
    assert tree.diagram is not None
    return tree.diagram


def sequence_diagram(
    trace: Trace,
    *,
    detail: Level | None = None,
    focus: Collection[str] = (),
    limit: int | None = LIMIT,
    lang: str = "en",
) -> str:
    """Return the diagram as Mermaid text, the content of `sequence.mmd`."""
    return to_mermaid(sequence(trace, detail=detail, focus=focus, limit=limit, lang=lang))
