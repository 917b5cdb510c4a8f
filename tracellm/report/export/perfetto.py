"""Perfetto's own format, protocol buffers, for ui.perfetto.dev and `trace_processor`.

It is two thirds of the size of Trace Event JSON (`chrome.py`), since names are written once. It has real dates, and
binds arrows to the bars themselves, so a request's arrows pass through its own track. It needs the package `perfetto`,
which brings the message classes. The format: https://perfetto.dev/docs/reference/synthetic-track-event.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import Flow, ProcessTracks, RequestTrack, flows, request_tracks, tracks
from tracellm.report.export.values import INT64, clean, own_details
from tracellm.trace.model import Event, Span

__all__ = ["perfetto"]

_SEQUENCE = 1  # all packets are one sequence, whose names are interned once
_BOOTTIME, _REALTIME = 6, 1  # clocks: of the timestamps, and of the wall
_PACKET_FIELD = b"\x0a"  # `Trace.packet`, field 1, preceded by its length
_REMEMBERED = 20_000  # attributes kept in encoded form


def perfetto(chosen: Chosen) -> Iterator[bytes]:
    """Yield the file, piece by piece.

    Raises:
        ModuleNotFoundError: the package `perfetto` is not installed.
    """
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    writer = _Writer(perfetto_trace_pb2, chosen)
    for packet in writer.packets(tracks(chosen), request_tracks(chosen.trace)):
        packet.trusted_packet_sequence_id = _SEQUENCE
        data = packet.SerializeToString()
        yield _PACKET_FIELD + _varint(len(data)) + data


class _Writer:
    """Makes packets; `messages` is the module of their classes."""

    def __init__(self, messages: Any, chosen: Chosen) -> None:
        self._pb = messages
        self._event = messages.TrackEvent
        self._begin = chosen.begin_ns
        self._names = _Interned(lambda data: data.event_names)
        self._categories = _Interned(lambda data: data.event_categories)
        self._keys = _Interned(lambda data: data.debug_annotation_names)
        self._annotations: dict[int, tuple[object, bytes]] = {}
        self._flows: dict[str, list[tuple[Flow, bool]]] = {}
        for flow in flows(chosen):
            for span in flow.spans:
                self._flows.setdefault(span.span_id, []).append((flow, span is flow.spans[-1]))

    def packets(self, processes: list[ProcessTracks], requests: list[RequestTrack]) -> Iterator[Any]:
        yield self._clocks()
        tracks_of: dict[int, int] = {}
        uuid = 0
        for process in processes:
            uuid += 1
            tracks_of[id(process.process)] = parent = uuid
            yield self._process(process, uuid)
            for order, track in enumerate(process.tracks):
                uuid += 1
                yield self._thread(process.pid, track.tid, track.name, uuid, parent, order)
                for kind, span in track.events():
                    if kind == "begin":
                        yield self._begins(uuid, span.start_ns, span.name, span.level, span)
                        yield from (self._moment(uuid, event) for event in span.events)
                    else:
                        yield self._ends(uuid, span.end_ns)
        for order, request in enumerate(requests):
            uuid += 1
            yield self._track(request.name, uuid, tracks_of.get(id(request.span.process), 0), order)
            yield from self._request(request, uuid)

    def _request(self, request: RequestTrack, uuid: int) -> Iterator[Any]:
        yield self._begins(uuid, request.span.start_ns, request.name, "request", request.span)
        for phase in request.phases:
            yield self._begins(uuid, phase.start_ns, phase.name, "request")
            yield self._ends(uuid, phase.end_ns)
        yield self._ends(uuid, request.span.end_ns)

    def _clocks(self) -> Any:
        packet = self._pb.TracePacket()
        packet.sequence_flags = self._pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for clock, time in ((_BOOTTIME, 0), (_REALTIME, self._begin)):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time)
        return packet

    def _process(self, process: ProcessTracks, uuid: int) -> Any:
        packet = self._pb.TracePacket()
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.process.pid = process.pid
        packet.track_descriptor.process.process_name = clean(process.name)
        packet.track_descriptor.process.legacy_sort_index = uuid
        return packet

    def _thread(self, pid: int, tid: int, name: str, uuid: int, parent: int, order: int) -> Any:
        packet = self._track("", uuid, parent, order)
        thread = packet.track_descriptor.thread
        thread.pid, thread.tid, thread.thread_name, thread.legacy_sort_index = pid, tid, clean(name), order
        return packet

    def _track(self, name: str, uuid: int, parent: int, order: int) -> Any:
        packet = self._pb.TracePacket()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.sibling_order_rank = uuid, parent, order
        if name:
            descriptor.name = clean(name)
        return packet

    def _ends(self, uuid: int, time_ns: int) -> Any:
        packet = self._pb.TracePacket(timestamp=time_ns - self._begin)
        packet.track_event.type = self._event.TYPE_SLICE_END
        packet.track_event.track_uuid = uuid
        return packet

    def _moment(self, uuid: int, moment: Event) -> Any:
        time_ns = max(self._begin, moment.time_ns)  # the times of a damaged event may be before the run
        packet = self._begins(uuid, time_ns, moment.name, "event")
        packet.track_event.type = self._event.TYPE_INSTANT
        self._annotate(packet, packet.track_event, moment.attributes)
        return packet

    def _begins(self, uuid: int, time_ns: int, name: str, category: str, span: Span | None = None) -> Any:
        packet = self._pb.TracePacket(timestamp=time_ns - self._begin)
        packet.sequence_flags = self._pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        event = packet.track_event
        event.type = self._event.TYPE_SLICE_BEGIN
        event.track_uuid = uuid
        event.name_iid = self._names.id(packet, name)
        event.category_iids.append(self._categories.id(packet, category))
        if span is not None:
            self._annotate(packet, event, own_details(span))
            event.MergeFromString(self._attributes(packet, span.attributes))
            for flow, last in self._flows.get(span.span_id, ()):
                (event.terminating_flow_ids if last else event.flow_ids).append(flow.id)
        return packet

    def _attributes(self, packet: Any, attributes: dict[str, Any]) -> bytes:
        """Return encoded attributes; kept for the next span, as spans read from disk share theirs."""
        known = self._annotations.get(id(attributes))
        if known is None:
            piece = self._event()
            self._annotate(packet, piece, attributes)
            if len(self._annotations) >= _REMEMBERED:
                self._annotations.clear()
            known = self._annotations[id(attributes)] = attributes, piece.SerializeToString()
        return known[1]

    def _annotate(self, packet: Any, event: Any, values: Mapping[str, Any]) -> None:
        """Add values to an event; new names are defined in `packet`, which is written before it."""
        for key, value in values.items():
            annotation = event.debug_annotations.add(name_iid=self._keys.id(packet, key))
            if isinstance(value, list):
                for item in value:
                    _set(annotation.array_values.add(), item)
            else:
                _set(annotation, value)


class _Interned:
    """Names that are written once, in the packet that uses them first, and are a number from then on."""

    def __init__(self, entries: Callable[[Any], Any]) -> None:
        self._entries = entries
        self._ids: dict[str, int] = {}

    def id(self, packet: Any, name: str) -> int:
        known = self._ids.get(name)
        if known is None:
            known = self._ids[name] = len(self._ids) + 1
            self._entries(packet.interned_data).add(iid=known, name=clean(name))
        return known


def _set(annotation: Any, value: Any) -> None:
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and value in INT64:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    else:
        annotation.string_value = clean(str(value))


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
