/* One more token for each of several texts: what decode_step.py asks for, all of a Transformer in one call.

   REAL is float or double, and the weights of matrices are of that type, int8 with a scale for each row, or 4 bits with
   one for each group of GROUP; what int8 is multiplied by is rounded to 16 bits. All threads go through the layers
   together and wait for each other where one needs what another made. A number is computed by the same operations in
   the same order whatever the batch and however many threads there are. */

#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

enum { SWIGLU, GELU, GELU_EXACT, SILU, RELU2 };   /* FFNS of decode_step.py */
enum { RMSNORM, LAYERNORM, NO_NORM };             /* NORMS of decode_step.py */

typedef struct {
    const void *weight;   /* (rows, columns), a row every `stride` */
    const REAL *scale;    /* (rows,) if the weight is int8; (rows, groups) if it is of 4 bits */
    const REAL *bias;     /* (rows,) or none */
    int64_t rows, columns, stride, groups;   /* groups: 0, or of a row's weights of 4 bits, GROUP / 2 bytes each */
} Matrix;

typedef struct {
    const REAL *weight, *bias;   /* (width,), or none */
} Norm;

typedef struct {
    Norm attention_norm, ffn_norm, q_norm, k_norm;
    Matrix qkv, output, up, down;   /* up: of SwiGLU the gate's rows, then those of up */
} Layer;

typedef struct {
    int64_t layers, d_model, heads, kv_heads, head_dim, d_ff, sliding_window;   /* sliding_window 0: none */
    int64_t norm, ffn, post, qk_norm;
    double eps;
    const REAL *embedding, *positions, *rope;   /* (vocab, d_model), (context, d_model), (context, head_dim / 2, 2) */
    Norm final_norm;
    Matrix head;
    const Layer *layer;
} Model;

#ifdef __AVX512F__   /* of a vector: what the processor has, since gcc makes slow code of one that is wider */
#define BYTES 64
#else
#define BYTES 32
#endif

#define LANES ((int64_t)(BYTES / sizeof(REAL)))
#define ROWS LANES   /* of a matrix at once, one after the other: their sums fill a vector */
#define TEXTS 8      /* the most that a row is multiplied by at once */
#define AHEAD 2048   /* bytes: so long before it is used memory is fetched into the second cache. On one core of a Zen 4
                        it then comes at 34 GB/s, without this at 29, from 8 kB ahead or more at 25 */
#define GROUP 32      /* weights of 4 bits with one scale, as int8.py has them */
#define LARGEST (127 * 256)   /* as int8.py has it */
#define EXACT 512    /* products of int8 and int16 whose sum an int32 holds */
#define PAIRS ((int64_t)(BYTES / sizeof(int16_t)))   /* int16 of a vector */
#define IN_LANES(count) (((count) + LANES - 1) / LANES * LANES)   /* parts of scratch memory: loads of lines */
#define PADDED(count) (((count) + PAIRS - 1) / PAIRS * PAIRS)

typedef REAL Lanes __attribute__((vector_size(BYTES)));
typedef REAL Half __attribute__((vector_size(BYTES / 2)));
typedef uint8_t Bytes __attribute__((vector_size(BYTES / sizeof(REAL))));
typedef int32_t Wholes __attribute__((vector_size(4 * BYTES / sizeof(REAL))));
typedef int32_t Ints __attribute__((vector_size(BYTES)));
typedef float Floats __attribute__((vector_size(BYTES)));

/* sums + products of 16 bits, two in each lane; and int16 of int8, a vector of them. */
#ifdef __AVX512VNNI__
#define INT16_PRODUCTS (sizeof(REAL) == 4)
#define add_products(sums, x, by) (Ints)_mm512_dpwssd_epi32((__m512i)(sums), (__m512i)(x), (__m512i)(by))
#define widened(from) (Ints)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(from)))
#else   /* one by one: floats are faster */
#define INT16_PRODUCTS 0
#define add_products(sums, x, by) ((sums) + ((x) << 16 >> 16) * ((by) << 16 >> 16) + ((x) >> 16) * ((by) >> 16))
typedef int16_t Words __attribute__((vector_size(BYTES)));
typedef int8_t Narrow __attribute__((vector_size(BYTES / 2)));
static inline Ints widened(const int8_t *from)
{
    Narrow v;
    memcpy(&v, from, sizeof v);
    return (Ints)__builtin_convertvector(v, Words);
}
#endif

