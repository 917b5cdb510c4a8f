"""Records on their way to another process: packed in the one that is recorded, unpacked where they become spans.

What a record holds besides numbers is a probe, a place, a class, and the facts that the probe's capture took. A probe
is sent once, then its number; of a class only the name matters there. Facts are plain data, as a rule: `pickle` packs a
thousand records in a millisecond. The rest is told here already: spans of users' own, and whatever has objects in it
that another process has no use for.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tracellm.probes.brief import InShort
from tracellm.probes.build import Builder
from tracellm.probes.desk import AnyRecord
from tracellm.probes.otel.told import attributes_of
from tracellm.probes.plain_pickle import CannotBeSent, PlainPickler, PlainUnpickler
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Note, Open, Record, Told
from tracellm.trace.model import Span

__all__ = ["Packer", "Unpacker"]


class Packer:
    """Packs messages of one process. `builder` makes what is told here, `tell` is given a problem, for people."""

    def __init__(self, builder: Builder, tell: Callable[[str], None]) -> None:
        self._builder = builder
        self._tell = tell
        self._probes: dict[Probe, int] = {}
        self._unsendable: set[Probe] = set()  # of which that is known
        self._stand_ins: dict[Probe, Probe] = {}  # for these, and for those whose facts could not be sent
        self._owners: dict[type, int] = {}

    def pack(self, kind: str, *content: Any) -> bytes:
        """A message.

        Raises:
            Exception: something in it cannot be sent.
        """
        known = len(self._probes)
        stream = io.BytesIO()
        try:
            PlainPickler(stream, self).dump((kind, *content))
        except Exception:
            self._forget_from(known)
            raise
        return stream.getvalue()

    def pack_records(self, records: Sequence[AnyRecord]) -> bytes:
        """A message with these records; what cannot be sent as it is is told here, what cannot be told is left out."""
        known = self._unsendable
        if [None for one in records if one.__class__ is not tuple or one[0] in known]:
            records = [one for record in records if (one := self._ready(record)) is not None]
        try:
            return self.pack("take", records)
        except Exception:
            return self.pack("take", self._sendable(records))

    def forget_probes(self) -> None:
        """A message was lost: what it said of probes is said again."""
        self._probes.clear()

    def sendable_calls(self, calls: Mapping[int, Open | Made]) -> dict[int, Open | Made]:
        """Calls under way, as they can be sent; not those of users' spans that are just being changed."""
        sendable: dict[int, Open | Made] = {}
        for number, one in calls.items():
            with suppress(Exception):  # the next time, or when it ends
                sendable[number] = self._made(one) if isinstance(one, Made) else (self._as_sent(one[0]), *one[1:])
        return sendable

    def _ready(self, record: AnyRecord) -> AnyRecord | None:
        """The record, told here if none like it can be sent; None if that fails."""
        try:
            if isinstance(record, Made):
                return self._made(record)
            if isinstance(record, Told):
                return _plain(record)
            if isinstance(record, Note) or record[0] not in self._unsendable:
                return record
            return self._evaluated(record)
        except Exception as error:
            self._leave_out(error)
            return None

    def _sendable(self, records: Sequence[AnyRecord]) -> Sequence[AnyRecord]:
        """These, with what cannot be sent told here or left out. It is looked for by halves: there is little of it."""
        try:
            self._try(records)
        except Exception as error:
            if len(records) == 1:
                return self._told_here(records[0], error)
            half = len(records) // 2
            return [*self._sendable(records[:half]), *self._sendable(records[half:])]
        return records

    def _told_here(self, record: AnyRecord, error: Exception) -> list[AnyRecord]:
        """A record that cannot be sent for this reason, told here; nothing if that cannot be sent either."""
        if not isinstance(record, Note | Made | Told):
            self._can_send(record[0])  # if not, other calls are told here from the start
            try:
                told = self._evaluated(record)
                self._try(told)
            except Exception as another:
                error = another
            else:
                return [told]
        self._leave_out(error)
        return []

    def _leave_out(self, error: Exception) -> None:
        why = error if isinstance(error, CannotBeSent) else f"{type(error).__name__}: {error}"
        self._tell(f"a call cannot be recorded: {why}")

    def _made(self, record: Made) -> Made:
        return Made(partial(_as_made, record.make(self._builder)), record.number)

    def _as_sent(self, probe: Probe) -> Probe:
        """The probe, or what stands for it."""
        return probe if self._can_send(probe) else self._stand_in(probe)

    def _evaluated(self, record: Record) -> Record:
        """The record of a call of which is told here what its facts say."""
        probe, *others, facts, error = record
        if facts is not None:
            facts = self._builder.evaluate(probe, facts)
        return (self._stand_in(probe), *others, facts, error)

    def _stand_in(self, probe: Probe) -> Probe:
        if probe not in self._stand_ins:
            self._stand_ins[probe] = _stand_in(probe)
            if probe.gives is not None or probe.observe is not None:
                self._tell(f"what a call of {probe.method} tells of other calls is not recorded")
        return self._stand_ins[probe]

    def _can_send(self, probe: Probe) -> bool:
        """Is what the probe consists of known in the other process? It is tried once: a failure takes its time."""
        if probe not in self._probes and probe not in self._unsendable:
            try:
                self._try(probe)
            except Exception:
                self._unsendable.add(probe)
        return probe not in self._unsendable

    def _try(self, thing: Any) -> None:
        """Pack something that is not sent."""
        known = len(self._probes)
        try:
            PlainPickler(io.BytesIO(), self).dump(thing)
        finally:
            self._forget_from(known)

    def _forget_from(self, number: int) -> None:
        """The probes from this one on were in what is not sent."""
        while len(self._probes) > number:
            self._probes.popitem()

    # -- what the pickler asks --------------------------------------------------------------------------------------

    def probe(self, probe: Probe) -> tuple[Any, ...]:
        """A probe as its number, and what it is when it is sent for the first time."""
        if (number := self._probes.get(probe)) is not None:
            return _probe, (number,)
        number = self._probes[probe] = len(self._probes)
        return _probe, (number, _fields(probe))

    def owner(self, kind: type) -> tuple[Any, ...]:
        """A class as its number and name."""
        number = self._owners.setdefault(kind, len(self._owners))
        return _owner, (number, kind.__name__)


