"""Mermaid text: valid and shown literally, whatever the names and values."""

from textwrap import wrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mermaid import ParseMermaid
from tests.report.nasty import NASTY
from tracellm.report.diagram.mermaid import NOTE_WIDTH, escape, to_mermaid
from tracellm.report.diagram.model import Box, Close, Diagram, Loop, Message, Note, Participant
from tracellm.report.wording.safe_text import visible

TEXTS = st.one_of(
    st.sampled_from(NASTY),
    st.text(min_size=1, max_size=40),
    st.text(alphabet=";#:%&<>\"'`$@{}()[]+-*/\\=, \n\t0wrapstylenduﬂ°¶ß", min_size=1, max_size=30),
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=4).map("".join),
)

MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def everywhere(text: str) -> Diagram:
    """Return a diagram with `text` in every text field."""
    return Diagram(
        participants=(Participant("P1", text), Participant("P2", text)),
        boxes=(Box(text, ("P1",)), Box(text, ("P2",))),
        items=(
            Note("P1", "P2", text, phase=True),
            Message("P1", "P2", text, opens=True),
            Loop(text, (Message("P2", "P2", text), Note("P2", "P2", text)), count=3),
            Message("P2", "P1", text, kind="return", closes=True),
            Message("P1", "P2", text, opens=True),
            Close("P2"),
            Message("P1", "P2", text, opens=True),
            Message("P2", "P1", text, kind="error", closes=True),
        ),
    )


def check_everywhere(text: str, parse_mermaid: ParseMermaid) -> None:
    """Check that every text is shown literally, and that the structure is unchanged."""
    parsed = parse_mermaid(to_mermaid(everywhere(text)))
    shown = visible(text)
    wrapped = "<br/>".join(wrap(shown, NOTE_WIDTH))
    assert parsed["participants"] == [{"id": "P1", "label": shown}, {"id": "P2", "label": shown}]
    assert parsed["boxes"] == [{"label": shown, "participants": ["P1"]}, {"label": shown, "participants": ["P2"]}]
    events = [(event["kind"], event["text"]) for event in parsed["events"]]
    assert events == [
        ("NOTE", shown),
        ("SOLID", shown), ("ACTIVE_START", ""),
        ("LOOP_START", shown), ("SOLID", shown), ("NOTE", wrapped), ("LOOP_END", ""),
        ("DOTTED", shown), ("ACTIVE_END", ""),
        ("SOLID", shown), ("ACTIVE_START", ""), ("ACTIVE_END", ""),
        ("SOLID", shown), ("ACTIVE_START", ""), ("DOTTED_CROSS", shown), ("ACTIVE_END", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_nasty_text(text: str, parse_mermaid: ParseMermaid):
    """Texts known to break Mermaid parse in every field and are shown literally."""
    check_everywhere(text, parse_mermaid)


@MANY
@given(text=TEXTS)
def test_any_text(text: str, parse_mermaid: ParseMermaid):
    """Any text parses in every field and is shown literally."""
    check_everywhere(text, parse_mermaid)


@given(text=TEXTS)
def test_escaped_text_is_one_plain_line(text: str):
    """An escaped text fits on one line of a UTF-8 file."""
    assert len(escape(text).encode().decode().splitlines()) == 1


def test_readable_text_stays_readable():
    """Harmless text is not escaped, so the source stays readable."""
    assert escape("schedule(num_tokens=7, [1, 2]) ×4: 预填充") == "schedule(num_tokens=7, [1, 2]) ×4: 预填充"
