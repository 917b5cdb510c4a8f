"""Token by token and head by head, with plain Python numbers where that is possible."""

import math

import torch


class TorchOps:
    def rms_norm(self, x, weight, epsilon):
        rows = []
        for row in x.float():
            total = 0.0
            for number in row.tolist():
                total += number * number
            root = math.sqrt(total / len(row) + epsilon)
            rows.append(row / root)
        return torch.stack(rows).to(x.dtype) * weight

    def fused_add_rms_norm(self, x, residual, weight, epsilon):
        total = x + residual
        return self.rms_norm(total, weight, epsilon), total

    def gemma_rms_norm(self, x, weight, epsilon):
        rows = []
        for row in x.float():
            root = math.sqrt(sum(n * n for n in row.tolist()) / len(row) + epsilon)
            rows.append(row / root * (weight.float() + 1))
        return torch.stack(rows).to(x.dtype)

    def rotary_embedding(self, positions, query, key, cos_sin_cache):
        rotated = []
        for heads in (query, key):
            result = torch.zeros_like(heads)
            half = heads.shape[2] // 2
            for token in range(heads.shape[0]):
                line = cos_sin_cache[int(positions[token])]
                for head in range(heads.shape[1]):
                    for i in range(half):
                        cos, sin = line[i], line[half + i]
                        a, b = heads[token, head, i], heads[token, head, i + half]
                        result[token, head, i] = a * cos - b * sin
                        result[token, head, i + half] = b * cos + a * sin
            rotated.append(result)
        return rotated[0], rotated[1]

    def silu_and_mul(self, x):
        n = x.shape[1] // 2
        out = torch.empty(x.shape[0], n, dtype=x.dtype)
        for t in range(x.shape[0]):
            for i in range(n):
                gate = x[t, i]
                out[t, i] = gate / (1 + torch.exp(-gate)) * x[t, n + i]
        return out

    def gelu_tanh_and_mul(self, x):
        n = x.shape[1] // 2
        out = torch.empty(x.shape[0], n, dtype=x.dtype)
        for t in range(x.shape[0]):
            for i in range(n):
                g = x[t, i]
                inner = math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)
                out[t, i] = 0.5 * g * (1 + torch.tanh(inner)) * x[t, n + i]
        return out