static inline Lanes load(const REAL *from)
{
    Lanes v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline Ints load_ints(const int16_t *from)
{
    Ints v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* Prefetches the cache lines AHEAD vectors further on. */
static inline __attribute__((always_inline)) void fetch(const void *from, const int64_t vectors)
{
    for (int64_t at = 0; at < vectors * BYTES; at += 64) __builtin_prefetch((const char *)from + AHEAD + at, 0, 2);
}

static inline void store(REAL *to, Lanes v) { memcpy(to, &v, sizeof v); }

typedef __typeof__((Lanes){0} > (Lanes){0}) Mask;   /* integers as wide as REAL */

static inline Lanes choose(Mask where, Lanes yes, Lanes no)
{
    return (Lanes)((where & (Mask)yes) | (~where & (Mask)no));
}

/* e^x to the last bit or two: e^x = 2^n e^r with |r| at most ln 2 / 2, and e^r by its series. */
static inline Lanes exponential(Lanes x)
{
    const int single = sizeof(REAL) == 4, bits = single ? 23 : 52, terms = single ? 7 : 13;
    const REAL least = single ? -87 : -708, most = single ? 88 : 709, to_whole = single ? 0x1.8p23 : 0x1.8p52;
    const REAL ln2 = single ? 0x1.62e4p-1 : 0x1.62e42fefa38p-1, rest = single ? 0x1.7f7d1cp-20 : 0x1.ef35793c7673p-45;
    Lanes at = choose(x < least, least - (Lanes){0}, choose(x > most, most - (Lanes){0}, x));
    Lanes shifted = at * (REAL)1.4426950408889634 + to_whole, n = shifted - to_whole;
    Lanes r = at - n * ln2 - n * rest, series = 1 - (Lanes){0};
    for (int i = terms; i > 0; i--) series = 1 + series * r * ((REAL)1 / i);
    return choose(x == x, (Lanes)((Mask)series + ((Mask)shifted << bits)), x);
}

static inline Half load_half(const REAL *from)
{
    Half v;
    memcpy(&v, from, sizeof v);
    return v;
}

/* Lane i: lane i ^ by of v. */
static inline __attribute__((always_inline)) Lanes swapped(Lanes v, const int64_t by)
{
#ifdef __clang__
    Lanes other;
    for (int64_t i = 0; i < LANES; i++) other[i] = v[i ^ by];
    return other;
#else   /* gcc would gather them from memory */
    Mask places;
    for (int64_t i = 0; i < LANES; i++) places[i] = i ^ by;
    return __builtin_shuffle(v, places);
#endif
}

static inline REAL sum(Lanes v)
{
    for (int64_t by = LANES / 2; by; by /= 2) v += swapped(v, by);
    return v[0];
}

/* rows[i] = the sums, in turn, of two lanes that are `by` apart of rows[i] and of rows[i + by]. */
static inline __attribute__((always_inline)) void fold(Lanes *rows, const int64_t by)
{
    Mask second;   /* the lanes of the second row */
    for (int64_t i = 0; i < LANES; i++) second[i] = i & by ? -1 : 0;
#pragma GCC unroll 8
    for (int64_t i = 0; i < LANES; i += 2 * by) {
        const Lanes a = rows[i], b = rows[i + by];
        rows[i] = choose(second, b, a) + swapped(choose(second, a, b), by);
    }
}

/* Lane i: the sum of the lanes of rows[i], which this overwrites. */
static inline __attribute__((always_inline)) Lanes sums_of(Lanes *rows)
{
    fold(rows, 1);   /* each with a constant, or gcc computes masks lane by lane */
    fold(rows, 2);
    if (LANES > 4) fold(rows, 4);
    if (LANES > 8) fold(rows, 8);
    return rows[0];
}

/* y[n] = rows row … row + ROWS of m times x[n], and their bias; beyond the last row it is that one again. A row
   is read from its begin to its end before the next: then processors fetch ahead by themselves. */
static inline __attribute__((always_inline)) void
products(const Matrix *m, const int texts, int64_t row, const REAL *restrict x, int64_t x_stride, Lanes *restrict y)
{
    const int64_t columns = m->columns, whole = columns / LANES * LANES;
    Lanes parts[TEXTS][ROWS], rest[TEXTS];
    for (int64_t i = 0; i < ROWS; i++) {
        const REAL *const w = (const REAL *)m->weight + (row + i < m->rows ? row + i : m->rows - 1) * m->stride;
        Lanes even[TEXTS] = {{0}}, odd[TEXTS] = {{0}};
        int64_t at = 0;
        for (; at + 2 * LANES <= whole; at += 2 * LANES) {
            fetch(w + at, 2);
            for (int n = 0; n < texts; n++) {
                even[n] += load(w + at) * load(x + n * x_stride + at);
                odd[n] += load(w + at + LANES) * load(x + n * x_stride + at + LANES);
            }
        }
        for (int n = 0; n < texts; n++) {
            const REAL *const with = x + n * x_stride;
            if (at < whole) even[n] += load(w + at) * load(with + at);
            parts[n][i] = even[n] + odd[n];
            if (whole == columns) continue;
            int64_t j = whole;
            if (j + LANES / 2 <= columns) {
                const Half more = load_half(w + j) * load_half(with + j);
                Lanes wide = {0};
                memcpy(&wide, &more, sizeof more);
                parts[n][i] += wide;
                j += LANES / 2;
            }
            for (rest[n][i] = 0; j < columns; j++) rest[n][i] += with[j] * w[j];
        }
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]);
    if (whole < columns)
        for (int n = 0; n < texts; n++) y[n] += rest[n];
}

/* The same of int8 rows and vectors of 16 bits, which `steps` times x is, with zeros up to a multiple of PAIRS. */
static inline __attribute__((always_inline)) void
int8_products(const Matrix *m, const int texts, int64_t row, const int16_t *restrict x, int64_t x_stride,
              const REAL *steps, Lanes *restrict y)
{
    const int64_t columns = m->columns;
    Lanes parts[TEXTS][ROWS], scales;
    for (int64_t i = 0; i < ROWS; i++) {
        const int64_t r = row + i < m->rows ? row + i : m->rows - 1;
        const int8_t *const w = (const int8_t *)m->weight + r * m->stride;
        Lanes sums[TEXTS] = {{0}};
        scales[i] = m->scale[r];
        for (int64_t at = 0, end; !INT16_PRODUCTS && at < columns; at = end) {
            end = columns - at < EXACT ? columns : at + EXACT;
            for (int n = 0; n < texts; n++) {
                int32_t exact = 0;
                for (int64_t j = at; j < end; j++) exact += (int32_t)w[j] * x[n * x_stride + j];
                sums[n][0] += (REAL)exact;
            }
        }
        for (int64_t at = 0, end; INT16_PRODUCTS && at < columns; at = end) {
            Ints even[TEXTS] = {{0}}, odd[TEXTS] = {{0}};
            end = columns - at < EXACT * LANES ? columns : at + EXACT * LANES;   /* EXACT of a lane */
            for (; at + 2 * PAIRS <= end; at += 2 * PAIRS)
                for (int n = 0; n < texts; n++) {
                    const int16_t *const with = x + n * x_stride + at;
                    even[n] = add_products(even[n], widened(w + at), load_ints(with));
                    odd[n] = add_products(odd[n], widened(w + at + PAIRS), load_ints(with + PAIRS));
                }
            for (; at < end; at += PAIRS) {
                int8_t last[PAIRS] = {0};
                if (at + PAIRS > end) memcpy(last, w + at, (size_t)(end - at));
                for (int n = 0; n < texts; n++)
                    even[n] = add_products(even[n], widened(at + PAIRS > end ? last : w + at),
                                           load_ints(x + n * x_stride + at));
            }
            for (int n = 0; n < texts; n++)
                sums[n] += (Lanes)(__builtin_convertvector(even[n], Floats) + __builtin_convertvector(odd[n], Floats));
        }
        for (int n = 0; n < texts; n++) parts[n][i] = sums[n];
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]) * steps[n] * scales;
}

