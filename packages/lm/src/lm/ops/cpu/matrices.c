/* Products of matrices and vectors, of a few texts or of the many tokens of a prompt: goes on from kinds.c.

   The vectors of a few texts stand one after another, and a row of the matrix is read once for all of them. Those of a
   prompt lie in panels, beside each other in the lanes of WIDE Lanes, and TALL rows at once are multiplied by a panel.
   Integers of a matrix multiply what is rounded to 16 bits. An element is computed by the same operations in the same
   order whatever the batch and however many threads. */

#include <omp.h>

#define ROWS LANES /* of a matrix at once, one after the other: their sums fill a vector */
#define TEXTS 4    /* that a row is multiplied by at once, or by one alone */
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define AHEAD(kind) ((kind) == REALS || (kind) == INT8 ? 2048 : 16384) /* bytes: see fetch */
#define LARGEST (127 * 256)                                            /* of the integers that a vector is rounded to */
#define PADDED(count) (((count) + BLOCK - 1) / BLOCK * BLOCK)
#define GROUPS(count) (((count) + GROUP - 1) / GROUP)
#define OF_VECTOR(count) (2 * PADDED(count)) /* words of a rounded vector: see to_16_bits */
#define WIDE (BYTES / 16)                    /* vectors of a panel */
#define PANEL (WIDE * LANES)                 /* tokens of a panel */
#define TALL 6                               /* rows that a panel is multiplied by at once */
#define STRIP 48 /* rows whose results are turned from panels to tokens: a multiple of TALL and LANES */

/* Prefetches `bytes` into the second cache, AHEAD of their use. On one core of a Zen 4 weights in huge pages then come
   at 34 GB/s, without this at 29, from 8 kB ahead or more at 25; bfloat16 in the 4 kB pages of a mapped file come 1.6
   times as fast from 8 or 16 kB ahead as from 2 or 4. */
static inline __attribute__((always_inline)) void fetch(const int kind, const void *from, const int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char *)from + AHEAD(kind) + at, 0, 2);
}

/* y[n] = rows row … row + ROWS of m times x[n], and their bias; beyond the last row it is that one again. A row
   is read from its begin to its end before the next: then processors fetch ahead by themselves. */
static inline __attribute__((always_inline)) void products(const Matrix *m, const int kind, const int texts,
                                                           int64_t row, const REAL *restrict x, int64_t x_stride,
                                                           Lanes *restrict y) {
    const int64_t columns = m->columns, whole = columns / LANES * LANES, size = kind == REALS ? sizeof(REAL) : 2;
    Lanes parts[TEXTS][ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        const uint8_t *const w = m->weight + (row + i < m->rows ? row + i : m->rows - 1) * m->stride;
        Lanes even[TEXTS] = {{0}}, odd[TEXTS] = {{0}};
        int64_t at = 0;
        for (; at + 2 * LANES <= whole; at += 2 * LANES) {
            fetch(kind, w + at * size, 2 * LANES * size);
            for (int n = 0; n < texts; n++) {
                even[n] += load_as(kind, w + at * size) * load(x + n * x_stride + at);
                odd[n] += load_as(kind, w + (at + LANES) * size) * load(x + n * x_stride + at + LANES);
            }
        }
        for (int n = 0; n < texts; n++) {
            const REAL *const with = x + n * x_stride;
            if (at < whole) even[n] += load_as(kind, w + at * size) * load(with + at);
            if (whole && whole < columns) /* the last LANES again, times zero what was added already */
                odd[n] += load_as(kind, w + (columns - LANES) * size) * last(with + columns - LANES, columns - whole);
            parts[n][i] = even[n] + odd[n];
            for (int64_t j = 0; !whole && j < columns; j++) parts[n][i][0] += with[j] * number_as(kind, w + j * size);
        }
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]);
}

/* Vectors in 16 bits: `steps` times their words, which have zeros up to PADDED(columns), are x. sums: those of the
   words of each block, LANES of them for each group. */
typedef struct {
    const int16_t *words;
    const REAL *steps, *sums;
} Rounded;

