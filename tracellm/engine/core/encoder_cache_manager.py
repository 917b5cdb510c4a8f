"""The encoder cache: which images and sounds are encoded, and which requests still need their encoder outputs.

The workers keep the outputs of the encoder until the prompt's tokens that stand for an item are computed. The scheduler
counts them here, in tokens, and names the ones that the workers must drop (`SchedulerOutput.free_encoder_mm_hashes`).
Items with the same identifier share one entry, in one request or in several. An entry that no request needs stays until
its space is needed.

vLLM: vllm/v1/core/encoder_cache_manager.py. Left out: encoder-decoder models.
"""

from collections import OrderedDict

from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.vllm_config import ModelConfig, SchedulerConfig
from tracellm.engine.core.request import Request
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec

__all__ = ["EncoderCacheManager", "check_items_fit", "compute_encoder_budget"]


class EncoderCacheManager:
    """Counts the space of encoder outputs in tokens, and evicts unneeded ones, the longest unneeded first.

    vLLM: vllm/v1/core/encoder_cache_manager.py::EncoderCacheManager. Added: `undo_allocate`, `evict_all`.
    """

    def __init__(self, cache_size: int) -> None:
        self.cache_size = cache_size
        self.num_free_slots = cache_size
        """Tokens without an entry."""
        self.num_freeable_slots = cache_size
        """Tokens without an entry, or with one that no request needs."""
        self.cached: dict[str, set[str]] = {}
        """Ids of the requests that need an entry, by the entry's identifier."""
        self.freeable: OrderedDict[str, int] = OrderedDict()
        """The tokens of entries that no request needs, by identifier, in the order of eviction."""
        self.freed: list[str] = []
        """Identifiers evicted since the last call of `get_freed_mm_hashes`."""

    def check_and_update_cache(self, request: Request, input_id: int) -> bool:
        """Return whether an item of a request is cached; if so, the request needs the entry from now on."""
        mm_hash = request.mm_features[input_id].identifier
        if mm_hash not in self.cached:
            return False
        if not self.cached[mm_hash]:
            self.num_freeable_slots -= self.freeable.pop(mm_hash)
        self.cached[mm_hash].add(request.request_id)
        return True

    def can_allocate(
        self, request: Request, input_id: int, encoder_compute_budget: int, num_tokens_to_schedule: int
    ) -> bool:
        """Return whether an item can be encoded in this step; if so, evict entries until its space is free.

        Args:
            request: the request.
            input_id: index of the item, which is not cached.
            encoder_compute_budget: tokens that the encoder can still compute in this step.
            num_tokens_to_schedule: tokens of the request's items before this one that are not allocated so far.
        """
        num_tokens = request.get_num_encoder_tokens(input_id)
        if num_tokens > encoder_compute_budget:
            return False
        num_tokens += num_tokens_to_schedule
        if num_tokens > self.num_freeable_slots:
            return False
        while num_tokens > self.num_free_slots:
            mm_hash, num_evicted_tokens = self.freeable.popitem(last=False)
            del self.cached[mm_hash]
            self.freed.append(mm_hash)
            self.num_free_slots += num_evicted_tokens
        return True

    def allocate(self, request: Request, input_id: int) -> None:
        """Take the space of an item, for which `can_allocate` returned True."""
        num_tokens = request.get_num_encoder_tokens(input_id)
        assert num_tokens <= self.num_free_slots
        assert num_tokens <= self.num_freeable_slots
        self.cached.setdefault(request.mm_features[input_id].identifier, set()).add(request.request_id)
        self.num_free_slots -= num_tokens
        self.num_freeable_slots -= num_tokens

    def undo_allocate(self, request: Request, input_id: int) -> bool:
        """Drop the entry of an item that is not encoded after all. Return False, and keep it, if others need it.

        vLLM 0.11.1 keeps it in any case, and lacks its output when a request asks for it.
        """
        mm_hash = request.mm_features[input_id].identifier
        self.free_encoder_input(request, input_id)
        if mm_hash not in self.freeable:
            return False
        self.num_free_slots += self.freeable.pop(mm_hash)
        del self.cached[mm_hash]
        return True

    def get_cached_input_ids(self, request: Request) -> set[int]:
        """Return the indices of the request's items that are cached, for any request."""
        return {index for index, feature in enumerate(request.mm_features) if feature.identifier in self.cached}

    def free_encoder_input(self, request: Request, input_id: int) -> None:
        """Note that a request no longer needs the entry of an item; it is evicted when its space is needed."""
        mm_hash = request.mm_features[input_id].identifier
        if not (request_ids := self.cached.get(mm_hash)):
            return
        request_ids.discard(request.request_id)
        if not request_ids:
            num_tokens = request.get_num_encoder_tokens(input_id)
            self.freeable[mm_hash] = num_tokens
            self.num_freeable_slots += num_tokens

    def free(self, request: Request) -> None:
        """Note that a request, ended or preempted, needs no entry any more."""
        for input_id in self.get_cached_input_ids(request):
            self.free_encoder_input(request, input_id)

    def evict_all(self) -> None:
        """Evict all entries; no request needs one."""
        for mm_hash, num_tokens in self.freeable.items():
            del self.cached[mm_hash]
            self.freed.append(mm_hash)
            self.num_free_slots += num_tokens
        self.freeable.clear()

    def get_freed_mm_hashes(self) -> list[str]:
        """Return the identifiers evicted since the last call."""
        freed, self.freed = self.freed, []
        return freed


def check_items_fit(request_id: str, mm_features: list[MultiModalFeatureSpec], max_num_tokens: int) -> None:
    """Check that each item of a prompt can be encoded in one step; a larger one would wait forever.

    Args:
        request_id: for the message.
        mm_features: the items.
        max_num_tokens: the smaller one of the encoder's budget and the size of the encoder cache.

    Raises:
        InvalidRequestError: an item has more tokens.
    """
    for index, feature in enumerate(mm_features):
        if (num_tokens := feature.mm_position.length) > max_num_tokens:
            raise InvalidRequestError(
                f"Request {request_id} can never run: item {index} of its prompt ({feature.modality}) has {num_tokens} "
                f"tokens, and the encoder takes at most {max_num_tokens}."
            )


def compute_encoder_budget(model_config: ModelConfig, scheduler_config: SchedulerConfig) -> tuple[int, int]:
    """Return the tokens of items that a step can encode, and the size of the encoder cache in tokens.

    Both have room for the largest item, and are 0 for a text model.

    Raises:
        EngineError: items must be computed whole, and the largest does not fit into a step.
    """
    largest = model_config.max_tokens_per_mm_item
    if not largest:
        return 0, 0
    if scheduler_config.disable_chunked_mm_input and largest > scheduler_config.max_num_batched_tokens:
        raise EngineError(
            "LLM: with disable_chunked_mm_input=True an image or sound must fit into one step, so "
            f"`max_num_batched_tokens` ({scheduler_config.max_num_batched_tokens}) must be at least {largest}, the "
            "tokens of the largest one."
        )
    return max(scheduler_config.max_num_encoder_input_tokens, largest), max(
        scheduler_config.encoder_cache_size, largest
    )