/* Weight j of a group: a byte has weight j in its low bits and weight j + GROUP / 2 in its high ones, from -8 to 7. */
static inline int of_4_bits(const uint8_t *group, int64_t j)
{
    return (j < GROUP / 2 ? group[j] & 15 : group[j - GROUP / 2] >> 4) - 8;
}

/* The same of weights of 4 bits, each made a REAL. */
static inline __attribute__((always_inline)) void
int4_products(const Matrix *m, const int texts, int64_t row, const REAL *restrict x, int64_t x_stride,
              Lanes *restrict y)
{
    const int64_t whole = m->columns / GROUP;
    Lanes parts[TEXTS][ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        const int64_t r = row + i < m->rows ? row + i : m->rows - 1;
        const uint8_t *at = (const uint8_t *)m->weight + r * m->stride;
        const REAL *scale = m->scale + r * m->groups;
        Lanes sums[TEXTS] = {{0}};
        for (int64_t g = 0; g < whole; g++, at += GROUP / 2)
            for (int64_t j = 0; j < GROUP / 2; j += LANES) {
                Bytes bytes;
                memcpy(&bytes, at + j, sizeof bytes);
                const Wholes low = __builtin_convertvector(bytes & 15, Wholes) - 8;
                const Wholes high = __builtin_convertvector(bytes >> 4, Wholes) - 8;
                const Lanes a = __builtin_convertvector(low, Lanes) * scale[g];
                const Lanes b = __builtin_convertvector(high, Lanes) * scale[g];
                for (int n = 0; n < texts; n++) {
                    const REAL *from = x + n * x_stride + g * GROUP + j;
                    sums[n] += a * load(from) + b * load(from + GROUP / 2);
                }
            }
        for (int n = 0; n < texts; n++) {
            for (int64_t j = whole * GROUP; j < m->columns; j++)
                sums[n][0] += of_4_bits(at, j % GROUP) * scale[whole] * x[n * x_stride + j];
            parts[n][i] = sums[n];
        }
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]);
}

