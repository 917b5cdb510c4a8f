"""Timelines of a run: tracks of nested calls, arrows between calls, and the phases of requests.

The calls of a track nest, as bars within bars. In a thread that runs one call at a time all calls nest, and one track
is enough. Where an event loop switches between tasks, or a generator's consumer works between its turns, calls overlap
without nesting; no viewer can draw that in one track. Each such call begins a track of its own, named after it, with
the calls that it makes. Every call keeps its true start and end.

Arrows are messages between processes and threads, calls that started a thread or a process, and each request's way from
its submission through every step that served it.

A request is one long bar with its phases below: it waits until the first step that computes some of it; then it
is in prefill or decode. It is preempted from the step that takes its blocks to the one that gives it blocks again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Literal

from tracellm.report.export.chosen import Chosen, same_thread
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.steps import STEP_SPAN, steps

__all__ = [
    "MAIN_THREAD",
    "Flow",
    "Phase",
    "ProcessTracks",
    "RequestTrack",
    "Track",
    "flows",
    "request_tracks",
    "tracks",
]


MAIN_THREAD = "MainThread"

_SUSPENDED = ("coroutine", "async_generator")
"""Kinds of calls that an event loop runs, so that a plain caller does not wait for them."""

_Thread = tuple[str, int, str]


@dataclass(slots=True, eq=False)
class Track:
    """Calls that nest, by start, each with the number of the track's calls around it.

    `thread` is the thread's name. `name` is that of the thread, or of the outermost call that ran beside the thread's
    other calls. `tid` is unique among the tracks and processes of the run; for a main thread it is the process id, as
    on Linux.
    """

    thread: str
    name: str
    tid: int = 0
    calls: list[tuple[int, Span]] = field(default_factory=list)
    _open: list[Span] = field(default_factory=list)

    def events(self) -> Iterator[tuple[Literal["begin", "end"], Span]]:
        """Yield every call's start and end, ordered by time; ends come innermost first."""
        around: list[Span] = []
        for depth, span in self.calls:
            while len(around) > depth:
                yield "end", around.pop()
            yield "begin", span
            around.append(span)
        while around:
            yield "end", around.pop()

    def fits_below(self, caller: Span, span: Span) -> bool:
        """Return whether `caller` is the innermost open call of this track, and ends after `span`."""
        while self._open and self._open[-1] is not caller and self._open[-1].end_ns <= span.start_ns:
            self._open.pop()
        return bool(self._open) and self._open[-1] is caller and span.end_ns <= caller.end_ns

    def add(self, span: Span, *, outermost: bool = False) -> None:
        """Put a call into the innermost open one, or beside all."""
        if outermost:
            self._open.clear()
        self.calls.append((len(self._open), span))
        self._open.append(span)


@dataclass(slots=True, eq=False)
class ProcessTracks:
    """A process and its tracks, the main thread's first.

    `pid` is its process id, or another number if a process of another machine has that id.
    """

    process: Process | None
    pid: int
    tracks: list[Track] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The process's role in the engine: main, EngineCore_0."""
        return self.process.name if self.process else "?"


def tracks(chosen: Chosen) -> list[ProcessTracks]:
    """Return the processes of a run in the order of their first calls, each with its calls laid out.

    It takes time in proportion to the calls, and to the logarithm of the number open at once.
    """
    layout = _Layout(chosen)
    for span in chosen.calls:
        layout.add(span)
    return layout.numbered()


class _Layout:
    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._beside = _beside_others(chosen)
        self._placed: dict[str, Track] = {}
        self._processes: dict[int, ProcessTracks] = {}
        self._threads: dict[_Thread, Track] = {}
        self._busy_until: dict[int, int] = {}  # by id() of a thread's own track
        self._spare: dict[tuple[_Thread, str], list[tuple[int, int, Track]]] = {}

    def add(self, span: Span) -> None:
        caller = _caller_in_thread(self._chosen, span)
        track = self._placed.get(caller.span_id) if caller is not None else None
        alone = span.span_id not in self._beside and not _starts_a_task(span, caller)
        if caller is not None and track is not None and alone and track.fits_below(caller, span):
            track.add(span)
        else:
            track = self._outermost(span, caller is None)
            track.add(span, outermost=True)
        self._placed[span.span_id] = track

    def _outermost(self, span: Span, in_thread: bool) -> Track:
        thread = span.thread
        own = self._threads.get(thread)
        if own is None:
            own = self._threads[thread] = self._new(span, thread[2] or MAIN_THREAD)
        if in_thread and self._busy_until.get(id(own), 0) <= span.start_ns:
            self._busy_until[id(own)] = span.end_ns
            return own
        spare = self._spare.setdefault((thread, span.name), [])
        if spare and spare[0][0] <= span.start_ns:
            _, number, track = heappop(spare)
        else:
            number = len(spare) + 1
            track = self._new(span, span.name if number == 1 else f"{span.name} ({number})")
        heappush(spare, (span.end_ns, number, track))
        return track

    def _new(self, span: Span, name: str) -> Track:
        known = self._processes.get(id(span.process))
        if known is None:
            known = self._processes[id(span.process)] = ProcessTracks(span.process, 0)
        track = Track(span.thread[2], name)
        known.tracks.append(track)
        return track

    def numbered(self) -> list[ProcessTracks]:
        """Return the processes with numbers for them and their tracks, all different."""
        found = list(self._processes.values())
        taken: set[int] = set()
        spare = count(1)
        for process_tracks in found:
            pid = process_tracks.process.pid if process_tracks.process else 0
            process_tracks.pid = (
                pid if pid > 0 and pid not in taken else next(number for number in spare if number not in taken)
            )
            taken.add(process_tracks.pid)
        for process_tracks in found:
            process_tracks.tracks.sort(key=lambda track: bool(track.thread))  # the main thread's before others
            for number, track in enumerate(process_tracks.tracks):
                is_main = number == 0 and not track.thread
                track.tid = process_tracks.pid if is_main else next(tid for tid in spare if tid not in taken)
            process_tracks.tracks = [track for track in process_tracks.tracks if track.calls]
        return found


