"""Facts of images and sounds that follow from the steps: when each was encoded or found, and the blocks of its tokens.

A request's tokens reach an item in a step. The item is encoded in the same step unless the encoder cache has its
output; tokens that the prefix cache has need neither.
"""

from dataclasses import dataclass, field
from typing import Literal

from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.report.facts.items.item import Item
from tracellm.report.facts.requests import RequestFacts, RequestsByStep
from tracellm.report.facts.steps.states import StepStates
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import ScheduledRequest, Step

__all__ = ["ItemUse", "Source", "item_uses"]

Source = Literal["encoded", "found", "prefix"]
"""Origin of an item's embeddings: the encoder, the encoder cache; or none, as the prefix cache had its tokens."""


@dataclass(slots=True)
class ItemUse:
    """Steps in which a request's tokens reached an item, by number, with the origin of its embeddings.

    `blocks` are the KV cache blocks of its tokens, once the last of them was computed; empty if they are not known.
    """

    sources: list[tuple[int, Source]] = field(default_factory=list)
    blocks: tuple[int, ...] = ()


@per_trace
def item_uses(trace: Trace) -> dict[str, tuple[ItemUse, ...]]:
    """Return the use of each item of each request, by the ids of the requests' spans; empty without items."""
    if not any(names.REQUEST_ITEMS in span.attributes for span in trace.named(names.REQUEST_SPAN)):
        return {}
    found: dict[str, tuple[ItemUse, ...]] = {}
    for engine in engines(trace):
        _add_engine(trace, engine, found)
    return found


def _add_engine(trace: Trace, engine: EngineFacts, found: dict[str, tuple[ItemUse, ...]]) -> None:
    requests, states = RequestsByStep(trace), StepStates(trace, engine)
    groups = engine.cache.num_groups if engine.cache else 1
    for position, step in enumerate(engine.steps):
        requests.enter(step)
        if step.encoder is None:
            continue
        for scheduled in step.requests:
            request = requests.get(scheduled.request_id)
            if request is None or not request.items:
                continue
            uses = found.setdefault(request.span_id, tuple(ItemUse() for _ in request.items))
            for index in _reached(request, scheduled):
                item, use = request.items[index], uses[index]
                source = _source(step, scheduled, index, item)
                if source is not None:
                    use.sources.append((step.index, source))
                if engine.block_size and groups == 1 and scheduled.num_computed + scheduled.num_tokens >= item.end:
                    table = states.at(position).tables.get(scheduled.request_id, ())
                    use.blocks = tuple(table[item.offset // engine.block_size : -(-item.end // engine.block_size)])


def _reached(request: RequestFacts, scheduled: ScheduledRequest) -> list[int]:
    """Return the items of which a step computes a token or finds all in the prefix cache."""
    first, end = scheduled.num_computed - scheduled.prefix_hit_tokens, scheduled.num_computed + scheduled.num_tokens
    return [i for i, item in enumerate(request.items) if item.length and item.offset < end and first < item.end]


def _source(step: Step, scheduled: ScheduledRequest, index: int, item: Item) -> Source | None:
    """Return the origin of an item's embeddings; None if an earlier step began to compute its tokens."""
    encoded = step.encoder.items if step.encoder is not None else ()
    if any((one.request_id, one.item) == (scheduled.request_id, index) for one in encoded):
        return "encoded"
    begins = scheduled.request_id in step.new or scheduled.request_id in step.resumed
    if begins and item.end <= scheduled.num_computed:
        return "prefix"
    return "found" if begins or item.offset >= scheduled.num_computed else None
