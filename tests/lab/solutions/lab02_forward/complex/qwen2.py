"""A layer as functions of the stream; the norms' fused form is used in one place."""


class Qwen2MLP:
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_up_proj(x)))


class Qwen2Attention:
    def forward(self, positions, hidden_states):
        sizes = (self.q_size, self.kv_size, self.kv_size)
        query, key, value = self.qkv_proj(hidden_states).split(sizes, dim=1)
        return self.o_proj(self.attn(*self.rotary_emb(positions, query, key), value))


class Qwen2DecoderLayer:
    def forward(self, positions, hidden_states, residual):
        normed, stream = normed_and_stream(self.input_layernorm, hidden_states, residual)
        normed, stream = normed_and_stream(self.post_attention_layernorm, self.self_attn(positions, normed), stream)
        return self.mlp(normed), stream


def normed_and_stream(norm, output, stream):
    if stream is None:
        return norm(output), output
    return norm(output, stream)
