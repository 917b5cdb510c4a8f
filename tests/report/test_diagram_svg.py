"""The sequence diagram as a static SVG: everything of the diagram is in it, as text, and nothing is cut off."""

import re
import xml.etree.ElementTree as ET

from tests.report.nasty import NASTY
from tests.report.traces import hello
from tracellm.report.diagram.model import Box, Close, Diagram, Loop, Message, Note, Participant, messages
from tracellm.report.diagram.sequence import sequence
from tracellm.report.diagram.svg import to_svg
from tracellm.report.wording.safe_text import visible


def texts(svg: str) -> list[str]:
    """Return the texts of a picture."""
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_run_is_drawn_whole():
    """Every lifeline and every arrow of a run's diagram has its text."""
    diagram = sequence(hello())
    shown = texts(to_svg(diagram))
    assert {participant.label for participant in diagram.participants} <= set(shown)
    assert {visible(message.text) for message in messages(diagram.items)} <= set(shown)


def test_all_kinds_of_items_are_drawn_inside_the_picture():
    """Boxes, notes, loops, all arrows and hostile texts are drawn, and no text begins or ends outside."""
    lanes = tuple(
        Participant(f"P{i}", label, below) for i, (label, below) in enumerate([("a", "run"), ("b", ""), ("c", "")])
    )
    hostile = " ".join(NASTY)
    items = (
        Note("P0", "P2", "Start", phase=True),
        Message("P0", "P1", hostile, opens=True),
        Loop("3 times", (Message("P1", "P1", "again()", opens=True), Close("P1")), 3),
        Note("P1", "P2", "a long remark " * 9),
        Message("P1", "P0", "ValueError", "error", closes=True),
        Message("P0", "P2", "ADD", "message"),
    )
    boxes = (Box("one", ("P0", "P1")), Box("two", ("P2",)))
    svg = to_svg(Diagram(lanes, items, boxes))
    shown = texts(svg)
    assert {"one", "two", "a", "run", "Start", "↻ 3 times", "again()", "ValueError", "ADD", visible(hostile)} <= set(
        shown
    )
    width = float(ET.fromstring(svg).get("width") or 0)
    for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(element.get("x") or 0) < width
    assert not re.search(r"<(?!/?(svg|line|rect|text|path)\b)", svg)
