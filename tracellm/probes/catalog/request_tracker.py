"""State that joins calls while spans are built: the tokenizer, the requests under way, the number of steps.

Entries of the catalog update the tracker (`Entry.observe`), which combines facts of several calls, above all into a
request's span from submission to last token. It runs where spans are built, outside the recorded calls.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.model import Link, Span

__all__ = ["RequestTracker"]

_LINKED_STEPS = frozenset(("requests", "steps", "schedules", "endings"))
"""Subjects that are needed to link steps to their requests, and to detect the end of a request."""

_MAX_IN_FLIGHT = 64
"""Number of steps kept whose tokens have not come; more than there are pipeline stages."""
_MAX_OUTPUTS = 4096
"""Number of outputs whose step is kept; far more than ever wait to be sent."""


@dataclass(slots=True)
class _TrackedRequest:
    """A request under way: its span, the link that steps get to it, and what is known so far."""

    span: Span
    link: Link
    delta: bool = False  # whether outputs hold only what is new
    external: tuple[str, int] | None = None  # the caller's id and the output's index, if it is not its own id
    steps: int = 0
    text: str = ""
    num_tokens: int = 0  # in outputs to the caller
    num_received: int = 0  # from the engine core
    first_token_ns: int | None = None
    engine_end: tuple[int, str] | None = None  # when and why the engine core finished it


class RequestIds(Protocol):
    """Makes the ids of requests that have none."""

    def trace(self) -> str:
        """Return a trace id, 32 hexadecimal digits."""

    def request_span(self) -> str:
        """Return a span id, 16 hexadecimal digits."""


@dataclass(slots=True)
class RequestTracker:
    """State that joins calls, one for each process that is recorded.

    The span of a request belongs to the process where it is submitted. Another process that computes it only has the
    link that its steps get.

    Attributes:
        ids: makes the ids of request spans.
        text: whether texts are recorded.
        decode: returns the text of a token id; None until a tokenizer is known, or if text is not recorded.
        tokenizers: `decode` of every tokenizer so far, by its number (token_texts.py).
        model: name of the model, as the user wrote it.
        steps: engine steps so far.
        deep_steps: steps that are recorded to full depth; None: all (installation.py).
        queued: requests in the scheduler's queues that no step has finished.
        left_out: subjects (report_needs.py) that are recorded in part; nothing is joined for them.
        items: what is known of images and sounds before their requests are submitted, by identifier (engine/items.py).
        cached_items: by request, whether the processor had its items in its cache, by identifier.
    """

    ids: RequestIds
    text: bool = True
    decode: Callable[[int], str] | None = None
    tokenizers: dict[int, Callable[[int], str]] = field(default_factory=dict)
    model: str | None = None
    steps: int = 0
    deep_steps: int | None = None
    queued: set[str] = field(default_factory=set)
    left_out: Collection[str] = ()
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    cached_items: dict[str, dict[str, bool]] = field(default_factory=dict)
    _children: dict[tuple[str, int], str] = field(default_factory=dict)
    _requests: dict[str, _TrackedRequest] = field(default_factory=dict)
    _remote: dict[str, Link] = field(default_factory=dict)
    _ended: list[Span] = field(default_factory=list)
    _output_steps: dict[str, int] = field(default_factory=dict)
    _in_flight: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_IN_FLIGHT))
    _kept: dict[str, _TrackedRequest] = field(default_factory=dict)

    @property
    def _records_requests(self) -> bool:
        return "requests" not in self.left_out

    def request(self, request_id: str, start_ns: int, submitted_by: Span | None = None, delta: bool = False) -> Span:
        """Return the span of a request, begun now if it is new.

        `submitted_by` is the call that submits it; with `delta`, outputs hold only what is new.
        """
        request = self._requests.get(request_id) or self._begin_unknown(request_id, start_ns)
        if submitted_by is not None:
            request.delta = delta
            request.span.start_ns = start_ns
            if self.model is not None:  # known since the submission, if the engine is older than the recording
                request.span.attributes[names.GEN_AI_MODEL] = self.model
            request.span.links.append(Link(submitted_by.trace_id, submitted_by.span_id))
        return request.span

    def submitted(self, request_id: str, trace_id: str, span_id: str, parent: str | None, start_ns: int) -> None:
        """Begin the span of a request that is about to be submitted."""
        if request_id not in self._requests:
            self._begin(request_id, trace_id, span_id, parent, start_ns)

    def refused(self, request_id: str, span_id: str) -> None:
        """Drop the span of a request whose submission failed."""
        if (request := self._requests.get(request_id)) is not None and request.span.span_id == span_id:
            del self._requests[request_id]

    def arrived(self, request_id: str) -> None:
        """Note a request in the scheduler's queue; steps list only the beginning of the queue."""
        if _LINKED_STEPS.isdisjoint(self.left_out):
            self.queued.add(request_id)

    def link_remote(self, request_id: str, trace_id: str, span_id: str) -> None:
        """Keep the link to a request that another process may have submitted to this one."""
        if request_id not in self._requests and _LINKED_STEPS.isdisjoint(self.left_out):
            self._remote[request_id] = _link(request_id, trace_id, span_id)

    def forget_remote(self, request_id: str) -> None:
        """Drop the link to a finished request of another process."""
        self._remote.pop(request_id, None)

    def _begin_unknown(self, request_id: str, start_ns: int) -> _TrackedRequest:
        if (kept := self._kept.pop(request_id, None)) is not None:
            self._requests[request_id] = kept
            return kept
        return self._begin(request_id, self.ids.trace(), self.ids.request_span(), None, start_ns)

    def skip(self, steps: int) -> None:
        """Drop all requests: they may have ended in records that a ring has dropped. `steps` steps have run."""
        self.steps = steps
        for requests in (self._requests, self._remote, self._children, self.queued):
            requests.clear()

    def set_kept(self) -> None:
        """Treat the known requests as kept ones: one is under way if a later call names it."""
        self._kept, self._requests = self._requests, {}
        for request in self._kept.values():
            request.span.links.clear()  # the call that submitted it is not in the recording
        self.queued.clear()
        self._ended.clear()

    def _begin(
        self, request_id: str, trace_id: str, span_id: str, parent: str | None, start_ns: int
    ) -> _TrackedRequest:
        span = Span(names.REQUEST_SPAN, trace_id, span_id, parent, start_ns, start_ns)
        span.attributes = {names.LIFELINE: "request", names.LEVEL: "request", names.REQUEST_ID: request_id}
        span.attributes[names.GEN_AI_RESPONSE_ID] = request_id
        if self.model is not None:
            span.attributes[names.GEN_AI_MODEL] = self.model
        request = _TrackedRequest(span, _link(request_id, trace_id, span_id))
        if self._records_requests:
            self._requests[request_id] = request
        return request

    def link_step(self, request_ids: Iterable[str], step: Span) -> None:
        """Link a step to the requests that it serves, and count it for each."""
        if not self._records_requests:
            return
        for request_id in request_ids:
            if (link := self._remote.get(request_id)) is None:
                request = self._requests.get(request_id) or self._begin_unknown(request_id, step.start_ns)
                request.steps += 1
                link = request.link
            step.links.append(link)

    def add_child(self, parent_id: str, index: int, child_id: str) -> None:
        """Note that `child_id`, which has begun, makes the output at `index` of the caller's request `parent_id`."""
        if (request := self._requests.get(child_id)) is not None:
            request.external = parent_id, index
            self._children[parent_id, index] = child_id

    def request_of(self, request_id: str, index: int) -> str:
        """Return the request that makes the output at `index` of the caller's request `request_id`."""
        return self._children.get((request_id, index), request_id)

    def engine_ended(self, request_id: str, end_ns: int, reason: str) -> None:
        """Note that the engine core finished a request; its caller may get the output later."""
        if (request := self._requests.get(request_id)) is not None and request.engine_end is None:
            request.engine_end = end_ns, reason

    def is_open(self, request_id: str) -> bool:
        """Return whether the request has begun and not ended."""
        return request_id in self._requests

    def generated(self, request_id: str, text: str, num_tokens: int, at_ns: int) -> None:
        """Add an output to the caller."""
        if not self._records_requests:
            return
        request = self._requests.get(request_id) or self._begin_unknown(request_id, at_ns)
        request.text = request.text + text if request.delta else text
        request.num_tokens = request.num_tokens + num_tokens if request.delta else num_tokens

    def received(self, request_id: str, num_tokens: int, at_ns: int) -> None:
        """Count tokens from the engine core; the caller may get them later, or never."""
        if (request := self._requests.get(request_id)) is not None:
            request.num_received += num_tokens
            if request.first_token_ns is None:
                request.first_token_ns = at_ns

    def ended(self, request_id: str, end_ns: int, reason: str | None, stopped_by: str | None = None) -> None:
        """End a request's span; `reason` is None if the recording ends first."""
        if not self._records_requests:
            return
        self.request(request_id, end_ns)
        request = self._requests.pop(request_id)
        end_ns, reason = request.engine_end or (end_ns, reason)
        span = _so_far(request, end_ns)
        if request.external is not None and self._children.get(request.external) == request_id:
            del self._children[request.external]
        if reason is not None:
            span.attributes[names.GEN_AI_FINISH_REASONS] = [reason]
        if stopped_by is not None:
            span.attributes[names.REQUEST_STOPPED_BY] = stopped_by
        self._ended.append(span)

    def failed(self, request_id: str, end_ns: int, error: str) -> None:
        """End a request's span because the engine failed."""
        if (request := self._requests.get(request_id)) is not None:
            request.span.error = error
            request.engine_end = None
            self.ended(request_id, end_ns, None)

    def made_outputs(self, timestamps: Iterable[float]) -> None:
        """Note that the current step made the outputs with these timestamps, which their messages carry."""
        self._output_steps |= dict.fromkeys(map(repr, timestamps), self.steps)
        while len(self._output_steps) > _MAX_OUTPUTS:  # within one process no message is sent
            del self._output_steps[next(iter(self._output_steps))]

    def output_of(self, is_scheduled: bool, sampled: dict[str, Any] | None) -> int:
        """Return the step whose tokens the current step got: an earlier one, if they are `late`, from other processes.

        Args:
            is_scheduled: whether the current step scheduled tokens.
            sampled: its tokens, if it got any.
        """
        if is_scheduled:
            self._in_flight.append(self.steps)
        if sampled is None:
            return self.steps
        if sampled.get("late") and self._in_flight:
            return self._in_flight.popleft()
        self._in_flight.clear()
        return self.steps

    def step_of(self, message_id: str) -> int | None:
        """Return the step that made the outputs in this message."""
        return self._output_steps.get(message_id.rpartition(" ")[2])

    def take_ended(self) -> list[Span]:
        """Return the request spans that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def unfinished(self) -> Iterator[Span]:
        """Yield the spans of the requests under way, with what is known so far."""
        for request in self._requests.values():
            span = _so_far(request, request.span.start_ns)
            span.attributes[names.OPEN] = True
            yield span

    def close(self, end_ns: int) -> None:
        """End all request spans with the recording."""
        for request_id in list(self._requests):
            self.ended(request_id, end_ns, None)


def _link(request_id: str, trace_id: str, span_id: str) -> Link:
    return Link(trace_id, span_id, {names.REQUEST_ID: request_id})


def _so_far(request: _TrackedRequest, end_ns: int) -> Span:
    """Copy the span with what is known, up to `end_ns`."""
    attributes = dict(request.span.attributes)
    if request.steps:
        attributes[names.REQUEST_STEPS] = request.steps
    if request.num_tokens:
        attributes[names.REQUEST_OUTPUT] = request.text
    if num_tokens := request.num_tokens or request.num_received:
        attributes[names.GEN_AI_OUTPUT_TOKENS] = num_tokens
    if request.first_token_ns is not None:
        attributes[names.GEN_AI_FIRST_CHUNK] = round((request.first_token_ns - request.span.start_ns) / 1e9, 9)
    return replace(request.span, end_ns=max(end_ns, request.span.start_ns), attributes=attributes)
