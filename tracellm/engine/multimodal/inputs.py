"""The images and sounds of a request: their processed tensors, and the tokens of the prompt that stand for them.

The front half makes a `MultiModalFeatureSpec` for each item of a prompt. It travels to the engine core in the
`EngineCoreRequest`, and to the model runner in `NewRequestData`. The scheduler reads its position and identifier, the
model runner its tensors.

vLLM: vllm/multimodal/inputs.py. Left out: fields and batches of tensors, the results of processors.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import torch

    Array: TypeAlias = torch.Tensor | np.ndarray
else:

    class Array(ABC):  # noqa: B024  # only its virtual subclasses have instances
        """A torch tensor or a NumPy array; `import_array_types` registers both as subclasses."""


__all__ = ["Array", "MultiModalFeatureSpec", "MultiModalKwargsItem", "PlaceholderRange", "import_array_types"]


def import_array_types() -> None:
    """Import the types in the annotations below, for a decoder that makes such objects from bytes.

    Importing them with this module would make `from tracellm import LLM` import torch.
    """
    import numpy
    import torch

    globals().update(np=numpy)
    if not TYPE_CHECKING:
        Array.register(numpy.ndarray)
        Array.register(torch.Tensor)


@dataclass(frozen=True)
class PlaceholderRange:
    """The tokens of a prompt that stand for an item.

    vLLM: vllm/multimodal/inputs.py::PlaceholderRange, whose `is_embed` is a tensor.
    """

    offset: int
    """Index of the first one in the prompt."""
    length: int
    """Number of tokens."""
    is_embed: np.ndarray | None = field(default=None, hash=False)
    """bool [length]: the tokens whose embedding comes from the item; None: all."""

    def get_num_embeds(self) -> int:
        """Return the number of tokens whose embedding comes from the item."""
        return self.length if self.is_embed is None else int(self.is_embed.sum())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlaceholderRange):
            return NotImplemented
        mask, others = self.is_embed, other.is_embed
        if mask is None or others is None:
            same_mask = mask is others
        else:
            same_mask = mask.tolist() == others.tolist()
        return (self.offset, self.length) == (other.offset, other.length) and same_mask


MultiModalKwargsItem: TypeAlias = dict[str, Array]
"""The processed tensors of one item, by the name of the model's argument."""


class MultiModalFeatureSpec(msgspec.Struct, array_like=True, eq=False, gc=False):
    """One item of a request. Compared by identity.

    vLLM: vllm/multimodal/inputs.py::MultiModalFeatureSpec.
    """

    data: MultiModalKwargsItem | None
    """Its tensors; None if the engine core has them."""
    modality: str
    """`image` or `audio`."""
    identifier: str
    """Hash of the item, or the id that the caller gave it. Equal identifiers are equal items."""
    mm_position: PlaceholderRange
    """Its place in the prompt."""
