"""Cache of processed items, so that an image sent again is not resized and cut into patches again.

In a request's life: `BaseMultiModalProcessor._cache_apply_hf_processor`, in the process of the front end.

vLLM: vllm/multimodal/cache.py::MultiModalProcessorOnlyCache. Left out: the caches shared with the engine core, which
save sending an item again.
"""

from __future__ import annotations

from collections import OrderedDict

from tracellm.engine.multimodal.inputs import MultiModalKwargsItem

__all__ = ["MultiModalProcessorCache"]

_GIB = 1 << 30


class MultiModalProcessorCache:
    """Least recently used items are dropped once the tensors exceed the capacity."""

    def __init__(self, capacity_gb: float) -> None:
        """Create an empty cache for so many GiB of tensors; 0 keeps none."""
        self.capacity = int(capacity_gb * _GIB)
        self.size = 0
        """Bytes of the tensors."""
        self._items: OrderedDict[str, MultiModalKwargsItem] = OrderedDict()

    def get(self, mm_hash: str) -> MultiModalKwargsItem | None:
        """Return the processed item with this hash, or None."""
        item = self._items.get(mm_hash)
        if item is not None:
            self._items.move_to_end(mm_hash)
        return item

    def put(self, mm_hash: str, item: MultiModalKwargsItem) -> None:
        """Add an item, and drop others to make room for it. An item larger than the cache is not added."""
        size = _size(item)
        if size > self.capacity or mm_hash in self._items:
            return
        self._items[mm_hash] = item
        self.size += size
        while self.size > self.capacity:
            _, dropped = self._items.popitem(last=False)
            self.size -= _size(dropped)


def _size(item: MultiModalKwargsItem) -> int:
    return sum(tensor.nbytes for tensor in item.values())
