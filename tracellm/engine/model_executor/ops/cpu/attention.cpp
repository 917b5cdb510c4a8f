// Causal attention that reads keys and values in place from the paged cache, without gathering them.
//
// A task is one sequence, one key/value head and a few neighbouring query tokens. Its rows are these tokens times the
// query heads that share the key/value head. Decoding (one token) and prefill (many) are the same code:
//
//     for each chunk of CHUNK keys that a row may see:        block table:  token p -> block p / block_size
//         keys: float32 is read in place; 16 bits are widened into a copy, once for all rows of the task
//         scores = q . k * scale, masked ones -inf
//         update maximum and sum of each row, and scale down the output so far
//         values: as keys;  output += e^(score - maximum) * v
//     output / sum
//
// This is the online softmax of FlashAttention: scores are kept for one chunk only. Arithmetic is float32.
// Memory traffic: each task reads each key and value of its sequence once, 2 D elements per token.
#include "kernels.h"

constexpr int CHUNK = 32;  // keys per chunk: 8 KiB in float32 with D = 64
constexpr int ROWS = 24;   // approximate number of rows of a task

// Pointers to the keys or values of one head: into the cache where it can be read in place, else into a copy.
typedef const float* const* Vectors;

// dot products of R rows of q with J keys, into scores [R, CHUNK].
template <int R, int J>
static void dots(const float* q, Vectors keys, float* scores, int64_t size) {
    vf sums[R][J] = {};
    for (int64_t d = 0; d < size; d += VL) {
        vf key[J];
#pragma GCC unroll 8
        for (int j = 0; j < J; j++) {
            key[j] = load(keys[j] + d);
            if (R > 1) in_register(key[j]);
        }
#pragma GCC unroll 3
        for (int r = 0; r < R; r++) {
            vf number = load(q + r * size + d);
            in_register(number);
#pragma GCC unroll 8
            for (int j = 0; j < J; j++) sums[r][j] += number * key[j];
        }
    }
#pragma GCC unroll 3
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int j = 0; j < J; j++) scores[r * CHUNK + j] = sum(sums[r][j]);
}

template <int R>
static void scores_of_rows(const float* q, Vectors keys, float* scores, int64_t size, int n) {
    constexpr int J = R == 1 ? 8 : 4;  // fewer sums would make each multiply-add wait for the previous one
    int j = 0;
    for (; j + J <= n; j += J) dots<R, J>(q, keys + j, scores + j, size);
    for (; j < n; j++) dots<R, 1>(q, keys + j, scores + j, size);
}

// output [size] of R rows += weights [R, CHUNK] times n values; V vectors of a row at a time.
template <int R, int V>
static void add_columns(const float* weights, Vectors values, float* output, int64_t size, int64_t d, int n) {
    vf sums[R][V];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) sums[r][v] = load(output + r * size + d + v * VL);
    for (int j = 0; j < n; j++) {
        vf value[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            value[v] = load(values[j] + d + v * VL);
            if (R > 1) in_register(value[v]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            float weight = weights[r * CHUNK + j];
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) sums[r][v] += weight * value[v];
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) store(output + r * size + d + v * VL, sums[r][v]);
}

template <int R>
static void add_values(const float* weights, Vectors values, float* output, int64_t size, int n) {
    constexpr int V = R == 1 ? 8 : R == 2 ? 4 : 2;  // 8 sums at once, as in scores_of_rows
    int64_t d = 0;
    for (; d + V * VL <= size; d += V * VL) add_columns<R, V>(weights, values, output, size, d, n);
    for (; d < size; d += VL) add_columns<R, 1>(weights, values, output, size, d, n);
}

// Finds the keys or values first .. first + n - 1 of a sequence and head: in the cache if they are float32 and fill whole
// vectors, else widened into `copy`, in rows of `padded` elements.
template <class T>
static void find(const T* cache, const int32_t* blocks, const Shape& s, int64_t head, int64_t first, int n, int64_t padded,
                 float* copy, const float** found) {
    int64_t block = first / s.block_size, offset = first % s.block_size, stride = s.kv_heads * s.size;
    for (int j = 0; j < n; j++) {
        const T* from = cache + (int64_t(blocks[block]) * s.block_size + offset) * stride + head * s.size;
        if (++offset == s.block_size) offset = 0, block++;
        if constexpr (sizeof(T) == sizeof(float)) {
            if (padded == s.size) {
                found[j] = from;
                continue;
            }
        }
        int64_t d = 0;
        for (; d + VL <= s.size; d += VL) store(copy + j * padded + d, load(from + d));
        for (; d < s.size; d++) copy[j * padded + d] = widen(from[d]);
        found[j] = copy + j * padded;
    }
}

struct Scratch {  // of one thread
    std::vector<float> q, output, keys, scores, maximum, total;
    Scratch(int64_t rows, int64_t padded)
        : q(rows * padded), output(rows * padded), keys(CHUNK * padded), scores(rows * CHUNK), maximum(rows), total(rows) {}
};

