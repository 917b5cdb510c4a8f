"""The forward pass of the training: Qwen2 in bfloat16, for rows whose conversations share a list of tools.

transformers' layers under autocast take twice as long on a CPU, most of it in casts and in attention to tokens that
the mask excludes. The weights remain in float32 in the model; a `Fast` is a copy for one step.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, pad, silu
from transformers import Qwen2ForCausalLM

from .batches import Row

__all__ = ["Fast"]

COPYING_LAYER = 2
_QKV = ("q_proj", "k_proj", "v_proj")
_GATE_UP = ("gate_proj", "up_proj")


class _Norm(torch.autograd.Function):
    """RMSNorm."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[no-untyped-def]
        """Return the normalized x."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = (norm.square() / x.shape[-1] + eps).rsqrt().to(x.dtype)
        normal = x * scale
        ctx.save_for_backward(normal, scale, weight)
        return normal * weight

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        """Return the gradients of x and the weight."""
        normal, scale, weight = ctx.saved_tensors
        product = gradient * normal
        mean = (product @ weight[:, None]) / normal.shape[-1]
        return (gradient * weight).addcmul_(normal, mean, value=-1).mul_(scale), product.sum(0), None


class Fast:
    """A copy of the weights of `model` in bfloat16, and their gradients."""

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        self.model, config = model, model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size, self.eps = config.hidden_size // self.heads, config.rms_norm_eps
        theta = config.rope_parameters["rope_theta"]
        self.frequencies = theta ** (-torch.arange(0, self.size, 2).float() / self.size)
        self.sources: list[tuple[Tensor, list[torch.nn.Parameter]]] = []
        self.embedding = self._copy(model.model.embed_tokens.weight)
        self.norm = self._copy(model.model.norm.weight)
        self.layers = []
        for layer in model.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            self.layers.append(
                (
                    self._copy(layer.input_layernorm.weight),
                    self._copy(*(getattr(attention, name).weight for name in _QKV)),
                    self._copy(*(getattr(attention, name).bias for name in _QKV)),
                    self._copy(attention.o_proj.weight),
                    self._copy(layer.post_attention_layernorm.weight),
                    self._copy(*(getattr(mlp, name).weight for name in _GATE_UP)),
                    self._copy(mlp.down_proj.weight),
                )
            )

    def _copy(self, *parameters: torch.nn.Parameter) -> Tensor:
        copy = torch.cat([p.detach() for p in parameters]).to(torch.bfloat16).requires_grad_()
        self.sources.append((copy, list(parameters)))
        return copy

    def put_gradients(self) -> None:
        """Set the gradients of the model's parameters."""
        for copy, parameters in self.sources:
            gradient = copy.grad.float() if copy.grad is not None else torch.zeros(copy.shape)
            for p, part in zip(parameters, gradient.split([len(p) for p in parameters]), strict=True):
                p.grad = part

    def loss(self, row: Row) -> tuple[Tensor, Tensor]:
        """Return two losses of `row` (nats), summed over its tokens.

        The first is the cross entropy of the learned tokens. The second is that of the attention from copies to what
        they copy, in one head of each group of layer `COPYING_LAYER`.
        """
        angles = row.position_ids[0, :, None] * self.frequencies
        cos, sin = (f(angles).to(torch.bfloat16)[:, None] for f in (torch.cos, torch.sin))
        masks = [
            pad(torch.full((end - start,) * 2, -1e9, dtype=torch.bfloat16).triu(1), (row.ends[0] if start else 0, 0))
            for start, end in _segments(row.ends)
        ]
        x = self.embedding[row.input_ids[0]]
        copying = torch.zeros(())
        for index, (before, qkv, bias, out, after, gate_up, down) in enumerate(self.layers):
            mixed = linear(_Norm.apply(x, before, self.eps), qkv, bias).view(len(x), -1, self.size)
            turned, value = mixed.split([self.heads + self.groups, self.groups], 1)
            first, second = turned.chunk(2, -1)
            turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
            mixed, scores = self._attend(turned, value, row.ends, masks)
            x = x + linear(mixed, out)
            if index == COPYING_LAYER:
                copying = _copying_loss(row, scores)
            gate, up = linear(_Norm.apply(x, after, self.eps), gate_up).chunk(2, -1)
            x = x + linear(silu(gate) * up, down)
        logits = linear(_Norm.apply(x[row.positions], self.norm, self.eps), self.embedding)
        return cross_entropy(logits.float(), row.targets, reduction="sum"), copying

    def _attend(
        self, turned: Tensor, value: Tensor, ends: tuple[int, ...], masks: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the attention of queries and keys `turned`, (length, heads + groups, size), and each segment's scores.

        The attention is (length, width); scores are (groups, heads of a group, tokens, tokens attended to).
        """
        query, key = turned.transpose(0, 1).split([self.heads, self.groups])
        query = query.reshape(self.groups, self.heads // self.groups, -1, self.size) * self.size**-0.5
        value, shared, outputs, every = value.transpose(0, 1), ends[0], [], []
        for (start, end), mask in zip(_segments(ends), masks, strict=True):
            keys, values = key[:, start:end], value[:, start:end]
            if start and shared:
                keys = torch.cat((key[:, :shared], keys), 1)
                values = torch.cat((value[:, :shared], values), 1)
            scores = query[:, :, start:end].reshape(self.groups, -1, self.size) @ keys.mT
            scores = scores.view(self.groups, -1, *mask.shape) + mask
            every.append(scores)
            weights = scores.softmax(-1).view(self.groups, -1, mask.shape[-1])
            outputs.append((weights @ values).view(self.heads, end - start, self.size))
        return torch.cat(outputs, 1).transpose(0, 1).reshape(len(turned), -1), every


def _copying_loss(row: Row, scores: list[Tensor]) -> Tensor:
    total, shared = torch.zeros(()), row.ends[0]
    for (start, end), own in zip(_segments(row.ends), scores, strict=True):
        copies = row.copies[(row.copies[:, 0] >= start) & (row.copies[:, 0] < end)]
        if start < shared or not len(copies):
            continue
        sources = torch.where(copies[:, 1] < shared, copies[:, 1], copies[:, 1] - start + shared)
        for group in own:
            total = total + cross_entropy(group[0, copies[:, 0] - start].float(), sources, reduction="sum") / len(own)
    return total


def _segments(ends: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return where the list of tools, if any, and each conversation begins and ends."""
    return [(start, end) for start, end in zip((0, *ends), ends, strict=False) if end > start]
