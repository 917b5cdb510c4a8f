"""Rotates with complex numbers, and computes in float64."""

import torch


class TorchOps:
    def rms_norm(self, x, weight, epsilon):
        return (normalized(x, epsilon) * weight.double()).to(x.dtype)

    def fused_add_rms_norm(self, x, residual, weight, epsilon):
        residual = residual + x
        return (normalized(residual, epsilon) * weight.double()).to(x.dtype), residual

    def gemma_rms_norm(self, x, weight, epsilon):
        return (normalized(x, epsilon) * (1 + weight.double())).to(x.dtype)

    def rotary_embedding(self, positions, query, key, cos_sin_cache):
        half = query.shape[-1] // 2
        table = cos_sin_cache.double().index_select(0, positions.long())
        turn = torch.complex(table[:, :half], table[:, half:]).unsqueeze(1)

        def turned(heads):
            wide = heads.double()
            points = torch.complex(wide[..., :half], wide[..., half:]) * turn
            return torch.cat([points.real, points.imag], -1).to(heads.dtype)

        return turned(query), turned(key)

    def silu_and_mul(self, x):
        return gated(x, lambda gate: gate * torch.sigmoid(gate))

    def gelu_tanh_and_mul(self, x):
        return gated(x, lambda gate: torch.nn.functional.gelu(gate, approximate="tanh"))


def normalized(x, epsilon):
    wide = x.double()
    return wide / torch.sqrt((wide**2).mean(-1, keepdim=True) + epsilon)


def gated(x, activation):
    wide = x.double()
    n = x.shape[-1] // 2
    return (activation(wide[..., :n]) * wide[..., n:]).to(x.dtype)