// One step of the online softmax for a row at `position`: masks scores, updates maximum and sum, turns the scores into
// weights, and scales down the output so far.
static void weigh(float* scores, float* output, float& maximum, float& total, const Shape& s, int64_t position,
                  int64_t first, int n, int64_t padded) {
    for (int j = 0; j < n; j++) scores[j] *= s.cap ? s.scale / s.cap : s.scale;
    if (s.cap)
        for (int j = 0; j < n; j++) scores[j] = fast_tanh(scores[j]) * s.cap;
    int64_t seen_to = std::min<int64_t>(n, position + 1 - first);
    int64_t seen_from = s.window ? std::max<int64_t>(0, position + 1 - s.window - first) : 0;
    for (int64_t j = 0; j < std::min<int64_t>(n, seen_from); j++) scores[j] = -INFINITY;
    for (int64_t j = std::max<int64_t>(0, seen_to); j < n; j++) scores[j] = -INFINITY;
    float top = maximum;
#pragma omp simd reduction(max : top)
    for (int j = 0; j < n; j++) top = scores[j] > top ? scores[j] : top;
    if (top == -INFINITY) {  // no key seen so far
        std::fill(scores, scores + n, 0.0f);
        return;
    }
    float shrink = fast_exp(maximum - top), added = 0;
#pragma omp simd reduction(+ : added)
    for (int j = 0; j < n; j++) {
        scores[j] = fast_exp(scores[j] - top);
        added += scores[j];
    }
    total = total * shrink + added;
    maximum = top;
    if (shrink != 1.0f)
        for (int64_t d = 0; d < padded; d++) output[d] *= shrink;
}

// Query tokens token .. token + count - 1 of the batch, the first of them at `position` of its sequence; one kv head.
template <class T>
static void attend(const T* query, const T* key_cache, const T* value_cache, const int32_t* blocks, T* result,
                   const Shape& s, int64_t head, int64_t token, int64_t count, int64_t position, Scratch& scratch) {
    int64_t shared = s.query_heads / s.kv_heads, rows = count * shared, padded = (s.size + VL - 1) / VL * VL;
    float *q = scratch.q.data(), *output = scratch.output.data(), *keys = scratch.keys.data(), *scores = scratch.scores.data();
    for (int64_t r = 0; r < rows; r++) {
        const T* from = query + (token + r / shared) * s.query_token_stride + (head * shared + r % shared) * s.query_head_stride;
        for (int64_t d = 0; d < padded; d++) q[r * padded + d] = d < s.size ? widen(from[d]) : 0.0f;
    }
    std::fill_n(output, rows * padded, 0.0f);
    std::fill_n(scratch.maximum.begin(), rows, -INFINITY);
    std::fill_n(scratch.total.begin(), rows, 0.0f);
    int64_t end = position + count, begin = s.window ? std::max<int64_t>(0, position + 1 - s.window) : 0;
    const float* found[CHUNK];
    for (int64_t first = begin; first < end; first += CHUNK) {
        int n = int(std::min<int64_t>(CHUNK, end - first));
        find(key_cache, blocks, s, head, first, n, padded, keys, found);
        int64_t r = 0;
        for (; r + 3 <= rows; r += 3) scores_of_rows<3>(q + r * padded, found, scores + r * CHUNK, padded, n);
        for (; r + 2 <= rows; r += 2) scores_of_rows<2>(q + r * padded, found, scores + r * CHUNK, padded, n);
        if (r < rows) scores_of_rows<1>(q + r * padded, found, scores + r * CHUNK, padded, n);
        for (r = 0; r < rows; r++)
            weigh(scores + r * CHUNK, output + r * padded, scratch.maximum[r], scratch.total[r], s, position + r / shared,
                  first, n, padded);
        find(value_cache, blocks, s, head, first, n, padded, keys, found);
        for (r = 0; r + 4 <= rows; r += 4) add_values<4>(scores + r * CHUNK, found, output + r * padded, padded, n);
        for (; r + 2 <= rows; r += 2) add_values<2>(scores + r * CHUNK, found, output + r * padded, padded, n);
        if (r < rows) add_values<1>(scores + r * CHUNK, found, output + r * padded, padded, n);
    }
    for (int64_t r = 0; r < rows; r++) {
        T* to = result + ((token + r / shared) * s.query_heads + head * shared + r % shared) * s.size;
        for (int64_t d = 0; d < s.size; d++) to[d] = narrow<T>(output[r * padded + d] / scratch.total[r]);
    }
}

template <class T>
void paged_attention(const T* query, const T* key_cache, const T* value_cache, const int32_t* query_start,
                     const int32_t* lengths, const int32_t* table, T* result, const Shape& s, int threads) {
    int64_t shared = s.query_heads / s.kv_heads, tokens = std::max<int64_t>(1, ROWS / shared);
    int64_t padded = (s.size + VL - 1) / VL * VL, keys = 0;
    std::vector<int64_t> tasks(s.sequences + 1, 0);  // sequence i has the tasks tasks[i] .. tasks[i + 1] - 1
    for (int64_t i = 0; i < s.sequences; i++) {
        int64_t queries = query_start[i + 1] - query_start[i];
        tasks[i + 1] = tasks[i] + (queries + tokens - 1) / tokens * s.kv_heads;
        keys += queries * lengths[i];
    }
    if (keys * s.query_heads * s.size < 262144) threads = 1;  // waking a thread would take longer
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(tokens * shared, padded);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks[s.sequences]; task++) {
            int64_t i = std::upper_bound(tasks.begin(), tasks.end(), task) - tasks.begin() - 1;
            int64_t queries = query_start[i + 1] - query_start[i];
            int64_t head = (task - tasks[i]) % s.kv_heads, offset = (task - tasks[i]) / s.kv_heads * tokens;
            attend(query, key_cache, value_cache, table + i * s.table_stride, result, s, head, query_start[i] + offset,
                   std::min(tokens, queries - offset), lengths[i] - queries + offset, scratch);
        }
    }
}

#define FUNCTIONS(T, dtype)                                                                                            \
    extern "C" void paged_attention_##dtype(const T* q, const T* k, const T* v, const int32_t* start,                  \
                                            const int32_t* lengths, const int32_t* table, T* y, const Shape* s,        \
                                            int threads) {                                                             \
        paged_attention(q, k, v, start, lengths, table, y, *s, threads);                                               \
    }                                                                                                                  \
    template decltype(paged_attention<T>) paged_attention<T>; /* for layers.cpp */

FOR_EACH_DTYPE(FUNCTIONS)
