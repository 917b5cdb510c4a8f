"""The sequence diagram as SVG: well-formed, within bounds, without overlaps."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.synthetic import HOSTILE
from tracellm.report.diagram.model import (
    Box,
    Close,
    Diagram,
    Item,
    Loop,
    Message,
    Note,
    Participant,
    check_diagram,
    messages,
)
from tracellm.report.diagram.svg import Drawing, columns, draw, text_width, wrap
from tracellm.report.wording.safe_text import visible

TEXTS = st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE), st.just("f(a=1, b=[2, 3])"))


@st.composite
def diagrams(draw_: st.DrawFn) -> Diagram:
    """Any diagram that meets the conditions for drawing."""
    ids = [f"P{i}" for i in range(draw_(st.integers(1, 6)))]
    id_ = st.sampled_from(ids)

    def items(depth: int) -> tuple[Item, ...]:
        out: list[Item] = []
        for _ in range(draw_(st.integers(0, 4))):
            match draw_(st.sampled_from(["call", "call", "plain", "note", "phase", "loop"])):
                case "call":
                    source, target = draw_(id_), draw_(id_)
                    out.append(Message(source, target, draw_(TEXTS), opens=True))
                    out += items(depth + 1) if depth < 3 else ()
                    end = draw_(st.sampled_from(["return", "error", "close"]))
                    closes = Message(target, source, draw_(TEXTS), "error" if end == "error" else "return", closes=True)
                    out.append(Close(target) if end == "close" else closes)
                case "plain":
                    out.append(Message(draw_(id_), draw_(id_), draw_(TEXTS)))
                case "note" | "phase" as kind:
                    out.append(Note(draw_(id_), draw_(id_), draw_(TEXTS), phase=kind == "phase"))
                case "loop":
                    out.append(Loop(draw_(TEXTS), items(depth + 1) if depth < 3 else (), 3))
        return tuple(out)

    boxes = (Box(draw_(TEXTS), tuple(ids)),) if draw_(st.booleans()) else ()
    diagram = Diagram(tuple(Participant(id, draw_(TEXTS)) for id in ids), items(0), boxes, draw_(TEXTS))
    check_diagram(diagram)
    return diagram


def _parse(drawing: Drawing) -> tuple[ElementTree.Element, ElementTree.Element]:
    return ElementTree.fromstring(drawing.head), ElementTree.fromstring(drawing.body)


@settings(max_examples=40, deadline=None)
@given(diagrams())
def test_every_diagram_can_be_drawn(diagram: Diagram):
    """Both pictures are well-formed and equally wide, with every point and text inside."""
    head, body = _parse(draw(diagram))
    assert head.get("width") == body.get("width")
    width, height = float(body.get("width", 0)), float(body.get("height", 0))
    for element in body.iter():
        if element.tag == "rect":
            x, y, w, h = (float(element.get(key, "nan")) for key in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height
        if element.tag == "text":
            x, y, wide = float(element.get("x", 0)), float(element.get("y", 0)), text_width(element.text or "", 11.5)
            x -= wide / 2 if "middle" in element.get("class", "") else 0
            assert -1 <= x <= x + wide <= width + 1
            assert 0 <= y <= height


@settings(max_examples=40, deadline=None)
@given(diagrams())
def test_heads_stand_apart_and_arrows_have_room(diagram: Diagram):
    """Heads never overlap, and lifelines are far enough apart for the labels between them."""
    places = columns(diagram)
    ids = [participant.id for participant in diagram.participants]
    for left, right in pairwise(ids):
        assert places.x[left] + places.heads[left] / 2 < places.x[right] - places.heads[right] / 2
    for message in messages(diagram.items):
        if message.source != message.target:
            lines, _ = wrap(visible(message.text), 11.5, 180, 3)
            room = abs(places.x[message.source] - places.x[message.target])
            assert max(text_width(line, 11.5) for line in lines) < room


@given(TEXTS, st.floats(40, 400), st.integers(1, 4))
def test_wrapping_keeps_within_its_bounds(text: str, widest: float, most: int):
    """Lines keep to the width and number allowed, and text that is not cut is complete."""
    lines, complete = wrap(text, 11.5, widest, most)
    assert 1 <= len(lines) <= most
    assert all(text_width(line, 11.5) <= widest for line in lines)
    if complete:
        assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)


def test_a_cut_label_has_its_whole_text_to_hover_over():
    """A cut label has its whole text as its title."""
    long = "execute_model(" + ", ".join(f"argument_{i}=value" for i in range(30)) + ")"
    two = (Participant("P0", "A"), Participant("P1", "B"))
    _, body = _parse(draw(Diagram(two, (Message("P0", "P1", long),))))
    assert long in [title.text for title in body.iter("title")]