/* The same of int8, with a scale for each row or, in Q8_0, for each block. */
static inline __attribute__((always_inline)) void int8_products(const Matrix *m, const int kind, const int texts,
                                                                int64_t row, Rounded x, Lanes *restrict y) {
    const int64_t columns = m->columns, stride = OF_VECTOR(columns);
    Lanes parts[TEXTS][ROWS], scales = {0};
    for (int64_t i = 0; i < ROWS; i++) {
        const int64_t r = row + i < m->rows ? row + i : m->rows - 1;
        const uint8_t *w = m->weight + r * m->stride;
        Lanes totals[TEXTS][2] = {{{0}}}; /* two sums in turn, as each waits for itself */
        Ints sums[TEXTS][2] = {{{0}}};
        scales[i] = kind == INT8 ? m->scale[r] : 1;
        for (int64_t at = 0; at < columns; at += 2 * BLOCK) {
            if (kind == Q8_0) fetch(kind, w, 68);
#pragma GCC unroll 2
            for (int64_t b = 0; b < 2 && at + b * BLOCK < columns; b++, w += kind == INT8 ? BLOCK : 34)
                for (int n = 0; n < texts; n++) {
                    const int16_t *const with = x.words + n * stride + at + b * BLOCK;
                    Ints sum = sums[n][b];
                    for (int64_t v = 0; v < BLOCK; v += PAIRS)
                        sum = add_products(sum, (Ints)int8_words(w + (kind == INT8 ? 0 : 2) + v),
                                           (Ints)load((const REAL *)(with + v)));
                    if (kind == Q8_0) totals[n][b] += as_lanes(sum) * number_as(F16, w);
                    else sums[n][b] = sum;
                }
            if (kind == INT8 && (at + 2 * BLOCK >= columns || (at + 2 * BLOCK) % (GROUP * INTS) == 0))
                for (int n = 0; n < texts; n++) {
                    totals[n][0] += as_lanes(sums[n][0]) + as_lanes(sums[n][1]);
                    sums[n][0] = sums[n][1] = (Ints){0};
                }
        }
        for (int n = 0; n < texts; n++) parts[n][i] = totals[n][0] + totals[n][1];
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]) * x.steps[n] * scales;
}

/* The same of K-quants: their bytes times both bytes of the integers of x. */
static inline __attribute__((always_inline)) void k_products(const Matrix *m, const int kind, const int texts,
                                                             int64_t row, Rounded x, Lanes *restrict y) {
    const int64_t groups = GROUPS(m->columns), stride = OF_VECTOR(m->columns);
    const int8_t *const bytes = (const int8_t *)(x.words + PADDED(m->columns));
    Lanes parts[TEXTS][ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        const uint8_t *from = m->weight + (row + i < m->rows ? row + i : m->rows - 1) * m->stride;
        Lanes totals[TEXTS][2] = {{{0}}}; /* two sums in turn, as each waits for itself */
        for (int64_t group = 0; group < groups; group++, from += group_bytes(kind)) {
            const Scales scales = scales_of(kind, from);
            fetch(kind, from, group_bytes(kind));
#pragma GCC unroll 8
            for (int64_t c = 0; c < GROUP; c += BYTES) {
                const Words w = bytes_of(kind, from, c);
                const Lanes by = spread(scales.scales, c / (BLOCK / 2));
                for (int n = 0; n < texts; n++) {
                    const REAL *const with = (const REAL *)(bytes + 2 * (n * stride + group * GROUP + c));
                    totals[n][c / BYTES % 2] +=
                        as_lanes(byte_products(w, (Words)load(with), (Words)load(with + LANES))) * by;
                }
            }
            for (int n = 0; n < texts; n++)
                for (int64_t h = 0; h < HALVES; h += LANES)
                    totals[n][1] -= load(scales.least + h) * load(x.sums + (n * groups + group) * HALVES + h);
        }
        for (int n = 0; n < texts; n++) parts[n][i] = totals[n][0] + totals[n][1];
    }
    for (int n = 0; n < texts; n++) y[n] = sums_of(parts[n]) * x.steps[n];
}

/* x in 16 bits, to, with zeros behind it up to PADDED(count), then for each vector of bytes the lower bytes and the
   upper ones; the sums of half blocks; and the step that they are times: NaN where x holds no finite number. */
