/* Products of matrices and vectors, of a few texts or of the many tokens of a prompt: goes on from vectors.c.

   The weights of a matrix are REAL, or int8 with a scale for each row, which multiplies what is rounded to 16 bits. The
   vectors of a few texts stand one after another, and a row of the matrix is read once for all of them. Those of a
   prompt lie in panels, beside each other in the lanes of WIDE Lanes, and TALL rows at once are multiplied by a panel.
   An element is computed by the same operations in the same order whatever the batch and however many threads. */

#ifndef LANES   /* else this stands behind it, in one source */
#include "vectors.c"
#endif
#include <omp.h>

typedef struct {
    const void *weight;   /* (rows, columns), a row every `stride` */
    const REAL *scale;    /* (rows,) if the weight is int8 */
    const REAL *bias;     /* (rows,) or none */
    int64_t rows, columns, stride;
} Matrix;

#define ROWS LANES   /* of a matrix at once, one after the other: their sums fill a vector */
#define TEXTS 8      /* the most that a row is multiplied by at once */
#define AHEAD 2048   /* bytes: so long before it is used memory is fetched into the second cache. On one core of a Zen 4
                        it then comes at 34 GB/s, without this at 29, from 8 kB ahead or more at 25 */
#define LARGEST (127 * 256)   /* as int8.py has it */
#define EXACT 512    /* products of int8 and int16 whose sum an int32 holds */
#define PAIRS ((int64_t)(BYTES / sizeof(int16_t)))   /* int16 of a vector */
#define PADDED(count) (((count) + PAIRS - 1) / PAIRS * PAIRS)
#define WIDE (BYTES / 16)        /* vectors of a panel */
#define PANEL (WIDE * LANES)     /* tokens of a panel */
#define TALL 6                   /* rows that a panel is multiplied by at once */
#define STRIP 48                 /* rows whose results are turned from panels to tokens: a multiple of TALL and LANES */

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

/* y[i][v] = Σ w[which[i] + k step] x[k][v] of `count` k. */
static inline __attribute__((always_inline)) void
tile(const REAL *w, const int64_t *which, const int64_t step, int64_t count, const REAL *restrict x, const int vectors,
     Lanes (*restrict y)[WIDE])
{
    const REAL *row[TALL];
    Lanes sums[TALL][WIDE] = {{{0}}};
    for (int i = 0; i < TALL; i++) row[i] = w + which[i];
    for (int64_t k = 0; k < count; k++, x += PANEL)
        for (int i = 0; i < TALL; i++)
            for (int v = 0; v < vectors; v++) sums[i][v] += row[i][k * step] * load(x + v * LANES);
    memcpy(y, sums, sizeof sums);
}

/* The same of numbers of 16 bits, two of them in each of w and x: sums of EXACT products are exact. */
static inline __attribute__((always_inline)) void
int16_tile(const int16_t *w, int64_t pairs, const REAL *restrict x, const int vectors, Lanes (*restrict y)[WIDE])
{
    Lanes totals[TALL][WIDE] = {{{0}}};
    for (int64_t k = 0; k < pairs;) {
        const int64_t end = pairs - k < EXACT / 2 ? pairs : k + EXACT / 2;
        Ints sums[TALL][WIDE] = {{{0}}};
        for (; k < end; k++)
            for (int i = 0; i < TALL; i++) {
                int32_t by;
                memcpy(&by, w + 2 * (i * pairs + k), sizeof by);
                for (int v = 0; v < vectors; v++)
                    sums[i][v] = add_products(sums[i][v], (Ints)load(x + k * PANEL + v * LANES), (Ints){0} + by);
            }
        for (int i = 0; i < TALL; i++)
            for (int v = 0; v < vectors; v++) totals[i][v] += (Lanes)__builtin_convertvector(sums[i][v], Floats);
    }
    memcpy(y, totals, sizeof totals);
}