/* x in 16 bits, to, with zeros behind it up to PADDED(count), and the step that they are times: NaN where x holds
   something that is no finite number. */
static REAL to_16_bits(const REAL *x, int64_t count, int16_t *restrict to)
{
    REAL most = 0, odd = 0;
    _Pragma("omp simd reduction(max : most) reduction(+ : odd)") for (int64_t i = 0; i < count; i++)
    {
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
        odd += x[i] * 0;
    }
    const REAL by = odd == 0 && most > 0 ? LARGEST / most : 0, to_whole = sizeof(REAL) == 4 ? 0x1.8p23 : 0x1.8p52;
    if (by == 0) memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; by > 0 && i < count; i++) to[i] = (int16_t)(x[i] * by + to_whole - to_whole);
    for (int64_t i = count; i < PADDED(count); i++) to[i] = 0;
    return odd == 0 ? most / LARGEST : odd;
}

/* y = norm(x), which may be x itself. */
static void normalise(int64_t kind, Norm norm, double eps, int64_t width, const REAL *x, REAL *y)
{
    REAL mean = 0, squares = 0;
    Lanes sums = {0};
    int64_t i = 0;
    if (kind == NO_NORM) {
        memmove(y, x, (size_t)width * sizeof *y);
        return;
    }
    if (kind == LAYERNORM) {
        for (; i + LANES <= width; i += LANES) sums += load(x + i);
        for (mean = sum(sums); i < width; i++) mean += x[i];
        mean /= width;
        sums = (Lanes){0};
        i = 0;
    }
    for (; i + LANES <= width; i += LANES) {
        Lanes v = load(x + i) - mean;
        sums += v * v;
    }
    for (squares = sum(sums); i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
    REAL by = 1 / sqrt(squares / width + (REAL)eps);
    for (i = 0; i < width; i++) {
        REAL v = (x[i] - mean) * by * norm.weight[i];
        y[i] = norm.bias ? v + norm.bias[i] : v;
    }
}

static void rotate(REAL *x, const REAL *by, int64_t width)
{
    REAL *const second = x + width / 2;
    for (int64_t i = 0; i < width / 2; i++) {
        REAL a = x[i], b = second[i];
        x[i] = a * by[2 * i] - b * by[2 * i + 1];
        second[i] = a * by[2 * i + 1] + b * by[2 * i];
    }
}

/* Where the positions of a text lie: position j in slot pages[j / page] * page + j % page. */
typedef struct {
    const int64_t *pages;
    int64_t page;
} Table;

/* The end of the run of slots beside each other that position j begins, at most `end`. */
static inline int64_t run_end(Table table, int64_t j, int64_t end)
{
    int64_t next = (j / table.page + 1) * table.page;
    return next < end ? next : end;
}

static inline int64_t slot(Table table, int64_t j) { return table.pages[j / table.page] * table.page + j % table.page; }

#define MOST 4   /* vectors of a position at once */

/* out = Σ weights[j - begin] values[slot(j)] / total, for `vectors` of LANES numbers. */
static inline __attribute__((always_inline)) void
gather(const REAL *weights, Table table, int64_t begin, int64_t end, const REAL *values, int64_t stride,
       const int vectors, REAL total, REAL *out)
{
    Lanes sums[MOST] = {{0}};
    for (int64_t j = begin; j < end;) {
        const REAL *at = values + slot(table, j) * stride;
        for (int64_t last = run_end(table, j, end); j < last; j++, at += stride) {
            fetch(at, vectors);
            for (int i = 0; i < vectors; i++) sums[i] += weights[j - begin] * load(at + i * LANES);
        }
    }
    for (int i = 0; i < vectors; i++) store(out + i * LANES, sums[i] / total);
}

/* to[k] = scale q · keys[k] for `count` keys of `vectors` of LANES numbers; what follows them may be overwritten. */
static inline __attribute__((always_inline)) void
dot_products(const REAL *q, const REAL *keys, int64_t count, const int vectors, REAL scale, REAL *restrict to)
{
    for (int64_t k = 0; k < count; k += LANES) {
        Lanes parts[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            const REAL *const key = keys + (k + i < count ? k + i : count - 1) * vectors * LANES;
            fetch(key, vectors);
            parts[i] = load(key) * load(q);
            for (int v = 1; v < vectors; v++) parts[i] += load(key + v * LANES) * load(q + v * LANES);
        }
        store(to + k, sums_of(parts) * scale);
    }
}

static void scores(const REAL *q, const REAL *keys, int64_t count, int64_t width, REAL scale, REAL *restrict to)
{
    const Matrix matrix = {keys, 0, 0, count, width, width, 0};
    Lanes y;
    switch (width % LANES ? 0 : width / LANES) {
    case 1: dot_products(q, keys, count, 1, scale, to); break;
    case 2: dot_products(q, keys, count, 2, scale, to); break;
    case 3: dot_products(q, keys, count, 3, scale, to); break;
    case 4: dot_products(q, keys, count, 4, scale, to); break;
    case 6: dot_products(q, keys, count, 6, scale, to); break;
    case 8: dot_products(q, keys, count, 8, scale, to); break;
    default:
        for (int64_t k = 0; k < count; k += ROWS) {
            products(&matrix, 1, k, q, 0, &y);
            store(to + k, y * scale);
        }
    }
}

/* out = softmax(q · keys / √width) · values, over the positions from begin to end; weights: room for LANES more. */
static void attend(const REAL *q, const REAL *keys, const REAL *values, Table table, int64_t begin, int64_t end,
                   int64_t width, REAL *restrict weights, REAL *restrict out)
{
    const int64_t count = end - begin;
    const REAL scale = 1 / sqrt((REAL)width);
    REAL largest = -INFINITY, total;
    Lanes totals = {0};
    for (int64_t j = begin, last; j < end; j = last) {
        last = run_end(table, j, end);
        scores(q, keys + slot(table, j) * width, last - j, width, scale, weights + j - begin);
    }
    for (int64_t j = 0; j < count; j++) largest = weights[j] > largest ? weights[j] : largest;
    for (int64_t j = 0; j < LANES; j++) weights[count + j] = -INFINITY;
    for (int64_t j = 0; j < count; j += LANES) {
        Lanes e = exponential(load(weights + j) - largest);
        store(weights + j, e);
        totals += e;
    }
    total = sum(totals);
    int64_t at = 0;
    while (at + LANES <= width) {
        const int64_t vectors = (width - at) / LANES < MOST ? (width - at) / LANES : MOST;
        switch (vectors) {
        case 1: gather(weights, table, begin, end, values + at, width, 1, total, out + at); break;
        case 2: gather(weights, table, begin, end, values + at, width, 2, total, out + at); break;
        case 3: gather(weights, table, begin, end, values + at, width, 3, total, out + at); break;
        default: gather(weights, table, begin, end, values + at, width, MOST, total, out + at);
        }
        at += vectors * LANES;
    }
    if (at == width) return;
    Half first = {0};   /* of what is left; then one by one */
    REAL rest[BYTES / sizeof(REAL)] = {0};
    const int64_t half = at + LANES / 2 <= width ? LANES / 2 : 0;
    for (int64_t j = begin; j < end;) {
        const REAL *from = values + slot(table, j) * width + at;
        for (int64_t last = run_end(table, j, end); j < last; j++, from += width) {
            if (half) first += weights[j - begin] * load_half(from);
            for (int64_t i = half; i < width - at; i++) rest[i] += weights[j - begin] * from[i];
        }
    }
    if (half) memcpy(rest, &first, sizeof first);
    for (int64_t i = 0; i < width - at; i++) out[at + i] = rest[i] / total;
}

static inline Lanes active(int64_t kind, Lanes x)
{
    if (kind == GELU_EXACT) {
        for (int64_t i = 0; i < LANES; i++) x[i] *= (REAL)0.5 * (1 + erf(x[i] * (REAL)0.7071067811865476));
        return x;
    }
    if (kind == RELU2) return choose(x < 0, (Lanes){0}, x * x);
    /* GELU's (1 + tanh u) / 2 is 1 / (1 + e^-2u), as SiLU's is 1 / (1 + e^-x). */
    Lanes by = kind == GELU ? (REAL)-1.5957691216057308 * (x + (REAL)0.044715 * x * x * x) : -x;
    return x / (1 + exponential(by));
}

/* x = f(x), or f(x) · gated where there is that, for `count` numbers. */
static void activate(int64_t kind, REAL *x, const REAL *gated, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        size_t size = (size_t)(count - i < LANES ? count - i : LANES) * sizeof *x;
        Lanes v = {0}, by = {0};
        memcpy(&v, x + i, size);
        v = active(kind, v);
        if (gated) {
            memcpy(&by, gated + i, size);
            v *= by;
        }
        memcpy(x + i, &v, size);
    }
}