class Unpacker:
    """Unpacks what a Packer has packed, in the same order."""

    def __init__(self, problems: list[Any]) -> None:
        self._problems = problems  # of probes (Probe.problems)
        self._probes: dict[int, Probe] = {}
        self._owners: dict[int, type] = {}

    def unpack(self, message: bytes) -> tuple[Any, ...]:
        """The message: its kind and content."""
        content: tuple[Any, ...] = PlainUnpickler(io.BytesIO(message), {_probe: self.probe, _owner: self.owner}).load()
        return content

    def probe(self, number: int, fields: dict[str, Any] | None = None) -> Probe:
        """The probe of this number, which is made of `fields` where these come along."""
        if fields is not None:
            self._probes[number] = Probe(**fields, problems=self._problems)
        return self._probes[number]

    def owner(self, number: int, name: str) -> type:
        """What stands for the class of this number."""
        if number not in self._owners:
            self._owners[number] = type(name, (), {})
        return self._owners[number]


# -- what stands in messages ------------------------------------------------------------------------------------------


def _probe(number: int, fields: dict[str, Any] | None = None) -> Probe:
    raise NotImplementedError  # the unpacker has it


def _owner(number: int, name: str) -> type:
    raise NotImplementedError


def _as_made(span: Span, builder: Any) -> Span:
    """A span that was made where the record was packed."""
    return span


def _plain(record: Told) -> Told:
    """The same in plain data."""
    event = record.event and (record.event[0], attributes_of(record.event[1], True), *record.event[2:])
    link = record.link and (*record.link[:2], attributes_of(record.link[2], True))
    return Told(record.call, attributes_of(record.attributes, True), event, link)


def _told(facts: Any) -> Any:
    return facts[0]


def _told_by_user(facts: Any) -> Any:
    return facts[1]


def _fields(probe: Probe) -> dict[str, Any]:
    """What it takes to tell of a probe's calls."""
    return {
        "method": probe.method,
        "level": probe.level,
        "defined": probe.defined,
        "receiver": probe.receiver,
        "span_name": probe.span_name,
        "lifeline": probe.lifeline,
        "constants": probe.constants,
        "capture": probe.capture if isinstance(probe.capture, InShort) else None,
        "attributes": probe.attributes,
        "gives": probe.gives,
        "gives_to": probe.gives_to,
        "observe": probe.observe,
        "loop": probe.loop,
        "timed": probe.timed,
        "in_short": probe.in_short,
        "users_attributes": probe.users_attributes,
    }


def _stand_in(probe: Probe) -> Probe:
    """A probe whose facts are what `Builder.evaluate` made of them."""
    parts = {"capture": None, "gives": None, "observe": None, "attributes": _told, "users_attributes": _told_by_user}
    return Probe(**{**_fields(probe), **parts}, problems=probe.problems)