/* out = w x (+ bias) (+ added), for `rows` rows of w, of which number k of row r is w[r row_step + k step]. */
static void tiles(const REAL *w, int64_t row_step, int64_t step, int64_t rows, int64_t count, const REAL *x,
                  int vectors, const REAL *bias, const REAL *added, REAL *out)
{
    Lanes y[TALL][WIDE];
    for (int64_t r = 0; r < rows; r += TALL) {
        int64_t which[TALL];
        for (int64_t i = 0; i < TALL; i++) which[i] = (r + i < rows ? r + i : rows - 1) * row_step;
        switch (vectors) {
        case 1: tile(w, which, step, count, x, 1, y); break;
        case 2: tile(w, which, step, count, x, 2, y); break;
        case 3: tile(w, which, step, count, x, WIDE - 1, y); break;
        default: tile(w, which, step, count, x, WIDE, y);
        }
        for (int64_t i = 0; i < TALL && r + i < rows; i++)
            for (int64_t v = 0; v < vectors; v++) {
                const int64_t at = (r + i) * PANEL + v * LANES;
                Lanes sum = bias ? y[i][v] + bias[r + i] : y[i][v];
                store(out + at, added ? sum + load(added + at) : sum);
            }
    }
}

/* out = x in 16 bits, features 2k and 2k + 1 together, and the steps that they are times: see to_16_bits. */
static void round_panel(const REAL *x, int64_t features, REAL *out, REAL *steps)
{
    for (int64_t v = 0; v < PANEL; v += LANES) {
        Lanes most = {0}, odd = {0};
        for (int64_t i = 0; i < features; i++) {
            Lanes a = load(x + i * PANEL + v);
            a = choose(a < 0, -a, a);
            most = choose(a > most, a, most);
            odd += a * 0;
        }
        const Lanes none = {0}, whole = none + (REAL)0x1.8p23;   /* added, its lowest bits are those of the integer */
        const Lanes by = choose((odd == 0) & (most > 0), LARGEST / choose(most > 0, most, whole), none);
        store(steps + v, choose(odd == 0, most / LARGEST, odd));
        for (int64_t i = 0; i < features; i += 2) {
            Lanes a = choose(by > 0, load(x + i * PANEL + v), none) * by + whole, b = whole;
            if (i + 1 < features) b += choose(by > 0, load(x + (i + 1) * PANEL + v), none) * by;
            store(out + i / 2 * PANEL + v, (Lanes)(((Mask)a & 0xffff) | (Mask)b << 16));
        }
    }
}

/* `count` rows of int8 from row r on, as integers of 16 bits with a zero after an odd number, or as REAL with their
   scale where the processor has no products of integers. */
static void widen(const Matrix *m, int64_t r, int64_t count, REAL *rows)
{
    const int64_t columns = m->columns, pairs = (columns + 1) / 2;
    int16_t *words = (int16_t *)rows;
    for (int64_t i = 0; i < count; i++) {
        const int8_t *from = (const int8_t *)m->weight + (r + i) * m->stride;
        if (INT16_PRODUCTS) {
            for (int64_t j = 0; j < columns; j++) words[2 * i * pairs + j] = from[j];
            if (columns % 2) words[2 * i * pairs + columns] = 0;
        } else {
            for (int64_t j = 0; j < columns; j++) rows[i * columns + j] = from[j] * m->scale[r + i];
        }
    }
}

/* Vectors of LANES tokens that `count` tokens fill in a panel. */
static inline int vectors_of(int64_t count) { return (int)(count < PANEL ? (count + LANES - 1) / LANES : WIDE); }

/* A part of a panel: (columns, PANEL) from (count, columns), at most LANES tokens that stand one after another. */
static void pack(const REAL *x, int64_t stride, int64_t count, int64_t columns, REAL *panel)
{
    for (int64_t i = 0; i < columns; i += LANES) {
        const int64_t size = columns - i < LANES ? columns - i : LANES;
        Lanes rows[LANES];
        for (int64_t t = 0; t < LANES; t++)
            rows[t] = t < count ? load_some(x + t * stride + i, size) : (Lanes){0};
        transpose(rows);
        for (int64_t j = 0; j < size; j++) store(panel + (i + j) * PANEL, rows[j]);
    }
}

