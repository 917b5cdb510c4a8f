"""Images and sounds of a request: processed tensors, and the places of the prompt that they fill.

In a request's life: the frontend creates a `MultiModalFeatureSpec` for each item; scheduler, model runner and model
read it. vLLM: vllm/multimodal/inputs.py. Left out: shared fields, embeddings as inputs.
"""

from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import torch

__all__ = ["MultiModalFeatureSpec", "MultiModalKwargsItem", "PlaceholderRange"]


@dataclass(frozen=True)
class PlaceholderRange:
    """Placeholder tokens of one item in the prompt."""

    offset: int
    """Index of the first placeholder token in the prompt."""
    length: int
    """Number of placeholder tokens."""
    is_embed: np.ndarray | None = None
    """bool [length]: tokens that get an embedding; None: all."""

    def get_num_embeds(self) -> int:
        """Return the number of tokens that get an embedding."""
        return self.length if self.is_embed is None else int(self.is_embed.sum())


MultiModalKwargsItem: TypeAlias = dict[str, torch.Tensor | np.ndarray]
"""Processed tensors of one item, by name."""


class MultiModalFeatureSpec(msgspec.Struct):
    """One image or sound of a request."""

    data: MultiModalKwargsItem | None
    """None: the engine core has it."""
    modality: str
    """`image` or `audio`."""
    identifier: str
    """Hash of the item, or the caller's uuid."""
    mm_position: PlaceholderRange
