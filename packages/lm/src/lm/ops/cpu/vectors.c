/* Vectors of REAL, float or double, as the C compiler has them on any processor, and operations lane by lane. */

#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

enum { SILU, GELU, GELU_EXACT, RELU2, CLAMPED }; /* ACTIVATIONS of forward.py */
enum { RMSNORM, LAYERNORM, NO_NORM };            /* NORMS of forward.py */

typedef struct {
    const REAL *weight, *bias; /* (width,); bias: or none */
    int64_t kind, step;        /* step: elements between the weights of two heads, 0 where all have the same */
    double eps;
} Norm;

typedef struct {
    int64_t kind, gated; /* gated: f(gate) up in place of f(up) */
    double alpha, limit; /* of CLAMPED */
} Activation;

#ifdef __AVX512F__ /* of a vector: what the processor has, since gcc makes slow code of one that is wider */
#define BYTES 64
#else
#define BYTES 32
#endif

#define LANES ((int64_t)(BYTES / sizeof(REAL)))
typedef REAL Lanes __attribute__((vector_size(BYTES)));
typedef int32_t Ints __attribute__((vector_size(BYTES)));
typedef float Floats __attribute__((vector_size(BYTES)));

static inline Lanes load(const REAL *from) {
    Lanes v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store(REAL *to, Lanes v) { memcpy(to, &v, sizeof v); }

typedef __typeof__((Lanes){0} > (Lanes){0}) Mask; /* integers as wide as REAL */
/* the same without a sign: sums of bits may wrap, as those of a NaN's do */
typedef __typeof__(_Generic((REAL)0, float: (uint32_t)0, double: (uint64_t)0)) Unsigned
    __attribute__((vector_size(BYTES)));

static inline Lanes choose(Mask where, Lanes yes, Lanes no) {
    return (Lanes)((where & (Mask)yes) | (~where & (Mask)no));
}

/* e^x to the last bit or two: e^x = 2^n e^r with |r| at most ln 2 / 2, and e^r by its series. */
static inline Lanes exponential(Lanes x) {
    const int single = sizeof(REAL) == 4, bits = single ? 23 : 52, terms = single ? 7 : 13;
    const REAL least = single ? -87 : -708, most = single ? 88 : 709, to_whole = single ? 0x1.8p23 : 0x1.8p52;
    const REAL ln2 = single ? 0x1.62e4p-1 : 0x1.62e42fefa38p-1, rest = single ? 0x1.7f7d1cp-20 : 0x1.ef35793c7673p-45;
    Lanes at = choose(x < least, least - (Lanes){0}, choose(x > most, most - (Lanes){0}, x));
    Lanes shifted = at * (REAL)1.4426950408889634 + to_whole, n = shifted - to_whole;
    Lanes r = at - n * ln2 - n * rest, series = 1 - (Lanes){0};
    for (int i = terms; i > 0; i--) series = 1 + series * r * ((REAL)1 / i);
    return choose(x == x, (Lanes)((Unsigned)series + ((Unsigned)shifted << bits)), x);
}

/* LANES numbers, but zero for the first ones, if not among the last `count`. */
static inline Lanes last(const REAL *from, int64_t count) {
    Mask place;
    for (int64_t i = 0; i < LANES; i++) place[i] = LANES - i;
    return choose(place <= (__typeof__(place[0]))count, load(from), (Lanes){0});
}

/* Lane i: lane i ^ by of v. */
static inline __attribute__((always_inline)) Lanes swapped(Lanes v, const int64_t by) {
#ifdef __clang__
    Lanes other;
    for (int64_t i = 0; i < LANES; i++) other[i] = v[i ^ by];
    return other;
#else /* gcc would gather them from memory */
    Mask places;
    for (int64_t i = 0; i < LANES; i++) places[i] = i ^ by;
    return __builtin_shuffle(v, places);
#endif
}

static inline REAL sum(Lanes v) {
    for (int64_t by = LANES / 2; by; by /= 2) v += swapped(v, by);
    return v[0];
}

/* y = norm(x), which may be x itself. */
static void normalise(Norm norm, int64_t width, const REAL *x, REAL *y) {
    REAL mean = 0, squares = 0;
    if (norm.kind == NO_NORM) {
        memmove(y, x, (size_t)width * sizeof *y);
        return;
    }
    if (norm.kind == LAYERNORM) {
        _Pragma("omp simd reduction(+ : mean)") for (int64_t i = 0; i < width; i++) mean += x[i];
        mean /= width;
    }
    _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < width; i++) squares +=
        (x[i] - mean) * (x[i] - mean);
    const REAL by = 1 / sqrt(squares / width + (REAL)norm.eps);
    for (int64_t i = 0; i < width; i++) {
        const REAL v = (x[i] - mean) * by * norm.weight[i];
        y[i] = norm.bias ? v + norm.bias[i] : v;
    }
}

