"""The short way from a call to its text and the long one, by a span, end in the same."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.probes.brief import arguments_and_result
from tracellm.probes.build import Builder
from tracellm.probes.catalog.step_span import told_candidates
from tracellm.probes.clock import Clock, Ids
from tracellm.probes.errors import remember
from tracellm.probes.listeners import Listeners
from tracellm.probes.scribe import Scribe, Written
from tracellm.probes.spec import Probe
from tracellm.probes.state import Begun, Note, Place
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.otlp.encoding import span_text

ROOT = 7


def plain(first: Any, second: Any = None) -> Any:
    """A function that probes record."""
    return first


def some(*args: Any, **kwargs: Any) -> Any:
    """One whose parameters are not known."""
    return args


def made(text: bool = True, parent: tuple[str, str] | None = None) -> Builder:
    """A builder whose ids another has as well."""
    return Builder(Clock.counting(), Ids.counting(), ROOT, text, parent)


def probes() -> list[Probe]:
    """One of each kind: in short, of unknown parameters, of a method, that gives, that is given, with text of users."""
    capture, attributes = arguments_and_result(plain, "")
    any_capture, any_attributes = arguments_and_result(some, "")
    shared: dict[str, Any] = {"level": "layer", "capture": capture, "attributes": attributes}
    private = {names.CODE_FILE: "a.py", names.CALLER_TEXT: "a 'line' of \u2028 a user's \U0001f600"}
    return [
        Probe("plain", span_name='a "name"', lifeline="here", constants=private, **shared),
        Probe("some", "kernel", span_name="some", capture=any_capture, attributes=any_attributes),
        Probe("method", receiver="self", **shared),
        Probe("giver", span_name="giver", gives=lambda facts: {"gave": 1}, gives_to=("Taker.take",), **shared),
        Probe("timed", span_name="timed", timed=True, level="step", attributes=lambda facts: {"list": [*facts]}),
        Probe("take", defined="Taker.take", span_name="take", observe=_observe, **shared),
        Probe(
            "own", span_name="own", users_attributes=lambda facts: {"k": "text", "n": 2, names.RESULT: "x"}, **shared
        ),
        Probe("changes", span_name="changes", level="step", attributes=lambda facts: {names.LEVEL: "other"}),
        Probe("fails", span_name="fails", level="step", attributes=lambda facts: {"never": 1 // 0}),
    ]


def _observe(ledger: Any, span: Span, facts: Any, given: dict[str, Any]) -> None:
    span.attributes["given"] = sorted(given)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.tuples(inner, inner)
)
PLACES = [
    None,
    Place(1, None),
    Place(2, 'a "thread"'),
    Place(3, "other", Begun("a" * 32, "b" * 16, ROOT)),
    Place(3, None, Begun("c" * 32, None, ROOT)),
    Place(4, None, Begun("d" * 32, None, ROOT - 1)),
]


@st.composite
def records(draw: st.DrawFn) -> list[Any]:
    """Calls of all kinds, whose facts repeat."""
    kinds = probes()
    captures = [kind.capture for kind in kinds[:2] if kind.capture is not None]
    facts = [capture((draw(VALUES), draw(VALUES)), {}, draw(VALUES)) for capture in captures]
    told: list[Any] = []
    for call in range(ROOT + 1, ROOT + 1 + draw(st.integers(1, 12))):
        probe = draw(st.sampled_from(kinds))
        fact = None if draw(st.booleans()) else facts[probe.method == "some"]
        if probe.method == "timed" and fact is not None:
            fact = draw(st.lists(st.integers(0, 3)))  # which has no hash
        error = remember(ValueError("said")) if draw(st.integers(0, 5)) == 0 else None
        owner = draw(st.sampled_from([None, int, Span]))
        parent = draw(st.integers(0, call))
        start = draw(st.integers(0, 10**12))
        place, captured = draw(st.sampled_from(PLACES)), start + 6 if probe.timed else start + 5
        told.append((probe, call, parent, place, owner, start, start + 5, captured, fact, error))
    if draw(st.booleans()):
        told.append(Note(lambda ledger, facts: ledger.ended("0", 5, facts), "stop"))
    return told


class _All:
    names: frozenset[str] | None = None
    title = "all"

    def __call__(self, span: Span) -> None: ...

    def look(self) -> None: ...

    def end(self) -> None: ...


def told(problem: str) -> None:
    """There must be no problem."""
    pytest.fail(problem)


@settings(max_examples=60, deadline=None)
@given(records(), st.booleans(), st.booleans())
def test_both_ways_end_in_the_same_text(calls: list[Any], text: bool, listens: bool):
    """Whatever is recorded, each call's text is that of the span that it would have, with listeners or without."""
    parent = None if text else ("e" * 32, "f" * 16)
    long, short = made(text, parent), made(text, parent)
    scribe = Scribe(short, Listeners([_All()] if listens else [], told), told)
    for _ in range(2):  # the second time everything is known
        expected = [span_text(span) for call in calls for span in long.build(call)]
        written = Written()
        spans = scribe.write(calls, written)
        assert written.texts == expected
        assert len(written.calls) == len(written.parents) == len(expected)
        assert len(spans) == len(expected) or not listens
    assert (short.calls, short.given, short.capture_ns) == (long.calls, long.given, long.capture_ns)


def test_most_calls_have_no_span():
    """A call with nothing to tell but arguments and result goes the short way, unless somebody wants to hear of it."""
    kind = probes()[0]
    call = (kind, ROOT + 1, ROOT, None, None, 1, 2, 2, (("tensor", "float32", 7, 256), 1, None), None)
    for names_heard, spans in ((frozenset({"else"}), 0), (frozenset({'a "name"'}), 1), (None, 1)):
        listener = _All()
        listener.names = names_heard
        assert len(Scribe(made(), Listeners([listener], told), told).write([call], Written())) == spans
    assert Scribe(made(), Listeners([], told), told).write([call], Written()) == []


def test_memory_of_a_scribe_is_bounded():
    """Of facts that never come again only so many are remembered."""
    scribe = Scribe(made(), Listeners([], told), told)
    known, unknown = probes()[:2]
    for call in range(ROOT + 1, ROOT + 25_000):
        for kind, facts in ((known, (call, -call, call)), (unknown, ((call,), (), call))):
            scribe.write([(kind, call, ROOT, None, None, 1, 2, 2, facts, None)], Written())
    [plans] = scribe._plans.values()
    assert 0 < len(plans[unknown][None].told) <= 20_000
    in_words = plans[known][None].in_words
    assert in_words is not None
    assert max(len(values) for values in in_words._parameters) <= 2_000
    assert len(scribe._ids) < 70_000


def test_candidates_of_rows_without_a_number_are_told():
    """Where the logits held no number, and where a token is half a character, the likeliest tokens are JSON as well."""
    sampled = ([[0.12345678, float("nan")], [1.0]], None, [[5, 6], [7]])
    first, second = told_candidates(sampled, {5: "a", 6: "b", 7: "\ud800"}.__getitem__)
    assert json.loads(first)[0] == [5, "a", 0.123457]
    assert json.loads(second) == [[7, "\ud800", 1.0]]
    sampled = ([[0.5], [0.25]], None, [[5], [6]])
    assert told_candidates(sampled, {5: "]],[[", 6: "b"}.__getitem__) == ['[[5,"]],[[",0.5]]', '[[6,"b",0.25]]']
    assert told_candidates(([[0.12345678]], None, [[5]]), None) == ['[[5,"",0.123457]]']
