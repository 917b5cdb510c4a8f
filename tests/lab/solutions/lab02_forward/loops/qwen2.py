"""One statement for each arrow of the picture."""


class Qwen2MLP:
    def forward(self, x):
        projected = self.gate_up_proj(x)
        activated = self.act_fn(projected)
        out = self.down_proj(activated)
        return out


class Qwen2Attention:
    def forward(self, positions, hidden_states):
        qkv = self.qkv_proj(hidden_states)
        q = qkv[:, : self.q_size]
        k = qkv[:, self.q_size : self.q_size + self.kv_size]
        v = qkv[:, self.q_size + self.kv_size :]
        q, k = self.rotary_emb(positions, q.contiguous(), k.contiguous())
        out = self.attn(q, k, v.contiguous())
        out = self.o_proj(out)
        return out


class Qwen2DecoderLayer:
    def forward(self, positions, hidden_states, residual):
        stream = hidden_states
        if residual is not None:
            stream = stream + residual
        normed = self.input_layernorm(stream)
        attended = self.self_attn(positions, normed)
        stream = stream + attended
        normed = self.post_attention_layernorm(stream)
        return self.mlp(normed), stream
