"""JSON text of spans written directly from records, without span objects, for most calls.

Nine of ten calls of a run are of layers, kernels and the scheduler's small functions. Their arguments and results
repeat. The common part of a site's text is made once (`_Template`), and the text of facts is cached by their bytes. A
call's text consists of these, two ids and two times. All other records go through builder.py.

Both ways give the same text (tests/probes/test_span_encoder.py).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import getitem
from typing import Any

from tracellm.probes.record.record_file import RawRecord, facts_of
from tracellm.probes.spans.builder import MAIN_THREAD, SpanBuilder, SpanSite
from tracellm.probes.wrapping.summary import is_given, write
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.otlp.encoding import (
    ENDED,
    LAST,
    PARENT,
    SPAN,
    TRACE,
    attributes_text,
    form,
    span_text,
    value_text,
)

__all__ = ["SpanEncoder"]

_MOST_FACTS = 20_000  # of half a kilobyte each
_MOST_THREADS = 1_000
_MOST_IDS = 65_536
_MOST_VALUES = 2_000  # of one parameter


class _ArgumentText:
    """Text of the attributes that summary.ArgumentAttributes makes, for a function with these parameters.

    The texts of a parameter's last values are kept.
    """

    def __init__(self, parameters: Sequence[str]) -> None:
        self._parameters = [_Texts(partial(_argument, name)) for name in parameters]
        self._results = _Texts(_result)

    def __call__(self, facts: Any) -> str:
        """Return the text of these facts, each attribute after a comma."""
        keys = list(map(_hashable, facts))
        result = self._results[keys[-1]]
        given = "".join(map(getitem, self._parameters, keys))  # the last key, the result, has no parameter
        return f"{_BEFORE}{given[1:]}{_AFTER}{result}" if given else result


class _Texts(dict[Any, str]):
    """Texts by their values, made when first needed."""

    def __init__(self, make: Callable[[Any], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, value: Any) -> str:
        if len(self) >= _MOST_VALUES:
            self.clear()
        text = self[value] = self._make(value)
        return text


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if value.__class__ is list else value


def _argument(parameter: str, value: Any) -> str:
    return f",{value_text(f'{parameter}={write(value)}')}" if is_given(value) else ""


def _result(value: Any) -> str:
    return "" if value is None else f",{attributes_text({names.RESULT: write(value)})}"


_MARK = "the arguments"
_BEFORE, _, _AFTER = f",{attributes_text({names.ARGUMENTS: [_MARK]})}".partition(value_text(_MARK))


class _Template:
    """Common text of a site's spans in one thread.

    Attributes:
        common: attributes of all spans.
        begin: text between a span's ids and its start.
        end: text of the attributes of all spans.
        known: text after a span's times, by the bytes of the call's facts.
    """

    __slots__ = ("_argument_text", "_builder", "_site", "begin", "common", "end", "known")

    def __init__(self, builder: SpanBuilder, site: SpanSite, thread_name: str | None) -> None:
        self.common = builder.common(site, thread_name)
        self.begin, self.end = form(site.name, builder.public(self.common))
        self.known: dict[bytes, str] = {}
        self._builder = builder
        self._site = site
        is_short = site.facts == "arguments" and not site.user_attributes and not getattr(site.attributes, "where", 0)
        self._argument_text = _ArgumentText(site.names) if is_short else None

    def rest(self, facts: Any) -> str | None:
        """Return the text after the times of a call with these facts; None where they change common attributes."""
        if facts is not None and self._argument_text is not None:
            return f"{self.end}{self._argument_text(facts)}{LAST}"
        own = self._builder.own_attributes(self._site, facts, self.common)
        if own is None:
            return None
        return f"{self.end},{attributes_text(own)}{LAST}" if own else self.end + LAST


class _SpanIds(dict[int, str]):
    """Span ids by the number of the call, kept for the calls within.

    256 are made at a time, at a fifth of the cost: they differ in the last two digits only.
    """

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset

    def __missing__(self, call: int) -> str:
        if len(self) > _MOST_IDS:
            self.clear()
        span = call + self._offset
        begin, first = f"{span >> 8:014x}", call - (span & 0xFF)
        self.update(enumerate([begin + last for last in _LAST_DIGITS], first))
        return self[call]


_LAST_DIGITS = [f"{number:02x}" for number in range(256)]


class SpanEncoder:
    """Encodes the records of one process; used by the converter.

    Args:
        builder: makes the spans of calls that need one, and has the state across calls.
        report: called with a problem, as a sentence for the user.
    """

    def __init__(self, builder: SpanBuilder, report: Callable[[str], None]) -> None:
        self._builder = builder
        self._report = report
        self._templates: dict[str | None, dict[int, _Template | None]] = {}  # by the thread's name
        self._wheres: dict[int, tuple[dict[int, _Template | None], str, str, bool]] = {}
        self._num_known = 0
        self._ids = _SpanIds(builder.offset)

    def define(self, *definitions: Any) -> None:
        """Add the definitions of a frame."""
        self._builder.define(*definitions)
        self._wheres.clear()

    def encode(self, records: Iterable[RawRecord]) -> list[str]:
        """Return the texts of the spans of these records."""
        builder = self._builder
        first, root, shift = builder.first, builder.header.root, builder.shift_ns
        ids, forwarded, updates = self._ids, builder.forwarded, builder.updates.of
        recording, opened = builder.recording_ns, builder.open
        texts: list[str] = []
        before = -1
        calls = 0
        for record in records:
            number, call, parent, thread, start, end, raw, error = record
            if thread != before:
                before = thread
                templates, trace, outermost, is_outside = self._where(thread)
            try:
                template = templates[number]
            except KeyError:
                template = self._template(templates, number, thread)
            of_other = parent < first and (parent >= root or call <= root or call < first or is_outside)
            if (
                template is None
                or error is not None
                or of_other
                or call in forwarded
                or call in recording
                or (updates and call in updates)
            ):
                self._encode_long(record, texts)
                continue
            facts = bytes(raw)
            rest = template.known.get(facts) or self._learn(template, facts, raw)
            if rest is None:
                self._encode_long(record, texts)
                continue
            above = f"{PARENT}{ids[parent]}" if parent >= first else outermost
            texts.append(f"{trace}{ids[call]}{above}{template.begin}{start + shift}{ENDED}{end + shift}{rest}")
            if opened and call in opened:
                del opened[call]
            calls += 1
        builder.calls += calls
        return texts

    def encode_spans(self, spans: Iterable[Span]) -> list[str]:
        """Return the texts of these spans, without those that cannot be encoded."""
        texts = []
        for span in spans:
            try:
                texts.append(span_text(span))
            except Exception as error:  # the other spans can be encoded
                self._report(f"a call of {span.name} cannot be written: {type(error).__name__}")
        return texts

    def _encode_long(self, record: RawRecord, texts: list[str]) -> None:
        number, call, parent, thread, start, end, raw, error = record
        builder = self._builder
        try:
            facts = facts_of(raw)
            texts += self.encode_spans(builder.build((number, call, parent, thread, start, end, facts, error)))
        except Exception as failure:
            self._report(f"a call cannot be recorded: {type(failure).__name__}: {failure}")

    def _where(self, number: int) -> tuple[dict[int, _Template | None], str, str, bool]:
        """Return the templates, the texts of trace id and outermost parent, and whether that parent is outside."""
        if (known := self._wheres.get(number)) is not None:
            return known
        thread = self._builder.threads.get(number, MAIN_THREAD)
        trace_id, parent_id = self._builder.ids.parent_of(0, thread.trace_id, thread.parent)
        above = f"{PARENT}{parent_id}" if parent_id is not None else ""
        known = self._templates.setdefault(thread.thread_name, {}), f"{TRACE}{trace_id}{SPAN}", above, thread.outside
        if len(self._wheres) >= _MOST_THREADS:
            self._wheres.clear()
        self._wheres[number] = known
        return known

    def _template(self, templates: dict[int, _Template | None], number: int, thread: int) -> _Template | None:
        """Return the template of a site; None for one whose calls all need a span."""
        template = None
        site = self._builder.sites.get(number)
        if site is not None and site.is_plain:
            try:
                template = _Template(self._builder, site, self._builder.threads.get(thread, MAIN_THREAD).thread_name)
            except Exception as error:  # the site's spans fail in the same way
                self._report(f"a call of {site.name} cannot be written: {type(error).__name__}")
        templates[number] = template
        return template

    def _learn(self, template: _Template, facts: bytes, raw: Any) -> str | None:
        try:
            rest = template.rest(facts_of(raw))
        except Exception:  # the span fails in the same way
            return None
        if rest is not None:
            if self._num_known >= _MOST_FACTS:
                self._forget()
            template.known[facts] = rest
            self._num_known += 1
        return rest

    def _forget(self) -> None:
        for templates in self._templates.values():
            for template in templates.values():
                if template is not None:
                    template.known.clear()
        self._num_known = 0
