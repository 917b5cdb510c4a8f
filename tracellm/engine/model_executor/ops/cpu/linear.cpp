// y = x W^T + bias for few rows of x and a far larger W: nearly all of the work of decoding.
//
// With 16 requests, a step reads every weight of the model once and multiplies it by 16 numbers. The limits are memory
// bandwidth and the multiply-adds of a core. The layout serves both. W [N, K] is stored in panels of NR output columns,
// the elements of a panel in the order of their use:
//
//     W:     row n, the weights of output n            panel p:  k=0: W[pNR.., 0]   NR numbers side by side
//            [n0 k0 k1 k2 ...]                                   k=1: W[pNR.., 1]
//            [n1 k0 k1 k2 ...]             ---->                 ...
//            [.. ...         ]                                   (bfloat16: two k side by side for each column)
//
//     one tile, R <= MR rows of x by NR columns, all its sums in registers:
//            for k:  load NR weights (NV vectors);  for each row: broadcast x[row, k], NV multiply-adds
//
// A panel is read from memory once, in order, for all rows: in pieces of depth KC, which stay in the L1 cache for all
// tiles. AVX2 has no arithmetic for bfloat16: weights become float32 in a register, by a shift or a mask. Sums are float32
// and rounded once, after adding the bias. The order of a row's sum does not depend on the other rows, so a request's
// results do not depend on its batch.
//
// Memory traffic: N K times 2 bytes (4 in float32) for W, once for every MB rows; x and y are small in comparison.
//
// Most checkpoints have 16 bits. If the model computes in float32, the weights stay in 16 bits: the products are the same,
// bit for bit, and half as much is read.
#include "kernels.h"

constexpr int NV = 2, NR = NV * VL;                 // columns of a panel: 16 with AVX2, 32 with AVX-512
constexpr int MR = (REGISTERS - NV - 2) / NV;       // rows of a tile: its MR * NV sums fill the registers
template <class W>
constexpr int KC = 512 / sizeof(W);                 // weights of a column for one tile: a piece of 8 KiB with AVX2
constexpr int64_t MB = 240;                         // rows that a thread computes for each panel

static int64_t panels(int64_t N) { return (N + NR - 1) / NR; }

// Elements of a column of K weights: bfloat16 is padded to whole pairs of k.
template <class W>
static int64_t depth_of(int64_t K) { return std::is_same_v<W, bf16> ? K + K % 2 : K; }

// E: an element, or a pair of bfloat16 in 4 bytes; a panel is a transposed block of them.
template <class E, class Read>
static void pack(E* out, int64_t N, int64_t depth, int threads, Read read) {
#pragma omp parallel for num_threads(threads)
    for (int64_t p = 0; p < panels(N); p++) {
        int64_t columns = std::min<int64_t>(NR, N - p * NR);
        E* panel = out + p * depth * NR;
        if (columns < NR) memset(panel, 0, depth * NR * sizeof(E));
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = 0; j < columns; j++) panel[k * NR + j] = read(p * NR + j, k);
    }
}

template <class W>
static void pack_weight(const W* weight, W* out, int64_t N, int64_t K, int threads) {
    if constexpr (!std::is_same_v<W, bf16>) {
        pack(out, N, K, threads, [=](int64_t n, int64_t k) { return weight[n * K + k]; });
    } else if (K % 2 == 0) {
        const uint32_t* w = (const uint32_t*)weight;
        pack((uint32_t*)out, N, K / 2, threads, [=](int64_t n, int64_t k) { return w[n * (K / 2) + k]; });
    } else {
        const uint16_t* w = (const uint16_t*)weight;
        pack((uint32_t*)out, N, K / 2 + 1, threads, [=](int64_t n, int64_t k) {
            return w[n * K + 2 * k] | (2 * k + 1 < K ? uint32_t(w[n * K + 2 * k + 1]) << 16 : 0u);
        });
    }
}

// NR weights of column k: float32 as stored; float16 widened by one instruction; bfloat16 in pairs of k in 32 bits, the
// lower half shifted up and the upper half masked to become float32.
template <class W>
static void weights_of(const W* panel, int64_t k, vf* weights) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
        weights[v] = load(panel + k * NR + v * VL);
        in_register(weights[v]);
    }
}
static void weights_of(const bf16* panel, int64_t k, vf* weights) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; v++) {
        vu both;
        memcpy(&both, panel + (k & ~1) * NR + 2 * v * VL, sizeof both);
        weights[v] = reinterpret<vf>(k & 1 ? both & 0xffff0000u : both << 16);
    }
}

template <int R>
static void multiply_add(vf (&sums)[R][NV], const float* x, int64_t x_stride, const vf* weights) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        float number = x[r * x_stride];
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sums[r][v] += number * weights[v];
    }
}