static REAL to_16_bits(const REAL *x, int64_t count, int16_t *restrict to, REAL *restrict sums) {
    REAL most = 0, odd = 0;
    _Pragma("omp simd reduction(max : most) reduction(+ : odd)") for (int64_t i = 0; i < count; i++) {
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
        odd += x[i] * 0;
    }
    const REAL by = odd == 0 && most > 0 ? LARGEST / most : 0, to_whole = sizeof(REAL) == 4 ? 0x1.8p23 : 0x1.8p52;
    if (by == 0) memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; by > 0 && i < count; i++) to[i] = (int16_t)(x[i] * by + to_whole - to_whole);
    for (int64_t i = count; i < PADDED(count); i++) to[i] = 0;
    memset(sums, 0, (size_t)(GROUPS(count) * HALVES) * sizeof *sums);
    for (int64_t i = 0; i < PADDED(count); i++) sums[i / (BLOCK / 2)] += to[i];
    int8_t *const bytes = (int8_t *)(to + PADDED(count));
    for (int64_t c = 0; c < count / GROUP * GROUP; c += BYTES)
        for (int64_t i = 0; i < BYTES; i++) {
            bytes[2 * c + i] = (int8_t)to[c + i];
            bytes[2 * c + BYTES + i] = (int8_t)((to[c + i] - (int8_t)to[c + i]) >> 8);
        }
    return odd == 0 ? most / LARGEST : odd;
}

typedef struct {
    int64_t begin, end;
} Span;

/* The part of `count` that thread `me` of `threads` has, in multiples of a cache line's numbers. */
static Span part(int64_t count, int64_t me, int64_t threads) {
    int64_t lines = (count + LANES - 1) / LANES;
    int64_t begin = lines * me / threads * LANES, end = lines * (me + 1) / threads * LANES;
    return (Span){begin < count ? begin : count, end < count ? end : count};
}

/* y[i][v] = Σ w[which[i] + k step] x[k][v] of `count` k. */
static inline __attribute__((always_inline)) void tile(const REAL *w, const int64_t *which, const int64_t step,
                                                       int64_t count, const REAL *restrict x, const int vectors,
                                                       Lanes (*restrict y)[WIDE]) {
    const REAL *row[TALL];
    Lanes sums[TALL][WIDE] = {{{0}}};
    for (int i = 0; i < TALL; i++) row[i] = w + which[i];
    for (int64_t k = 0; k < count; k++, x += PANEL)
        for (int i = 0; i < TALL; i++)
            for (int v = 0; v < vectors; v++) sums[i][v] += row[i][k * step] * load(x + v * LANES);
    memcpy(y, sums, sizeof sums);
}

/* The same of numbers of 16 bits, two of them in each of w and x. Sums of `per` pairs are exact, and `per_scale` pairs
   have one of `scales`. */
static inline __attribute__((always_inline)) void int16_tile(const int16_t *w, int64_t stride, int64_t pairs,
                                                             const REAL *scales, int64_t scales_stride, int64_t per,
                                                             int64_t per_scale, const REAL *restrict x,
                                                             const int vectors, Lanes (*restrict y)[WIDE]) {
    Lanes totals[TALL][WIDE] = {{{0}}};
    for (int64_t k = 0; k < pairs;) {
        const int64_t end = pairs - k < per ? pairs : k + per, part = k / per_scale;
        Ints sums[TALL][WIDE] = {{{0}}};
        for (; k < end; k++)
            for (int i = 0; i < TALL; i++) {
                int32_t by;
                memcpy(&by, w + i * stride + 2 * k, sizeof by);
                for (int v = 0; v < vectors; v++)
                    sums[i][v] = add_products(sums[i][v], (Ints)load(x + k * PANEL + v * LANES), (Ints){0} + by);
            }
        for (int i = 0; i < TALL; i++)
            for (int v = 0; v < vectors; v++) totals[i][v] += as_lanes(sums[i][v]) * scales[i * scales_stride + part];
    }
    memcpy(y, totals, sizeof totals);
}

