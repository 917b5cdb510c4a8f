"""The engine's steps, read from their spans, for a table of steps, a console box or a replay; nothing of the model.

A step is a span named `EngineCore.step_fn`; its attributes are the `tracellm.step.*` of `tracellm.trace.names`. What a
damaged trace lacks is empty or zero here.
"""

import json
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.ranges import parse_ranges

__all__ = [
    "STEP_SPAN",
    "Encoded",
    "EncoderState",
    "GrammarMask",
    "Held",
    "Sampled",
    "ScheduledRequest",
    "Step",
    "engine_key",
    "read_step",
    "sampled_in_order",
    "step_around",
    "steps",
]

STEP_SPAN = "EngineCore.step_fn"

_T = TypeVar("_T")


class ScheduledRequest(msgspec.Struct, frozen=True, gc=False):
    """One request's share of a step.

    `num_computed` tokens were computed before the step, `num_tokens` are computed in it. `prefix_hit_tokens` of those
    before came from the prefix cache in this step, in the blocks `cached_blocks`. `new_blocks` are the ids of the free
    KV cache blocks that it got. `phase` is prefill or decode.
    """

    request_id: str
    num_tokens: int
    num_computed: int
    phase: str
    prefix_hit_tokens: int
    new_blocks: tuple[int, ...]
    cached_blocks: tuple[int, ...] = ()


class Held(msgspec.Struct, frozen=True, gc=False):
    """A request that was not scheduled, or got fewer tokens than it needed; `details` is `name=value name=value`."""

    request_id: str
    reason: str
    details: str


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An image or sound that a step encodes: `item` is its index in its request's items."""

    request_id: str
    item: int
    num_tokens: int


class EncoderState(msgspec.Struct, frozen=True, gc=False):
    """The encoder in a step of a model with images or sounds; sizes are in tokens.

    Of the encoder cache, `cache_free` tokens have no output, and `cache_freeable` one that no request needs any more.
    `evicted` are the identifiers of outputs that the workers drop.
    """

    items: tuple[Encoded, ...]
    budget: int
    cache_size: int
    cache_free: int
    cache_freeable: int
    evicted: tuple[str, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of the items that the step encodes."""
        return sum(item.num_tokens for item in self.items)


class GrammarMask(msgspec.Struct, frozen=True, gc=False):
    """The tokens that a grammar allowed in a step; probabilities are those before the mask.

    `num_allowed` tokens were allowed, with the probability `share` together.
    """

    num_allowed: int
    share: float
    listed: str
    """JSON as it was recorded, parsed on access."""

    @property
    def likeliest(self) -> tuple[int, str, float] | None:
        """The likeliest token without the mask; None in a recording without text."""
        return next(iter(_candidates(self.listed)), None)

    @property
    def allowed(self) -> list[tuple[int, str, float]]:
        """The eight likeliest of the allowed tokens."""
        return _candidates(self.listed)[1:]

    @property
    def forbidden(self) -> tuple[int, str, float] | None:
        """The likeliest token without the mask, if the grammar forbade it."""
        listed = _candidates(self.listed)
        if not listed or listed[0][0] in [token for token, _, _ in listed[1:]]:
            return None
        return listed[0]


class Sampled(msgspec.Struct, frozen=True, gc=False):
    """A sampled token. Candidates are `(token id, text, probability)`, empty in a recording without text.

    `probability` and `candidates` are the model's. `processors` changed the logits before sampling and left
    `tokens_left` to choose from: `drawn_probability` and `drawn_candidates` are those after the processors.
    """

    request_id: str
    token_id: int | None
    text: str | None
    probability: float | None
    listed: str
    """The candidates as recorded: JSON, parsed on access. In a long run, hardly any are shown."""
    processors: tuple[str, ...] = ()
    tokens_left: int | None = None
    drawn_probability: float | None = None
    drawn_listed: str = "[]"
    grammar: GrammarMask | None = None
    """None if no grammar forbade a token."""

    def __repr__(self) -> str:
        """Return the token and its probability; `candidates` has the others."""
        share = "" if self.probability is None else f", probability {self.probability:.4g}"
        left = "" if self.tokens_left is None else f", {self.tokens_left} tokens left by {', '.join(self.processors)}"
        return f"<token {self.token_id} {self.text!r}{share}{left}>"

    @property
    def candidates(self) -> list[tuple[int, str, float]]:
        """The model's likeliest tokens."""
        return _candidates(self.listed)

    @property
    def drawn_candidates(self) -> list[tuple[int, str, float]]:
        """The likeliest of the tokens that the processors left."""
        return _candidates(self.drawn_listed)


class Step(msgspec.Struct, frozen=True, gc=False):
    """One engine step. Its `kind` is prefill, decode, mixed, empty, or unknown if its scheduling was not recorded.

    `aborted` requests left the queues between the step before and this one. The engine core does not get the reasons;
    `abort_reasons` has those that the requests' own spans give: abort, or stop for a stop text. `released` requests
    ended since the step before, and the workers drop them in this one; a step for that alone schedules nothing.
    `waiting` and `held` list only the beginning of a long queue. The others of `num_waiting` wait for the same reason
    as the last one listed.
    """

    index: int
    kind: str
    span: Span
    requests: tuple[ScheduledRequest, ...]
    new: tuple[str, ...]
    resumed: tuple[str, ...]
    preempted: tuple[str, ...]
    finished: dict[str, str]
    aborted: tuple[str, ...]
    released: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    num_waiting: int
    held: tuple[Held, ...]
    token_budget: int
    blocks_free: int
    blocks_total: int
    logits_shape: tuple[int, ...]
    sampled: tuple[Sampled, ...]
    encoder: EncoderState | None = None
    """None for a text model."""
    output_of: int = 0
    """Index of the step whose tokens came with this one, if it is an earlier one; else 0."""
    abort_reasons: dict[str, str] = {}

    @property
    def is_in_flight(self) -> bool:
        """True if nothing was scheduled because an earlier step was still computing all running requests."""
        return self.kind == "empty" and bool(self.running) and 0 < self.output_of < self.index

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step, of all requests."""
        return sum(request.num_tokens for request in self.requests)


def steps(trace: Trace) -> list[Step]:
    """Return the steps of a trace that ended, in the order they ran."""
    return list(_steps(trace))


@per_trace
def _steps(trace: Trace) -> tuple[Step, ...]:
    """Return the steps of a trace; cached, since several reports need them."""
    found = [read_step(span) for span in trace.named(STEP_SPAN) if not span.open]
    if any(step.aborted for step in found):
        ends = _Ends(trace.named(names.REQUEST_SPAN))
        found = [replace(step, abort_reasons=ends.of(step)) if step.aborted else step for step in found]
    return tuple(_with_own_output(found))


class _Ends:
    """Finish reasons of requests, by their ids; a later request may have the id of an earlier one.

    An aborted request has ended when the step that reports it ends.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str, list[Span]] = {}
        for span in spans:
            self._by_id.setdefault(str(span.attributes.get(names.REQUEST_ID, "")), []).append(span)
        for own in self._by_id.values():
            own.sort(key=attrgetter("end_ns"))

    def of(self, step: Step) -> dict[str, str]:
        """Return the reasons of the requests that were aborted before a step, as far as they are recorded."""
        found = {}
        for request_id in step.aborted:
            own = self._by_id.get(request_id, [])
            place = bisect_right(own, step.span.end_ns, key=attrgetter("end_ns"))
            reasons = own[place - 1].attributes.get(names.GEN_AI_FINISH_REASONS) if place else None
            if isinstance(reasons, list) and reasons:
                found[request_id] = str(reasons[0])
        return found


