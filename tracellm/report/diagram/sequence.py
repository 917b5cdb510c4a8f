"""A trace as a sequence diagram: a lifeline for each class, an arrow for each important call.

The passes are run here; each is a function from a `DiagramTree` to a `DiagramTree`.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from tracellm.report.diagram.key_calls import choose, choose_all
from tracellm.report.diagram.layout import lay_out
from tracellm.report.diagram.lifelines import name_lifelines
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram
from tracellm.report.diagram.story import DiagramTree, is_story, order_by_cause
from tracellm.report.tree.folded import copy_tree, fold_calls, folded
from tracellm.report.tree.invariants import run_passes
from tracellm.report.tree.nodes import call_tree
from tracellm.report.tree.select import down_to, focus_on, function_names, lifeline_names
from tracellm.report.tree.step_groups import condense
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.names import Level

__all__ = ["LIMIT", "drawn_functions", "drawn_lifelines", "sequence", "sequence_diagram", "whole_sequence"]

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
        focus: names of lifelines and functions: draw every call into or out of these, and the calls that lead there.
        limit: the most arrows, returns included; None, or a `detail` or `focus`, for no limit.
        lang: the language of notes and loops.

    Raises:
        ValueError: `detail` is not a level, or `focus` has a name that the trace does not have.
    """
    return _sequence(trace, detail, tuple(focus), limit, lang)


@per_trace
def drawn_lifelines(trace: Trace) -> list[str]:
    """Return the lifelines that `focus` may name, in the order of the first calls; messages have none."""
    return lifeline_names(_whole_story(trace).roots)


@per_trace
def drawn_functions(trace: Trace) -> list[str]:
    """Return the functions that `focus` may name, in the order of the first calls."""
    return function_names(_whole_story(trace).roots)


def _whole_story(trace: Trace) -> DiagramTree:
    return run_passes(DiagramTree(trace, call_tree(trace)), order_by_cause)


def whole_sequence(trace: Trace, limit: int, lang: str = "en") -> Diagram:
    """Return the diagram of all calls down to kernels, at most `limit` arrows.

    For steps that made the same calls as earlier steps, one call only is drawn.
    """
    return _lay_out(_whole(trace, limit), lang)


@per_trace
def _sequence(trace: Trace, detail: Level | None, focus: tuple[str, ...], limit: int | None, lang: str) -> Diagram:
    return _lay_out(_chosen(trace, detail, focus, limit), lang)


def _lay_out(tree: DiagramTree, lang: str) -> Diagram:
    diagram = run_passes(replace(tree, lang=lang), name_lifelines, lay_out).diagram
    assert diagram is not None
    return diagram


@per_trace
def _whole(trace: Trace, limit: int) -> DiagramTree:
    return run_passes(_folded_story(trace), partial(choose_all, limit=limit))


@per_trace
def _chosen(trace: Trace, detail: Level | None, focus: tuple[str, ...], limit: int | None) -> DiagramTree:
    """Return the calls to draw; the same in all languages."""
    if detail is not None or focus:
        passes: list[Callable[[DiagramTree], DiagramTree]] = [order_by_cause]
        passes += [partial(focus_on, lifelines=focus)] if focus else []
        passes += [partial(down_to, level=detail)] if detail is not None else []
        return run_passes(DiagramTree(trace, call_tree(trace)), *passes, fold_calls, choose_all)
    if limit is None:
        return run_passes(_folded_story(trace), choose_all)
    most = max(4, limit // (8 if is_story(trace) else 6))  # groups of steps; each brings a message, too
    return run_passes(_folded_story(trace), partial(condense, most=most), partial(choose, limit=limit))


def _folded_story(trace: Trace) -> DiagramTree:
    """Return all calls in one order, with repetition folded: a tree that the caller may change."""
    return copy_tree(_stories(trace)) if is_story(trace) else DiagramTree(trace, folded(trace).roots)


@per_trace
def _stories(trace: Trace) -> DiagramTree:
    return run_passes(DiagramTree(trace, call_tree(trace)), order_by_cause, fold_calls)


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
