"""A trace as a sequence diagram: a lifeline for each class, an arrow for each call that tells something.

The diagram is made by the passes in `tracellm.report.passes`; here they are put in order.
"""

from collections.abc import Collection
from difflib import get_close_matches

from tracellm.report.diagram.key_calls import Choice, choose, everything
from tracellm.report.diagram.layout import lay_out
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.model import Diagram
from tracellm.report.diagram.story import Story, is_story, tell
from tracellm.report.texts import text
from tracellm.report.tree.folded import fold_all, folded
from tracellm.report.tree.invariants import through
from tracellm.report.tree.nodes import Node, call_tree
from tracellm.report.tree.select import down_to, hide, lifelines, on_focus
from tracellm.report.tree.step_groups import condense
from tracellm.report.wording.titles import script_of
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.names import LEVELS, Level

__all__ = ["LIMIT", "drawn_lifelines", "sequence", "sequence_diagram"]

LIMIT = 60
"""How many arrows, returns among them, a diagram has unless more is asked for."""


def sequence(
    trace: Trace,
    *,
    detail: Level | None = None,
    focus: Collection[str] = (),
    limit: int | None = LIMIT,
    lang: str = "en",
) -> Diagram:
    """The sequence diagram of a run.

    Args:
        trace: what was recorded.
        detail: draw every call down to this level, of steps that made the same calls as steps before one call only.
            Without it, the most telling calls are drawn, `limit` arrows in all.
        focus: names of lifelines: draw every call into or out of these, and the calls that lead there.
        limit: the most arrows, returns included; None, or a `detail` or `focus`, for no limit.
        lang: the language of notes and loops.

    Raises:
        ValueError: `detail` is not a level, or `focus` names a lifeline that the trace does not have.
    """
    return _sequence(trace, detail, tuple(focus), limit, lang)


@per_trace
def drawn_lifelines(trace: Trace) -> list[str]:
    """What `focus` may name, in order of the first calls: all but what only passes messages on, which are arrows."""
    return lifelines(_story(trace).roots)


@per_trace
def _sequence(trace: Trace, detail: Level | None, focus: tuple[str, ...], limit: int | None, lang: str) -> Diagram:
    """Made once for a trace, which is written as Mermaid and drawn on the page."""
    if detail is None and not focus and not is_story(trace):
        story, roots = Story([]), folded(trace)
    else:
        story = _story(trace)
        roots = _selected(story, detail, focus)
        roots = fold_all(trace, roots, story)
    if detail is not None or focus or limit is None:
        return _draw(story, roots, everything(roots, story), "diagram.repeated_steps", lang)
    most = max(4, limit // (8 if story.lanes else 6))  # each brings a message, too
    roots = through("condense", lambda nodes: condense(nodes, most), roots, ordered=story.lanes is None)
    return _draw(story, roots, choose(roots, limit, story), "diagram.left_out", lang)


def _story(trace: Trace) -> Story:
    told: list[Story] = []

    def tell_it(roots: list[Node]) -> list[Node]:
        told.append(tell(trace, roots))
        return told[0].roots

    through("story", tell_it, call_tree(trace), ordered=False)
    return told[0]


def _selected(story: Story, detail: Level | None, focus: tuple[str, ...]) -> list[Node]:
    """The trees of a story down to a level, and only what is in focus."""
    roots = story.roots
    if focus:
        _check_focus(focus, lifelines(roots))
        wanted = on_focus(roots, focus)
        roots = through("focus", lambda nodes: hide(nodes, wanted), roots, ordered=story.lanes is None)
    if detail is not None:
        if detail not in LEVELS:
            raise ValueError(f"no level of detail {detail!r}: choose one of {', '.join(LEVELS)}")
        level = down_to(detail)
        roots = through("detail", lambda nodes: hide(nodes, level), roots, ordered=story.lanes is None)
    return roots


def sequence_diagram(
    trace: Trace,
    *,
    detail: Level | None = None,
    focus: Collection[str] = (),
    limit: int | None = LIMIT,
    lang: str = "en",
) -> str:
    """The same as Mermaid text: what `sequence.mmd` holds."""
    return to_mermaid(sequence(trace, detail=detail, focus=focus, limit=limit, lang=lang))


def _draw(story: Story, roots: list[Node], choice: Choice, remark: str, lang: str) -> Diagram:
    said = text(lang, remark, count=choice.left_out) if choice.left_out else ""
    if any(root.kind == "call" and id(root) not in choice.calls and not script_of(root.span) for root in roots):
        roots = [Node("repeat", ("repeat", ()), children=roots)]  # calls that nobody made may be left out, too
    chosen = through(
        "choice",
        lambda nodes: hide(nodes, lambda node: id(node) in choice.calls),
        roots,
        ordered=False,  # calls that stand in the place of several hidden ones come in turn
    )
    return lay_out(story, chosen, choice.returns, lang, said)


def _check_focus(focus: Collection[str], known: list[str]) -> None:
    for name in focus:
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5) or known
            raise ValueError(f"no lifeline {name!r} in this run; there are {', '.join(near)}")