/* Exchanges the lanes with bit `by` of a and those without it of b. */
static inline __attribute__((always_inline)) void exchange(Lanes *a, Lanes *b, const int64_t by) {
    Mask second;
    for (int64_t i = 0; i < LANES; i++) second[i] = i & by ? -1 : 0;
    const Lanes of_both = choose(second, swapped(*b, by), *a);
    *b = choose(second, *b, swapped(*a, by));
    *a = of_both;
}

#define BY_BITS(step) step(1) step(2) if (LANES > 4) step(4) if (LANES > 8) step(8) /* constants, or gcc is slow */

/* Lane i: the sum of the lanes of rows[i], which this overwrites. */
static inline __attribute__((always_inline)) Lanes sums_of(Lanes *rows) {
#define FOLD(by)                                                                                               \
    _Pragma("GCC unroll 8") for (int64_t i = 0; i < LANES; i += 2 * by) exchange(rows + i, rows + i + by, by), \
        rows[i] += rows[i + by];
    BY_BITS(FOLD)
    return rows[0];
}

/* Lane j of row i becomes lane i of row j. */
static inline __attribute__((always_inline)) void transpose(Lanes *rows) {
#define TURN(by) \
    _Pragma("GCC unroll 16") for (int64_t i = 0; i < LANES; i++) if (!(i & by)) exchange(rows + i, rows + i + by, by);
    BY_BITS(TURN)
}

/* The first `count` numbers, at most LANES, and zeros. */
static inline Lanes load_some(const REAL *from, int64_t count) {
    Lanes v = {0};
    if (count == LANES) return load(from); /* without a call of memcpy */
    memcpy(&v, from, (size_t)count * sizeof *from);
    return v;
}

static inline void store_some(REAL *to, int64_t count, Lanes v) {
    if (count == LANES) store(to, v);
    else memcpy(to, &v, (size_t)count * sizeof *to);
}

static inline Lanes active(int64_t kind, Lanes x) {
    if (kind == GELU_EXACT) {
        for (int64_t i = 0; i < LANES; i++) x[i] *= (REAL)0.5 * (1 + erf(x[i] * (REAL)0.7071067811865476));
        return x;
    }
    if (kind == RELU2) return choose(x < 0, (Lanes){0}, x * x);
    /* GELU's (1 + tanh u) / 2 is 1 / (1 + e^-2u), as SiLU's is 1 / (1 + e^-x). */
    Lanes by = kind == GELU ? (REAL)-1.5957691216057308 * (x + (REAL)0.044715 * x * x * x) : -x;
    return x / (1 + exponential(by));
}

/* x = f(x), or f(x) · gated, for `count` numbers. */
static void activate(const Activation *f, REAL *x, const REAL *gated, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        const int64_t size = count - i < LANES ? count - i : LANES;
        Lanes v = load_some(x + i, size), by = f->gated ? load_some(gated + i, size) : v;
        if (f->kind == CLAMPED) { /* gpt-oss: gate σ(alpha gate) (up + 1), cut at the limit, the gate above alone */
            const Lanes most = (REAL)f->limit - (Lanes){0};
            v = choose(v > most, most, v);
            by = choose(by > most, most, choose(by < -most, -most, by)) + 1;
            v = v / (1 + exponential((REAL)-f->alpha * v));
        } else v = active(f->kind, v);
        store_some(x + i, size, f->gated ? v * by : v);
    }
}

/* x = cap tanh(x / cap) of `count` numbers; 0: they stay. (Gemma 2) */
static void softcap(REAL *x, int64_t count, double cap) {
    for (int64_t i = 0; cap > 0 && i < count; i += LANES) {
        const int64_t size = count - i < LANES ? count - i : LANES;
        store_some(x + i, size, (REAL)cap * (1 - 2 / (1 + exponential(load_some(x + i, size) * (REAL)(2 / cap)))));
    }
}
