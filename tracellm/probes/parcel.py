"""Records on their way to another process: packed in the one that is recorded, unpacked where they become spans.

What a record holds besides numbers is a probe, a place, a class, and the facts that the probe's capture took. A probe
is sent once, then its number; of a class only the name matters there. Facts are plain data, as a rule: `pickle` packs a
thousand records in a millisecond. The rest is told here already: what users' own functions make of a call, spans of
users' own, and whatever has objects in it that another process has no use for.
"""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from tracellm.probes.brief import InShort
from tracellm.probes.build import Builder
from tracellm.probes.desk import AnyRecord
from tracellm.probes.otel.told import attributes_of
from tracellm.probes.spec import Probe
from tracellm.probes.state import Made, Open, Place, Record, Told
from tracellm.trace.model import Span

__all__ = ["Packer", "Unpacker"]

_PROTOCOL = 5
_ENGINE = "tracellm.engine."  # what is defined there needs torch


class _CannotBeSent(Exception):
    """Something in a message is of use in this process only."""


class Packer:
    """Packs messages of one process. `builder` makes what is told here, `tell` is given a problem, for people."""

    def __init__(self, builder: Builder, tell: Callable[[str], None]) -> None:
        self._builder = builder
        self._tell = tell
        self._probes: dict[Probe, int] = {}
        self._stand_ins: dict[Probe, Probe] = {}  # for those that cannot be sent, or whose facts cannot
        self._owners: dict[type, int] = {}

    def pack(self, kind: str, *content: Any) -> bytes:
        """A message.

        Raises:
            Exception: something in it cannot be sent.
        """
        known = len(self._probes)
        stream = io.BytesIO()
        try:
            _Pickler(stream, self).dump((kind, *content))
        except Exception:
            self._forget_from(known)
            raise
        return stream.getvalue()

    def pack_records(self, records: Sequence[AnyRecord]) -> bytes:
        """A message with these records; what cannot be sent as it is is told here, what cannot be told is left out."""
        try:
            return self.pack("take", records)
        except Exception:
            return self.pack("take", [one for record in records if (one := self._sendable(record)) is not None])

    def forget_probes(self) -> None:
        """A message was lost: what it said of probes is said again."""
        self._probes.clear()

    def sendable_calls(self, calls: Mapping[int, Open | Made]) -> dict[int, Open | Made]:
        """Calls under way, as they can be sent; not those of users' spans that are just being changed."""
        sendable: dict[int, Open | Made] = {}
        for number, one in calls.items():
            with suppress(Exception):  # the next time, or when it ends
                sendable[number] = self._made(one) if isinstance(one, Made) else (self._sent(one[0]), *one[1:])
        return sendable

    def _sendable(self, record: AnyRecord) -> AnyRecord | None:
        try:
            if isinstance(record, Made):
                return self._made(record)
            if isinstance(record, Told):
                return self._plain(record)
            if self._can_send(record):
                return record
            return self._evaluated(record)  # type: ignore[arg-type]
        except Exception as error:
            self._tell(f"a call cannot be recorded: {type(error).__name__}: {error}")
            return None

    def _made(self, record: Made) -> Made:
        return Made(partial(_ready, record.make(self._builder)), record.number)

    def _plain(self, record: Told) -> Told:
        event = record.event and (record.event[0], attributes_of(record.event[1], True), *record.event[2:])
        link = record.link and (*record.link[:2], attributes_of(record.link[2], True))
        return Told(record.call, attributes_of(record.attributes, True), event, link)

    def _sent(self, probe: Probe) -> Probe:
        """The probe, or what stands for it."""
        if probe in self._probes or self._can_send(probe):
            return probe
        return self._stand_in(probe)

    def _stand_in(self, probe: Probe) -> Probe:
        return self._stand_ins.get(probe) or self._stand_ins.setdefault(probe, _stand_in(probe))

    def _can_send(self, thing: Any) -> bool:
        known = len(self._probes)
        try:
            _Pickler(io.BytesIO(), self).dump(thing)
        except Exception:
            return False
        finally:
            self._forget_from(known)
        return True

    def _forget_from(self, number: int) -> None:
        """The probes from this one on were in what is not sent."""
        while len(self._probes) > number:
            self._probes.popitem()

    def _evaluated(self, record: Record) -> Record:
        """The record of a call of which is told here what its facts say."""
        probe, *others, facts, error = record
        if facts is not None:
            facts = self._builder.evaluate(probe, facts)
        return (self._stand_in(probe), *others, facts, error)

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
        content: tuple[Any, ...] = _Unpickler(io.BytesIO(message), self).load()
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


def _ready(span: Span, builder: Any) -> Span:
    """A span that was made where the record was packed."""
    return span


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
        "users_attributes": probe.users_attributes,
    }


def _stand_in(probe: Probe) -> Probe:
    """A probe whose facts are what `Builder.evaluate` made of them."""
    parts = {"capture": None, "gives": None, "observe": None, "attributes": _told, "users_attributes": _told_by_user}
    return Probe(**{**_fields(probe), **parts}, problems=probe.problems)


_BASES: tuple[type, ...] = (str, int, float, bytes, tuple, list, dict, set, frozenset)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, packer: Packer) -> None:
        super().__init__(stream, _PROTOCOL)
        self._packer = packer

    def reducer_override(self, thing: Any) -> Any:
        """How to pack what is not one of the interpreter's plainest types; `NotImplemented`: as pickle does."""
        kind = type(thing)
        if kind is Probe:
            return self._packer.probe(thing)
        if kind is Place:
            return Place, (thing.thread, thing.thread_name, thing.begun, thing.since)
        if issubclass(kind, type):
            return NotImplemented if _is_known(thing) else self._packer.owner(thing)
        if kind in (FunctionType, BuiltinFunctionType, MethodType):
            if kind is MethodType or (_is_known(thing) and "<" not in thing.__qualname__):
                return NotImplemented
        elif _is_known(kind):
            return NotImplemented
        elif kind.__module__ == "torch" and kind.__name__ == "dtype":
            return str, (str(thing),)
        elif (base := next((one for one in _BASES if isinstance(thing, one)), None)) is not None:
            return base, (_plainer(thing, base),)
        raise _CannotBeSent(kind.__qualname__)


def _plainer(thing: Any, base: type) -> Any:
    """The same as an object of `base`, which it derives from."""
    if base in (str, int, float):
        return getattr(base, f"__{base.__name__}__")(thing)
    return base(thing)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, unpacker: Unpacker) -> None:
        super().__init__(stream)
        self._own = {_probe.__name__: unpacker.probe, _owner.__name__: unpacker.owner}

    def find_class(self, module: str, name: str) -> Any:
        """What a message names: only what is known here."""
        if module == __name__ and name in self._own:
            return self._own[name]
        found = super().find_class(module, name)
        if not _is_known(found):
            raise pickle.UnpicklingError(f"{module}.{name} is not expected in a message")
        return found


def _is_known(thing: Any) -> bool:
    """Is it a class or function that the other process has too?"""
    module = thing.__module__ or ""
    ours = module.startswith("tracellm.") and not module.startswith(_ENGINE)
    return ours or thing in (*_BASES, getattr, partial)
