"""The losses of the training.

An answer alone has little information about a picture, and a model that learns from answers only needs several times as
long. The drawing script has the facts, so three more losses are used, and what computes them is dropped at the end:

- *what*: each vector of the encoder gives kind and colour of the thing whose centre is in its part of the picture;
- *where*: so does the language model's layer `LAYER` for the thirds of the picture;
- *about*: one attention head of that layer attends, from an answer, to the things that the answer is about.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import rotate_half

from .batches import IGNORED, Batch
from .scene import COLOURS, KINDS

__all__ = ["LAYER", "Losses", "Supervised"]

LAYER = 2
_NOTHING = len(KINDS)


class Losses(NamedTuple):
    """Losses of a batch, in nats, each a scalar."""

    answer: Tensor
    what: Tensor
    where: Tensor
    about: Tensor

    def total(self) -> Tensor:
        """Return the weighted sum."""
        return self.answer + 0.5 * self.what + self.where + self.about


class Supervised(nn.Module):
    """A model and the layers of its additional losses."""

    def __init__(self, model: Qwen2VLForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        width = model.config.text_config.hidden_size
        self.kind = nn.Linear(width, len(KINDS) + 1)
        self.colour = nn.Linear(width, len(COLOURS))
        self.row = nn.Linear(width, 3)
        self.column = nn.Linear(width, 3)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the encoder's vectors, (n * cells, width), and the loss *what*."""
        vectors = self.model.model.visual(batch.pixels, grid_thw=batch.grid_thw).pooler_output
        things = (batch.kinds != _NOTHING).sum()
        kind = cross_entropy(self.kind(vectors), batch.kinds, reduction="sum") / things
        return vectors, kind + cross_entropy(self.colour(vectors), batch.colours, ignore_index=IGNORED)

    def forward(self, batch: Batch) -> Losses:
        """Return all losses of `batch`."""
        vectors, what = self.encode(batch)
        pictures, width = len(batch.after), vectors.shape[-1]
        embedding = self.model.get_input_embeddings()
        embeds = torch.cat(
            (
                embedding(batch.before).expand(pictures, -1, -1),
                vectors.view(pictures, -1, width),
                embedding(batch.after),
            ),
            dim=1,
        )
        output = self.model.model.language_model(
            inputs_embeds=embeds,
            position_ids=batch.positions,
            attention_mask=batch.mask,
            use_cache=False,
            output_hidden_states=True,
        )
        start = len(batch.before)
        first = embeds.shape[1] - batch.after.shape[1]  # after the picture
        learned = batch.targets != IGNORED
        logits = linear(output.last_hidden_state[:, first:][learned], embedding.weight)
        middle = output.hidden_states[LAYER]
        cells = middle[:, start:first].flatten(0, 1)
        where = cross_entropy(self.row(cells), batch.rows, ignore_index=IGNORED)
        where = where + cross_entropy(self.column(cells), batch.columns, ignore_index=IGNORED)
        attended = self._attention(middle, batch.positions)[:, first:, start:first][learned]
        weight = torch.tensor(6.0)  # few cells are attended to
        about = binary_cross_entropy_with_logits(attended, batch.about[learned].float(), pos_weight=weight)
        return Losses(cross_entropy(logits, batch.targets[learned]), what, where, about)

    def _attention(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Return the first head's attention logits in layer `LAYER`, (n, tokens, tokens), before the mask."""
        language_model = self.model.model.language_model
        layer = language_model.layers[LAYER]
        normal, attention = layer.input_layernorm(hidden), layer.self_attn
        size = attention.head_dim
        cos, sin = language_model.rotary_emb(normal, positions)
        query, key = (
            linear(normal, projection.weight[:size], projection.bias[:size])
            for projection in (attention.q_proj, attention.k_proj)
        )
        query, key = (x * cos + rotate_half(x) * sin for x in (query, key))
        return query @ key.mT * size**-0.5