/* A call with VECTORS, a constant of 1 to WIDE. */
#define BY_VECTORS(count, call)          \
    switch (count) {                     \
        case 1: {                        \
            enum { VECTORS = 1 };        \
            call;                        \
        } break;                         \
        case 2: {                        \
            enum { VECTORS = 2 };        \
            call;                        \
        } break;                         \
        case 3: {                        \
            enum { VECTORS = WIDE - 1 }; \
            call;                        \
        } break;                         \
        default: {                       \
            enum { VECTORS = WIDE };     \
            call;                        \
        }                                \
    }

/* out = w x (+ bias) (+ added), for `rows` rows of w, of which number k of row r is w[r row_step + k step]. */
static void tiles(const REAL *w, int64_t row_step, int64_t step, int64_t rows, int64_t count, const REAL *x,
                  int vectors, const REAL *bias, const REAL *added, REAL *out) {
    Lanes y[TALL][WIDE];
    for (int64_t r = 0; r < rows; r += TALL) {
        int64_t which[TALL];
        for (int64_t i = 0; i < TALL; i++) which[i] = (r + i < rows ? r + i : rows - 1) * row_step;
        BY_VECTORS(vectors, tile(w, which, step, count, x, VECTORS, y))
        for (int64_t i = 0; i < TALL && r + i < rows; i++)
            for (int64_t v = 0; v < vectors; v++) {
                const int64_t at = (r + i) * PANEL + v * LANES;
                Lanes sum = bias ? y[i][v] + bias[r + i] : y[i][v];
                store(out + at, added ? sum + load(added + at) : sum);
            }
    }
}

/* out = x in 16 bits, features 2k and 2k + 1 together, their sums by blocks of features, and the steps that they are
   times: see to_16_bits. */
static void round_panel(const REAL *x, int64_t features, REAL *out, REAL *sums, REAL *steps) {
    for (int64_t v = 0; v < PANEL; v += LANES) {
        Lanes most = {0}, odd = {0};
        for (int64_t i = 0; i < features; i++) {
            Lanes a = load(x + i * PANEL + v);
            a = choose(a < 0, -a, a);
            most = choose(a > most, a, most);
            odd += a * 0;
        }
        const Lanes none = {0}, whole = none + (REAL)0x1.8p23; /* added, its lowest bits are those of the integer */
        const Lanes by = choose((odd == 0) & (most > 0), LARGEST / choose(most > 0, most, whole), none);
        store(steps + v, choose(odd == 0, most / LARGEST, odd));
        Lanes sum = none;
        for (int64_t i = 0; i < features; i += 2) {
            Lanes a = choose(by > 0, load(x + i * PANEL + v), none) * by + whole, b = whole;
            if (i + 1 < features) b += choose(by > 0, load(x + (i + 1) * PANEL + v), none) * by;
            sum = (i % BLOCK ? sum : none) + (a - whole) + (b - whole);
            store(sums + i / BLOCK * PANEL + v, sum);
            store(out + i / 2 * PANEL + v, (Lanes)(((Mask)a & 0xffff) | (Mask)b << 16));
        }
    }
}

/* Vectors of LANES tokens that `count` tokens fill in a panel. */
static inline int vectors_of(int64_t count) { return (int)(count < PANEL ? (count + LANES - 1) / LANES : WIDE); }

/* A part of a panel: (columns, PANEL) from (count, columns), at most LANES tokens that stand one after another. */
static void pack(const REAL *x, int64_t stride, int64_t count, int64_t columns, REAL *panel) {
    for (int64_t i = 0; i < columns; i += LANES) {
        const int64_t size = columns - i < LANES ? columns - i : LANES;
        Lanes rows[LANES];
        for (int64_t t = 0; t < LANES; t++) rows[t] = t < count ? load_some(x + t * stride + i, size) : (Lanes){0};
        transpose(rows);
        for (int64_t j = 0; j < size; j++) store(panel + (i + j) * PANEL, rows[j]);
    }
}

/* What a thread multiplies with: scratch memory, its own but for the words and steps of panels, which all share. */
typedef struct {
    int64_t me, threads, is_prompt;
    REAL *words, *sums, *steps; /* vectors in 16 bits, sums of their blocks, and the step that each is times */
    REAL *rows, *strip, *less;  /* STRIP rows of a matrix, widened; (STRIP, PANEL); (TALL, PANEL) */
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
    const int64_t *tokens; /* or none: i */
    const REAL *weights;   /* or none */
    REAL scale;
    int add, stays_packed; /* stays_packed: of a prompt, y has panels (stride, PANEL) beside those of the input */
} Output;