def _with_own_output(steps: list[Step]) -> list[Step]:
    """Give each step the tokens and logits that came with a later one."""
    places = {(engine_key(step.span), step.index): place for place, step in enumerate(steps)}
    for place, step in enumerate(steps.copy()):
        owner = places.get((engine_key(step.span), step.output_of)) if step.output_of else None
        if owner is not None and owner != place:
            steps[owner] = replace(steps[owner], sampled=step.sampled, logits_shape=step.logits_shape)
            if steps[place].sampled is step.sampled:
                steps[place] = replace(steps[place], sampled=(), logits_shape=())
    return steps


def engine_key(span: Span) -> Hashable:
    """Return a key for the engine that made a step: its process."""
    return span.process and (span.process.host, span.process.pid)


def step_around(trace: Trace, span: Span) -> Span | None:
    """Return the span of the step that a call is, or is part of; None outside of steps."""
    around: Span | None = span
    while around is not None and around.name != STEP_SPAN:
        around = trace.parent(around)
    return around


def sampled_in_order(step: Step) -> list[Sampled]:
    """Return the sampled tokens in the order in which their requests were scheduled; the recording may have another."""
    places = {request.request_id: place for place, request in enumerate(step.requests)}
    return sorted(step.sampled, key=lambda sampled: places.get(sampled.request_id, len(places)))


def read_step(span: Span) -> Step:
    """Return the step of a span named `EngineCore.step_fn`."""
    facts = _Facts(span.attributes)
    return Step(
        index=facts.integer(names.STEP_INDEX),
        kind=facts.text(names.STEP_KIND) or "unknown",
        span=span,
        requests=tuple(_requests(facts)),
        new=facts.texts(names.STEP_NEW),
        resumed=facts.texts(names.STEP_RESUMED),
        preempted=facts.texts(names.STEP_PREEMPTED),
        finished={
            request: _at(facts.texts(names.STEP_FINISH_REASONS), i, "")
            for i, request in enumerate(facts.texts(names.STEP_FINISHED))
        },
        aborted=facts.texts(names.STEP_ABORTED),
        released=facts.texts(names.STEP_RELEASED),
        running=facts.texts(names.STEP_RUNNING),
        waiting=facts.texts(names.STEP_WAITING),
        num_waiting=max(facts.integer(names.STEP_NUM_WAITING), len(facts.texts(names.STEP_WAITING))),
        held=tuple(_held(facts)),
        token_budget=facts.integer(names.STEP_BUDGET),
        blocks_free=facts.integer(names.STEP_BLOCKS_FREE),
        blocks_total=facts.integer(names.STEP_BLOCKS_TOTAL),
        logits_shape=facts.integers(names.STEP_LOGITS),
        sampled=tuple(_sampled(facts)),
        encoder=_encoder(facts) if names.STEP_ENCODER_BUDGET in span.attributes else None,
        output_of=facts.integer(names.STEP_OUTPUT_OF),
    )


