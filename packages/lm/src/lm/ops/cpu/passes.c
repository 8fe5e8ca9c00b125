/* What a training step does between its products, each in one pass over memory: see passes.py.

   REAL is float or double. Threads share the rows; a row is computed by the same operations in the same order whatever
   their number. */

#include <stdint.h>
#include <string.h>
#include <tgmath.h>

typedef __typeof__(_Generic((REAL)0, float: (uint32_t)0, double: (uint64_t)0)) Whole;   /* an integer as wide as REAL */

/* e^x to the last bit or two: e^x = 2^n e^r with |r| at most ln 2 / 2, and e^r by its series. */
static inline REAL exponential(REAL x)
{
    const int single = sizeof(REAL) == 4, bits = single ? 23 : 52, terms = single ? 7 : 13;
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

/* inverse (rows,) = 1 / rms(x) and normal = x · inverse. */
void normalise(int threads, int64_t rows, int64_t width, const REAL *x, REAL *normal, REAL *inverse, double eps)
{
    EACH_ROW
    {
        const REAL *from = x + row * width;
        REAL *to = normal + row * width, sum = 0;
        EACH_ADDED sum += from[i] * from[i];
        const REAL by = inverse[row] = 1 / sqrt(sum / width + (REAL)eps);
        EACH to[i] = from[i] * by;
    }
}

/* The gradient of x, from that of normal: (g - n mean(g n)) / rms(x). */
void normalise_back(int threads, int64_t rows, int64_t width, const REAL *grad, const REAL *normal,
                    const REAL *inverse, REAL *out)
{
    EACH_ROW
    {
        const REAL *g = grad + row * width, *n = normal + row * width;
        REAL *to = out + row * width, sum = 0;
        EACH_ADDED sum += g[i] * n[i];
        const REAL mean = sum / width, by = inverse[row];
        EACH to[i] = (g[i] - n[i] * mean) * by;
    }
}

/* out (rows, width) = silu(gate) · up, of gate_up (rows, 2 width): the gate, then up. */
void swiglu(int threads, int64_t rows, int64_t width, const REAL *gate_up, REAL *out)
{
    EACH_ROW
    {
        const REAL *gate = gate_up + row * 2 * width, *up = gate + width;
        REAL *to = out + row * width;
        EACH to[i] = gate[i] / (1 + exponential(-gate[i])) * up[i];
    }
}

/* The gradient of gate_up, from that of swiglu's result: with s = sigmoid(gate), silu' = s + silu (1 - s). */
void swiglu_back(int threads, int64_t rows, int64_t width, const REAL *grad, const REAL *gate_up, REAL *out)
{
    EACH_ROW
    {
        const REAL *g = grad + row * width, *gate = gate_up + row * 2 * width, *up = gate + width;
        REAL *to_gate = out + row * 2 * width, *to_up = to_gate + width;
        EACH
        {
            const REAL s = 1 / (1 + exponential(-gate[i])), silu = gate[i] * s;
            to_gate[i] = g[i] * up[i] * (s + silu * (1 - s));
            to_up[i] = g[i] * silu;
        }
    }
}

/* In place of logits (rows, stride), of which the first `width` count: their softmax, less one at the target; nats
   (rows,): what the target costs. A target below 0 costs nothing, and nothing is taken off. */
void cross_entropy(int threads, int64_t rows, int64_t width, REAL *logits, int64_t stride, const int64_t *targets,
                   REAL *nats)
{
    EACH_ROW
    {
        REAL *p = logits + row * stride, sum = 0, most = p[0];
        const int64_t target = targets[row];
        const REAL at_target = target < 0 ? 0 : p[target];
        _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < width; i++) most = p[i] > most ? p[i] : most;
        EACH_ADDED sum += p[i] = exponential(p[i] - most);
        const REAL by = 1 / sum;
        EACH p[i] *= by;
        memset(p + width, 0, (size_t)(stride - width) * sizeof *p);
        nats[row] = target < 0 ? 0 : most - at_target + log(sum);
        if (target >= 0) p[target] -= 1;
    }
}
