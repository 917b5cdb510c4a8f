"""The requests of two runs, paired: their prompts and their outputs.

Equal ids pair them. A server makes new ids in each run, and concurrent requests arrive in any order, so the others are
paired by prompt and parameters, then by prompt, then in the order of submission.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step

__all__ = ["ComparedRequest", "RequestPair", "request_pairs"]

_PARAMETERS = (names.REQUEST_PARAMS, names.REQUEST_TEXT_PARAMS)


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """A request in one run; None for what is not recorded. `token_ids` are its output, `parameters` as `name=value`."""

    id: str
    prompt_token_ids: tuple[int, ...] | None
    num_prompt_tokens: int | None
    token_ids: tuple[int, ...] | None
    num_tokens: int
    text: str | None
    finish_reason: str | None
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPair:
    """A request in both runs; `number` is its position in the order of submission, from 0."""

    number: int
    a: ComparedRequest | None
    b: ComparedRequest | None

    @property
    def same_prompt(self) -> bool | None:
        """True if both have the same prompt tokens; None if that is not recorded."""
        if self.a is None or self.b is None:
            return False
        if self.a.num_prompt_tokens != self.b.num_prompt_tokens:
            return False
        if self.a.prompt_token_ids is None or self.b.prompt_token_ids is None:
            return None
        return self.a.prompt_token_ids == self.b.prompt_token_ids

    @property
    def same_output(self) -> bool | None:
        """True if both have the same output tokens, text and end; None if only the tokens are not recorded."""
        a, b = self.a, self.b
        if a is None or b is None or (a.num_tokens, a.finish_reason) != (b.num_tokens, b.finish_reason):
            return False
        if None not in (a.text, b.text) and a.text != b.text:
            return False
        if a.token_ids is None or b.token_ids is None:
            return None
        return a.token_ids == b.token_ids


def request_pairs(a: Trace, steps_a: Sequence[Step], b: Trace, steps_b: Sequence[Step]) -> list[RequestPair]:
    """Pair the requests of both runs; a request of one run alone is paired with None."""
    requests_a, requests_b = _requests(a, steps_a), _requests(b, steps_b)
    found: dict[str, ComparedRequest | None] = {}
    rest = [*requests_b.values()]
    for key in (_id, _prompt_and_parameters, _prompt):
        rest = _match([request for id, request in requests_a.items() if id not in found], rest, key, found)
    remaining = [id for id in requests_a if id not in found]
    found |= dict(zip(remaining, rest, strict=False))
    pairs: list[tuple[ComparedRequest | None, ComparedRequest | None]]
    pairs = [(request, found.get(id)) for id, request in requests_a.items()]
    pairs += [(None, request) for request in rest[len(remaining) :]]
    return [RequestPair(number, ours, theirs) for number, (ours, theirs) in enumerate(pairs)]


def _match(
    ours: Sequence[ComparedRequest],
    theirs: Sequence[ComparedRequest],
    key: Callable[[ComparedRequest], Hashable],
    found: dict[str, ComparedRequest | None],
) -> list[ComparedRequest]:
    """Pair requests of equal keys in their order, and return those of the second run that are left."""
    by_key: dict[Hashable, deque[ComparedRequest]] = defaultdict(deque)
    for request in theirs:
        by_key[key(request)].append(request)
    matched = set()
    for request in ours:
        if (value := key(request)) is not None and by_key[value]:
            found[request.id] = other = by_key[value].popleft()
            matched.add(other.id)
    return [request for request in theirs if request.id not in matched]


def _id(request: ComparedRequest) -> Hashable:
    return request.id


def _prompt_and_parameters(request: ComparedRequest) -> Hashable:
    return request.prompt_token_ids and (request.prompt_token_ids, request.parameters)


def _prompt(request: ComparedRequest) -> Hashable:
    return request.prompt_token_ids


def _requests(trace: Trace, steps: Sequence[Step]) -> dict[str, ComparedRequest]:
    """Return each request by its id, in the order of submission, or of first steps if requests were not recorded."""
    spans: dict[str, Span | None] = {}
    for span in trace.spans:
        if span.name == names.REQUEST_SPAN:
            spans.setdefault(str(span.attributes.get(names.REQUEST_ID, "")), span)
    tokens: dict[str, list[int | None]] = {}
    ended: dict[str, str] = {}
    for step in steps:
        for request in step.requests:
            spans.setdefault(request.request_id, None)
        for sampled in step.sampled:
            tokens.setdefault(sampled.request_id, []).append(sampled.token_id)
        ended.update(step.finished)
    return {id: _request(id, span, tokens.get(id, []), ended.get(id)) for id, span in spans.items()}


def _request(id: str, span: Span | None, tokens: list[int | None], ended: str | None) -> ComparedRequest:
    attributes: dict[str, Any] = span.attributes if span is not None else {}
    prompt = attributes.get(names.REQUEST_PROMPT_TOKENS)
    reasons = attributes.get(names.GEN_AI_FINISH_REASONS)
    text = attributes.get(names.REQUEST_OUTPUT)
    generated = attributes.get(names.GEN_AI_OUTPUT_TOKENS)
    if names.REQUEST_STOPPED_BY in attributes and isinstance(generated, int):
        tokens = tokens[:generated]  # the engine core sampled more before the abort reached it
    known = [token for token in tokens if token is not None]
    return ComparedRequest(
        id=id,
        prompt_token_ids=tuple(prompt) if isinstance(prompt, list) else None,
        num_prompt_tokens=attributes.get(names.GEN_AI_INPUT_TOKENS),
        token_ids=tuple(known) if len(known) == len(tokens) else None,
        num_tokens=len(tokens) or generated or 0,
        text=text if isinstance(text, str) else None,
        finish_reason=str(reasons[0]) if isinstance(reasons, list) and reasons else ended,
        parameters=tuple(
            str(one) for name in _PARAMETERS if isinstance(found := attributes.get(name), list) for one in found
        ),
    )