class _Facts:
    """Attributes of a span, each read as the type it should have."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._attributes = attributes

    def integer(self, name: str) -> int:
        value = self._attributes.get(name)
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        value = self._attributes.get(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple([value if type(value) is str else str(value) for value in self._list(name)])

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple([value if isinstance(value, int) else 0 for value in self._list(name)])

    def floats(self, name: str) -> tuple[float, ...]:
        return tuple([float(value) if isinstance(value, int | float) else 0.0 for value in self._list(name)])

    def _list(self, name: str) -> list[Any]:
        value = self._attributes.get(name)
        return value if isinstance(value, list) else []


def _at(values: Sequence[_T], index: int, otherwise: _T) -> _T:
    return values[index] if index < len(values) else otherwise


def _requests(facts: _Facts) -> list[ScheduledRequest]:
    tokens, computed = facts.integers(names.STEP_TOKENS), facts.integers(names.STEP_COMPUTED)
    phases, cached = facts.texts(names.STEP_PHASES), facts.integers(names.STEP_CACHED)
    blocks, cached_blocks = facts.texts(names.STEP_NEW_BLOCKS), facts.texts(names.STEP_CACHED_BLOCKS)
    return [
        ScheduledRequest(
            request_id=request,
            num_tokens=_at(tokens, i, 0),
            num_computed=_at(computed, i, 0),
            phase=_at(phases, i, ""),
            prefix_hit_tokens=_at(cached, i, 0),
            new_blocks=parse_ranges(_at(blocks, i, "")),
            cached_blocks=parse_ranges(_at(cached_blocks, i, "")),
        )
        for i, request in enumerate(facts.texts(names.STEP_REQUESTS))
    ]


def _held(facts: _Facts) -> list[Held]:
    reasons, details = facts.texts(names.STEP_HELD_REASONS), facts.texts(names.STEP_HELD_DETAILS)
    return [
        Held(request, _at(reasons, i, ""), _at(details, i, ""))
        for i, request in enumerate(facts.texts(names.STEP_HELD))
    ]


def _encoder(facts: _Facts) -> EncoderState:
    items, tokens = facts.integers(names.STEP_ENCODER_ITEMS), facts.integers(names.STEP_ENCODER_TOKENS)
    return EncoderState(
        items=tuple(
            Encoded(request, _at(items, i, 0), _at(tokens, i, 0))
            for i, request in enumerate(facts.texts(names.STEP_ENCODER_REQUESTS))
        ),
        budget=facts.integer(names.STEP_ENCODER_BUDGET),
        cache_size=facts.integer(names.STEP_ENCODER_CACHE_SIZE),
        cache_free=facts.integer(names.STEP_ENCODER_CACHE_FREE),
        cache_freeable=facts.integer(names.STEP_ENCODER_CACHE_FREEABLE),
        evicted=facts.texts(names.STEP_ENCODER_EVICTED),
    )


def _sampled(facts: _Facts) -> list[Sampled]:
    ids, texts = facts.integers(names.STEP_SAMPLED_IDS), facts.texts(names.STEP_SAMPLED_TEXTS)
    probabilities, candidates = facts.floats(names.STEP_SAMPLED_PROBS), facts.texts(names.STEP_CANDIDATES)
    processors, left = facts.texts(names.STEP_PROCESSORS), facts.integers(names.STEP_LEFT)
    drawn, drawn_candidates = facts.floats(names.STEP_DRAWN_PROBS), facts.texts(names.STEP_DRAWN_CANDIDATES)
    masks = _masks(facts)
    return [
        Sampled(
            request_id=request,
            token_id=ids[i] if i < len(ids) else None,
            text=texts[i] if i < len(texts) else None,
            probability=probabilities[i] if i < len(probabilities) else None,
            listed=_at(candidates, i, "[]"),
            processors=tuple(_at(processors, i, "").split()),
            tokens_left=left[i] if i < len(left) else None,
            drawn_probability=drawn[i] if i < len(drawn) else None,
            drawn_listed=_at(drawn_candidates, i, "[]"),
            grammar=_at(masks, i, None),
        )
        for i, request in enumerate(facts.texts(names.STEP_SAMPLED))
    ]


def _masks(facts: _Facts) -> list[GrammarMask | None]:
    shares, listed = facts.floats(names.STEP_GRAMMAR_SHARES), facts.texts(names.STEP_GRAMMAR_TOKENS)
    return [
        None if count < 0 else GrammarMask(count, _at(shares, i, 0.0), _at(listed, i, "[]"))
        for i, count in enumerate(facts.integers(names.STEP_GRAMMAR_ALLOWED))
    ]


def _candidates(text: str) -> list[tuple[int, str, float]]:
    try:
        return [(int(token), str(piece), float(probability)) for token, piece, probability in json.loads(text)]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return []
