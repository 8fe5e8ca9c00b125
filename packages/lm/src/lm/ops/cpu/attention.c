/* Causal self-attention of a training step, a head at a time, so that scores never leave the cache: goes on from
   multiply.c. Heads are rotated as they are read, and their gradients as they are written. */

enum { BLOCK = 32, AHEAD = 16 }; /* queries whose scores are computed at once; rows that are fetched ahead */

/* The words of x (rows, columns), as (columns, step). */
static void transpose(int64_t rows, int64_t columns, const Stored *x, Word *out, int64_t step) {
    const Word *from = (const Word *)x;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < columns; i++) out[i * step + row] = from[row * columns + i];
}

typedef struct {
    int64_t width, length, heads, kv_heads; /* of a head, of a text */
    const REAL *rope;                       /* cosine, sine: (length, width / 2, 2) of each text or of all; NULL */
    int64_t rope_step;                      /* between texts */
    const int64_t *first;                   /* the first key that each query sees */
    int64_t first_step;
    double scale; /* of scores */
} Shape;

/* `count` rows of a head, `step` apart, rotated and times scale: the first of (rows, room), all else in it is 0. */
static void read_rows(int64_t count, int64_t rows, int64_t width, int64_t room, const Stored *from, int64_t step,
                      const REAL *rope, const REAL *scales, REAL scale, Stored *to) {
    for (int64_t row = 0; row < rows; row++, from += step, to += room) {
        const int64_t present = row < count ? width : 0, half = width / 2;
        const REAL by = scales && present ? scales[row] : scale;
        memset(to + present, 0, (size_t)(room - present) * sizeof *to);
        if (!present) continue;
        /* Rows of a head lie too far apart for the processor to expect them. */
        for (int64_t i = 0; i < width; i += 64 / sizeof *from) __builtin_prefetch(from + AHEAD * step + i);
        if (!rope) EACH to[i] = put(get(from[i]) * by);
        if (rope) _Pragma("omp simd") for (int64_t i = 0; i < half; i++) {
                const REAL c = rope[row * width + 2 * i] * by, d = rope[row * width + 2 * i + 1] * by;
                const REAL a = get(from[i]), b = get(from[half + i]);
                to[i] = put(a * c - b * d);
                to[half + i] = put(a * d + b * c);
            }
    }
}

/* The way back: rows (count, room) times scale and rotated by the opposite angles. */
static void write_rows(int64_t count, int64_t width, int64_t room, const REAL *from, const REAL *rope, REAL scale,
                       Stored *to, int64_t step) {
    const int64_t half = width / 2;
    for (int64_t row = 0; row < count; row++, from += room, to += step) {
        if (!rope) EACH to[i] = put(from[i] * scale);
        if (rope) _Pragma("omp simd") for (int64_t i = 0; i < half; i++) {
                const REAL a = from[i], b = from[half + i];
                const REAL c = rope[row * width + 2 * i] * scale, d = rope[row * width + 2 * i + 1] * scale;
                to[i] = put(a * c + b * d);
                to[half + i] = put(b * c - a * d);
            }
    }
}

/* The first key that a block of queries reads. */
static int64_t start_of(const int64_t *first, int64_t block, int64_t count) {
    int64_t start = first[block];
    for (int64_t i = 1; i < count; i++) start = least(start, first[block + i]);
    return start / COLUMNS * COLUMNS;
}

/* Elements that attend() leaves in `weights` for each head, and the REALs that each thread works in. */
int64_t weights_of(int64_t length) { return up(length, BLOCK) * (up(length, BLOCK) + BLOCK) / 2; }

int64_t workspace(int64_t width, int64_t length) {
    return 12 * LANES + (5 * up(width, COLUMNS) + 3 * BLOCK) * (up(length, BLOCK) + 3 * BLOCK);
}

#define PLACE(type, name, count) \
    type *name = (type *)at;     \
    at += up((count) * sizeof(type) / sizeof(REAL), LANES)

/* One key head's queries: out (length, heads, width) of a text. Of the softmax, weights keeps the powers of e and
   inverse (heads, length) the inverse of their sums. */
