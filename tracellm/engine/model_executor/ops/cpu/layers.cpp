// All decoder layers of a model in one call: what models/qwen2.py's modules compute one by one, by the same functions.
//
// With the model inside, Python takes as long for a layer as the arithmetic does: ten modules, thirty tensors. Here are
// neither, and the numbers are the same, bit for bit. x is what flows, r the residual stream beside it:
//
//     first layer: r = x, x = norm(x)      others: r += x, x = norm(r)
//     x -> qkv -> rotary -> cache -> attention -> output projection -> x          r += x, x = norm(r)
//     x -> gate, up -> silu(gate) * up -> down -> x           ROWS tokens at a time, so that what is between stays in a cache
//
// vLLM has torch.compile make something like it of the whole model.
#include "kernels.h"

constexpr int64_t ROWS = 240;  // for fewer, linear would read the weights more often

struct Layer {  // addresses; those of biases are null where there are none
    const void *input_norm, *qkv, *qkv_bias, *output, *output_bias, *post_norm, *gate_up, *gate_up_bias, *down, *down_bias;
    void *key_cache, *value_cache;
    int64_t window;  // 0: none
};

struct Stack {  // what all layers share
    int64_t layers, hidden, intermediate, query_heads, kv_heads, size, block_size;
    float input_epsilon, post_epsilon, scale;
    const void* cos_sin_cache;
};

struct Batch {  // of a step: AttentionMetadata (../interface.py)
    int64_t tokens, sequences, table_stride;
    const int64_t *positions, *slots;
    const int32_t *query_start, *lengths, *table;
};

// Numbers of scratch memory that a step of so many tokens needs, of the model's dtype.
static int64_t attention_numbers(const Stack& s) { return (3 * s.query_heads + 3 * s.kv_heads) * s.size; }
extern "C" int64_t layers_scratch_size(const Stack* s, int64_t tokens) {
    return std::max(tokens * attention_numbers(*s), std::min(tokens, ROWS) * 3 * s->intermediate);
}

template <class T, class W>
static void attention_block(const Stack& s, const Layer& l, const Batch& b, T* x, T* scratch, int threads) {
    int64_t query_numbers = s.query_heads * s.size, kv_numbers = s.kv_heads * s.size, width = query_numbers + 2 * kv_numbers;
    T *qkv = scratch, *query = qkv + b.tokens * width, *key = query + b.tokens * query_numbers,
      *result = key + b.tokens * kv_numbers;
    linear<T, W>(x, (const W*)l.qkv, (const T*)l.qkv_bias, qkv, b.tokens, width, s.hidden, threads);
    rotary<T>(b.positions, qkv, qkv + query_numbers, (const T*)s.cos_sin_cache, query, key, b.tokens, s.query_heads,
              s.kv_heads, s.size, width, s.size, width, s.size, threads);
    reshape_and_cache((const char*)key, (const char*)(qkv + query_numbers + kv_numbers), (char*)l.key_cache,
                      (char*)l.value_cache, b.slots, b.tokens, kv_numbers * sizeof(T), kv_numbers * sizeof(T),
                      width * sizeof(T));
    Shape shape = {b.sequences, s.query_heads, s.kv_heads, s.size, s.block_size, b.table_stride, query_numbers, s.size,
                   l.window, s.scale, 0};
    paged_attention<T>(query, (const T*)l.key_cache, (const T*)l.value_cache, b.query_start, b.lengths, b.table, result,
                    shape, threads);
    linear<T, W>(result, (const W*)l.output, (const T*)l.output_bias, x, b.tokens, s.hidden, query_numbers, threads);
}

template <class T, class W>
static void feed_forward(const Stack& s, const Layer& l, T* x, int64_t tokens, T* scratch, int threads) {
    for (int64_t first = 0; first < tokens; first += ROWS) {
        int64_t rows = std::min(ROWS, tokens - first);
        T *part = x + first * s.hidden, *gate_up = scratch, *gated = scratch + rows * 2 * s.intermediate;
        linear<T, W>(part, (const W*)l.gate_up, (const T*)l.gate_up_bias, gate_up, rows, 2 * s.intermediate, s.hidden,
               threads);
        silu_and_mul<T>(gate_up, gated, rows, s.intermediate, threads);
        linear<T, W>(gated, (const W*)l.down, (const T*)l.down_bias, part, rows, s.hidden, s.intermediate, threads);
    }
}

// x [tokens, hidden] comes with the embeddings and goes with the last layer's output; residual [tokens, hidden] is written.
template <class T, class W>
static void decoder_layers(const Stack& s, const Layer* layers, const Batch& b, T* x, T* residual, T* scratch, int threads) {
    for (int64_t i = 0; i < s.layers; i++) {
        const Layer& l = layers[i];
        if (i == 0) {
            memcpy(residual, x, b.tokens * s.hidden * sizeof(T));
            rms_norm<T>(residual, (const T*)l.input_norm, x, b.tokens, s.hidden, s.input_epsilon, threads);
        } else {
            add_rms_norm<T>(x, residual, (const T*)l.input_norm, x, residual, b.tokens, s.hidden,
                         s.input_epsilon, threads);
        }
        attention_block<T, W>(s, l, b, x, scratch, threads);
        add_rms_norm<T>(x, residual, (const T*)l.post_norm, x, residual, b.tokens, s.hidden, s.post_epsilon,
                     threads);
        feed_forward<T, W>(s, l, x, b.tokens, scratch, threads);
    }
}

#define FUNCTIONS(T, W, dtypes)                                                                                        \
    extern "C" void decoder_layers_##dtypes(const Stack* s, const Layer* layers, const Batch* b, T* x, T* residual,    \
                                            T* scratch, int threads) {                                                 \
        decoder_layers<T, W>(*s, layers, *b, x, residual, scratch, threads);                                           \
    }

FOR_EACH_DTYPE_OF_WEIGHTS(FUNCTIONS)
