"""Execution of the encoders of images and sounds, and their outputs in place of the placeholders' embeddings.

In a request's life: the steps that compute its prompt, before the forward pass. The scheduler decides which items are
encoded in a step and which outputs are dropped; the outputs stay here, by the items' identifiers, until then.

vLLM: vllm/v1/worker/gpu_model_runner.py (`_execute_mm_encoder`, `_gather_mm_embeddings`, `_calc_mrope_positions`);
later versions have vllm/v1/worker/gpu/mm/encoder_runner.py::EncoderRunner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracellm.engine.config.errors import EngineError
from tracellm.engine.model_executor.models.interfaces import SupportsMRoPE, SupportsMultiModal
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem

if TYPE_CHECKING:
    from tracellm.engine.worker.gpu_input_batch import CachedRequestState

__all__ = ["EncoderRunner"]


class EncoderRunner:
    """Encoder outputs of a multimodal model; used by `GPUModelRunner`."""

    def __init__(self, model: SupportsMultiModal, device: torch.device, dtype: torch.dtype) -> None:
        self.model = model
        self.mrope_model = model if isinstance(model, SupportsMRoPE) else None
        self.device = device
        self.dtype = dtype
        self.encoder_cache: dict[str, Tensor] = {}
        """Embeddings [tokens with one, hidden] by the item's identifier."""

    def execute(self, scheduled: Mapping[str, list[int]], requests: Mapping[str, CachedRequestState]) -> None:
        """Encode the scheduled items of all requests, neighbours of one modality in one call.

        Raises:
            EngineError: the number of embeddings is not that of an item's placeholders.
        """
        features = [requests[req_id].mm_features[index] for req_id, indices in scheduled.items() for index in indices]
        for _, group in groupby(features, key=lambda feature: feature.modality):
            batch = list(group)
            outputs = self.model.get_multimodal_embeddings(**self._merge([_data(feature) for feature in batch]))
            for feature, output in zip(batch, outputs, strict=True):
                expected = feature.mm_position.get_num_embeds()
                if len(output) != expected:
                    raise EngineError(
                        f"The encoder returned {len(output)} embeddings for an {feature.modality} with {expected} "
                        "placeholder tokens: the model's files do not belong together."
                    )
                self.encoder_cache[feature.identifier] = output

    def free(self, identifiers: Sequence[str]) -> None:
        """Drop outputs."""
        for identifier in identifiers:
            self.encoder_cache.pop(identifier, None)

    def get_inputs_embeds(
        self,
        input_ids: Tensor,
        req_ids: Sequence[str],
        num_scheduled_tokens: Sequence[int],
        requests: Mapping[str, CachedRequestState],
    ) -> Tensor | None:
        """Return the vectors [T, hidden] of a step's tokens; None if no token stands for a part of an item."""
        embeddings: list[Tensor] = []
        is_embed = np.zeros(len(input_ids), dtype=np.bool_)
        first = 0
        for req_id, num_tokens in zip(req_ids, num_scheduled_tokens, strict=True):
            request = requests[req_id]
            for feature, start, end in _overlaps(request.mm_features, request.num_computed_tokens, num_tokens):
                position = feature.mm_position
                of_item = np.ones(position.length, np.bool_) if position.is_embed is None else position.is_embed
                skipped, wanted = of_item[:start].sum(), of_item[start:end]
                embeddings.append(self.encoder_cache[feature.identifier][skipped : skipped + wanted.sum()])
                at = first + position.offset - request.num_computed_tokens
                is_embed[at + start : at + end] = wanted
            first += num_tokens
        if not embeddings:
            return None
        return self.model.get_input_embeddings(input_ids, embeddings, torch.from_numpy(is_embed).to(self.device))

    # -- M-RoPE: positions in three dimensions (Wang et al., 2024, Qwen2-VL) ------------------------------------------
    def add_request(self, request: CachedRequestState) -> None:
        """Compute the M-RoPE positions of a new request's prompt, [3, prompt], if the model has such."""
        if self.mrope_model is not None:
            positions, delta = self.mrope_model.get_mrope_input_positions(request.prompt_token_ids, request.mm_features)
            request.mrope_positions, request.mrope_position_delta = positions.numpy(), delta

    def get_mrope_positions(
        self, req_ids: Sequence[str], num_scheduled_tokens: Sequence[int], requests: Mapping[str, CachedRequestState]
    ) -> Tensor | None:
        """Return the positions of a step's tokens, int64 [3, T]; None for a model with plain ones."""
        if self.mrope_model is None:
            return None
        parts: list[np.ndarray] = []
        for req_id, num_tokens in zip(req_ids, num_scheduled_tokens, strict=True):
            request = requests[req_id]
            assert request.mrope_positions is not None
            start, end = request.num_computed_tokens, request.num_computed_tokens + num_tokens
            parts.append(request.mrope_positions[:, start:end])
            after = np.arange(max(start, len(request.prompt_token_ids)), end) + request.mrope_position_delta
            parts.append(np.broadcast_to(after, (3, len(after))))
        return torch.from_numpy(np.concatenate(parts, axis=1)).to(self.device)

    def _merge(self, items: list[MultiModalKwargsItem]) -> dict[str, Tensor]:
        """Return the tensors of a batch of items: concatenated or stacked, as the model wants them."""
        merged: dict[str, Tensor] = {}
        for name, kind in self.model.mm_fields.items():
            tensors = [torch.as_tensor(item[name]) for item in items if name in item]
            if not tensors:
                continue
            tensor = torch.cat(tensors) if kind == "flat" else torch.stack(tensors)
            merged[name] = tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)
        return merged


def _overlaps(
    features: Sequence[MultiModalFeatureSpec], num_computed_tokens: int, num_tokens: int
) -> Iterator[tuple[MultiModalFeatureSpec, int, int]]:
    """Yield the items with tokens in the step, and the range of these tokens within the item."""
    for feature in features:
        offset, length = feature.mm_position.offset, feature.mm_position.length
        start, end = max(num_computed_tokens - offset, 0), min(num_computed_tokens + num_tokens - offset, length)
        if start < end:
            yield feature, start, end


def _data(feature: MultiModalFeatureSpec) -> MultiModalKwargsItem:
    assert feature.data is not None
    return feature.data