/* Rounds `count` vectors, or those of `count` panels, if one of `parts` matrices that they are multiplied by has
   integers. All threads of a prompt call it. */
static void round_input(const Worker *w, const Matrix *m, int64_t parts, const REAL *x, int64_t count) {
    int64_t columns = 0, integers = 0;
    for (int64_t i = 0; i < parts; i++) columns = LARGER(columns, m[i].columns), integers |= m[i].kind >= INT8;
    if (!integers) return;
    const int64_t padded = PADDED(columns), groups = GROUPS(columns), pairs = (columns + 1) / 2;
    for (int64_t b = 0; b < count && !w->is_prompt; b++)
        w->steps[b] = to_16_bits(x + b * columns, columns, (int16_t *)w->words + b * OF_VECTOR(columns),
                                 w->sums + b * groups * HALVES);
    if (!w->is_prompt) return;
    for (int64_t p = w->me; p < count; p += w->threads)
        round_panel(x + p * columns * PANEL, columns, w->words + p * pairs * PANEL,
                    w->sums + p * padded / BLOCK * PANEL, w->steps + p * PANEL);
#pragma omp barrier
}

/* Elements r … r + count of the result of vector i, at most LANES. */
static inline void put(const Output *out, int64_t i, int64_t r, int64_t count, Lanes y) {
    REAL *const to = out->y + (out->tokens ? out->tokens[i] : i) * out->stride + r;
    y *= out->weights ? out->weights[i] * out->scale : out->scale;
    store_some(to, count, out->add ? y + load_some(to, count) : y);
}

/* Rows of a matrix, widened: of integers words, the scale of each block of Q8_0, else of each group, and the least of
   each block; of others REAL, `stride` apart. */
typedef struct {
    const REAL *reals, *scales, *least;
    const int16_t *words;
    int64_t stride;
} Strip;

static Strip strip_of(const Worker *w, const Matrix *m, int64_t r, int64_t count) {
    const int64_t columns = m->columns, padded = PADDED(columns), blocks = padded / BLOCK;
    if (m->kind == REALS) return (Strip){.reals = (const REAL *)(m->weight + r * m->stride), .stride = columns};
    if (m->kind < INT8) {
        for (int64_t i = 0; i < count; i++) widen(m, r + i, w->rows + i * columns);
        return (Strip){.reals = w->rows, .stride = columns};
    }
    int16_t *const words = (int16_t *)w->rows;
    REAL *const scales = (REAL *)(words + count * padded), *const least = scales + count * blocks;
    for (int64_t i = 0; i < count; i++) unpack(m, r + i, words + i * padded, scales + i * blocks, least + i * blocks);
    return (Strip){.words = words, .scales = scales, .least = least};
}

#define OF_TEXTS(kind)                                                             \
    case kind:                                                                     \
        if (kind < INT8 && n == 1) products(m, kind, 1, r, x, columns, y);         \
        else if (kind < INT8) products(m, kind, TEXTS, r, x, columns, y);          \
        else if (kind <= Q8_0 && n == 1) int8_products(m, kind, 1, r, rounded, y); \
        else if (kind <= Q8_0) int8_products(m, kind, TEXTS, r, rounded, y);       \
        else if (n == 1) k_products(m, kind, 1, r, rounded, y);                    \
        else k_products(m, kind, TEXTS, r, rounded, y);                            \
        break;

