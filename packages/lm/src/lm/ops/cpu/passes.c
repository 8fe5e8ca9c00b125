/* What a training step does between its products, each in one pass over memory: see passes.py.

   REAL is float or double; with BF16 what matmuls read and write is bfloat16, in the same passes. Threads share the
   rows; a row is computed by the same operations in the same order whatever
   their number. */

#include <stdint.h>
#include <string.h>
#include <tgmath.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#ifdef BF16
typedef uint16_t Stored;   /* the upper half of a float */

static inline REAL get(Stored stored)
{
    uint32_t bits = (uint32_t)stored << 16;
    REAL value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest, ties to even. */
static inline Stored put(REAL value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (Stored)(value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0);
}
#else
typedef REAL Stored;

static inline REAL get(Stored stored) { return stored; }

static inline Stored put(REAL value) { return value; }
#endif

typedef __typeof__(_Generic((REAL)0, float: (uint32_t)0, double: (uint64_t)0)) Whole;   /* an integer as wide as REAL */

/* e^x to the last bit or two, or to 3e-6 where it is stored in bfloat16: e^x = 2^n e^r with |r| at most ln 2 / 2, and
   e^r by its series. */
static inline REAL exponential(REAL x)
{
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

#define EACH_ROW                                                        \
    _Pragma("omp parallel for num_threads(threads) schedule(static)")  \
    for (int64_t row = 0; row < rows; row++)
#define EACH _Pragma("omp simd") for (int64_t i = 0; i < width; i++)
#define EACH_ADDED _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < width; i++)

/* out = x / rms(x) · weight, and inverse (rows,) = 1 / rms(x). */
void scaled_norm(int threads, int64_t rows, int64_t width, const REAL *x, const REAL *weight, Stored *out,
                 REAL *inverse, double eps)
{
    EACH_ROW
    {
        const REAL *from = x + row * width;
        Stored *to = out + row * width;
        REAL sum = 0;
        EACH_ADDED sum += from[i] * from[i];
        const REAL by = inverse[row] = 1 / sqrt(sum / width + (REAL)eps);
        EACH to[i] = put(from[i] * by * weight[i]);
    }
}

/* The gradients of x, and of weight by groups of rows, (groups, width), from that of scaled_norm's result. */
void scaled_norm_back(int threads, int64_t groups, int64_t width, int64_t rows, int64_t group, const Stored *grad,
                      const REAL *x, const REAL *weight, const REAL *inverse, REAL *out, REAL *to_weight)
{
    _Pragma("omp parallel for num_threads(threads) schedule(static)")
    for (int64_t number = 0; number < groups; number++) {
        REAL *sums = to_weight + number * width;
        memset(sums, 0, (size_t)width * sizeof *sums);
        for (int64_t row = number * group; row < rows && row < (number + 1) * group; row++) {
            const Stored *g = grad + row * width;
            const REAL *from = x + row * width, by = inverse[row];
            REAL *to = out + row * width, sum = 0;
            EACH_ADDED sum += get(g[i]) * weight[i] * from[i];
            const REAL share = sum * by * by * by / width;
            EACH
            {
                const REAL slope = get(g[i]);
                to[i] = slope * weight[i] * by - from[i] * share;
                sums[i] += slope * from[i] * by;
            }
        }
    }
}

/* out (rows, width) = silu(gate) · up, of gate_up (rows, 2 width): the gate, then up. */
void swiglu(int threads, int64_t rows, int64_t width, const Stored *gate_up, Stored *out)
{
    EACH_ROW
    {
        const Stored *gate = gate_up + row * 2 * width, *up = gate + width;
        Stored *to = out + row * width;
        EACH
        {
            const REAL x = get(gate[i]);
            to[i] = put(x / (1 + exponential(-x)) * get(up[i]));
        }
    }
}

/* The gradient of gate_up, from that of swiglu's result: with s = sigmoid(gate), silu' = s + silu (1 - s). */
void swiglu_back(int threads, int64_t rows, int64_t width, const Stored *grad, const Stored *gate_up, Stored *out)
{
    EACH_ROW
    {
        const Stored *g = grad + row * width, *gate = gate_up + row * 2 * width, *up = gate + width;
        Stored *to_gate = out + row * 2 * width, *to_up = to_gate + width;
        EACH
        {
            const REAL x = get(gate[i]), slope = get(g[i]), s = 1 / (1 + exponential(-x)), silu = x * s;
            to_gate[i] = put(slope * get(up[i]) * (s + silu * (1 - s)));
            to_up[i] = put(slope * silu);
        }
    }
}

/* In place of logits (rows, stride), of which the first `width` count: their softmax, less one at the target; nats
   (rows,): what the target costs. A target below 0 costs nothing, and nothing is taken off. */
void cross_entropy(int threads, int64_t rows, int64_t width, Stored *logits, int64_t stride, const int64_t *targets,
                   REAL *nats)
{
    EACH_ROW
    {
        Stored *p = logits + row * stride;
        REAL sum = 0, most = get(p[0]);
        const int64_t target = targets[row];
        const REAL at_target = target < 0 ? 0 : get(p[target]);
        _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < width; i++)
            most = get(p[i]) > most ? get(p[i]) : most;
        EACH_ADDED
        {
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
