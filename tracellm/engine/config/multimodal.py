"""Settings of multimodal models: limits and arguments of their processors.

vLLM: vllm/config/multimodal.py::MultiModalConfig. Left out: embeddings as input, video, caches in shared memory.
"""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["MODALITIES", "MultiModalConfig"]

MODALITIES = ("image", "audio")
"""Kinds of items."""

_MOST_ITEMS = 999


@dataclass
class MultiModalConfig:
    """Settings of images and sounds."""

    limit_per_prompt: dict[str, int] = field(default_factory=dict)
    """Maximum number of items in a prompt, by modality; 999 for one that is not named."""
    mm_processor_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments for transformers' processor, such as `max_pixels`; those of a request override them."""
    mm_processor_cache_gb: float = 4.0
    """Capacity of the cache of processed items in GiB; 0 is no cache."""
    allowed_local_media_path: str = ""
    """Directory whose files requests to the server may name; empty for none."""
    allowed_media_domains: list[str] = field(default_factory=list)
    """Hosts from which requests to the server may have media fetched; empty for none."""

    def get_limit_per_prompt(self, modality: str) -> int:
        """Return the maximum number of items of a modality in a prompt."""
        return self.limit_per_prompt.get(modality, _MOST_ITEMS)