/* The results of rows of a span, of a few texts. */
static void multiply_vectors(const Worker *w, const Matrix *m, Span rows, Input in, Output out) {
    const int64_t columns = m->columns;
    Lanes y[TEXTS];
    for (int64_t r = rows.begin; r < rows.end; r += ROWS) {
        const int64_t count = rows.end - r < ROWS ? rows.end - r : ROWS;
        for (int64_t b = 0, n; b < in.count; b += n) {
            n = in.count - b >= TEXTS ? TEXTS : 1;
            const int64_t at = in.begin + b;
            const REAL *const x = in.x + at * columns;
            const Rounded rounded = {(const int16_t *)w->words + at * OF_VECTOR(columns), w->steps + at,
                                     w->sums + at * GROUPS(columns) * HALVES};
            switch (m->kind) {
                OF_TEXTS(REALS)
                OF_TEXTS(BF16)
                OF_TEXTS(F16)
                OF_TEXTS(INT8)
                OF_TEXTS(Q8_0)
                OF_TEXTS(Q4_K)
                OF_TEXTS(Q5_K)
                OF_TEXTS(Q6_K)
            }
            for (int64_t t = 0; t < n; t++)
                put(&out, b + t, r, count, m->bias ? y[t] + load_some(m->bias + r, count) : y[t]);
        }
    }
}

/* y (count, PANEL) = rows r … of integers, widened, times a panel of words. */
static void int16_tiles(const Worker *w, const Matrix *m, Strip rows, int64_t r, int64_t count, int64_t panel,
                        int vectors, REAL *y) {
    const int64_t padded = PADDED(m->columns), blocks = padded / BLOCK, pairs = (m->columns + 1) / 2;
    const int64_t per = (m->kind == INT8   ? GROUP
                         : m->kind == Q6_K ? BLOCK / 2
                                           : BLOCK) /
                        2,
                  per_scale = (m->kind == Q8_0 ? BLOCK : GROUP) / 2;
    const REAL *const x = w->words + panel * pairs * PANEL, *const sums = w->sums + panel * blocks * PANEL;
    for (int64_t i = 0; i < count; i += TALL) {
        const int16_t *const words = rows.words + i * padded;
        const REAL *const scales = rows.scales + i * blocks;
        const int64_t some = count - i < TALL ? count - i : TALL;
        Lanes y_of[TALL][WIDE];
        BY_VECTORS(vectors, int16_tile(words, padded, pairs, scales, blocks, per, per_scale, x, VECTORS, y_of))
        if (has_least(m->kind)) tiles(rows.least + i * blocks, blocks, 1, some, blocks, sums, vectors, 0, 0, w->less);
        for (int64_t j = 0; j < some; j++)
            for (int64_t v = 0; v < vectors; v++) {
                const Lanes step = load(w->steps + panel * PANEL + v * LANES);
                const Lanes less = has_least(m->kind) ? load(w->less + j * PANEL + v * LANES) : (Lanes){0};
                const REAL bias = m->bias ? m->bias[r + i + j] : 0;
                store(y + (i + j) * PANEL + v * LANES, (y_of[j][v] - less) * step + bias);
            }
    }
}

/* The results of rows of a span; of a prompt a strip of rows after the other, of each all panels. */
static void multiply(const Worker *w, const Matrix *m, Span rows, Input in, Output out) {
    const int64_t columns = m->columns;
    if (!w->is_prompt) {
        multiply_vectors(w, m, rows, in, out);
        return;
    }
    for (int64_t r = rows.begin; r < rows.end; r += STRIP) {
        const int64_t count = rows.end - r < STRIP ? rows.end - r : STRIP;
        const Strip strip = strip_of(w, m, r, count);
        for (int64_t p = 0; p < (in.count + PANEL - 1) / PANEL; p++) {
            const int64_t panel = in.begin + p, tokens = in.count - p * PANEL;
            const int vectors = vectors_of(tokens);
            REAL *const y = out.stays_packed ? out.y + (panel * out.stride + r) * PANEL : w->strip;
            if (strip.words) int16_tiles(w, m, strip, r, count, panel, vectors, y);
            else
                for (int64_t i = 0; i < count; i += TALL) {
                    const REAL *const weight = strip.reals + i * strip.stride;
                    /* The next rows, into the second cache: 13 tokens of 14M parameters are 1.5 times as fast. */
                    for (int64_t j = 0; !p && j < TALL * strip.stride; j += 64 / (int64_t)sizeof(REAL))
                        __builtin_prefetch(weight + TALL * strip.stride + j, 0, 2);
                    tiles(weight, strip.stride, 1, count - i < TALL ? count - i : TALL, columns,
                          in.x + panel * columns * PANEL, vectors, m->bias ? m->bias + r + i : 0, 0, y + i * PANEL);
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
