"""What is known across calls while spans are built: the tokenizer, the requests under way, the number of steps.

Probes of the catalog tell the tracker what they see (`Entry.observe`); the tracker puts together what no single call
knows, above all a request's life from its submission to its last token. It runs off the hot path only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.model import Link, Span

__all__ = ["RequestTracker"]


_TELLING_STEPS = frozenset(("requests", "steps", "schedules", "endings"))
"""What it takes to link steps to the requests they serve, and to know when that is over."""

_MOST_UNSENT = 4096
"""Outputs whose step is remembered: many more than ever wait to be sent."""


@dataclass(slots=True)
class _TrackedRequest:
    span: Span
    link: Link  # to it, of each step that serves it
    in_pieces: bool = False
    known_as: tuple[str, int] | None = None  # what its output is called by the caller, where that is not its own name
    steps: int = 0
    text: str = ""
    num_tokens: int = 0
    num_received: int = 0  # tokens that came from the engine, of which the caller may not have been given any yet
    first_token_ns: int | None = None  # when it came
    engine_end: tuple[int, str] | None = None  # when and why the engine was done with it

    @property
    def tokens_so_far(self) -> int:
        """Those that its caller was given; while there are none, those that there are to give."""
        return self.num_tokens or self.num_received


class RequestIds(Protocol):
    """Makes the ids of requests that nothing else gave any."""

    def trace(self) -> str:
        """A trace id, 32 hexadecimal digits."""

    def request_span(self) -> str:
        """A span id, 16 hexadecimal digits."""


@dataclass(slots=True)
class RequestTracker:
    """What is known across calls.

    A request's life belongs to the process where it was submitted. Where another process computes it, that one knows
    only which span its steps are to be linked to.

    Attributes:
        ids: makes the ids of request spans.
        text: are texts to be recorded?
        decode: the text of one token id; None until a tokenizer was seen, or when text is not to be recorded.
        tokenizers: the same for every tokenizer that was told of, by its number (catalog/token_texts.py).
        model: the model's name as the user wrote it.
        steps: engine steps so far.
        deep_steps: how many of them are told of with what went on inside; None: all (installation.py).
        queued: the requests that are in the scheduler's queues, as far as its steps told of their ends.
        untold: the subjects (catalog/subjects.py) of which a part is not recorded: nothing is put together of them, as
            requests' lives without an end would be.
    """

    ids: RequestIds
    text: bool = True
    decode: Callable[[int], str] | None = None
    tokenizers: dict[int, Callable[[int], str]] = field(default_factory=dict)
    model: str | None = None
    steps: int = 0
    deep_steps: int | None = None
    queued: set[str] = field(default_factory=set)
    untold: Collection[str] = ()
    _children: dict[tuple[str, int], str] = field(default_factory=dict)
    _lives: dict[str, _TrackedRequest] = field(default_factory=dict)
    _elsewhere: dict[str, Link] = field(default_factory=dict)
    _ended: list[Span] = field(default_factory=list)
    _made_by: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, _TrackedRequest] = field(default_factory=dict)

    @property
    def _tells_lives(self) -> bool:
        return "requests" not in self.untold

    def request(
        self, request_id: str, start_ns: int, submitted_by: Span | None = None, in_pieces: bool = False
    ) -> Span:
        """The span of a request's life; it begins with the first call that knows the request.

        `in_pieces`: its outputs bring what is new, not all so far.
        """
        life = self._lives.get(request_id) or self._begin_unknown(request_id, start_ns)
        if submitted_by is not None:
            life.in_pieces = in_pieces
            life.span.start_ns = start_ns
            if self.model is not None:  # learnt with the submission, when the engine was made before the recording
                life.span.attributes[names.GEN_AI_MODEL] = self.model
            life.span.links.append(Link(submitted_by.trace_id, submitted_by.span_id))
        return life.span

    def submitted(self, request_id: str, trace_id: str, span_id: str, parent: str | None, start_ns: int) -> None:
        """A request is about to be submitted, and this is its life's place in the recording."""
        if request_id not in self._lives:
            self._begin(request_id, trace_id, span_id, parent, start_ns)

    def refused(self, request_id: str, span_id: str) -> None:
        """What `submitted` told of did not come to be."""
        if (life := self._lives.get(request_id)) is not None and life.span.span_id == span_id:
            del self._lives[request_id]

    def arrived(self, request_id: str) -> None:
        """A request came into the scheduler's queue, which is not told of whole in each step if it is long."""
        if _TELLING_STEPS.isdisjoint(self.untold):
            self.queued.add(request_id)

    def computed_here(self, request_id: str, trace_id: str, span_id: str) -> None:
        """A request came to this process to be computed; its life may belong to another."""
        if request_id not in self._lives and _TELLING_STEPS.isdisjoint(self.untold):
            self._elsewhere[request_id] = _link(request_id, trace_id, span_id)

    def computed(self, request_id: str) -> None:
        """This process is done with a request of another."""
        self._elsewhere.pop(request_id, None)

    def _begin_unknown(self, request_id: str, start_ns: int) -> _TrackedRequest:
        if (kept := self._kept.pop(request_id, None)) is not None:
            self._lives[request_id] = kept
            return kept
        return self._begin(request_id, self.ids.trace(), self.ids.request_span(), None, start_ns)

    def skip(self, steps: int) -> None:
        """Forget all requests: a ring has let go of records, after so many steps, in which they may have ended."""
        self.steps = steps
        for requests in (self._lives, self._elsewhere, self._children, self.queued):
            requests.clear()

    def set_kept(self) -> None:
        """Treat the requests that are known as kept ones: one is under way if a later call names it."""
        self._kept, self._lives = self._lives, {}
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
        life = _TrackedRequest(span, _link(request_id, trace_id, span_id))
        if self._tells_lives:
            self._lives[request_id] = life
        return life

    def took_part(self, request_ids: Iterable[str], step: Span) -> None:
        """Requests were scheduled in `step`: link it to them, and count."""
        if not self._tells_lives:
            return
        for request_id in request_ids:
            if (link := self._elsewhere.get(request_id)) is None:
                life = self._lives.get(request_id) or self._begin_unknown(request_id, step.start_ns)
                life.steps += 1
                link = life.link
            step.links.append(link)

    def adopt(self, parent_id: str, index: int, child_id: str) -> None:
        """To its caller the request is `parent_id`, and `child_id`, which has begun, makes the output at `index`."""
        if (life := self._lives.get(child_id)) is not None:
            life.known_as = parent_id, index
            self._children[parent_id, index] = child_id

    def request_of(self, request_id: str, index: int) -> str:
        """The request that makes the output at `index` of what its caller knows as `request_id`."""
        return self._children.get((request_id, index), request_id)

    def engine_ended(self, request_id: str, end_ns: int, reason: str) -> None:
        """The engine is done with a request; its caller may be given its output later, with those of others."""
        if (life := self._lives.get(request_id)) is not None and life.engine_end is None:
            life.engine_end = end_ns, reason

    def is_open(self, request_id: str) -> bool:
        """Has this request begun, and not ended?"""
        return request_id in self._lives

    def generated(self, request_id: str, text: str, num_tokens: int, at_ns: int) -> None:
        """A request's caller was given an output."""
        if not self._tells_lives:
            return
        life = self._lives.get(request_id) or self._begin_unknown(request_id, at_ns)
        life.text = life.text + text if life.in_pieces else text
        life.num_tokens = life.num_tokens + num_tokens if life.in_pieces else num_tokens

    def received(self, request_id: str, num_tokens: int, at_ns: int) -> None:
        """Tokens of a request came from the engine; its caller may be given them later, with others, or never."""
        if (life := self._lives.get(request_id)) is not None:
            life.num_received += num_tokens
            if life.first_token_ns is None:
                life.first_token_ns = at_ns

    def ended(self, request_id: str, end_ns: int, reason: str | None) -> None:
        """A request's life is over; `reason` is None for one that the recording's end cuts short."""
        if not self._tells_lives:
            return
        self.request(request_id, end_ns)
        life = self._lives.pop(request_id)
        end_ns, reason = life.engine_end or (end_ns, reason)
        span = _so_far(life, end_ns)
        if life.known_as is not None and self._children.get(life.known_as) == request_id:
            del self._children[life.known_as]
        if reason is not None:
            span.attributes[names.GEN_AI_FINISH_REASONS] = [reason]
        self._ended.append(span)

    def failed(self, request_id: str, end_ns: int, error: str) -> None:
        """A request ended because the engine did."""
        if (life := self._lives.get(request_id)) is not None:
            life.span.error = error
            life.engine_end = None
            self.ended(request_id, end_ns, None)

    def made_outputs(self, moments: Iterable[float]) -> None:
        """The step under way made outputs at these moments, which their messages carry."""
        self._made_by |= dict.fromkeys(map(repr, moments), self.steps)
        while len(self._made_by) > _MOST_UNSENT:  # in one process nothing is ever sent
            del self._made_by[next(iter(self._made_by))]

    def step_of(self, message_id: str) -> int | None:
        """The step that made the outputs in this message."""
        return self._made_by.get(message_id.rpartition(" ")[2])

    def take_ended(self) -> list[Span]:
        """The lives that ended since the last time this was asked."""
        ended, self._ended = self._ended, []
        return ended

    def unfinished(self) -> Iterator[Span]:
        """The lives under way, as far as they are known."""
        for life in self._lives.values():
            span = _so_far(life, life.span.start_ns)
            span.attributes[names.OPEN] = True
            yield span

    def close(self, end_ns: int) -> None:
        """The recording is over: so is, as far as it knows, every life."""
        for request_id in list(self._lives):
            self.ended(request_id, end_ns, None)


def _link(request_id: str, trace_id: str, span_id: str) -> Link:
    return Link(trace_id, span_id, {names.REQUEST_ID: request_id})


def _so_far(life: _TrackedRequest, end_ns: int) -> Span:
    """The span of a life up to a moment."""
    told = dict(life.span.attributes)
    if life.steps:
        told[names.REQUEST_STEPS] = life.steps
    if life.num_tokens:
        told[names.REQUEST_OUTPUT] = life.text
    if life.tokens_so_far:
        told[names.GEN_AI_OUTPUT_TOKENS] = life.tokens_so_far
    if life.first_token_ns is not None:
        told[names.GEN_AI_FIRST_CHUNK] = round((life.first_token_ns - life.span.start_ns) / 1e9, 9)
    return replace(life.span, end_ns=max(end_ns, life.span.start_ns), attributes=told)
