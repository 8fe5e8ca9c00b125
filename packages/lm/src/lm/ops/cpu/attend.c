/* Attention of one query over the keys and values of a text, which lie in pages: goes on from layout.c. */

/* Where the positions of a text lie: position j in slot pages[j / page] * page + j % page. */
typedef struct {
    const int64_t *pages;
    int64_t page;
} Table;

/* The end of the run of slots beside each other that position j begins, at most `end`. */
static inline int64_t run_end(Table table, int64_t j, int64_t end) {
    int64_t next = (j / table.page + 1) * table.page;
    return next < end ? next : end;
}

static inline int64_t slot(Table table, int64_t j) { return table.pages[j / table.page] * table.page + j % table.page; }

#define MOST 4 /* values that are added to `out` at once */

/* out = softmax(q · keys) · values, over the positions from begin to end; weights: room for LANES more. sink: one more
   score, whose share no value gets, or none; cap: see softcap. */
static void attend(const REAL *q, const REAL *keys, const REAL *values, Table table, int64_t begin, int64_t end,
                   int64_t width, const REAL *sink, double cap, REAL *restrict weights, REAL *restrict out) {
    const int64_t count = end - begin;
    REAL largest = sink ? *sink : -INFINITY, total;
    Lanes totals = {0};
    for (int64_t j = begin, last; j < end; j = last) {
        last = run_end(table, j, end);
        const Matrix run = {(const uint8_t *)(keys + slot(table, j) * width),
                            0,
                            0,
                            REALS,
                            last - j,
                            width,
                            width * (int64_t)sizeof *keys};
        for (int64_t k = 0; k < run.rows; k += ROWS) {
            Lanes y;
            products(&run, REALS, 1, k, q, 0, &y);
            store(weights + j - begin + k, y);
        }
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
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t j = begin; j < end; j += MOST) {
        const REAL *from[MOST];
        REAL by[MOST];
        for (int64_t k = 0; k < MOST; k++) { /* beyond the last it is that one again, times 0 */
            from[k] = values + slot(table, j + k < end ? j + k : end - 1) * width;
            by[k] = j + k < end ? weights[j + k - begin] / total : 0;
        }
        for (int64_t i = 0, some; i < width; i += LANES) {
            some = width - i < LANES ? width - i : LANES;
            Lanes sum = load_some(out + i, some);
            for (int64_t k = 0; k < MOST; k++) sum += by[k] * load_some(from[k] + i, some);
            store_some(out + i, some, sum);
        }
    }
}
