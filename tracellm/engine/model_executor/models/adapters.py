"""Pooling models made of models that generate.

At start-up: `DefaultModelLoader.load_model` adapts the class of a model with `runner="pooling"`.

vLLM: vllm/model_executor/models/adapters.py. Left out: classification, rewards.
"""

from collections.abc import Iterable, Iterator

from torch import Tensor

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.model_executor.layers.pooler import DispatchPooler, make_embedding_pooler
from tracellm.engine.model_executor.models.utils import CausalLM

__all__ = ["as_embedding_model"]


def as_embedding_model(cls: type[CausalLM]) -> type[CausalLM]:
    """Return a subclass without an output layer and with a `pooler`; its hidden states are those of `cls`.

    Checkpoints may have the names of the model with an output layer (`model.norm.weight`) or without it
    (`norm.weight`).
    """

    class ModelForEmbedding(cls):  # type: ignore[valid-type, misc]
        pooler: DispatchPooler

        def __init__(self, vllm_config: VllmConfig, prefix: str = "") -> None:
            super().__init__(vllm_config, prefix)
            if hasattr(self, "lm_head"):
                del self.lm_head
            assert vllm_config.model_config.pooler_config is not None, "the caller wants a pooling model"
            self.pooler = make_embedding_pooler(vllm_config.model_config.pooler_config)

        def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> int:
            parts = tuple(f"{name}." for name, _ in self.named_children())
            count: int = super().load_weights(_complete_names(weights, parts))
            return count

    ModelForEmbedding.__name__ = f"{cls.__name__.removesuffix('ForCausalLM').removesuffix('LMHeadModel')}ForEmbedding"
    ModelForEmbedding.__qualname__ = ModelForEmbedding.__name__
    return ModelForEmbedding


def _complete_names(weights: Iterable[tuple[str, Tensor]], parts: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    """Leave out the output layer, and put `model.` before the names of a checkpoint without it."""
    if "model." not in parts:  # GPT-2 does so itself; a model that reads images has its output layer further inside
        yield from weights
        return
    for name, tensor in weights:
        if not name.startswith("lm_head."):
            yield name if name.startswith(parts) else f"model.{name}", tensor