/* What a thread multiplies with: scratch memory, its own but for the words and steps of panels, which all share. */
typedef struct {
    int64_t me, threads, is_prompt;
    REAL *words, *steps;   /* vectors in 16 bits, and the step that each is times */
    REAL *rows, *strip;    /* STRIP rows of int8, widened; (STRIP, PANEL) */
} Worker;

/* Vectors (…, columns) from number `begin` on; of a prompt, panels (…, columns, PANEL) from panel `begin` on. */
typedef struct {
    const REAL *x;
    int64_t begin, count;
} Input;

/* Where results go: y[tokens[i]] += weights[i] scale · that of vector i. */
typedef struct {
    REAL *y;
    int64_t stride;
    const int64_t *tokens;   /* or none: i */
    const REAL *weights;     /* or none */
    REAL scale;
    int add, stays_packed;   /* stays_packed: of a prompt, y has panels (stride, PANEL) beside those of the input */
} Output;

/* Rounds `count` vectors, or those of `count` panels, for a matrix of int8. All threads of a prompt call it. */
static void round_input(const Worker *w, const Matrix *m, const REAL *x, int64_t count)
{
    const int64_t columns = m->columns, padded = PADDED(columns), pairs = (columns + 1) / 2;
    if (!m->scale) return;
    if (!w->is_prompt)
        for (int64_t b = 0; b < count; b++)
            w->steps[b] = to_16_bits(x + b * columns, columns, (int16_t *)w->words + b * padded);
    else if (INT16_PRODUCTS) {
        for (int64_t p = w->me; p < count; p += w->threads)
            round_panel(x + p * columns * PANEL, columns, w->words + p * pairs * PANEL, w->steps + p * PANEL);
#pragma omp barrier
    }
}

/* Elements r … r + count of the result of vector i, at most LANES. */
static inline void put(const Output *out, int64_t i, int64_t r, int64_t count, Lanes y)
{
    REAL *const to = out->y + (out->tokens ? out->tokens[i] : i) * out->stride + r;
    y *= out->weights ? out->weights[i] * out->scale : out->scale;
    store_some(to, count, out->add ? y + load_some(to, count) : y);
}

/* The results of a few texts: of rows of a span, counted from row `first`. */
static void multiply_vectors(const Worker *w, const Matrix *m, int64_t first, Span rows, Input in, Output out)
{
    const int64_t columns = m->columns, padded = PADDED(columns);
    Lanes y[TEXTS];
    for (int64_t r = rows.begin; r < rows.end; r += ROWS)
        for (int64_t b = 0, n; b < in.count; b += n) {
            const REAL *const from = in.x + (in.begin + b) * columns, *const steps = w->steps + in.begin + b;
            const int16_t *const integers = (const int16_t *)w->words + (in.begin + b) * padded;
            n = in.count - b >= TEXTS ? TEXTS : in.count - b >= TEXTS / 2 ? TEXTS / 2 : 1;
            switch (m->scale ? -n : n) {
            case 1: products(m, 1, first + r, from, columns, y); break;
            case TEXTS / 2: products(m, TEXTS / 2, first + r, from, columns, y); break;
            case TEXTS: products(m, TEXTS, first + r, from, columns, y); break;
            case -1: int8_products(m, 1, first + r, integers, padded, steps, y); break;
            case -TEXTS / 2: int8_products(m, TEXTS / 2, first + r, integers, padded, steps, y); break;
            default: int8_products(m, TEXTS, first + r, integers, padded, steps, y);
            }
            const int64_t count = rows.end - r < ROWS ? rows.end - r : ROWS;
            for (int64_t t = 0; t < n; t++)
                put(&out, b + t, r, count, m->bias ? y[t] + load_some(m->bias + first + r, count) : y[t]);
        }
}

