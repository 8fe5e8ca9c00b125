/* A part of a prompt: the tokens of one text that come after those in its cache.

   Tokens lie beside each other in the lanes of vectors: of each feature a panel has WIDE vectors. So norms, rotations
   and softmax add up whole vectors, and all products are of TALL rows at once, each number of them times a panel. */

#ifndef LANES   /* else this stands behind it, in one source */
#include "decode_step.c"
#endif

#if BYTES == 64
#define WIDE 4
#else
#define WIDE 2
#endif
#define TALL 6
#define PANEL (WIDE * LANES)   /* tokens */

typedef struct {
    const Task *task;
    const Model *m;
    int64_t count, start, panels, me, threads;   /* tokens, and how many are before them */
    REAL *x, *inside, *qkv, *attended, *inner, *gated;   /* of each panel (features, PANEL) */
    REAL *rope, *words, *steps;   /* (width, PANEL): cos and sin; (features / 2, PANEL): 16 bits of two; (PANEL,) */
    REAL *rows, *scores;   /* of this thread alone: TALL rows of a matrix, (capacity, PANEL) */
} Prompt;

static int vectors_of(const Prompt *w, int64_t panel)
{
    int64_t tokens = w->count - panel * PANEL;
    return (int)(tokens < PANEL ? (tokens + LANES - 1) / LANES : WIDE);
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

/* TALL rows of int8 or 4 bits from row r on: int8 in 16 bits, with a zero after an odd count; or as REAL with their
   scale. */
static void widen(const Matrix *m, int64_t r, REAL *rows)
{
    const int64_t columns = m->columns, pairs = (columns + 1) / 2;
    int16_t *words = (int16_t *)rows;
    for (int64_t i = 0; i < TALL; i++) {
        const int64_t row = r + i < m->rows ? r + i : m->rows - 1;
        const int8_t *from = (const int8_t *)m->weight + row * m->stride;
        if (m->groups) {
            const uint8_t *group = (const uint8_t *)from;
            for (int64_t g = 0; g < m->groups; g++, group += GROUP / 2) {
                const int64_t left = columns - g * GROUP, scaled = row * m->groups + g;
                REAL weights[GROUP];
                for (int64_t j = 0; j < GROUP; j++) weights[j] = of_4_bits(group, j) * m->scale[scaled];
                memcpy(rows + i * columns + g * GROUP, weights, (left < GROUP ? left : GROUP) * sizeof *weights);
            }
        } else if (INT16_PRODUCTS) {
            for (int64_t j = 0; j < columns; j++) words[2 * i * pairs + j] = from[j];
            if (columns % 2) words[2 * i * pairs + columns] = 0;
        } else {
            for (int64_t j = 0; j < columns; j++) rows[i * columns + j] = from[j] * m->scale[row];
        }
    }
}

/* out = m x (+ added), the rows of a span counted from row `first`, of all panels; out has `features` rows. */
static void multiply_panels(const Prompt *w, const Matrix *m, int64_t first, Span rows, const REAL *x,
                            const REAL *added, REAL *out, int64_t features)
{
    const int64_t columns = m->columns, pairs = (columns + 1) / 2;
    const int integers = m->scale && !m->groups && INT16_PRODUCTS;
    if (integers) {
        for (int64_t p = w->me; p < w->panels; p += w->threads)
            round_panel(x + p * columns * PANEL, columns, w->words + p * pairs * PANEL, w->steps + p * PANEL);
#pragma omp barrier
    }
    for (int64_t r = rows.begin; r < rows.end; r += TALL) {
        const int64_t count = rows.end - r < TALL ? rows.end - r : TALL;
        const REAL *weight = (const REAL *)m->weight + (first + r) * m->stride;
        if (m->scale) widen(m, first + r, w->rows);
        else   /* the next rows, into the second cache: of 13 tokens of 14M parameters that is 1.5 times as fast */
            for (int64_t i = 0; i < TALL * m->stride; i += 64 / (int64_t)sizeof(REAL))
                __builtin_prefetch(weight + TALL * m->stride + i, 0, 2);
        for (int64_t p = 0; p < w->panels; p++) {
            const int vectors = vectors_of(w, p);
            const int64_t at = (p * features + r) * PANEL;
            const REAL *bias = m->bias ? m->bias + first + r : 0, *plus = added ? added + at : 0;
            if (!integers) {
                tiles(m->scale ? w->rows : weight, m->scale ? columns : m->stride, 1, count, columns,
                      x + p * columns * PANEL, vectors, bias, plus, out + at);
                continue;
            }
            Lanes y[TALL][WIDE];
            const REAL *words = w->words + p * pairs * PANEL;
            const int16_t *of_rows = (const int16_t *)w->rows;
            switch (vectors) {
            case 1: int16_tile(of_rows, pairs, words, 1, y); break;
            case 2: int16_tile(of_rows, pairs, words, 2, y); break;
            case 3: int16_tile(of_rows, pairs, words, WIDE - 1, y); break;
            default: int16_tile(of_rows, pairs, words, WIDE, y);
            }
            for (int64_t i = 0; i < count; i++)
                for (int64_t v = 0; v < vectors; v++) {
                    Lanes sum = y[i][v] * load(w->steps + p * PANEL + v * LANES) * m->scale[first + r + i];
                    if (bias) sum += bias[i];
                    if (plus) sum += load(plus + i * PANEL + v * LANES);
                    store(out + at + i * PANEL + v * LANES, sum);
                }
        }
    }
}

/* y = norm(x), which may be x itself, of LANES tokens. */
static void normalise_lanes(int64_t kind, Norm norm, double eps, int64_t width, const REAL *x, REAL *y)
{
    Lanes mean = {0}, squares = {0};
    if (kind == LAYERNORM) {
        for (int64_t i = 0; i < width; i++) mean += load(x + i * PANEL);
        mean /= (REAL)width;
    }
    for (int64_t i = 0; i < width; i++) {
        Lanes v = load(x + i * PANEL) - mean;
        squares += v * v;
    }
    for (int64_t l = 0; l < LANES; l++) squares[l] = 1 / sqrt(squares[l] / width + (REAL)eps);
    for (int64_t i = 0; i < width; i++) {
        Lanes v = load(x + i * PANEL);
        if (kind != NO_NORM) v = (v - mean) * squares * norm.weight[i];
        store(y + i * PANEL, norm.bias ? v + norm.bias[i] : v);
    }
}

static void normalise_panels(const Prompt *w, Norm norm, const REAL *x, REAL *y)
{
    const int64_t d = w->m->d_model;
    for (int64_t at = w->me; at < w->panels * WIDE; at += w->threads) {
        const int64_t place = at / WIDE * d * PANEL + at % WIDE * LANES;
        normalise_lanes(w->m->norm, norm, w->m->eps, d, x + place, y + place);
    }
}

/* The embeddings of the tokens, and what turns each pair of a query or a key. */
static void embed_panels(const Prompt *w)
{
    const Model *const m = w->m;
    const int64_t d = m->d_model, width = m->head_dim;
    for (int64_t t = w->me; t < w->panels * PANEL; t += w->threads) {
        REAL *const x = w->x + t / PANEL * d * PANEL + t % PANEL;
        REAL *const rope = w->rope + t / PANEL * width * PANEL + t % PANEL;
        const int64_t position = w->start + t;
        for (int64_t i = 0; i < d; i++) {
            REAL v = t < w->count ? m->embedding[w->task->tokens[t] * d + i] : 0;
            x[i * PANEL] = m->positions && t < w->count ? v + m->positions[position * d + i] : v;
        }
        for (int64_t i = 0; m->rope && i < width; i++)
            rope[i * PANEL] = t < w->count ? m->rope[position * width + i] : 0;
    }
}

/* Norms and rotations of queries and keys; keys and values go into the cache. */
static void append_panels(const Prompt *w, const Layer *layer, REAL *keys, REAL *values, int64_t head_size)
{
    const Model *const m = w->m;
    const int64_t heads = m->heads, kv = m->kv_heads, width = m->head_dim, all = heads + 2 * kv;
    const Table table = {w->task->tables[0], w->task->page};
    for (int64_t item = w->me; item < w->panels * all; item += w->threads) {
        const int64_t p = item / all, h = item % all;
        REAL *const x = w->qkv + item * width * PANEL, *const rope = w->rope + p * width * PANEL;
        const REAL scale = 1 / sqrt((REAL)width);
        for (int64_t v = 0; v < PANEL && h < heads + kv; v += LANES) {
            if (m->qk_norm)
                normalise_lanes(RMSNORM, h < heads ? layer->q_norm : layer->k_norm, m->eps, width, x + v, x + v);
            for (int64_t i = 0; h < heads && i < width; i++) store(x + i * PANEL + v, load(x + i * PANEL + v) * scale);
            for (int64_t i = 0; m->rope && i < width / 2; i++) {
                const Lanes a = load(x + i * PANEL + v), b = load(x + (i + width / 2) * PANEL + v);
                const Lanes cosine = load(rope + 2 * i * PANEL + v), sine = load(rope + (2 * i + 1) * PANEL + v);
                store(x + i * PANEL + v, a * cosine - b * sine);
                store(x + (i + width / 2) * PANEL + v, a * sine + b * cosine);
            }
        }
        if (h < heads) continue;
        REAL *const to = (h < heads + kv ? keys : values) + (h - heads) % kv * head_size;
        for (int64_t t = 0; t < PANEL && p * PANEL + t < w->count; t++) {
            REAL *const row = to + slot(table, w->start + p * PANEL + t) * width;
            for (int64_t i = 0; i < width; i++) row[i] = x[i * PANEL + t];
        }
    }
}

/* out = softmax(keys · q) · values of a panel of queries, over the positions that each sees. */
static void attend_panel(const Prompt *w, int64_t p, const REAL *q, const REAL *keys, const REAL *values, REAL *out)
{
    const Table table = {w->task->tables[0], w->task->page};
    const int64_t width = w->m->head_dim, window = w->m->sliding_window, first = w->start + p * PANEL;
    const int64_t last = first + PANEL < w->start + w->count ? first + PANEL : w->start + w->count;
    const int64_t begin = window && first + 1 > window ? first + 1 - window : 0;
    const int vectors = vectors_of(w, p);
    Lanes totals[WIDE] = {{0}};
    for (int64_t j = begin, end; j < last; j = end) {
        end = run_end(table, j, last);
        tiles(keys + slot(table, j) * width, width, 1, end - j, width, q, vectors, 0, 0,
              w->scores + (j - begin) * PANEL);
    }
    for (int64_t v = 0; v < vectors; v++) {
        REAL *const scores = w->scores + v * LANES;
        Lanes largest = {0};
        Mask position;
        for (int64_t l = 0; l < LANES; l++) position[l] = first - begin + v * LANES + l;
        largest -= INFINITY;
        for (int64_t j = 0; j < last - begin; j++) {
            Lanes s = load(scores + j * PANEL);
            if (begin + j > first + v * LANES) s = choose(position < (int)j, (Lanes){0} - INFINITY, s);
            if (window) s = choose(position >= (int)(j + window), (Lanes){0} - INFINITY, s);
            store(scores + j * PANEL, s);
            largest = choose(s > largest, s, largest);
        }
        for (int64_t j = 0; j < last - begin; j++) {
            const Lanes s = load(scores + j * PANEL), e = choose(s == -INFINITY, (Lanes){0}, exponential(s - largest));
            store(scores + j * PANEL, e);
            totals[v] += e;
        }
    }
    for (int64_t j = begin, end; j < last; j = end) {
        end = run_end(table, j, last);
        tiles(values + slot(table, j) * width, 1, width, width, end - j, w->scores + (j - begin) * PANEL, vectors, 0,
              j == begin ? 0 : out, out);
    }
    for (int64_t i = 0; i < width; i++)
        for (int64_t v = 0; v < vectors; v++) {
            REAL *const place = out + i * PANEL + v * LANES;
            store(place, load(place) / totals[v]);
        }
}

static void run_layer_of_prompt(const Prompt *w, int64_t l)
{
    const Model *const m = w->m;
    const Layer *const layer = m->layer + l;
    const int64_t heads = m->heads, kv = m->kv_heads, width = m->head_dim, d = m->d_model, d_ff = m->d_ff;
    const int64_t head_size = w->task->slots * width, row = (heads + 2 * kv) * width;
    REAL *const keys = w->task->cache + 2 * l * kv * head_size, *const values = keys + kv * head_size;
    REAL *const in = m->post ? w->x : w->inside;
    const Span rows = part(d, w->me, w->threads), inner = part(d_ff, w->me, w->threads);

    if (!m->post) normalise_panels(w, layer->attention_norm, w->x, in);
#pragma omp barrier
    multiply_panels(w, &layer->qkv, 0, part(row, w->me, w->threads), in, 0, w->qkv, row);
#pragma omp barrier
    append_panels(w, layer, keys, values, head_size);
#pragma omp barrier
    for (int64_t item = w->me; item < w->panels * heads; item += w->threads) {
        const int64_t p = item / heads, h = item % heads, at = h / (heads / kv) * head_size;
        attend_panel(w, p, w->qkv + (p * (heads + 2 * kv) + h) * width * PANEL, keys + at, values + at,
                     w->attended + item * width * PANEL);
    }
#pragma omp barrier
    multiply_panels(w, &layer->output, 0, rows, w->attended, w->x, w->x, d);
#pragma omp barrier
    normalise_panels(w, m->post ? layer->attention_norm : layer->ffn_norm, w->x, in);
#pragma omp barrier
    multiply_panels(w, &layer->up, 0, inner, in, 0, w->inner, d_ff);
    if (w->gated) {
#pragma omp barrier
        multiply_panels(w, &layer->up, d_ff, inner, in, 0, w->gated, d_ff);
    }
    for (int64_t p = 0; p < w->panels; p++) {
        const int64_t at = (p * d_ff + inner.begin) * PANEL;
        activate(m->ffn, w->inner + at, w->gated ? w->gated + at : 0, (inner.end - inner.begin) * PANEL);
    }
#pragma omp barrier
    multiply_panels(w, &layer->down, 0, rows, w->inner, w->x, w->x, d);
#pragma omp barrier
    if (m->post) normalise_panels(w, layer->ffn_norm, w->x, w->x);
}

/* Numbers of scratch memory that a part of so many tokens needs, of a thread and of all. */
static int64_t own_prompt_scratch(const Model *m, int64_t capacity)
{
    return capacity * PANEL + IN_LANES(TALL * (widest(m) + 1)) + own_scratch(m, 1, 0);
}

int64_t prompt_scratch(const Model *m, int64_t count, int64_t capacity, int64_t threads)
{
    int64_t heads = 2 * m->heads + 2 * m->kv_heads + 1;
    int64_t features = 2 * m->d_model + heads * m->head_dim + 2 * m->d_ff + widest(m) / 2 + 2;
    return (count + PANEL - 1) / PANEL * PANEL * features + threads * own_prompt_scratch(m, capacity);
}

/* Reads `count` tokens after the first lengths[0] of the one text of a task. hidden: (outputs, d_model), what the head
   is given for the last `outputs` tokens; if there are any, the task's logits are those after the last. */
void read_prompt(const Task *task, int64_t count, int64_t outputs, REAL *hidden)
{
    const Model *const m = task->model;
    const int64_t d = m->d_model, width = m->head_dim, heads = m->heads, kv = m->kv_heads;
    const int64_t panels = (count + PANEL - 1) / PANEL, size = panels * PANEL;
    REAL *const inside = task->room + d * size, *const qkv = inside + d * size;
    REAL *const attended = qkv + (heads + 2 * kv) * width * size, *const inner = attended + heads * width * size;
    REAL *const gated = inner + m->d_ff * size, *const rope = gated + m->d_ff * size;
    REAL *const words = rope + width * size, *const steps = words + (widest(m) + 1) / 2 * size;
    REAL *const rest = steps + size;
    for (int64_t i = 0; i < task->threads; i++) task->likeliest[i] = NONE;

#pragma omp parallel num_threads((int)task->threads)
    {
        const int64_t me = omp_get_thread_num(), threads = omp_get_num_threads();
        REAL *const own = rest + me * own_prompt_scratch(m, task->capacity);
        REAL *const rows = own + task->capacity * PANEL, *const last = rows + IN_LANES(TALL * (widest(m) + 1));
        const Prompt w = {task, m, count, task->lengths[0], panels, me, threads, task->room, inside, qkv, attended,
                          inner, m->ffn == SWIGLU ? gated : 0, rope, words, steps, rows, own};
        embed_panels(&w);
#pragma omp barrier
        for (int64_t l = 0; l < m->layers; l++) run_layer_of_prompt(&w, l);
        if (outputs) {
            const int64_t first = count - outputs;
#pragma omp barrier
            normalise_panels(&w, m->final_norm, w.x, inside);
#pragma omp barrier
            for (int64_t t = me; t < outputs; t += threads)
                for (int64_t i = 0; i < d; i++)
                    hidden[t * d + i] = inside[((first + t) / PANEL * d + i) * PANEL + (first + t) % PANEL];
#pragma omp barrier
            memcpy(last, hidden + (outputs - 1) * d, (size_t)d * sizeof *last);
            const Thread of_last = {.task = task, .m = m, .batch = 1, .d = d, .me = me, .threads = threads,
                                    .inside = last, .rounded = last + IN_LANES(d)};
            head(&of_last);
        }
    }
    if (outputs) join_likeliest(task);
}
