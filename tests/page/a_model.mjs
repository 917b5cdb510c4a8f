/** A model of two layers: width 8, 4 query heads and 2 KV heads of size 2, 16 inner numbers, 10 tokens. */
export function aModel() {
  const layers = [0, 1];
  return {
    architecture: "TinyForCausalLM", dtype: "bfloat16", device: "cpu", kvSize: 2, workers: 1,
    config: { hidden_size: "8", hidden_act: "silu", rope: "True", tie_word_embeddings: "True" },
    weights: [
      ["model.embed_tokens.weight", null, "bfloat16", [10, 8]],
      ["model.layers.*.self_attn.qkv_proj.weight", layers, "bfloat16", [16, 8]],
      ["model.layers.*.self_attn.qkv_proj.bias", layers, "bfloat16", [16]],
      ["model.layers.*.self_attn.o_proj.weight", layers, "bfloat16", [8, 8]],
      ["model.layers.*.mlp.gate_up_proj.weight", layers, "bfloat16", [32, 8]],
      ["model.layers.*.mlp.down_proj.weight", layers, "bfloat16", [8, 16]],
      ["model.layers.*.input_layernorm.weight", layers, "bfloat16", [8]],
      ["model.layers.*.post_attention_layernorm.weight", layers, "bfloat16", [8]],
      ["model.norm.weight", null, "bfloat16", [8]],
    ],
    attention: [[layers, 4, 2, 2, 0]],
  };
}
