"""Hashes of items: equal items of equal processing have equal identifiers.

The identifier is the key of the processor cache and of the encoder cache, and part of the hashes of KV cache blocks.

vLLM: vllm/multimodal/hasher.py::MultiModalHasher, with BLAKE3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["MultiModalHasher"]


class MultiModalHasher:
    """Hash function of items."""

    @classmethod
    def hash_kwargs(cls, **kwargs: Any) -> str:
        """Return the SHA-256, in hexadecimal, of named values: images, arrays, and plain values.

        Images count by mode, size and pixels, arrays by dtype, shape and contents.
        """
        digest = hashlib.sha256()
        for name, value in sorted(kwargs.items()):
            for part in (name.encode(), *_parts(value)):
                digest.update(len(part).to_bytes(8, "big"))
                digest.update(part)
        return digest.hexdigest()


def _parts(value: Any) -> list[bytes]:
    """Return the bytes that describe a value, one part for each of its properties."""
    if isinstance(value, np.ndarray):
        return [b"array", str(value.dtype).encode(), repr(value.shape).encode(), value.tobytes()]
    if hasattr(value, "tobytes") and hasattr(value, "mode"):  # a PIL image, without importing PIL
        return [b"image", value.mode.encode(), repr(value.size).encode(), value.tobytes()]
    if isinstance(value, Mapping):
        value = dict(value)
    return [b"value", json.dumps(value, sort_keys=True, default=repr).encode()]
