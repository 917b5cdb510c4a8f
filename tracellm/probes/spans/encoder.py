"""Records become text at once: most calls have no span, only the text that their span would have.

Nine of ten calls of a run are of layers, kernels and the scheduler's small functions. They have arguments and a result
in short, and these are the same again and again. So what all calls of a site share is made once (`_Template`), the text
of facts that came before is kept by their bytes, and a call's text is put together of these, two ids and two times.
Everything else goes through builder.py, which makes a span.

Both ways end in the same text; a test compares them.
"""

from collections.abc import Callable, Iterable
from typing import Any

from tracellm.probes.record.record_file import RawRecord, facts_of
from tracellm.probes.spans.argument_text import ArgumentText
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.span_site import SpanPlace, SpanSite
from tracellm.trace.model import Span
from tracellm.trace.otlp.encoding import ENDED, LAST, PARENT, SPAN, TRACE, attributes_text, form, span_text

__all__ = ["SpanEncoder"]

_MOST_FACTS = 20_000  # of half a kilobyte each
_MOST_PLACES = 1_000
_MOST_IDS = 65_536


class _Template:
    """Text that all calls of a site, in one thread, share.

    Attributes:
        begin: between a span's ids and its start.
        end: attributes of all of them.
        known: text after a span's times, by the bytes of the call's facts.
    """

    __slots__ = ("_argument_text", "_builder", "_site", "alike", "begin", "end", "known")

    def __init__(self, builder: SpanBuilder, site: SpanSite, thread_name: str | None) -> None:
        self.alike = builder.alike(site, thread_name)
        self.begin, self.end = form(site.name, builder.public(self.alike))
        self.known: dict[bytes, str] = {}
        self._builder = builder
        self._site = site
        is_short = site.facts == "arguments" and not site.user_attributes and not getattr(site.attributes, "where", 0)
        self._argument_text = ArgumentText(site.names) if is_short else None

    def rest(self, facts: Any) -> str | None:
        """The text after the times of a call with these facts; None where they change what all calls share."""
        if facts is not None and self._argument_text is not None:
            return f"{self.end}{self._argument_text(facts)}{LAST}"
        own = self._builder.own_attributes(self._site, facts, self.alike)
        if own is None:
            return None
        return f"{self.end},{attributes_text(own)}{LAST}" if own else self.end + LAST


class _SpanIds(dict[int, str]):
    """Span ids by the number of the call: each is wanted again for the calls within.

    Many are made at a time, which is a fifth of the work: numbers that follow each other differ in the last two digits.
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
_NOWHERE = SpanPlace()


class SpanEncoder:
    """Encodes the records of the process that `builder` knows; `tell` is given a problem, for people."""

    def __init__(self, builder: SpanBuilder, tell: Callable[[str], None]) -> None:
        self._builder = builder
        self._tell = tell
        self._templates: dict[str | None, dict[int, _Template | None]] = {}  # by the thread's name
        self._wheres: dict[int, tuple[dict[int, _Template | None], str, str, bool]] = {}
        self._num_known = 0
        self._ids = _SpanIds(builder.offset)

    def define(self, *definitions: Any) -> None:
        """Take over the definitions of a frame."""
        self._builder.define(*definitions)
        self._wheres.clear()

    def encode(self, records: Iterable[RawRecord]) -> list[str]:
        """The texts of the spans of these records."""
        builder = self._builder
        first, root, shift = builder.first, builder.header.root, builder.shift_ns
        ids, given, updates, recording, opened = (
            self._ids,
            builder.given,
            builder.updates.of,
            builder.recording_ns,
            builder.open,
        )
        texts: list[str] = []
        before = -1
        calls = 0
        for record in records:
            number, call, parent, place, start, end, raw, error = record
            if place != before:
                before = place
                templates, trace, outermost, is_outside = self._where(place)
            try:
                template = templates[number]
            except KeyError:
                template = self._template(templates, number, place)
            of_other = parent < first and (parent >= root or call <= root or call < first or is_outside)
            if (
                template is None
                or error is not None
                or of_other
                or call in given
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
            if opened and call in opened:
                del opened[call]
            above = f"{PARENT}{ids[parent]}" if parent >= first else outermost
            texts.append(f"{trace}{ids[call]}{above}{template.begin}{start + shift}{ENDED}{end + shift}{rest}")
            calls += 1
        builder.calls += calls
        return texts

    def encode_spans(self, spans: Iterable[Span]) -> list[str]:
        """The texts of these spans; without those that cannot be encoded."""
        texts = []
        for span in spans:
            try:
                texts.append(span_text(span))
            except Exception as error:  # must not take the others with it
                self._tell(f"a call of {span.name} cannot be written: {type(error).__name__}")
        return texts

    def _encode_long(self, record: RawRecord, texts: list[str]) -> None:
        try:
            *begin, facts, error = record
            texts += self.encode_spans(self._builder.build((*begin, facts_of(facts), error)))
        except Exception as error:
            self._tell(f"a call cannot be recorded: {type(error).__name__}: {error}")

    def _where(self, number: int) -> tuple[dict[int, _Template | None], str, str, bool]:
        """Templates of the thread, text up to a span's id, text of the outermost calls' parent; is that outside?"""
        if (known := self._wheres.get(number)) is not None:
            return known
        place = self._builder.places.get(number, _NOWHERE)
        trace_id, parent_id = self._builder.ids.parent_of(0, place.trace_id, place.parent)
        above = f"{PARENT}{parent_id}" if parent_id is not None else ""
        known = self._templates.setdefault(place.thread_name, {}), f"{TRACE}{trace_id}{SPAN}", above, place.outside
        if len(self._wheres) >= _MOST_PLACES:
            self._wheres.clear()
        self._wheres[number] = known
        return known

    def _template(self, templates: dict[int, _Template | None], number: int, place: int) -> _Template | None:
        """The template of this site; None for one whose calls all need a span."""
        template = None
        site = self._builder.sites.get(number)
        if site is not None and site.is_plain:
            try:
                template = _Template(self._builder, site, self._builder.places.get(place, _NOWHERE).thread_name)
            except Exception as error:  # which its spans will fail with, too
                self._tell(f"a call of {site.name} cannot be written: {type(error).__name__}")
        templates[number] = template
        return template

    def _learn(self, template: _Template, facts: bytes, raw: Any) -> str | None:
        try:
            rest = template.rest(facts_of(raw))
        except Exception:  # which the span will fail with, too
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