/* y (count, PANEL) = rows r … of int8, widened, times a panel of words. */
static void int16_tiles(const Worker *w, const Matrix *m, int64_t r, int64_t count, int64_t panel, int vectors, REAL *y)
{
    const int64_t pairs = (m->columns + 1) / 2;
    const REAL *const words = w->words + panel * pairs * PANEL;
    for (int64_t i = 0; i < count; i += TALL) {
        const int16_t *const of_rows = (const int16_t *)w->rows + 2 * i * pairs;
        Lanes sums[TALL][WIDE];
        switch (vectors) {
        case 1: int16_tile(of_rows, pairs, words, 1, sums); break;
        case 2: int16_tile(of_rows, pairs, words, 2, sums); break;
        case 3: int16_tile(of_rows, pairs, words, WIDE - 1, sums); break;
        default: int16_tile(of_rows, pairs, words, WIDE, sums);
        }
        for (int64_t j = 0; j < TALL && i + j < count; j++)
            for (int64_t v = 0; v < vectors; v++) {
                const REAL bias = m->bias ? m->bias[r + i + j] : 0;
                const Lanes step = load(w->steps + panel * PANEL + v * LANES);
                store(y + (i + j) * PANEL + v * LANES, sums[j][v] * step * m->scale[r + i + j] + bias);
            }
    }
}

/* The same of a prompt: a strip of rows after the other, of each all panels. */
static void multiply_panels(const Worker *w, const Matrix *m, int64_t first, Span rows, Input in, Output out)
{
    const int64_t columns = m->columns, integers = m->scale && INT16_PRODUCTS;
    for (int64_t r = rows.begin; r < rows.end; r += STRIP) {
        const int64_t count = rows.end - r < STRIP ? rows.end - r : STRIP, row = first + r;
        const REAL *const weight = m->scale ? w->rows : (const REAL *)m->weight + row * m->stride;
        const int64_t stride = m->scale ? columns : m->stride;
        if (m->scale) widen(m, row, count, w->rows);
        for (int64_t p = 0; p < (in.count + PANEL - 1) / PANEL; p++) {
            const int64_t panel = in.begin + p, tokens = in.count - p * PANEL;
            const int vectors = vectors_of(tokens);
            REAL *const y = out.stays_packed ? out.y + (panel * out.stride + r) * PANEL : w->strip;
            if (integers) int16_tiles(w, m, row, count, panel, vectors, y);
            else
                for (int64_t i = 0; i < count; i += TALL) {
                    /* The next rows, into the second cache: 13 tokens of 14M parameters are 1.5 times as fast. */
                    for (int64_t j = 0; !p && j < TALL * stride; j += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(weight + (i + TALL) * stride + j, 0, 2);
                    tiles(weight + i * stride, stride, 1, count - i < TALL ? count - i : TALL, columns,
                          in.x + panel * columns * PANEL, vectors, m->bias ? m->bias + row + i : 0, 0, y + i * PANEL);
                }
            for (int64_t v = 0; !out.stays_packed && v < vectors; v++)
                for (int64_t i = 0; i < count; i += LANES) {
                    const int64_t some = count - i < LANES ? count - i : LANES;
                    Lanes turned[LANES];
                    for (int64_t j = 0; j < LANES; j++)
                        turned[j] = load(y + (j < some ? i + j : i) * PANEL + v * LANES);
                    transpose(turned);
                    for (int64_t t = 0; t < LANES && v * LANES + t < tokens; t++)
                        put(&out, p * PANEL + v * LANES + t, r + i, some, turned[t]);
                }
        }
    }
}

static void multiply(const Worker *w, const Matrix *m, int64_t first, Span rows, Input in, Output out)
{
    (w->is_prompt ? multiply_panels : multiply_vectors)(w, m, first, rows, in, out);
}
