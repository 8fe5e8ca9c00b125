/* The loss of a training step in one pass over memory, and what attention.c needs. REAL is float or double; with BF16
   matmuls read and write bfloat16. Threads share the rows, each of which is computed in the same order. */

#include <stdint.h>
#include <string.h>
#include <tgmath.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#ifdef BF16
typedef uint16_t Stored; /* the upper half of a float */

static inline REAL get(Stored stored) {
    uint32_t bits = (uint32_t)stored << 16;
    REAL value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest, ties to even. */
static inline Stored put(REAL value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (Stored)(value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
}
#else
typedef REAL Stored;

static inline REAL get(Stored stored) { return stored; }

static inline Stored put(REAL value) { return value; }
#endif

typedef __typeof__(_Generic((REAL)0, float: (uint32_t)0, double: (uint64_t)0)) Whole; /* an integer as wide as REAL */

/* e^x to the last bit or two, or to 3e-6 where it is stored in bfloat16: e^x = 2^n e^r with |r| at most ln 2 / 2, and
   e^r by its series. */
static inline REAL exponential(REAL x) {
    const int single = sizeof(REAL) == 4, bits = single ? 23 : 52, terms = single ? sizeof(Stored) == 2 ? 5 : 7 : 13;
    const REAL least = single ? -87 : -708, most = single ? 88 : 709, to_whole = single ? 0x1.8p23 : 0x1.8p52;
    const REAL ln2 = single ? 0x1.62e4p-1 : 0x1.62e42fefa38p-1, rest = single ? 0x1.7f7d1cp-20 : 0x1.ef35793c7673p-45;
    REAL at = x < least ? least : x > most ? most : x;
    REAL shifted = at * (REAL)1.4426950408889634 + to_whole, n = shifted - to_whole, r = at - n * ln2 - n * rest, y = 1;
    Whole power, whole;
    for (int i = terms; i > 0; i--) y = 1 + y * r * ((REAL)1 / i);
    memcpy(&power, &shifted, sizeof power);
    memcpy(&whole, &y, sizeof whole);
    whole += power << bits;
    memcpy(&y, &whole, sizeof y);
    return x == x ? y : x;
}

#define EACH _Pragma("omp simd") for (int64_t i = 0; i < width; i++)
#define EACH_ADDED _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < width; i++)

/* In place of logits (rows, stride), of which the first `width` count: their softmax, less one at the target; nats
   (rows,): what the target costs. A target below 0 costs nothing, and nothing is taken off. */
void cross_entropy(int threads, int64_t rows, int64_t width, Stored *logits, int64_t stride, const int64_t *targets,
                   REAL *nats) {
    _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t row = 0; row < rows; row++) {
        Stored *p = logits + row * stride;
        REAL sum = 0, most = get(p[0]);
        const int64_t target = targets[row];
        const REAL at_target = target < 0 ? 0 : get(p[target]);
        _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < width; i++) most =
            get(p[i]) > most ? get(p[i]) : most;
        EACH_ADDED {
            const REAL e = exponential(get(p[i]) - most);
            sum += e;
            p[i] = put(e);
        }
        const REAL by = 1 / sum;
        EACH p[i] = put(get(p[i]) * by);
        memset(p + width, 0, (size_t)(stride - width) * sizeof *p);
        nats[row] = target < 0 ? 0 : most - at_target + log(sum);
        if (target >= 0) p[target] = put(get(p[target]) - 1);
    }
}
