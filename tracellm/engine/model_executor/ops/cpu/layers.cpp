// All decoder layers of a model in one call: the modules of models/qwen2.py, by the same kernels, with the same bits.
//
// In a small model, Python takes as long for a layer as the arithmetic does. x is the layer's input and output, r the
// residual stream:
//
//     first layer: r = x, x = norm(x)      others: r += x, x = norm(r)
//     x -> qkv -> rotary -> cache -> attention -> output projection -> x          r += x, x = norm(r)
//     x -> gate, up -> silu(gate) * up -> down -> x      ROWS tokens at a time: intermediate results stay in the cache
//
// vLLM: torch.compile compiles the whole model.
#include "kernels.h"

constexpr int64_t ROWS = 240;  // with fewer, linear would read the weights more often

struct Layer {
    int64_t hidden, intermediate, query_heads, kv_heads, size, block_size, window;  // window 0: none
    const void *input_norm, *post_norm, *cos_sin_cache;
    void *key_cache, *value_cache;
    const void *qkv, *qkv_bias, *output, *output_bias, *gate_up, *gate_up_bias, *down, *down_bias;  // bias may be null
    float input_epsilon, post_epsilon, scale;
};

struct Batch {  // of a step: AttentionMetadata (tracellm/engine/attention/backend.py)
    int64_t tokens, sequences, table_stride;
    const int64_t *positions, *slots;
    const int32_t *query_start, *lengths, *table;
};

// Elements of scratch memory for a step, in the model's dtype; layers are of one size.
extern "C" int64_t layers_scratch_size(const Layer* l, int64_t tokens) {
    return std::max(tokens * 3 * (l->query_heads + l->kv_heads) * l->size, std::min(tokens, ROWS) * 3 * l->intermediate);
}

template <class T, class W>
static void attention_block(const Layer& l, const Batch& b, T* x, T* scratch, int threads) {
    int64_t query_size = l.query_heads * l.size, kv_size = l.kv_heads * l.size, qkv_size = query_size + 2 * kv_size;
    T *qkv = scratch, *query = qkv + b.tokens * qkv_size, *key = query + b.tokens * query_size,
      *result = key + b.tokens * kv_size;
    linear<T, W>(x, (const W*)l.qkv, (const T*)l.qkv_bias, qkv, b.tokens, qkv_size, l.hidden, threads);
    rotary<T>(b.positions, qkv, qkv + query_size, (const T*)l.cos_sin_cache, query, key, b.tokens, l.query_heads,
              l.kv_heads, l.size, qkv_size, l.size, qkv_size, l.size, threads);
    reshape_and_cache((const char*)key, (const char*)(qkv + query_size + kv_size), (char*)l.key_cache,
                      (char*)l.value_cache, b.slots, b.tokens, kv_size * sizeof(T), kv_size * sizeof(T),
                      qkv_size * sizeof(T));
    Shape shape = {b.sequences, l.query_heads, l.kv_heads, l.size, l.block_size, b.table_stride, query_size, l.size,
                   l.window, l.scale, 0};
    paged_attention<T>(query, (const T*)l.key_cache, (const T*)l.value_cache, b.query_start, b.lengths, b.table, result,
                       shape, threads);
    linear<T, W>(result, (const W*)l.output, (const T*)l.output_bias, x, b.tokens, l.hidden, query_size, threads);
}

template <class T, class W>
static void feed_forward(const Layer& l, T* x, int64_t tokens, T* scratch, int threads) {
    for (int64_t first = 0; first < tokens; first += ROWS) {
        int64_t rows = std::min(ROWS, tokens - first);
        T *part = x + first * l.hidden, *gate_up = scratch, *gated = scratch + rows * 2 * l.intermediate;
        linear<T, W>(part, (const W*)l.gate_up, (const T*)l.gate_up_bias, gate_up, rows, 2 * l.intermediate, l.hidden,
                     threads);
        silu_and_mul<T>(gate_up, gated, rows, l.intermediate, threads);
        linear<T, W>(gated, (const W*)l.down, (const T*)l.down_bias, part, rows, l.hidden, l.intermediate, threads);
    }
}

// x [tokens, hidden]: the embeddings, replaced by the last layer's output; residual [tokens, hidden] is written.
template <class T, class W>
static void decoder_layers(const Layer* layers, int64_t count, const Batch& b, T* x, T* residual, T* scratch,
                           int threads) {
    for (int64_t i = 0; i < count; i++) {
        const Layer& l = layers[i];
        if (i == 0) {
            memcpy(residual, x, b.tokens * l.hidden * sizeof(T));
            rms_norm<T>(residual, (const T*)l.input_norm, x, b.tokens, l.hidden, l.input_epsilon, threads);
        } else {
            add_rms_norm<T>(x, residual, (const T*)l.input_norm, x, residual, b.tokens, l.hidden, l.input_epsilon,
                            threads);
        }
        attention_block<T, W>(l, b, x, scratch, threads);
        add_rms_norm<T>(x, residual, (const T*)l.post_norm, x, residual, b.tokens, l.hidden, l.post_epsilon, threads);
        feed_forward<T, W>(l, x, b.tokens, scratch, threads);
    }
}

#define FUNCTIONS(T, W, dtypes)                                                                                        \
    extern "C" void decoder_layers_##dtypes(const Layer* layers, int64_t count, const Batch* b, T* x, T* residual,     \
                                            T* scratch, int threads) {                                                 \
        decoder_layers<T, W>(layers, count, *b, x, residual, scratch, threads);                                        \
    }

FOR_EACH_DTYPE_OF_WEIGHTS(FUNCTIONS)
