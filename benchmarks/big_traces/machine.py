"""Plays the calls of an engine: processes, time, requests, steps, and their spans as a recorder makes them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.big_traces import calls
from benchmarks.big_traces.calls import Call
from benchmarks.big_traces.facts import Request, message_attributes, request_attributes, step_attributes
from tracellm.trace import names
from tracellm.trace.model import Link, Process, Span
from tracellm.trace.names import LEVELS, Level

__all__ = ["Machine", "Recorder"]

_START = 1_700_000_000 * 10**9

_ADD_REQUEST = Call("LLM._add_request", "request", "prompt=str of {n}; params=SamplingParams; priority=0 -> str of 1")
_ENCODE = Call("MsgpackEncoder.encode", "step", "obj=ADD -> 312 bytes")
_ENCODE_INTO = Call("MsgpackEncoder.encode_into", "step", "obj=OUTPUTS -> 312 bytes")
_DECODE = Call("MsgpackDecoder.decode", "step", "bufs=312 bytes")
_STEP_FN = Call("EngineCore.step_fn", "step", "-> model_executed=True")


@dataclass(eq=False, slots=True)
class Recorder:
    """One process: its ids, and the spans that have ended and were not yet taken."""

    process: Process
    first_id: int
    trace_id: str
    skew: int
    count: int = 0
    ended: list[Span] = field(default_factory=list)

    def new_id(self) -> str:
        """Return the next span id."""
        self.count += 1
        return f"{self.first_id + self.count:016x}"

    def take(self) -> list[Span]:
        """Return the spans that ended since the last call."""
        ended, self.ended = self.ended, []
        return ended


class Machine:
    """The engine's calls, with one clock that advances in each.

    `main` is the script's process and `engine` the engine core's; they are the same unless `two`.
    """

    def __init__(self, two: bool, batch: int, layers: int, detail: Level, seed: int) -> None:
        self.random = random.Random(seed)
        self.two, self.batch, self.layers = two, batch, layers
        self.levels = LEVELS[: LEVELS.index(detail) + 1]
        self.now = _START
        self.main = self._recorder(4001, "main", 0)
        self.engine = self._recorder(4002, "EngineCore_0", 350) if two else self.main
        self.steps = self.requests = 0
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self._facts: dict[tuple[Call, int, str], dict[str, Any]] = {}

    def _recorder(self, pid: int, name: str, skew: int) -> Recorder:
        attributes: dict[str, Any] = {
            names.SERVICE_NAME: "tracellm",
            names.PROCESS_PID: pid,
            names.PROCESS_NAME: name,
            names.HOST_NAME: "here",
            names.CLOCK_WALL: _START + skew,
            names.CLOCK_MONOTONIC: 10**12,
        }
        if name != "main":
            attributes[names.PROCESS_PARENT_PID] = 4001
        trace_id = f"{self.random.getrandbits(128):032x}"
        return Recorder(Process(pid, name, attributes), self.random.getrandbits(62), trace_id, skew)

    @property
    def recorders(self) -> list[Recorder]:
        """The processes, each once."""
        return [self.main, self.engine] if self.two else [self.main]

    @property
    def count(self) -> int:
        """Number of spans begun."""
        return sum(recorder.count for recorder in self.recorders)

    # -- calls --------------------------------------------------------------------------------------------------------

    def begin(
        self,
        at: Recorder,
        what: Call,
        parent: Span | None,
        tokens: int = 0,
        thread: str = "",
        request: Request | None = None,
    ) -> Span:
        """Begin a call, and return its span; calls of a kind share their attributes."""
        self.now += self.random.randrange(500, 4000)
        facts = None if request and what.of_request else self._facts.get((what, tokens, thread))
        if facts is None:
            request_facts = (request.id, request.computed) if request else ("", 0)
            facts = self._facts[what, tokens, thread] = what.attributes(tokens, thread, *request_facts)
        trace_id, above = (parent.trace_id, parent.span_id) if parent else (at.trace_id, None)
        start = self.now + at.skew
        return Span(what.name, trace_id, at.new_id(), above, start, start, facts, process=at.process)

    def end(self, at: Recorder, span: Span) -> None:
        """End a call."""
        self.now += self.random.randrange(300, 2000)
        span.end_ns = self.now + at.skew
        at.ended.append(span)

    def leaf(
        self, at: Recorder, what: Call, parent: Span, thread: str = "", more: dict[str, Any] | None = None
    ) -> None:
        """Make a call without callees."""
        span = self.begin(at, what, parent, 0, thread)
        span.attributes = {**span.attributes, **(more or {})}
        self.end(at, span)

    def play(
        self, at: Recorder, outline: Sequence[Call], parent: Span, tokens: int = 0, request: Request | None = None
    ) -> Span:
        """Make these calls and all below them; return the last span that began."""
        last = parent
        for what in outline:
            if what.level in self.levels:
                for count, repeated_request in self._times(what, tokens, request):
                    span = self.begin(at, what, parent, count, request=repeated_request)
                    last = self.play(at, what.children, span, count, repeated_request) if what.children else span
                    self.end(at, span)
        return last

    def _times(self, what: Call, tokens: int, request: Request | None) -> Iterator[tuple[int, Request | None]]:
        """Return the tokens and the request of each repetition of a call."""
        if what.mark in ("", "block"):
            if not what.mark or (request is not None and request.takes_block):
                yield tokens, request
        elif what.mark == "layers":
            yield from ((tokens, request) for _ in range(self.layers))
        else:
            for member in self.running:
                if what.mark == "requests" or (member.ends if what.mark == "finished" else not member.computed):
                    yield member.tokens, member

    # -- requests and steps -------------------------------------------------------------------------------------------

    def submit(self, parent: Span) -> None:
        """Make `LLM._add_request`, up to the engine core's waiting queue."""
        prompt = self.random.randrange(4, 48)
        span = self.begin(self.main, _ADD_REQUEST, parent, prompt)
        below = self.play(self.main, calls.ADD_MP if self.two else calls.ADD_INPROC, span, prompt)
        if self.two:
            self.leaf(self.main, _ENCODE, below, more=message_attributes("ADD", self.requests, "send"))
        self.end(self.main, span)
        trace_id = f"{self.random.getrandbits(128):032x}"
        request_span = Span(
            names.REQUEST_SPAN, trace_id, self.main.new_id(), None, span.start_ns, 0, process=self.main.process
        )
        request_span.links = [Link(span.trace_id, span.span_id)]
        self.waiting.append(Request(str(self.requests), request_span, prompt, self.random.randrange(8, 64)))
        self.requests += 1

    def receive(self, reads: Span, loop: Span) -> None:
        """Decode the waiting requests in the engine core's process, and add them to its queue."""
        for request in self.waiting:
            more = message_attributes("ADD", int(request.id), "receive")
            self.leaf(self.engine, _DECODE, reads, "process_input_sockets", more)
            self.play(self.engine, calls.RECEIVED, loop, request.prompt)

    def step(self, parent: Span) -> None:
        """Make `EngineCore.step_fn` for the waiting and running requests."""
        joined = self.waiting[: self.batch - len(self.running)]
        del self.waiting[: len(joined)]
        self.running += joined
        self.steps += 1
        span = self.begin(self.engine, _STEP_FN, parent)
        self.play(self.engine, calls.STEP, span, sum(request.tokens for request in self.running))
        facts = step_attributes(self.steps, self.running, joined, self.waiting, self.random)
        span.attributes = {**span.attributes, **facts}
        spans = {request.id: request.span for request in self.running}
        span.links = [Link(span.trace_id, span.span_id, {names.REQUEST_ID: name}) for name, span in spans.items()]
        self.end(self.engine, span)

    def outputs(self, writes: Span, reads: Span) -> None:
        """Send a step's outputs back from the engine core's process."""
        sent, received = (message_attributes("OUTPUTS", self.steps, operation) for operation in ("send", "receive"))
        self.leaf(self.engine, _ENCODE_INTO, writes, "process_output_sockets", sent)
        self.leaf(self.main, _DECODE, reads, "EngineCoreOutputQueueThread", received)

    def after_step(self) -> None:
        """Add the step's tokens to the requests, and end those that are complete."""
        for request in self.running:
            request.computed += request.tokens
            request.steps += 1
            if request.steps >= request.max_tokens:
                self.end_request(request)
        self.running = [request for request in self.running if request.steps < request.max_tokens]

    def end_request(self, request: Request) -> None:
        """End a request."""
        request.span.attributes = request_attributes(request)
        self.end(self.main, request.span)
