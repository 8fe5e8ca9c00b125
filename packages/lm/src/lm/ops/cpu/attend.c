/* Attention of one query over the keys and values of a text, which lie in pages: goes on from layout.c. */

#ifndef TAKE   /* else this stands behind it, in one source */
#include "layout.c"
#endif

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
            fetch(at, vectors * BYTES);
            for (int i = 0; i < vectors; i++) sums[i] += weights[j - begin] * load(at + i * LANES);
        }
    }
    for (int i = 0; i < vectors; i++) store(out + i * LANES, sums[i] / total);
}

/* to[k] = q · keys[k] for `count` keys of `vectors` of LANES numbers; what follows them may be overwritten. */
static inline __attribute__((always_inline)) void
dot_products(const REAL *q, const REAL *keys, int64_t count, const int vectors, REAL *restrict to)
{
    for (int64_t k = 0; k < count; k += LANES) {
        Lanes parts[LANES];
        for (int64_t i = 0; i < LANES; i++) {
            const REAL *const key = keys + (k + i < count ? k + i : count - 1) * vectors * LANES;
            fetch(key, vectors * BYTES);
            parts[i] = load(key) * load(q);
            for (int v = 1; v < vectors; v++) parts[i] += load(key + v * LANES) * load(q + v * LANES);
        }
        store(to + k, sums_of(parts));
    }
}

static void scores(const REAL *q, const REAL *keys, int64_t count, int64_t width, REAL *restrict to)
{
    const Matrix matrix = {(const uint8_t *)keys, 0, 0, REALS, count, width, width * (int64_t)sizeof(REAL)};
    Lanes y;
    switch (width % LANES ? 0 : width / LANES) {
    case 1: dot_products(q, keys, count, 1, to); break;
    case 2: dot_products(q, keys, count, 2, to); break;
    case 3: dot_products(q, keys, count, 3, to); break;
    case 4: dot_products(q, keys, count, 4, to); break;
    case 6: dot_products(q, keys, count, 6, to); break;
    case 8: dot_products(q, keys, count, 8, to); break;
    default:
        for (int64_t k = 0; k < count; k += ROWS) {
            products(&matrix, REALS, 1, k, q, 0, &y);
            store(to + k, y);
        }
    }
}

/* out = softmax(q · keys) · values, over the positions from begin to end; weights: room for LANES more. sink: one more
   score, whose share no value gets, or none; cap: see softcap. */
static void attend(const REAL *q, const REAL *keys, const REAL *values, Table table, int64_t begin, int64_t end,
                   int64_t width, const REAL *sink, double cap, REAL *restrict weights, REAL *restrict out)
{
    const int64_t count = end - begin;
    REAL largest = sink ? *sink : -INFINITY, total;
    Lanes totals = {0};
    for (int64_t j = begin, last; j < end; j = last) {
        last = run_end(table, j, end);
        scores(q, keys + slot(table, j) * width, last - j, width, weights + j - begin);
    }
    softcap(weights, count, cap);
    for (int64_t j = 0; j < count; j++) largest = weights[j] > largest ? weights[j] : largest;
    for (int64_t j = 0; j < LANES; j++) weights[count + j] = -INFINITY;
    for (int64_t j = 0; j < count; j += LANES) {
        Lanes e = exponential(load(weights + j) - largest);
        store(weights + j, e);
        totals += e;
    }
    total = sum(totals) + (sink ? exponential(*sink - largest - (Lanes){0})[0] : 0);
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
    if (width >= LANES) {   /* the last LANES, some of them again */
        gather(weights, table, begin, end, values + width - LANES, width, 1, total, out + width - LANES);
        return;
    }
    REAL sums[BYTES / sizeof(REAL)] = {0};
    for (int64_t j = begin; j < end; j++)
        for (int64_t i = 0; i < width; i++) sums[i] += weights[j - begin] * values[slot(table, j) * width + i];
    for (int64_t i = 0; i < width; i++) out[i] = sums[i] / total;
}
