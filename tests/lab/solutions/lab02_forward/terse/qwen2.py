"""Calls the operations without the modules around them, and adds in its own order."""

import torch
import torch.nn.functional as F


class Qwen2MLP:
    def forward(self, x):
        gate, up = self.gate_up_proj(x).tensor_split(2, -1)
        return self.down_proj(F.silu(gate) * up)


class Qwen2Attention:
    def forward(self, positions, hidden_states):
        parts = torch.split(self.qkv_proj(hidden_states), [self.q_size, self.kv_size, self.kv_size], -1)
        q, k = self.rotary_emb(positions, parts[0], parts[1])
        return self.o_proj(self.attn(q, k, parts[2]))


class Qwen2DecoderLayer:
    def forward(self, positions, hidden_states, residual):
        ln1, ln2, ops = self.input_layernorm, self.post_attention_layernorm, self.input_layernorm.ops
        stream = hidden_states.clone() if residual is None else hidden_states + residual
        attended = self.self_attn(positions, ops.rms_norm(stream, ln1.weight, ln1.variance_epsilon))
        return self.mlp(ln2(attended, stream)[0]), attended + stream
