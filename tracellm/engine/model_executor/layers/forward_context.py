"""Attention metadata of the forward pass in progress: which tokens belong to which sequence.

The model runner sets it around the forward pass and the attention layers read it; a model's `forward` takes token ids
and positions only. vLLM: vllm/forward_context.py. Left out: data parallelism, CUDA graphs, micro-batches.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from tracellm.engine.attention.backend import AttentionMetadata

__all__ = ["get_forward_context", "get_shared_attention_metadata", "set_forward_context"]

_attention_metadata: ContextVar[Mapping[str, AttentionMetadata] | None] = ContextVar("attention_metadata", default=None)


@contextmanager
def set_forward_context(metadata: Mapping[str, AttentionMetadata] | None) -> Iterator[None]:
    """Set the attention metadata of each layer, by name, for the `with` block.

    Layers of one KV cache group have the same metadata. None: a dummy run without a KV cache.
    """
    token = _attention_metadata.set(metadata)
    try:
        yield
    finally:
        _attention_metadata.reset(token)


def get_forward_context() -> Mapping[str, AttentionMetadata] | None:
    """Return the attention metadata of each layer, by name, or None in a dummy run."""
    return _attention_metadata.get()


def get_shared_attention_metadata() -> AttentionMetadata | None:
    """Return the metadata that all layers share, or None where they differ or there is none."""
    metadata = list((_attention_metadata.get() or {}).values())
    return metadata[0] if metadata and all(layer is metadata[0] for layer in metadata) else None
