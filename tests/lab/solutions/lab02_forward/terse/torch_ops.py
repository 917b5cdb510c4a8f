"""Matrix forms: the rotation as x * cos + half-turned x * sin, the norm by the length of a vector."""

import torch
import torch.nn.functional as F


class TorchOps:
    def rms_norm(self, x, weight, epsilon):
        wide = x.to(torch.float32)
        length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        wide = wide * (length**2 / x.shape[-1] + epsilon) ** -0.5
        return weight * wide.to(weight.dtype)

    def fused_add_rms_norm(self, x, residual, weight, epsilon):
        return self.rms_norm(x.add(residual), weight, epsilon), x.add(residual)

    def gemma_rms_norm(self, x, weight, epsilon):
        return self.rms_norm(x.float(), 1 + weight.float(), epsilon).to(x.dtype)

    def rotary_embedding(self, positions, query, key, cos_sin_cache):
        cos, sin = (torch.cat([part, part], -1)[positions, None] for part in cos_sin_cache.chunk(2, -1))
        quarter_turn = lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)
        return tuple(x * cos + quarter_turn(x) * sin for x in (query, key))

    def silu_and_mul(self, x):
        return torch.mul(*(f(part) for f, part in zip((F.silu, lambda up: up), x.tensor_split(2, dim=-1))))

    def gelu_tanh_and_mul(self, x):
        gate, up = x.view(len(x), 2, -1).unbind(1)
        return up * F.gelu(gate, approximate="tanh")
