"""Trace Event JSON, for chrome://tracing, Perfetto and `vizviewer`.

A call is a complete event (`X`), a moment within it an instant (`i`). A request is a pair of asynchronous events
(`b`, `e`) with its phases inside. An arrow is a chain of flow events (`s`, `t`, `f`), each written after the call that
it is bound to. Times are microseconds from the start of the run, with three decimals, so nothing is rounded. The
format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tracellm import __version__
from tracellm.report.export.chosen import Chosen
from tracellm.report.export.timeline import Flow, ProcessTracks, RequestTrack, flows, request_tracks, tracks
from tracellm.report.export.values import as_json, details
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["chrome"]


def chrome(chosen: Chosen) -> Iterator[bytes]:
    """Yield the file, piece by piece."""
    metadata = {"version": f"tracellm {__version__}", "start_unix_ns": str(chosen.begin_ns)}
    yield f'{{"displayTimeUnit":"ns","otherData":{_json(metadata)},"traceEvents":[\n'.encode()
    writer = _Writer(chosen.begin_ns, flows(chosen))
    processes = tracks(chosen)
    separator = ""
    for line in writer.lines(processes, request_tracks(chosen.trace)):
        yield f"{separator}{line}".encode()
        separator = ",\n"
    yield b"\n]}\n"


class _Writer:
    def __init__(self, begin: int, arrows: Iterable[Flow]) -> None:
        self._begin = begin
        self._ends: dict[str, list[tuple[str, Flow]]] = {}
        for flow in arrows:
            # a request's track is not a thread's, and arrows can only be bound to calls of a thread
            calls = [span for span in flow.spans if span.name != names.REQUEST_SPAN]
            for number, span in enumerate(calls):
                kind = "s" if number == 0 else "f" if number == len(calls) - 1 else "t"
                if len(calls) > 1:
                    self._ends.setdefault(span.span_id, []).append((kind, flow))

    def lines(self, processes: Iterable[ProcessTracks], requests: Iterable[RequestTrack]) -> Iterator[str]:
        """Yield every event as one JSON object."""
        pids: dict[int, int] = {}
        for number, process in enumerate(processes):
            pids[id(process.process)] = process.pid
            yield from _named(process, number)
            for track in process.tracks:
                where = f'"pid":{process.pid},"tid":{track.tid}'
                for _, span in track.calls:
                    yield self._call(span, where)
                    yield from self._moments(span, where)
                    if span.span_id in self._ends:
                        yield from self._arrow_ends(span, where)
        for number, request in enumerate(requests, start=1):
            pid = pids.get(id(request.span.process), 0)
            yield from self._request(request, f'"id2":{{"local":"{number}"}},"pid":{pid},"tid":{pid}')

    def _call(self, span: Span, where: str) -> str:
        name, args = _json(span.name), _json(details(span))
        return (
            f'{{"ph":"X","cat":"{span.level}","name":{name},{where},'
            f'"ts":{self._at(span.start_ns)},"dur":{_microseconds(span.duration_ns)},"args":{args}}}'
        )

    def _moments(self, span: Span, where: str) -> Iterator[str]:
        for event in span.events:
            yield (
                f'{{"ph":"i","s":"t","cat":"event","name":{_json(event.name)},{where},'
                f'"ts":{self._at(event.time_ns)},"args":{_json(event.attributes)}}}'
            )

    def _arrow_ends(self, span: Span, where: str) -> Iterator[str]:
        for kind, flow in self._ends[span.span_id]:
            bind = ',"bp":"e"' if kind != "s" else ""
            yield (
                f'{{"ph":"{kind}","cat":"{flow.kind}","name":{_json(flow.name)},"id":{flow.id}{bind},{where},'
                f'"ts":{self._at(span.start_ns)}}}'
            )

    def _request(self, request: RequestTrack, where: str) -> Iterator[str]:
        def event(kind: str, name: str, time: int, args: str = "") -> str:
            return f'{{"ph":"{kind}","cat":"request","name":{_json(name)},{where},"ts":{self._at(time)}{args}}}'

        yield event("b", request.name, request.span.start_ns, f',"args":{_json(details(request.span))}')
        for phase in request.phases:
            yield event("b", phase.name, phase.start_ns)
            yield event("e", phase.name, phase.end_ns)
        yield event("e", request.name, request.span.end_ns)

    def _at(self, time_ns: int) -> str:
        return _microseconds(max(0, time_ns - self._begin))  # the times of a damaged event may be before the run


def _json(value: Any) -> str:
    """Return a value as JSON that Perfetto reads.

    Perfetto (v52) takes the quote after an escaped backslash, as in `"C:\\"`, for an escaped one, and then finds no
    end.
    """
    text = as_json(value)
    return text.replace("\\\\", "\\u005c") if "\\\\" in text else text


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _named(process: ProcessTracks, number: int) -> Iterator[str]:
    def event(what: str, tid: int, args: dict[str, object]) -> str:
        return f'{{"ph":"M","name":"{what}","pid":{process.pid},"tid":{tid},"ts":0,"args":{_json(args)}}}'

    yield event("process_name", process.pid, {"name": process.name})
    yield event("process_sort_index", process.pid, {"sort_index": number})
    for order, track in enumerate(process.tracks):
        yield event("thread_name", track.tid, {"name": track.name})
        yield event("thread_sort_index", track.tid, {"sort_index": order})