typedef struct {
    int64_t begin, end;
} Span;

/* The part of `count` that thread `me` of `threads` has, in multiples of a cache line's numbers. */
static Span part(int64_t count, int64_t me, int64_t threads)
{
    int64_t lines = (count + LANES - 1) / LANES;
    int64_t begin = lines * me / threads * LANES, end = lines * (me + 1) / threads * LANES;
    return (Span){begin < count ? begin : count, end < count ? end : count};
}

/* out = m x, plus `added` if there is that, for the rows of a span, counted from row `first`, of all texts. rounded:
   room for a step of each text, and for x in 16 bits. */
static void multiply(const Matrix *m, int64_t first, Span rows, int64_t batch, const REAL *x, int64_t x_stride,
                     const REAL *added, REAL *out, int64_t out_stride, REAL *rounded)
{
    const int64_t padded = PADDED(m->columns);
    Lanes y[TEXTS];
    int16_t *const words = (int16_t *)rounded;
    REAL *const steps = rounded + batch * padded * (int64_t)sizeof *words / (int64_t)sizeof(REAL);
    if (m->scale && !m->groups)
        for (int64_t b = 0; b < batch; b++) steps[b] = to_16_bits(x + b * x_stride, m->columns, words + b * padded);
    for (int64_t r = rows.begin; r < rows.end; r += ROWS)
        for (int64_t b = 0, n; b < batch; b += n) {
            const REAL *const from = x + b * x_stride;
            const int16_t *const integers = words + b * padded;
            n = batch - b >= TEXTS ? TEXTS : batch - b >= TEXTS / 2 ? TEXTS / 2 : 1;
            if (m->groups) switch (n) {
            case 1: int4_products(m, 1, first + r, from, x_stride, y); break;
            case TEXTS / 2: int4_products(m, TEXTS / 2, first + r, from, x_stride, y); break;
            default: int4_products(m, TEXTS, first + r, from, x_stride, y);
            }
            else switch (m->scale ? -n : n) {
            case 1: products(m, 1, first + r, from, x_stride, y); break;
            case TEXTS / 2: products(m, TEXTS / 2, first + r, from, x_stride, y); break;
            case TEXTS: products(m, TEXTS, first + r, from, x_stride, y); break;
            case -1: int8_products(m, 1, first + r, integers, padded, steps + b, y); break;
            case -TEXTS / 2: int8_products(m, TEXTS / 2, first + r, integers, padded, steps + b, y); break;
            default: int8_products(m, TEXTS, first + r, integers, padded, steps + b, y);
            }
            const int64_t count = rows.end - r < ROWS ? rows.end - r : ROWS;
            for (int64_t t = 0; t < n; t++) {
                const int64_t at = (b + t) * out_stride + r;
                Lanes plus = {0};
                if (m->bias) {
                    memcpy(&plus, m->bias + first + r, (size_t)count * sizeof *x);
                    y[t] += plus;
                }
                if (added) {
                    memcpy(&plus, added + at, (size_t)count * sizeof *x);
                    y[t] += plus;
                }
                memcpy(out + at, &y[t], (size_t)count * sizeof *x);
            }
        }
}