// R rows of x times `depth` elements of each column of the panel, added to c [R, NR]. Prefetches from `ahead`, `stride`
// bytes further for every two k.
template <int R, class W>
static void tile(const float* x, int64_t x_stride, const W* panel, float* c, int64_t depth, const char* ahead, int64_t stride) {
    vf sums[R][NV], weights[NV];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) sums[r][v] = load(c + r * NR + v * VL);
    int64_t k = 0;
    for (; k + 2 <= depth; k += 2) {
        __builtin_prefetch(ahead);
        if (sizeof(W) == 4) __builtin_prefetch(ahead + 64);
        ahead += stride;
        weights_of(panel + k * NR, 0, weights);
        multiply_add(sums, x + k, x_stride, weights);
        weights_of(panel + k * NR, 1, weights);
        multiply_add(sums, x + k + 1, x_stride, weights);
    }
    if (k < depth) {  // never for bfloat16, which is padded to whole pairs
        weights_of(panel + k * NR, 0, weights);
        multiply_add(sums, x + k, x_stride, weights);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < NV; v++) store(c + r * NR + v * VL, sums[r][v]);
}

template <class W>
using Tile = void (*)(const float*, int64_t, const W*, float*, int64_t, const char*, int64_t);

// One function per number of rows: the compiler must know it to keep the sums in registers.
template <class W, int... R>
static Tile<W> choose_tile(int64_t rows, std::integer_sequence<int, R...>) {
    static constexpr Tile<W> tiles[] = {tile<R + 1, W>...};
    return tiles[rows - 1];
}

// One panel times m rows of x [m, K], into c [m, NR].
template <class W>
static void panel_product(const float* x, int64_t K, const W* panel, float* c, int64_t m) {
    int64_t groups = (m + MR - 1) / MR;
    memset(c, 0, m * NR * sizeof(float));
    for (int64_t k = 0; k < K; k += KC<W>) {
        int64_t depth = std::min<int64_t>(KC<W>, K - k), column = NR * sizeof(W);
        const char* next = (const char*)(panel + (k + depth) * NR);  // each group prefetches its share of the next piece
        for (int64_t g = 0; g < groups; g++) {  // groups of nearly equal size: 16 rows are 5, 5 and 6
            int64_t first = m * g / groups, rows = m * (g + 1) / groups - first;
            Tile<W> product = choose_tile<W>(rows, std::make_integer_sequence<int, MR>());
            product(x + first * K + k, K, panel + k * NR, c + first * NR, depth, next + depth * column * g / groups,
                    2 * column / groups);
        }
    }
}

template <class T, class W>
void linear(const T* x, const W* packed, const T* bias, T* y, int64_t M, int64_t N, int64_t K, int threads) {
    int64_t depth = depth_of<W>(K);
    thread_local std::vector<float> kept;  // x in float32, kept between calls
    if (sizeof(T) == 2) kept.resize(std::max<size_t>(kept.size(), std::min(M, MB) * depth));
    float* wide = kept.data();
    int64_t share = std::max<int64_t>(1, std::min<int64_t>(8, panels(N) / (4 * threads)));
    if (M * N * K < 4000000) threads = 1;  // below 100 us of work: waking a thread takes 50 us or more
#pragma omp parallel num_threads(threads)
    {
        alignas(64) float c[MB * NR];
        for (int64_t m0 = 0; m0 < M; m0 += MB) {
            int64_t m = std::min(MB, M - m0);
            const float* rows;
            if constexpr (sizeof(T) == 2) {
#pragma omp for schedule(static)
                for (int64_t i = 0; i < m; i++) {
                    for (int64_t k = 0; k < K; k++) wide[i * depth + k] = widen(x[(m0 + i) * K + k]);
                    if (depth > K) wide[i * depth + K] = 0;
                }
                rows = wide;
            } else {
                rows = x + m0 * K;
            }
#pragma omp for schedule(dynamic, share)
            for (int64_t p = 0; p < panels(N); p++) {
                panel_product(rows, depth, packed + p * depth * NR, c, m);
                int64_t columns = std::min<int64_t>(NR, N - p * NR);
                float added[NR] = {};
                if (bias)
                    for (int64_t j = 0; j < columns; j++) added[j] = widen(bias[p * NR + j]);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < columns; j++)
                        y[(m0 + i) * N + p * NR + j] = narrow<T>(c[i * NR + j] + added[j]);
            }
        }
    }
}

#define PACKING(W, dtype)                                                                                              \
    /* Elements of N x K packed weights: columns are padded to whole panels. */                                        \
    extern "C" int64_t packed_size_##dtype(int64_t N, int64_t K) { return panels(N) * NR * depth_of<W>(K); }           \
    extern "C" void pack_weight_##dtype(const W* weight, W* out, int64_t N, int64_t K, int threads) {                  \
        pack_weight(weight, out, N, K, threads);                                                                       \
    }

#define PRODUCTS(T, W, dtypes)                                                                                         \
    extern "C" void linear_##dtypes(const T* x, const W* w, const T* b, T* y, int64_t M, int64_t N, int64_t K,         \
                                    int threads) {                                                                     \
        linear(x, w, b, y, M, N, K, threads);                                                                          \
    }                                                                                                                  \
    template decltype(linear<T, W>) linear<T, W>; /* for layers.cpp */

FOR_EACH_DTYPE(PACKING)
FOR_EACH_DTYPE_OF_WEIGHTS(PRODUCTS)
