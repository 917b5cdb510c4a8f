// Causal attention that reads keys and values where they lie in the paged cache: nothing is gathered first.
//
// A task is one sequence, one key/value head and a few neighbouring query tokens; its rows are those tokens times the
// query heads that share the key/value head. Decoding (one token) and prefill (many) are the same code:
//
//     for each chunk of CHUNK keys that a row may see:        block table:  token p -> block p / block_size
//         keys   -> float32, in the nearest cache             (read once for all rows of the task)
//         scores = q . k * scale, hidden ones -inf
//         running maximum and sum of each row; what was summed before is scaled down to the new maximum
//         values -> float32;  output += e^(score - maximum) * v
//     output / sum
//
// That is the "online softmax" of FlashAttention: no score is kept for longer than its chunk. Arithmetic is float32.
// Memory traffic: each owned key and value is read once by each task, 2 D numbers a token.
#include "vectors.h"

constexpr int CHUNK = 32;  // keys at a time: with D = 64 they take 8 KiB in float32
constexpr int ROWS = 24;   // rows of a task, about

struct Shape {
    int64_t sequences, query_heads, kv_heads, size, block_size, table_stride, query_token_stride, query_head_stride,
        window;  // window 0: none
    float scale, cap;  // cap 0: none
};

// dot products of R rows of q with J keys, into scores [R, CHUNK].
template <int R, int J>
static void dots(const float* q, const float* keys, float* scores, int64_t size) {
    vf sums[R][J] = {};
    for (int64_t d = 0; d < size; d += VL) {
        vf key[J];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) key[j] = load(keys + j * size + d);
#pragma GCC unroll 2
        for (int r = 0; r < R; r++) {
            vf number = load(q + r * size + d);
#pragma GCC unroll 4
            for (int j = 0; j < J; j++) sums[r][j] += number * key[j];
        }
    }
    for (int r = 0; r < R; r++)
        for (int j = 0; j < J; j++) scores[r * CHUNK + j] = sum(sums[r][j]);
}

template <int R>
static void scores_of_rows(const float* q, const float* keys, float* scores, int64_t size, int n) {
    int j = 0;
    for (; j + 4 <= n; j += 4) dots<R, 4>(q, keys + j * size, scores + j, size);
    for (; j < n; j++) dots<R, 1>(q, keys + j * size, scores + j, size);
}

// output [size] of R rows += weights [R, CHUNK] times n values.
template <int R>
static void add_values(const float* weights, const float* values, float* output, int64_t size, int n) {
    for (int64_t d = 0; d < size; d += VL) {
        vf sums[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) sums[r] = load(output + r * size + d);
        for (int j = 0; j < n; j++) {
            vf value = load(values + j * size + d);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) sums[r] += weights[r * CHUNK + j] * value;
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) store(output + r * size + d, sums[r]);
    }
}

// Keys or values first .. first + n - 1 of a sequence and head, in float32, rows of `padded` numbers.
template <class T>
static void read_cache(const T* cache, const int32_t* blocks, const Shape& s, int64_t head, int64_t first, int n,
                       int64_t padded, float* to) {
    for (int j = 0; j < n; j++) {
        int64_t position = first + j, slot = int64_t(blocks[position / s.block_size]) * s.block_size + position % s.block_size;
        const T* from = cache + (slot * s.kv_heads + head) * s.size;
        int64_t d = 0;
        for (; d + VL <= s.size; d += VL) store(to + j * padded + d, load(from + d));
        for (; d < s.size; d++) to[j * padded + d] = widen(from[d]);
    }
}

struct Scratch {  // of one thread
    std::vector<float> q, output, keys, scores, maximum, total;
    Scratch(int64_t rows, int64_t padded)
        : q(rows * padded), output(rows * padded), keys(CHUNK * padded), scores(rows * CHUNK), maximum(rows), total(rows) {}
};

// The softmax of a chunk's scores begins: hide what row r at `position` may not see, take the maximum, make weights of
// the scores, and scale down what was summed before.
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
    for (int j = 0; j < n; j++) top = scores[j] > top ? scores[j] : top;
    if (top == -INFINITY) {  // nothing seen so far
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
    for (int64_t first = begin; first < end; first += CHUNK) {
        int n = int(std::min<int64_t>(CHUNK, end - first));
        read_cache(key_cache, blocks, s, head, first, n, padded, keys);
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) scores_of_rows<2>(q + r * padded, keys, scores + r * CHUNK, padded, n);
        if (r < rows) scores_of_rows<1>(q + r * padded, keys, scores + r * CHUNK, padded, n);
        for (r = 0; r < rows; r++)
            weigh(scores + r * CHUNK, output + r * padded, scratch.maximum[r], scratch.total[r], s, position + r / shared,
                  first, n, padded);
        read_cache(value_cache, blocks, s, head, first, n, padded, keys);
        for (r = 0; r + 4 <= rows; r += 4) add_values<4>(scores + r * CHUNK, keys, output + r * padded, padded, n);
        for (; r < rows; r++) add_values<1>(scores + r * CHUNK, keys, output + r * padded, padded, n);
    }
    for (int64_t r = 0; r < rows; r++) {
        T* to = result + ((token + r / shared) * s.query_heads + head * shared + r % shared) * s.size;
        for (int64_t d = 0; d < s.size; d++) to[d] = narrow<T>(output[r * padded + d] / scratch.total[r]);
    }
}

template <class T>
static void paged_attention(const T* query, const T* key_cache, const T* value_cache, const int32_t* query_start,
                            const int32_t* lengths, const int32_t* table, T* result, const Shape& s, int threads) {
    int64_t shared = s.query_heads / s.kv_heads, tokens = std::max<int64_t>(1, ROWS / shared);
    int64_t padded = (s.size + VL - 1) / VL * VL, keys = 0;
    std::vector<int64_t> tasks(s.sequences + 1, 0);  // those of sequence i are tasks[i] .. tasks[i + 1] - 1
    for (int64_t i = 0; i < s.sequences; i++) {
        int64_t queries = query_start[i + 1] - query_start[i];
        tasks[i + 1] = tasks[i] + (queries + tokens - 1) / tokens * s.kv_heads;
        keys += queries * lengths[i];
    }
    if (keys * s.query_heads * s.size < 262144) threads = 1;  // less than waking a thread may take
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

extern "C" void paged_attention_f32(const float* q, const float* k, const float* v, const int32_t* start,
                                    const int32_t* lengths, const int32_t* table, float* y, const Shape* s, int threads) {
    paged_attention(q, k, v, start, lengths, table, y, *s, threads);
}
extern "C" void paged_attention_bf16(const bf16* q, const bf16* k, const bf16* v, const int32_t* start,
                                     const int32_t* lengths, const int32_t* table, bf16* y, const Shape* s, int threads) {
    paged_attention(q, k, v, start, lengths, table, y, *s, threads);
}