/* Numbers of the widest vector that a matrix multiplies. */
static int64_t widest(const Model *m)
{
    int64_t most = m->d_model > m->d_ff ? m->d_model : m->d_ff;
    return m->heads * m->head_dim > most ? m->heads * m->head_dim : most;
}

/* Numbers of scratch memory that a thread of a step needs for itself. */
static int64_t own_scratch(const Model *m, int64_t batch, int64_t capacity)
{
    const int64_t words = batch * PADDED(widest(m)) * (int64_t)sizeof(int16_t) / (int64_t)sizeof(REAL);
    return IN_LANES(batch * m->d_model) + words + IN_LANES(batch) + IN_LANES(m->head_dim) + IN_LANES(capacity + LANES);
}

/* Numbers of scratch memory that a step needs. */
int64_t scratch(const Model *m, int64_t batch, int64_t capacity, int64_t threads)
{
    int64_t shared = batch * (m->d_model + (2 * m->heads + 2 * m->kv_heads) * m->head_dim + 2 * m->d_ff);
    return IN_LANES(shared) + threads * own_scratch(m, batch, capacity);
}

typedef struct {
    const Model *model;
    REAL *cache;   /* (layers, 2, kv_heads, slots, head_dim) */
    int64_t slots; /* from head to head */
    int64_t page, capacity, batch, threads, vocab_size;
    const int64_t *tokens, *lengths;   /* (batch,): the new token of each text and how many came before it */
    const int64_t *const *tables;      /* (batch,): the pages of each text, in order; `page` slots make one */
    int64_t *likeliest;   /* (threads, batch): first likeliest() of each text's logits of the vocabulary, then room */
    REAL *room, *logits;   /* scratch() numbers; (batch, head.rows) */
} Task;

