// Kernels that layers.cpp calls, for a dtype T: float, bf16 or f16. Documented where they are defined.
#pragma once
#include "vectors.h"

#define FOR_EACH_DTYPE(define) define(float, f32) define(bf16, bf16) define(f16, f16)
// Weights W may have fewer bits than T, where that is exact: see linear.cpp.
#define FOR_EACH_DTYPE_OF_WEIGHTS(define) \
    define(float, float, f32) define(bf16, bf16, bf16) define(f16, f16, f16) define(float, bf16, f32_bf16) define(float, f16, f32_f16)

struct Shape {  // sizes of a call of attention
    int64_t sequences, query_heads, kv_heads, size, block_size, table_stride, query_token_stride, query_head_stride,
        window;  // window 0: none
    float scale, cap;  // cap 0: none
};

template <class T, class W>
void linear(const T* x, const W* packed, const T* bias, T* y, int64_t M, int64_t N, int64_t K, int threads);
template <class T>
void rms_norm(const T* x, const T* weight, T* y, int64_t rows, int64_t n, float epsilon, int threads);
template <class T>
void add_rms_norm(const T* x, const T* residual, const T* weight, T* y, T* sum, int64_t rows, int64_t n, float epsilon,
                  int threads);
template <class T>
void rotary(const int64_t* positions, const T* query, const T* key, const T* cos_sin_cache, T* rotated_query, T* rotated_key,
            int64_t tokens, int64_t query_heads, int64_t key_heads, int64_t size, int64_t query_token_stride,
            int64_t query_head_stride, int64_t key_token_stride, int64_t key_head_stride, int threads);
template <class T>
void silu_and_mul(const T* x, T* y, int64_t rows, int64_t n, int threads);
template <class T>
void paged_attention(const T* query, const T* key_cache, const T* value_cache, const int32_t* query_start,
                     const int32_t* lengths, const int32_t* table, T* result, const Shape& s, int threads);
extern "C" void reshape_and_cache(const char* key, const char* value, char* key_cache, char* value_cache,
                                  const int64_t* slots, int64_t tokens, int64_t row_bytes, int64_t key_stride,
                                  int64_t value_stride);
