"""What every attention layer of a forward pass needs and no model passes on: which tokens belong to which sequence.

The model runner sets it around the forward pass, the attention layers read it; so a model's `forward` takes token ids
and positions only. vLLM: vllm/forward_context.py. Left out: data parallelism, CUDA graphs, micro-batches.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from tracellm.engine.model_executor.ops import AttentionMetadata

__all__ = ["get_attention_metadata", "get_shared_attention_metadata", "set_forward_context"]

_attention_metadata: ContextVar[Mapping[str, AttentionMetadata] | None] = ContextVar("attention_metadata", default=None)


@contextmanager
def set_forward_context(metadata: Mapping[str, AttentionMetadata] | None) -> Iterator[None]:
    """Within the `with` block, `metadata` describes the batch, for each attention layer by its name.

    Layers of one KV cache group have the same metadata. None is a trial run without a KV cache.
    """
    token = _attention_metadata.set(metadata)
    try:
        yield
    finally:
        _attention_metadata.reset(token)


def get_attention_metadata(layer_name: str) -> AttentionMetadata | None:
    """The batch of the forward pass that is under way, as this layer finds it in its KV cache."""
    metadata = _attention_metadata.get()
    return None if metadata is None else metadata[layer_name]


def get_shared_attention_metadata() -> AttentionMetadata | None:
    """What all layers find alike, as they do in models with one KV cache group; None: they differ, or there is none."""
    of_layers = list((_attention_metadata.get() or {}).values())
    return of_layers[0] if of_layers and all(one is of_layers[0] for one in of_layers) else None