enum { NONE = -1, NOT_NUMBERS = -2 };

/* Where the first of the largest of logits[begin … end) is; NONE if all are -inf, NOT_NUMBERS if one is NaN. */
static int64_t likeliest(const REAL *logits, int64_t begin, int64_t end)
{
    int64_t place = NONE;
    REAL largest = -INFINITY;
    for (int64_t i = begin; i < end; i++)
        if (!(logits[i] <= largest)) {
            if (logits[i] != logits[i]) return NOT_NUMBERS;
            largest = logits[i];
            place = i;
        }
    return place;
}

/* A thread of a step. The vectors of the texts stand one after another; all but the last four are shared. */
typedef struct {
    const Task *task;
    const Model *m;
    int64_t batch, d, width, heads, kv, me, threads;
    REAL *x, *qkv, *attended;   /* d, (heads + 2 kv) width, heads width */
    REAL *inner, *gated;        /* d_ff, and again if there is a gate */
    REAL *inside;   /* d: the input of the next matrix, which each thread computes whole: waiting would take longer */
    REAL *rounded;          /* for what is multiplied, in 16 bits */
    REAL *query, *weights;  /* of one head: width, and a weight for each position */
} Thread;

static void embed(const Thread *w)
{
    const Model *const m = w->m;
    const Span rows = part(w->d, w->me, w->threads);
    for (int64_t b = 0; b < w->batch; b++)
        for (int64_t i = rows.begin; i < rows.end; i++) {
            REAL v = m->embedding[w->task->tokens[b] * w->d + i];
            w->x[b * w->d + i] = m->positions ? v + m->positions[w->task->lengths[b] * w->d + i] : v;
        }
}

static void normalise_all(const Thread *w, Norm norm, const REAL *from)
{
    for (int64_t b = 0; b < w->batch; b++)
        normalise(w->m->norm, norm, w->m->eps, w->d, from + b * w->d, w->inside + b * w->d);
}

static Table table_of(const Thread *w, int64_t b) { return (Table){w->task->tables[b], w->task->page}; }

/* Rotated keys, and values, of the new tokens into the cache. */
static void append(const Thread *w, const Layer *layer, REAL *keys, REAL *values, int64_t head_size)
{
    const Model *const m = w->m;
    for (int64_t item = w->me; item < w->batch * w->kv; item += w->threads) {
        int64_t b = item / w->kv, h = item % w->kv, length = w->task->lengths[b];
        int64_t at = h * head_size + slot(table_of(w, b), length) * w->width;
        REAL *k = w->qkv + (b * (w->heads + 2 * w->kv) + w->heads + h) * w->width;
        if (m->qk_norm) normalise(RMSNORM, layer->k_norm, m->eps, w->width, k, k);
        if (m->rope) rotate(k, m->rope + length * w->width, w->width);
        memcpy(keys + at, k, (size_t)w->width * sizeof *k);
        memcpy(values + at, k + w->kv * w->width, (size_t)w->width * sizeof *k);
    }
}

static void attend_all(const Thread *w, const Layer *layer, const REAL *keys, const REAL *values, int64_t head_size)
{
    const Model *const m = w->m;
    for (int64_t item = w->me; item < w->batch * w->heads; item += w->threads) {
        int64_t b = item / w->heads, h = item % w->heads, length = w->task->lengths[b], end = length + 1;
        int64_t begin = m->sliding_window && end > m->sliding_window ? end - m->sliding_window : 0;
        int64_t at = h / (w->heads / w->kv) * head_size;
        memcpy(w->query, w->qkv + (b * (w->heads + 2 * w->kv) + h) * w->width, (size_t)w->width * sizeof *w->query);
        if (m->qk_norm) normalise(RMSNORM, layer->q_norm, m->eps, w->width, w->query, w->query);
        if (m->rope) rotate(w->query, m->rope + length * w->width, w->width);
        attend(w->query, keys + at, values + at, table_of(w, b), begin, end, w->width, w->weights,
               w->attended + item * w->width);
    }
}

/* f(up inside), or f(gate inside) times it. */
static void feed_forward(const Thread *w, const Layer *layer)
{
    const int64_t d_ff = w->m->d_ff;
    const Span rows = part(d_ff, w->me, w->threads);
    multiply(&layer->up, 0, rows, w->batch, w->inside, w->d, 0, w->inner, d_ff, w->rounded);
    if (w->gated) multiply(&layer->up, d_ff, rows, w->batch, w->inside, w->d, 0, w->gated, d_ff, w->rounded);
    for (int64_t b = 0; b < w->batch; b++) {
        int64_t at = b * d_ff + rows.begin;
        activate(w->m->ffn, w->inner + at, w->gated ? w->gated + at : 0, rows.end - rows.begin);
    }
}