static void attend_head(const Shape *s, int64_t text, int64_t kv_head, const Stored *qkv, Stored *out, Stored *weights,
                        REAL *inverse, REAL *at) {
    const int64_t w = s->width, room = up(w, COLUMNS);
    const int64_t length = s->length, all = up(length, BLOCK), step_k = all + COLUMNS;
    const int64_t group = s->heads / s->kv_heads, step = (s->heads + 2 * s->kv_heads) * w, words = room / PAIR;
    const REAL *rope = s->rope ? s->rope + text * s->rope_step : 0;
    const int64_t *first = s->first + text * s->first_step;
    const Stored *const k = qkv + text * length * step + (s->heads + kv_head) * w, *v = k + s->kv_heads * w;
    PLACE(Stored, rows, all * room);
    PLACE(Word, keys, words * step_k);
    PLACE(Word, values, all * words);
    PLACE(REAL, scores, BLOCK * all);
    PLACE(REAL, sums, BLOCK * room);
    read_rows(length, all, w, room, k, step, rope, 0, 1, rows);
    transpose(all, words, rows, keys, step_k);
    read_rows(length, all, w, room, v, step, 0, 0, 1, rows);
    pair_rows(all, room, rows, room, values, room);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const Stored *q = qkv + text * length * step + head * w;
        REAL *by = inverse + (text * s->heads + head) * length;
        Stored *powers = weights + (text * s->heads + head) * weights_of(length);
        for (int64_t block = 0; block < length; block += BLOCK) {
            const int64_t count = least(BLOCK, length - block), start = start_of(first, block, count);
            const int64_t width = block + BLOCK - start; /* keys that are computed */
            read_rows(count, BLOCK, w, room, q + block * step, step, rope ? rope + block * w : 0, 0, s->scale, rows);
            multiply(BLOCK, width, words, (Word *)rows, words, 1, keys + start, step_k, scores, width, 0);
            memset(powers + count * width, 0, (size_t)((BLOCK - count) * width) * sizeof *powers);
            for (int64_t row = 0; row < count; row++) {
                const Whole from = first[block + row] - start, others = block + row - first[block + row];
                REAL *score = scores + row * width, most = score[from], sum = 0;
                Stored *to = powers + row * width;
                _Pragma("omp simd reduction(max : most)") for (int64_t i = 0; i < width; i++) most =
                    (Whole)i - from <= others && score[i] > most ? score[i] : most;
                EACH_ADDED {
                    const REAL e = (Whole)i - from <= others ? exponential(score[i] - most) : 0;
                    sum += e;
                    to[i] = put(e);
                }
                by[block + row] = 1 / sum;
            }
            multiply(BLOCK, room, width / PAIR, (Word *)powers, width / PAIR, 1, values + start / PAIR * room, room,
                     sums, room, 0);
            for (int64_t row = 0; row < count; row++)
                write_rows(1, w, room, sums + row * room, 0, by[block + row],
                           out + ((text * length + block + row) * s->heads + head) * w, 0);
            powers += BLOCK * width;
        }
    }
}

/* The gradient of qkv, from that of out, for one key head. With s the scores, p their softmax and o = p v:
   dv = pᵀ do, ds = p (do vᵀ - rowsum), dq = ds k, dk = dsᵀ q. */
