"""Model of workers that encode images and sounds, which checks the scheduler's orders to them."""

from tests.engine.sched.harness import reasons
from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler

__all__ = ["EncodingWorkers", "overlapping"]


def overlapping(request: Request, begin: int, end: int) -> list[str]:
    """Return the identifiers of the items that overlap the tokens from `begin` to before `end`."""
    places = [(feature.identifier, feature.mm_position) for feature in request.mm_features]
    return [name for name, place in places if place.offset < end and place.offset + place.length > begin]


class EncodingWorkers:
    """Workers with an encoder cache that fail if an output is lacking."""

    def __init__(self) -> None:
        self.encoder_cache: set[str] = set()
        self.sizes: dict[str, int] = {}
        """Tokens of each item that was ever encoded."""

    def execute(self, scheduler: Scheduler, output: SchedulerOutput, requests: dict[str, Request]) -> None:
        """Drop, encode and use outputs; call it between `schedule` and `update_from_output`."""
        self.encoder_cache -= set(output.free_encoder_mm_hashes)
        encoded = [
            requests[request_id].mm_features[input_id]
            for request_id, input_ids in output.scheduled_encoder_inputs.items()
            for input_id in input_ids
        ]
        names = [feature.identifier for feature in encoded]
        assert not self.encoder_cache & set(names), "an item was encoded again"
        assert len(names) == len(set(names)), "an item was encoded twice"
        assert sum(feature.mm_position.length for feature in encoded) <= scheduler.max_num_encoder_input_tokens
        self.encoder_cache |= set(names)
        self.sizes |= {feature.identifier: feature.mm_position.length for feature in encoded}
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            request = requests[request_id]
            needed = overlapping(request, request.num_computed_tokens - num_tokens, request.num_computed_tokens)
            assert self.encoder_cache.issuperset(needed), f"{request_id} lacks one of {needed}"
        self._check_cache(scheduler)
        explained = reasons(scheduler, output)
        for request_id, request in scheduler.requests.items():
            wanted = request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
            done = wanted <= 0 or request.num_computed_tokens >= request.num_prompt_tokens + request.max_tokens - 1
            assert request_id in explained or done, f"{request_id} got too few tokens without a reason"

    def _check_cache(self, scheduler: Scheduler) -> None:
        """Check that the scheduler's entries are those of the workers, and its counts those of the entries."""
        manager, sizes = scheduler.encoder_cache_manager, self.sizes
        assert set(manager.cached) == self.encoder_cache
        assert manager.num_free_slots == manager.cache_size - sum(sizes[name] for name in manager.cached) >= 0
        assert manager.freeable == {name: sizes[name] for name, needing in manager.cached.items() if not needing}
        assert manager.num_freeable_slots == manager.num_free_slots + sum(manager.freeable.values())
        needing_ids = {request_id for ids in manager.cached.values() for request_id in ids}
        assert needing_ids <= set(scheduler.requests), "an ended request needs an item"