/* A layer; with norms after sums, `inside` holds its input and its result, which x then gets. */
static void run_layer(const Thread *w, int64_t l)
{
    const Model *const m = w->m;
    const Layer *const layer = m->layer + l;
    const int64_t head_size = w->task->slots * w->width, d_ff = m->d_ff, row = (w->heads + 2 * w->kv) * w->width;
    REAL *const keys = w->task->cache + 2 * l * w->kv * head_size, *const values = keys + w->kv * head_size;
    const Span rows = part(w->d, w->me, w->threads);

    if (!m->post) normalise_all(w, layer->attention_norm, w->x);
    multiply(&layer->qkv, 0, part(row, w->me, w->threads), w->batch, w->inside, w->d, 0, w->qkv, row, w->rounded);
#pragma omp barrier
    append(w, layer, keys, values, head_size);
#pragma omp barrier
    attend_all(w, layer, keys, values, head_size);
#pragma omp barrier
    multiply(&layer->output, 0, rows, w->batch, w->attended, w->heads * w->width, w->x, w->x, w->d, w->rounded);
#pragma omp barrier
    normalise_all(w, m->post ? layer->attention_norm : layer->ffn_norm, w->x);
    feed_forward(w, layer);
#pragma omp barrier
    multiply(&layer->down, 0, rows, w->batch, w->inner, d_ff, m->post ? w->inside : w->x, w->x, w->d, w->rounded);
#pragma omp barrier
    if (!m->post) return;
    normalise_all(w, layer->ffn_norm, w->x);
#pragma omp barrier
    for (int64_t b = 0; b < w->batch; b++) {
        int64_t at = b * w->d + rows.begin;
        memcpy(w->x + at, w->inside + at, (size_t)(rows.end - rows.begin) * sizeof *w->x);
    }
}

static void head(const Thread *w)
{
    const Matrix *const m = &w->m->head;
    const Span rows = part(m->rows, w->me, w->threads);
    const int64_t vocab_size = w->task->vocab_size, end = rows.end < vocab_size ? rows.end : vocab_size;
    multiply(m, 0, rows, w->batch, w->inside, w->d, 0, w->task->logits, m->rows, w->rounded);
    for (int64_t b = 0; b < w->batch; b++)
        w->task->likeliest[w->me * w->batch + b] = likeliest(w->task->logits + b * m->rows, rows.begin, end);
}

/* The likeliest of each text from those of all threads. */
static void join_likeliest(const Task *task)
{
    const int64_t batch = task->batch, rows = task->model->head.rows;
    for (int64_t i = batch; i < task->threads * batch; i++) {
        const REAL *of_text = task->logits + i % batch * rows;
        int64_t *best = task->likeliest + i % batch, other = task->likeliest[i];
        int higher = *best >= 0 && other >= 0 && of_text[other] > of_text[*best];
        if (*best == NONE || other == NOT_NUMBERS || higher) *best = other;
    }
}

static void run_step(const Task *task)
{
    const Model *const m = task->model;
    const int64_t batch = task->batch, d = m->d_model, width = m->head_dim, heads = m->heads, kv = m->kv_heads;
    const int64_t own = own_scratch(m, batch, task->capacity);
    REAL *const qkv = task->room + batch * d, *const attended = qkv + batch * (heads + 2 * kv) * width;
    REAL *const inner = attended + batch * heads * width;
    REAL *const rest = task->room + IN_LANES(inner + 2 * batch * m->d_ff - task->room);
    for (int64_t i = 0; i < task->threads * batch; i++) task->likeliest[i] = NONE;

#pragma omp parallel num_threads((int)task->threads)
    {
        const int64_t me = omp_get_thread_num();
        REAL *const inside = rest + me * own, *const rounded = inside + IN_LANES(batch * d);
        REAL *const weights = inside + own - IN_LANES(task->capacity + LANES), *const query = weights - IN_LANES(width);
        const Thread w = {task, m, batch, d, width, heads, kv, me, omp_get_num_threads(),
                          task->room, qkv, attended, inner, m->ffn == SWIGLU ? inner + batch * m->d_ff : 0,
                          inside, rounded, query, weights};
        embed(&w);
#pragma omp barrier
        if (m->post) memcpy(inside, w.x, (size_t)(batch * d) * sizeof *inside);
        for (int64_t l = 0; l < m->layers; l++) run_layer(&w, l);
        normalise_all(&w, m->final_norm, m->post ? inside : w.x);
        head(&w);
    }
    join_likeliest(task);
}

void step(const Task *task) { run_step(task); }   /* the C library has a `step` of its own */