def _caller_in_thread(chosen: Chosen, span: Span) -> Span | None:
    caller = chosen.caller(span)
    return caller if caller is not None and same_thread(caller, span) else None


def _starts_a_task(span: Span, caller: Span | None) -> bool:
    kind = span.attributes.get(names.CALL_KIND)
    return caller is not None and kind in _SUSPENDED and names.CALL_KIND not in caller.attributes


def _beside_others(chosen: Chosen) -> set[str]:
    """Return the span ids of calls that were still open when their caller made another."""
    beside: set[str] = set()
    next_began: dict[str, int] = {}
    for span in reversed(chosen.calls):
        caller = _caller_in_thread(chosen, span)
        if caller is None:
            continue
        if next_began.get(caller.span_id, span.end_ns) < span.end_ns:
            beside.add(span.span_id)
        next_began[caller.span_id] = span.start_ns
    return beside


@dataclass(frozen=True, slots=True)
class Flow:
    """One arrow, or a chain of arrows, through spans ordered by time.

    A request's chain goes from the call that submitted it to the request's own span, and on to its steps.
    """

    id: int
    """Number of the flow, from 1, unique in a run."""
    kind: Literal["message", "start", "request"]
    name: str
    spans: tuple[Span, ...]


def flows(chosen: Chosen) -> list[Flow]:
    """Return the arrows between exported spans."""
    found: list[tuple[Literal["message", "start", "request"], str, tuple[Span, ...]]] = []
    for message in chosen.trace.messages:
        send, receive = message.send, message.receive
        if receive is None or receive.start_ns < send.start_ns:
            continue  # an arrow goes forward in time, even if the clocks of two machines differ
        if chosen.holds(send) and chosen.holds(receive):
            found.append(("message", str(send.attributes.get(names.MESSAGE_TYPE, "message")), (send, receive)))
    for span in chosen.calls:
        caller = chosen.caller(span)
        if caller is not None and not same_thread(caller, span):
            found.append(("start", span.name, (caller, span)))
    for request, served_by in _served(chosen).values():
        if served_by:
            name = f"request {request.attributes.get(names.REQUEST_ID, '?')}"
            found.append(("request", name, (*_submitted_by(chosen, request), request, *served_by)))
    return [Flow(number, kind, name, spans) for number, (kind, name, spans) in enumerate(found, start=1)]


def _submitted_by(chosen: Chosen, request: Span) -> list[Span]:
    """Return the exported call that a request's span links to, if any."""
    calls = (chosen.trace.by_id.get(link.span_id) for link in request.links)
    return [call for call in calls if call is not None and chosen.holds(call)][:1]


def _served(chosen: Chosen) -> dict[str, tuple[Span, list[Span]]]:
    """Return each request's span, by its id, and the steps that link to it."""
    served: dict[str, tuple[Span, list[Span]]] = {request.span_id: (request, []) for request in chosen.requests}
    for span in chosen.calls:
        if span.name == STEP_SPAN:
            for link in span.links:
                if link.span_id in served:
                    served[link.span_id][1].append(span)
    return served


@dataclass(slots=True)
class Phase:
    """A phase of a request: waiting, prefill, decode or preempted. Times are nanoseconds since 1970."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class RequestTrack:
    """A request's track: its span, its name `request 0`, and its phases, without gaps."""

    span: Span
    name: str
    phases: list[Phase] = field(default_factory=list)


def request_tracks(trace: Trace) -> list[RequestTrack]:
    """Return the tracks of all requests, in the order of submission."""
    by_span: dict[str, RequestTrack] = {}
    by_id: dict[str, RequestTrack] = {}
    for span in trace.spans:
        if span.name == names.REQUEST_SPAN:
            request_id = str(span.attributes.get(names.REQUEST_ID, "?"))
            track = RequestTrack(span, f"request {request_id}", [Phase("waiting", span.start_ns, span.end_ns)])
            by_span[span.span_id] = track
            by_id.setdefault(request_id, track)
    for step in steps(trace) if by_span else ():
        linked = (by_span[link.span_id] for link in step.span.links if link.span_id in by_span)
        by_linked_id = {str(track.span.attributes.get(names.REQUEST_ID)): track for track in linked}
        for request in step.requests:
            if served := by_linked_id.get(request.request_id) or by_id.get(request.request_id):
                _begin_phase(served, request.phase or step.kind, step.span.start_ns)
        for request_id in step.preempted:
            if stopped := by_linked_id.get(request_id) or by_id.get(request_id):
                _begin_phase(stopped, "preempted", step.span.start_ns)
    return list(by_span.values())


def _begin_phase(request: RequestTrack, name: str, at: int) -> None:
    """Begin a phase, unless it is the current one or the request has ended: one step may still run then."""
    last = request.phases[-1]
    at = max(at, last.start_ns)
    if last.name == name or at >= request.span.end_ns:
        return
    last.end_ns = at
    request.phases.append(Phase(name, at, request.span.end_ns))
