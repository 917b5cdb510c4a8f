// Vectors of float32 as wide as this CPU's registers, bfloat16, float16, and exp, shared by the kernels.
//
// The vectors are a compiler extension (GCC, Clang): `a * b + c` on a `vf` is one instruction for VL elements. The same
// source becomes AVX2, AVX-512 or NEON code. Only vector length, number of registers, and widening of float16, which
// GCC 12 does element by element, are defined here per CPU.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int VL = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int VL = 8, REGISTERS = 16;
#else
constexpr int VL = 4, REGISTERS = 32;  // NEON
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));

struct bf16 {  // the upper half of a float32
    uint16_t bits;
};
struct f16 {  // IEEE 754's binary16: 5 bits of exponent, 10 of fraction
    uint16_t bits;
};

template <class To, class From>
static inline To reinterpret(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline float widen(float x) { return x; }
static inline float widen(bf16 x) { return reinterpret<float>(uint32_t(x.bits) << 16); }
static inline float widen(f16 x) {  // no branch: a loop over it is vectorized
    uint32_t sign = uint32_t(x.bits & 0x8000) << 16, number = uint32_t(x.bits & 0x7fff) << 13;
    uint32_t small = reinterpret<uint32_t>(reinterpret<float>(number + (113u << 23)) - 0x1p-14f);  // subnormal, or 0
    uint32_t usual = number + (112u << 23), no_number = number + (224u << 23);
    return reinterpret<float>(sign | (number < (1u << 23) ? small : number < (31u << 23) ? usual : no_number));
}

template <class T>
static inline T narrow(float x);
template <>
inline float narrow<float>(float x) { return x; }
template <>
inline bf16 narrow<bf16>(float x) {  // rounds to nearest even, as PyTorch does
    uint32_t bits = reinterpret<uint32_t>(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return {uint16_t((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};  // NaN stays NaN
}
template <>
inline f16 narrow<f16>(float x) {  // rounds to nearest even
    uint32_t bits = reinterpret<uint32_t>(x), sign = bits >> 16 & 0x8000, number = bits & 0x7fffffff;
    uint32_t small = reinterpret<uint32_t>(reinterpret<float>(number) + 0.5f) - (126u << 23);  // the addition rounds
    uint32_t usual = (number - (112u << 23) + 0xfff + ((number >> 13) & 1)) >> 13;
    uint32_t large = number > 0x7f800000 ? 0x7e00 : 0x7c00;
    return {uint16_t(sign | (number < (113u << 23) ? small : number < (143u << 23) ? usual : large))};
}

// x rounded to T, where PyTorch stores an intermediate result in a tensor of T.
template <class T>
static inline float rounded(float x) { return widen(narrow<T>(x)); }

static inline vf load(const float* from) {
    vf x;
    memcpy(&x, from, sizeof x);
    return x;
}
static inline vf load(const bf16* from) {
    vh bits;
    memcpy(&bits, from, sizeof bits);
    return reinterpret<vf>(__builtin_convertvector(bits, vu) << 16);
}
static inline vf load(const f16* from) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX__) && defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
    float numbers[VL];
    for (int i = 0; i < VL; i++) numbers[i] = widen(from[i]);
    return load(numbers);
#endif
}
static inline void store(float* to, vf x) { memcpy(to, &x, sizeof x); }

// Keeps x in a register: GCC would fold a load into every multiply-add, and loads would become the limit.
static inline void in_register(vf& x) {
#if defined(__x86_64__)
    asm("" : "+v"(x));
#else
    asm("" : "+w"(x));
#endif
}

// Adds one half to the other until one element is left; in registers, not in memory.
template <int N>
static inline float sum_of(const float (&x)[N]) {
    if constexpr (N == 1) {
        return x[0];
    } else {
        typedef float half __attribute__((vector_size(N * 2)));
        half low, high;
        memcpy(&low, x, sizeof low);
        memcpy(&high, x + N / 2, sizeof high);
        low += high;
        float left[N / 2];
        memcpy(left, &low, sizeof low);
        return sum_of(left);
    }
}
static inline float sum(vf x) {
    float numbers[VL];
    memcpy(numbers, &x, sizeof x);
    return sum_of(numbers);
}

// e^x to within 2 units in the last place, 0 below e^-87: x = n ln 2 + r, a polynomial for e^r, n into the exponent.
// No branch and no call: a loop over it is vectorized.
static inline float fast_exp(float x) {
    float in_range = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
    float n = std::nearbyint(in_range * 1.44269504f);
    float r = (in_range - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    float power = reinterpret<float>((int32_t(n) + 127) << 23);
    float result = p * power;
    return x < -87.0f ? 0.0f : x > 88.0f ? INFINITY : x != x ? x : result;
}

static inline float fast_tanh(float x) { return 1.0f - 2.0f / (fast_exp(2.0f * x) + 1.0f); }