static void attend_head_back(const Shape *s, int64_t text, int64_t kv_head, const Stored *grad, const Stored *qkv,
                             const Stored *weights, const REAL *inverse, Stored *for_qkv, REAL *at) {
    const int64_t w = s->width, room = up(w, COLUMNS);
    const int64_t length = s->length, all = up(length, BLOCK), step_k = all + COLUMNS;
    const int64_t group = s->heads / s->kv_heads, step = (s->heads + 2 * s->kv_heads) * w, words = room / PAIR;
    const int64_t base = text * length * step, to_k = base + (s->heads + kv_head) * w, to_v = to_k + s->kv_heads * w;
    const REAL *rope = s->rope ? s->rope + text * s->rope_step : 0;
    const int64_t *first = s->first + text * s->first_step;
    PLACE(Stored, rows, all * room);
    PLACE(Word, values, words * step_k);
    PLACE(Word, keys, all * words);
    PLACE(REAL, for_k, all * room);
    PLACE(REAL, for_v, all * room);
    PLACE(REAL, slopes, BLOCK * all);
    PLACE(Stored, narrow, BLOCK * all);
    PLACE(Word, pairs, BLOCK / PAIR * all);
    PLACE(Word, above, BLOCK * words);
    PLACE(Word, queries, BLOCK * words);
    PLACE(REAL, for_q, BLOCK * room);
    read_rows(length, all, w, room, qkv + to_v, step, 0, 0, 1, rows);
    transpose(all, words, rows, values, step_k);
    read_rows(length, all, w, room, qkv + to_k, step, rope, 0, 1, rows);
    pair_rows(all, room, rows, room, keys, room);
    memset(for_k, 0, (size_t)(all * room) * sizeof *for_k);
    memset(for_v, 0, (size_t)(all * room) * sizeof *for_v);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        const Stored *powers = weights + (text * s->heads + head) * weights_of(length);
        for (int64_t block = 0; block < length; block += BLOCK) {
            const int64_t count = least(BLOCK, length - block), start = start_of(first, block, count);
            const int64_t width = block + BLOCK - start, at_q = base + block * step + head * w;
            const REAL *by = inverse + (text * s->heads + head) * length + block, *turn = rope ? rope + block * w : 0;
            const Stored *from = grad + ((text * length + block) * s->heads + head) * w;
            read_rows(count, BLOCK, w, room, qkv + at_q, step, turn, 0, s->scale, rows);
            pair_rows(BLOCK, room, rows, room, queries, room);
            read_rows(count, BLOCK, w, room, from, s->heads * w, 0, by, 1, rows);
            pair_rows(BLOCK, room, rows, room, above, room);
            read_rows(count, BLOCK, w, room, from, s->heads * w, 0, 0, 1, rows);
            multiply(BLOCK, width, words, (Word *)rows, words, 1, values + start, step_k, slopes, width, 0);
            memset(narrow + count * width, 0, (size_t)((BLOCK - count) * width) * sizeof *narrow);
            for (int64_t row = 0; row < count; row++) {
                const Stored *e = powers + row * width;
                const REAL *slope = slopes + row * width, share = by[row];
                Stored *to = narrow + row * width;
                REAL sum = 0;
                EACH_ADDED sum += get(e[i]) * slope[i];
                sum *= share;
                EACH to[i] = put(get(e[i]) * share * (slope[i] - sum));
            }
            pair_rows(BLOCK, width, powers, width, pairs, width);
            multiply(width, room, BLOCK / PAIR, pairs, 1, width, above, room, for_v + start * room, room, 1);
            pair_rows(BLOCK, width, narrow, width, pairs, width);
            multiply(width, room, BLOCK / PAIR, pairs, 1, width, queries, room, for_k + start * room, room, 1);
            multiply(BLOCK, room, width / PAIR, (Word *)narrow, width / PAIR, 1, keys + start / PAIR * room, room,
                     for_q, room, 0);
            write_rows(count, w, room, for_q, turn, s->scale, for_qkv + at_q, step);
            powers += BLOCK * width;
        }
    }
    write_rows(length, w, room, for_k, rope, 1, for_qkv + to_k, step);
    write_rows(length, w, room, for_v, 0, 1, for_qkv + to_v, step);
}

/* The key heads of all texts, or the way back if there is a gradient. */
void attend(int threads, int64_t texts, int64_t width, int64_t length, int64_t heads, int64_t kv_heads,
            const REAL *rope, int64_t rope_step, const int64_t *first, int64_t first_step, double scale,
            const Stored *qkv, Stored *out, Stored *weights, REAL *inverse, const Stored *grad, REAL *space) {
    const Shape s = {width, length, heads, kv_heads, rope, rope_step, first, first_step, scale};
    const int64_t units = texts * kv_heads;
    _Pragma("omp parallel for num_threads(threads) schedule(static)") for (int64_t thread = 0; thread < threads;
                                                                           thread++) for (int64_t unit =
                                                                                              units * thread / threads;
                                                                                          unit < units * (thread + 1) /
                                                                                                     threads;
                                                                                          unit++) {
        REAL *own = space + thread * workspace(width, length);
        if (grad) attend_head_back(&s, unit / kv_heads, unit % kv_heads, grad, qkv, weights, inverse, out, own);
        else attend_head(&s, unit / kv_heads, unit % kv_heads, qkv, out, weights, inverse, own);
    }
}
