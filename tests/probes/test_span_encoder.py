"""Encoding of records: the direct way and the way through a span give the same text."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm.probes.catalog.engine.candidates import candidates_json
from tracellm.probes.context.call_context import RECORDING, SUBMITTED, ThreadContext, TraceScope
from tracellm.probes.context.exceptions import remember
from tracellm.probes.record.record_file import Header
from tracellm.probes.record.recorder import define_site, define_thread
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.encoder import SpanEncoder
from tracellm.probes.wrapping.probe import Entry, Probe, Site
from tracellm.probes.wrapping.summary import arguments_and_result
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.otlp.encoding import span_text

ROOT = 7


def plain(first: Any, second: Any = None) -> Any:
    """A function to record."""
    return first


def some(*args: Any, **kwargs: Any) -> Any:
    """A function with unknown parameters."""
    return args


def observe(tracker: Any, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """Note the given values."""
    span.attributes["given"] = sorted(given)


ENTRIES = {
    entry.target: entry
    for entry in (
        Entry("giver", "step", attributes=lambda facts: {}, gives=lambda facts: {"gave": 1}, gives_to="Taker.take"),
        Entry("timed", "step", attributes=lambda facts: {"list": [*facts]}),
        Entry("taker", "step", observe=observe),
        Entry("changes", "step", attributes=lambda facts: {names.LEVEL: "other"}),
        Entry("fails", "step", attributes=lambda facts: {"never": 1 // 0}),
    )
}


def sites() -> list[Site]:
    """Return a site of each kind: direct, unknown parameters, methods, giving, receiving, and with user texts."""
    capture, attributes = arguments_and_result(plain, "")
    any_capture, any_attributes = arguments_and_result(some, "")
    shared: dict[str, Any] = {"level": "layer", "capture": capture, "attributes": attributes}
    entry: dict[str, Any] = {"level": "step", "attributes": dict, "timed": True}
    private = {names.CODE_FILE: "a.py", names.CALLER_TEXT: "a 'line' of \u2028 a user's \U0001f600"}
    probes = [
        Probe("plain", span_name='a "name"', lifeline="here", constants=private, **shared),
        Probe("some", "kernel", span_name="some", capture=any_capture, attributes=any_attributes),
        Probe("giver", span_name="giver", gives=dict, target="giver", **entry),
        Probe("timed", span_name="timed", target="timed", **entry),
        Probe("take", defined="Taker.take", span_name="take", observe=observe, target="taker", **shared),
        Probe("own", span_name="own", users_attributes={"k": "text", "n": 2, names.RESULT: "x"}, **shared),
        Probe("changes", span_name="changes", target="changes", level="step", attributes=dict),
        Probe("fails", span_name="fails", target="fails", level="step", attributes=dict),
    ]
    method = Probe("method", receiver="self", **shared)
    return [*(Site(probe, None) for probe in probes), *(Site(method, owner) for owner in (int, Span))]


SITES = sites()
THREADS = [
    ThreadContext(1, None),
    ThreadContext(2, 'a "thread"'),
    ThreadContext(3, "other", TraceScope("a" * 32, "b" * 16, ROOT)),
    ThreadContext(3, None, TraceScope("c" * 32, None, ROOT)),
    ThreadContext(3, None, TraceScope("c" * 32, "d" * 16, ROOT, outside=True)),
    ThreadContext(4, None, TraceScope("d" * 32, None, ROOT - 1)),
]


def made(text: bool = True, outermost: str = "0" * 15 + "1") -> SpanBuilder:
    """Return a builder with all of these."""
    process = {names.PROCESS_PID: 1, names.PROCESS_NAME: "main"}
    builder = SpanBuilder(Header(process, (10**18, 0), ROOT, [(ROOT, 1)], "e" * 32, outermost, text=text), ENTRIES)
    builder.define(
        [(number, define_site(site)) for number, site in enumerate(SITES)],
        [(number, define_thread(thread)) for number, thread in enumerate(THREADS)],
    )
    return builder


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.tuples(inner, inner)
)


def facts_of(site: Site, first: Any, second: Any, result: Any) -> Any:
    """Return facts in the form of this site."""
    capture = site.probe.capture
    facts = [1, 2] if capture is None else capture((first, second), {}, result)
    return (5, facts) if site.probe.timed else facts


@st.composite
def records(draw: st.DrawFn) -> list[Any]:
    """Return calls of all kinds with repeated facts."""
    values = [(draw(VALUES), draw(VALUES), draw(VALUES)) for _ in range(2)]
    calls: list[Any] = []
    for call in range(ROOT + 1, ROOT + 1 + draw(st.integers(1, 12))):
        number = draw(st.integers(0, len(SITES) - 1))
        facts = None if draw(st.booleans()) else facts_of(SITES[number], *draw(st.sampled_from(values)))
        error = remember(ValueError("said")) if draw(st.integers(0, 5)) == 0 else None
        parent, start = draw(st.integers(0, call)), draw(st.integers(0, 10**12))
        calls.append((number, call, parent, draw(st.integers(0, len(THREADS))), start, start + 5, facts, error))
    if draw(st.booleans()):
        calls.insert(0, (RECORDING, 0, draw(st.integers(ROOT, ROOT + 12)), 0, 3, 5, None, None))
        calls.insert(0, (SUBMITTED, 0, 0, 0, 3, 3, ("0", "a" * 32, "b" * 16, None), None))
    return calls


def fail(problem: str) -> None:
    """Fail on any problem."""
    pytest.fail(problem)


def raw(record: Any) -> Any:
    """Return the record in the form of a record file."""
    *begin, facts, error = record
    return (*begin, msgspec.Raw(msgspec.msgpack.encode(facts)), error)


@settings(max_examples=80, deadline=None)
@given(records(), st.booleans())
def test_both_ways_end_in_the_same_text(calls: list[Any], text: bool):
    """The direct text of each call is that of its span."""
    calls = [msgspec.msgpack.decode(msgspec.msgpack.encode(call)) for call in calls if encodable(call)]
    long, short = made(text), made(text)
    encoder = SpanEncoder(short, fail)
    for _ in range(2):  # all sites are known the second time
        expected = [span_text(span) for call in calls for span in long.build(call)]
        assert encoder.encode([raw(call) for call in calls]) == expected
    assert (short.calls, short.forwarded, short.capture_ns) == (long.calls, long.forwarded, long.capture_ns)
    assert short.recording_ns == long.recording_ns
    assert short.problems == long.problems


def encodable(call: Any) -> bool:
    """Return whether MessagePack can encode all values."""
    try:
        return bool(msgspec.msgpack.encode(call))
    except (OverflowError, UnicodeEncodeError):
        return False


def test_most_calls_have_no_span(monkeypatch: pytest.MonkeyPatch):
    """A call with only arguments and result is encoded directly."""
    builder = made()
    monkeypatch.setattr(SpanBuilder, "build", lambda builder, record: pytest.fail("a span was made"))
    record = (0, ROOT + 1, ROOT, 0, 1, 2, ((0, "float32", 7, 256), 1, None), None)
    assert len(SpanEncoder(builder, fail).encode([raw(record)])) == 1


def test_recording_time_is_on_the_span_that_it_was_spent_in():
    """The time of captures and writing within a call is an attribute of that call alone."""
    builder = made()
    timed, plain_site = 3, 0
    calls = [
        (timed, ROOT + 2, ROOT + 1, 0, 1, 2, (40, [1]), None),
        (RECORDING, 0, ROOT + 1, 0, 2, 4, None, None),
        (plain_site, ROOT + 1, ROOT, 0, 1, 9, None, None),
        (plain_site, ROOT + 3, ROOT, 0, 1, 9, None, None),
    ]
    spans = [json.loads(one) for one in SpanEncoder(builder, fail).encode(map(raw, calls))]
    found = [
        [one["value"]["intValue"] for one in span["attributes"] if one["key"] == names.RECORDING_DURATION]
        for span in spans
    ]
    assert found == [[], ["42"], []]


def test_memory_of_an_encoder_is_bounded():
    """The encoder keeps a bounded number of facts when none repeats."""
    encoder = SpanEncoder(made(), fail)
    for call in range(ROOT + 1, ROOT + 25_000):
        for number, facts in ((0, (call, -call, call)), (1, ((call,), (), call))):
            encoder.encode([raw((number, call, ROOT, 0, 1, 2, facts, None))])
    [templates] = encoder._templates.values()
    kept = [template for template in templates.values() if template is not None]
    assert 0 < sum(len(one.known) for one in kept) <= 20_000
    [in_short] = [one._argument_text for one in kept if one._argument_text is not None]
    assert max(len(values) for values in in_short._parameters) <= 2_000
    assert len(encoder._ids) < 70_000


def test_candidates_of_rows_without_a_number_are_json():
    """The likeliest tokens are valid JSON for rows of NaN logits and tokens of partial characters."""
    sampled = ([[0.12345678, float("nan")], [1.0]], None, [[5, 6], [7]])
    first, second = candidates_json(sampled, {5: "a", 6: "b", 7: "\ud800"}.__getitem__)
    assert json.loads(first)[0] == [5, "a", 0.123457]
    assert json.loads(second) == [[7, "\ud800", 1.0]]
    sampled = ([[0.5], [0.25]], None, [[5], [6]])
    assert candidates_json(sampled, {5: "]],[[", 6: "b"}.__getitem__) == ['[[5,"]],[[",0.5]]', '[[6,"b",0.25]]']
    assert candidates_json(([[0.12345678]], None, [[5]]), None) == ['[[5,"",0.123457]]']
