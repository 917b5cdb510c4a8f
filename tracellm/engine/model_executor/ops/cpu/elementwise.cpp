// Elementwise and row-wise operations: norms, rotary embedding, activations, and writing the KV cache.
//
// PyTorch composes such an operation of five to ten calls, each a pass over memory; here it is one pass. Results are
// rounded where PyTorch rounds, and have the same bits wherever the arithmetic in between is exact.
#include "kernels.h"

// Number of elements below which waking a thread costs more than it saves.
constexpr int64_t ALONE = 32768;

static int threads_for(int64_t numbers, int threads) { return numbers < ALONE ? 1 : threads; }

template <class T>
static float reciprocal_rms(const T* row, int64_t n, float epsilon) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) squares += widen(row[i]) * widen(row[i]);
    return 1.0f / std::sqrt(squares / n + epsilon);
}

template <class T>
static void norm_row(const T* x, const T* weight, T* y, int64_t n, float epsilon) {
    float scale = reciprocal_rms(x, n, epsilon);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = narrow<T>(rounded<T>(widen(x[i]) * scale) * widen(weight[i]));
}

template <class T>
void rms_norm(const T* x, const T* weight, T* y, int64_t rows, int64_t n, float epsilon, int threads) {
#pragma omp parallel for num_threads(threads_for(rows* n, threads))
    for (int64_t r = 0; r < rows; r++) norm_row(x + r * n, weight, y + r * n, n, epsilon);
}

template <class T>
void add_rms_norm(const T* x, const T* residual, const T* weight, T* y, T* sum, int64_t rows, int64_t n, float epsilon,
                  int threads) {
#pragma omp parallel for num_threads(threads_for(rows* n, threads))
    for (int64_t r = 0; r < rows; r++) {
        const T *a = x + r * n, *b = residual + r * n;
        T* total = sum + r * n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) total[i] = narrow<T>(widen(a[i]) + widen(b[i]));
        norm_row(total, weight, y + r * n, n, epsilon);
    }
}

template <class T>
static void gemma_rms_norm(const T* x, const T* weight, T* y, int64_t rows, int64_t n, float epsilon, int threads) {
#pragma omp parallel for num_threads(threads_for(rows* n, threads))
    for (int64_t r = 0; r < rows; r++) {
        float scale = reciprocal_rms(x + r * n, n, epsilon);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[r * n + i] = narrow<T>(widen(x[r * n + i]) * scale * (1.0f + widen(weight[i])));
    }
}

// Rotates the pairs (i, i + half) of one token's heads by the angles whose cosines and sines are in `cos_sin`.
template <class T>
static void rotate(const T* x, int64_t head_stride, T* y, int64_t heads, int64_t half, const T* cos_sin) {
    for (int64_t h = 0; h < heads; h++) {
        const T *first = x + h * head_stride, *second = first + half;
        T *y_first = y + h * 2 * half, *y_second = y_first + half;
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float c = widen(cos_sin[i]), s = widen(cos_sin[half + i]), a = widen(first[i]), b = widen(second[i]);
            y_first[i] = narrow<T>(rounded<T>(a * c) - rounded<T>(b * s));
            y_second[i] = narrow<T>(rounded<T>(b * c) + rounded<T>(a * s));
        }
    }
}

template <class T>
void rotary(const int64_t* positions, const T* query, const T* key, const T* cos_sin_cache, T* rotated_query, T* rotated_key,
            int64_t tokens, int64_t query_heads, int64_t key_heads, int64_t size, int64_t query_token_stride,
            int64_t query_head_stride, int64_t key_token_stride, int64_t key_head_stride, int threads) {
#pragma omp parallel for num_threads(threads_for(tokens*(query_heads + key_heads) * size, threads))
    for (int64_t t = 0; t < tokens; t++) {
        const T* cos_sin = cos_sin_cache + positions[t] * size;
        rotate(query + t * query_token_stride, query_head_stride, rotated_query + t * query_heads * size, query_heads,
               size / 2, cos_sin);
        rotate(key + t * key_token_stride, key_head_stride, rotated_key + t * key_heads * size, key_heads, size / 2,
               cos_sin);
    }
}

static inline float silu(float x) { return x / (1.0f + fast_exp(-x)); }

static inline float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + fast_tanh(0.797884561f * (x + 0.044715f * x * x * x)));
}

template <class T, float (*activation)(float)>
static void gated(const T* x, T* y, int64_t rows, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads_for(rows* n, threads))
    for (int64_t r = 0; r < rows; r++) {
        const T *gate = x + r * 2 * n, *up = gate + n;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[r * n + i] = narrow<T>(rounded<T>(activation(widen(gate[i]))) * widen(up[i]));
    }
}

template <class T>
void silu_and_mul(const T* x, T* y, int64_t rows, int64_t n, int threads) {
    gated<T, silu>(x, y, rows, n, threads);
}

// `row_bytes` of each token's keys (and values) into its slot.
extern "C" void reshape_and_cache(const char* key, const char* value, char* key_cache, char* value_cache,
                                  const int64_t* slots, int64_t tokens, int64_t row_bytes, int64_t key_stride,
                                  int64_t value_stride) {
    for (int64_t t = 0; t < tokens; t++) {
        memcpy(key_cache + slots[t] * row_bytes, key + t * key_stride, row_bytes);
        memcpy(value_cache + slots[t] * row_bytes, value + t * value_stride, row_bytes);
    }
}

#define FUNCTIONS(T, dtype)                                                                                            \
    extern "C" void rms_norm_##dtype(const T* x, const T* w, T* y, int64_t rows, int64_t n, float e, int threads) {    \
        rms_norm(x, w, y, rows, n, e, threads);                                                                        \
    }                                                                                                                  \
    extern "C" void gemma_rms_norm_##dtype(const T* x, const T* w, T* y, int64_t rows, int64_t n, float e,             \
                                          int threads) {                                                               \
        gemma_rms_norm(x, w, y, rows, n, e, threads);                                                                  \
    }                                                                                                                  \
    extern "C" void add_rms_norm_##dtype(const T* x, const T* r, const T* w, T* y, T* sum, int64_t rows, int64_t n,    \
                                        float e, int threads) {                                                        \
        add_rms_norm(x, r, w, y, sum, rows, n, e, threads);                                                            \
    }                                                                                                                  \
    extern "C" void silu_and_mul_##dtype(const T* x, T* y, int64_t rows, int64_t n, int threads) {                     \
        silu_and_mul(x, y, rows, n, threads);                                                                          \
    }                                                                                                                  \
    extern "C" void gelu_tanh_and_mul_##dtype(const T* x, T* y, int64_t rows, int64_t n, int threads) {                \
        gated<T, gelu_tanh>(x, y, rows, n, threads);                                                                   \
    }                                                                                                                  \
    extern "C" void rotary_##dtype(const int64_t* p, const T* q, const T* k, const T* cache, T* tq, T* tk, int64_t t,  \
                                  int64_t qh, int64_t kh, int64_t d, int64_t qt, int64_t qs, int64_t kt, int64_t ks,   \
                                  int threads) {                                                                       \
        rotary(p, q, k, cache, tq, tk, t, qh, kh, d, qt, qs, kt, ks, threads);                                         \
    }                                                                                                                  \
    template decltype(rms_norm<T>) rms_norm<T>; /* for layers.cpp */                                                   \
    template decltype(add_rms_norm<T>) add_rms_norm<T>;                                                                \
    template decltype(rotary<T>) rotary<T>;                                                                            \
    template decltype(silu_and_mul<T>) silu_and_mul<T>;

FOR_EACH_DTYPE(FUNCTIONS)
