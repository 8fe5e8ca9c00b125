/* The forward pass of a Transformer, of any of lm.families: a token for each of several texts, or many of one, in one
   call. Goes on from attend.c; describe.py describes the model.

   A block is y = attention(norm x), x += norm y, and the same of its feed-forward layer, with norms of the input, the
   output and the sum that may be absent. All threads go through the layers together and wait for each other where one
   needs what another computed. */

static int64_t position_of(const Pass *w, int64_t t) {
    return w->is_prompt ? w->task->positions[0] + t : w->task->positions[t];
}

static Table table_of(const Pass *w, int64_t t) {
    return (Table){w->task->tables[w->is_prompt ? 0 : t], w->task->page};
}

static void embed(const Pass *w) {
    const Model *const m = w->m;
    for (int64_t t = w->me; t < w->task->count; t += w->threads) {
        REAL *const x = w->x + t * w->d;
        widen(&m->embedding, w->task->tokens[t], x);
        for (int64_t i = 0; i < w->d; i++) {
            x[i] *= (REAL)m->embedding_scale;
            if (m->positions) x[i] += m->positions[position_of(w, t) * w->d + i];
        }
    }
}

/* The input of matrices: norm(x) of some tokens, or of the first `count`, as vectors or panels from number `unit` on.
   Of a prompt each thread computes a part, and all wait. */
static void prepare(const Pass *w, Norm norm, const int64_t *tokens, int64_t count, int64_t unit) {
    const int64_t d = w->d;
    if (!w->is_prompt) {
        for (int64_t i = 0; i < count; i++)
            normalise(norm, d, w->x + (tokens ? tokens[i] : i) * d, w->inside + (unit + i) * d);
        return;
    }
    for (int64_t at = (w->me + unit) % w->threads; at * LANES < count; at += w->threads) {
        const int64_t some = count - at * LANES < LANES ? count - at * LANES : LANES;
        for (int64_t i = 0; i < some; i++) {
            const int64_t token = at * LANES + i;
            normalise(norm, d, w->x + (tokens ? tokens[token] : token) * d, w->inside + i * d);
        }
        pack(w->inside, d, some, d, w->packed + (unit + at / WIDE) * d * PANEL + at % WIDE * LANES);
    }
#pragma omp barrier
}

/* y = m x of all tokens, x being what was prepared, for `parts` matrices whose results stand one after another. */
static void project(const Pass *w, const Matrix *m, int64_t parts, REAL *y) {
    const REAL *const x = w->is_prompt ? w->packed : w->inside;
    const int64_t count = w->task->count;
    int64_t rows = 0, first = 0;
    for (int64_t i = 0; i < parts; i++) rows += m[i].rows;
    round_input(&w->worker, m, parts, x, units_of(w, count));
    for (int64_t i = 0; i < parts; first += m[i++].rows)
        multiply(&w->worker, m + i, part(m[i].rows, w->me, w->threads), (Input){x, 0, count},
                 (Output){y + first, rows, .scale = 1});
}

static void rotate(const Model *m, REAL *x, const REAL *by, int64_t pairs) {
    const int64_t step = m->neighbours ? 2 : 1;
    REAL *const second = x + (m->neighbours ? 1 : pairs);
    for (int64_t i = 0; i < pairs; i++) {
        const REAL a = x[i * step], b = second[i * step];
        x[i * step] = a * by[2 * i] - b * by[2 * i + 1];
        second[i * step] = a * by[2 * i + 1] + b * by[2 * i];
    }
}

/* Norms, rotations and scales of queries and keys; keys and values go into the cache. */
static void append(const Pass *w, const Layer *layer, REAL *keys, REAL *values, int64_t head_size) {
    const Model *const m = w->m;
    const int64_t heads = w->heads, kv = w->kv, width = w->width, all = heads + 2 * kv, count = w->task->count;
    if (m->wide_norms) {
        for (int64_t item = w->me; item < 2 * count; item += w->threads) {
            REAL *const x = w->qkv + (item / 2 * all + item % 2 * heads) * width;
            normalise(item % 2 ? layer->k_norm : layer->q_norm, (item % 2 ? kv : heads) * width, x, x);
        }
#pragma omp barrier
    }
    for (int64_t item = w->me; item < count * all; item += w->threads) {
        const int64_t t = item / all, h = item % all, position = position_of(w, t), g = (h - heads) % kv;
        const int64_t end = w->is_prompt ? position_of(w, count) : position + 1; /* the length of the text */
        const REAL *const rope = layer->rope[m->long_rope_from && end > m->long_rope_from];
        REAL *const x = w->qkv + item * width;
        if (h < heads + kv && !m->wide_norms) {
            Norm norm = h < heads ? layer->q_norm : layer->k_norm;
            norm.weight += (h < heads ? h : g) * norm.step;
            normalise(norm, width, x, x);
        }
        if (h < heads + kv && rope) rotate(m, x, rope + position * 2 * layer->pairs, layer->pairs);
        if (h < heads) {
            for (int64_t i = 0; i < width; i++) x[i] *= (REAL)m->query_scale;
            continue;
        }
        if (h >= heads + kv && layer->value_embedding) { /* 2 σ(gate) embedding */
            const REAL by = 2 / (1 + exp(-w->gates[t * kv + g]));
            const REAL *const more = layer->value_embedding + (w->task->tokens[t] * kv + g) * width;
            for (int64_t i = 0; i < width; i++) x[i] += by * more[i];
        }
        REAL *const to = (h < heads + kv ? keys : values) + g * head_size + slot(table_of(w, t), position) * width;
        memcpy(to, x, (size_t)width * sizeof *x);
    }
}

/* out = softmax(keys · q) · values of a panel of queries, over the positions that each sees. */
static void attend_panel(const Pass *w, int64_t p, const REAL *q, const REAL *keys, const REAL *values, int64_t window,
                         const REAL *sink, REAL *out) {
    const Table table = table_of(w, 0);
    const int64_t width = w->width, first = position_of(w, p * PANEL), most = position_of(w, w->task->count);
    const int64_t last = first + PANEL < most ? first + PANEL : most;
    const int64_t begin = window && first + 1 > window ? first + 1 - window : 0;
    const int vectors = vectors_of(most - first);
    Lanes totals[WIDE] = {{0}};
    for (int64_t j = begin, end; j < last; j = end) {
        end = run_end(table, j, last);
        tiles(keys + slot(table, j) * width, width, 1, end - j, width, q, vectors, 0, 0,
              w->weights + (j - begin) * PANEL);
    }
    softcap(w->weights, (last - begin) * PANEL, w->m->score_cap);
    for (int64_t v = 0; v < vectors; v++) {
        REAL *const scores = w->weights + v * LANES;
        Lanes largest = (sink ? *sink : -INFINITY) - (Lanes){0};
        Mask position;
        for (int64_t l = 0; l < LANES; l++) position[l] = first - begin + v * LANES + l;
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
        if (sink) totals[v] += exponential(*sink - largest);
    }
    for (int64_t j = begin, end; j < last; j = end) {
        end = run_end(table, j, last);
        tiles(values + slot(table, j) * width, 1, width, width, end - j, w->weights + (j - begin) * PANEL, vectors, 0,
              j == begin ? 0 : out, out);
    }
    for (int64_t i = 0; i < width; i++)
        for (int64_t v = 0; v < vectors; v++) {
            REAL *const place = out + i * PANEL + v * LANES;
            store(place, load(place) / totals[v]);
        }
}

static void attend_all(const Pass *w, const Layer *layer, const REAL *keys, const REAL *values, int64_t head_size) {
    const int64_t heads = w->heads, width = w->width, row = (heads + 2 * w->kv) * width, count = w->task->count;
    for (int64_t item = w->me; item < units_of(w, count) * heads; item += w->threads) {
        const int64_t unit = item / heads, h = item % heads, at = h / (heads / w->kv) * head_size;
        const REAL *const sink = layer->sinks ? layer->sinks + h : 0;
        if (!w->is_prompt) {
            const int64_t end = position_of(w, unit) + 1;
            const int64_t begin = layer->window && end > layer->window ? end - layer->window : 0;
            attend(w->qkv + unit * row + h * width, keys + at, values + at, table_of(w, unit), begin, end, width, sink,
                   w->m->score_cap, w->weights, w->attended + item * width);
            continue;
        }
        for (int64_t first = unit * PANEL; first < count && first < (unit + 1) * PANEL; first += LANES)
            pack(w->qkv + first * row + h * width, row, count - first, width, w->query + first % PANEL);
        attend_panel(w, unit, w->query, keys + at, values + at, layer->window, sink,
                     w->attended + item * width * PANEL);
    }
}

/* Chooses the experts of all tokens by their scores; lists the tokens of each expert, and their shares. */
static void choose_experts(const Pass *w, int64_t experts) {
    const int64_t count = w->task->count, per_token = w->m->per_token;
    memset(w->begins, 0, (size_t)(experts + 1) * sizeof *w->begins);
    for (int64_t t = 0; t < count; t++) {
        REAL *const p = w->scores + t * experts, largest = p[0], total = 0, chosen = 0;
        for (int64_t e = 1; e < experts; e++) largest = p[e] > largest ? p[e] : largest;
        for (int64_t e = 0; e < experts; e++) total += p[e] = exp(p[e] - largest);
        for (int64_t i = t * per_token; i < (t + 1) * per_token; i++) {
            int64_t best = 0;
            for (int64_t e = 1; e < experts; e++) best = p[e] > p[best] ? e : best;
            w->choice[i] = best;
            w->share[i] = p[best] / total;
            chosen += w->share[i];
            w->begins[best + 1]++;
            p[best] = -1;
        }
        for (int64_t i = t * per_token; w->m->normalised && i < (t + 1) * per_token; i++) w->share[i] /= chosen;
    }
    for (int64_t e = 0; e < experts; e++) w->begins[e + 1] += w->begins[e];
    for (int64_t i = count * per_token - 1; i >= 0; i--) { /* each from its end, which becomes its begin */
        const int64_t at = --w->begins[w->choice[i] + 1];
        w->pair_token[at] = i / per_token;
        w->pair_share[at] = w->share[i];
    }
    for (int64_t e = 0; e < experts; e++) w->begins[e] = w->begins[e + 1];
    w->begins[experts] = count * per_token;
}

/* The tokens of an expert, as vectors or panels from `unit` on; without a router all tokens. */
typedef struct {
    const FeedForward *ffn;
    const int64_t *tokens;
    const REAL *share;
    int64_t count, unit;
} Group;

/* The group of expert e, after that of e - 1. */
static Group next_group(const Pass *w, const Layer *layer, int64_t e, Group before) {
    const int64_t unit = e ? before.unit + units_of(w, before.count) : 0, begin = layer->router.rows ? w->begins[e] : 0;
    if (!layer->router.rows) return (Group){layer->experts, 0, 0, w->task->count, 0};
    return (Group){layer->experts + e, w->pair_token + begin, w->pair_share + begin, w->begins[e + 1] - begin, unit};
}

/* f(up x), or f(gate x) up x, of the experts of each token. Returns the vectors, or panels, that these are. */
static int64_t feed_forward(const Pass *w, const Layer *layer) {
    const int64_t experts = layer->router.rows, groups = experts ? experts : 1;
    const Activation *const f = &w->m->activation;
    const REAL *const x = w->is_prompt ? w->packed : w->inside;
    Group g = {0};
    if (experts) {
        prepare(w, layer->ffn.before, 0, w->task->count, 0);
        project(w, &layer->router, 1, w->scores);
#pragma omp barrier
        if (!w->me) choose_experts(w, experts);
#pragma omp barrier
    }
    for (int64_t e = 0; e < groups; e++) {
        g = next_group(w, layer, e, g);
        prepare(w, layer->ffn.before, g.tokens, g.count, g.unit);
    }
    round_input(&w->worker, &layer->experts->gate, 2, x, g.unit + units_of(w, g.count));
    for (int64_t e = 0; e < groups; e++) {
        g = next_group(w, layer, e, g);
        const Input in = {x, g.unit, g.count};
        const int64_t ff = g.ffn->down.columns, size = w->is_prompt ? PANEL : 1;
        const Span rows = part(ff, w->me, w->threads);
        REAL *const inner = w->inner + (w->is_prompt ? 0 : g.unit * ff), *const gated = w->gated + (inner - w->inner);
        Output out = {inner, ff, .scale = 1, .stays_packed = 1};
        multiply(&w->worker, f->gated ? &g.ffn->gate : &g.ffn->up, rows, in, out);
        out.y = gated;
        if (f->gated) multiply(&w->worker, &g.ffn->up, rows, in, out);
        for (int64_t unit = g.unit; unit < g.unit + units_of(w, g.count); unit++) {
            const int64_t at = (unit * ff + rows.begin) * size;
            activate(f, w->inner + at, w->gated + at, (rows.end - rows.begin) * size);
        }
    }
    return g.unit + units_of(w, g.count);
}

/* Where a sublayer's results go: onto x, or to y for a norm. */
static Output output_of(const Pass *w, const Norms *norms) {
    const int direct = norms->after.kind == NO_NORM && norms->of_sum.kind == NO_NORM;
    return (Output){direct ? w->x : w->y, w->d, .scale = direct ? (REAL)w->m->residual_scale : 1, .add = 1};
}

/* x = norm(x + scale norm(y)), where a sublayer's results are in y. */
static void settle(const Pass *w, const Norms *norms) {
#pragma omp barrier
    if (output_of(w, norms).y == w->x) return;
    for (int64_t t = w->me; t < w->task->count; t += w->threads) {
        REAL *const x = w->x + t * w->d, *const y = w->y + t * w->d;
        normalise(norms->after, w->d, y, y);
        for (int64_t i = 0; i < w->d; i++) x[i] += (REAL)w->m->residual_scale * y[i], y[i] = 0;
        normalise(norms->of_sum, w->d, x, x);
    }
#pragma omp barrier
}

static void run_layer(const Pass *w, int64_t l) {
    const Model *const m = w->m;
    const Layer *const layer = m->layer + l;
    const int64_t head_size = w->task->slots * w->width, count = w->task->count, experts = layer->router.rows;
    REAL *const keys = w->task->cache + 2 * l * w->kv * head_size, *const values = keys + w->kv * head_size;
    const Span rows = part(w->d, w->me, w->threads);
    int64_t units = 0;
    Group g = {0};

    prepare(w, layer->attention.before, 0, count, 0);
    project(w, layer->qkv, 3, w->qkv);
    if (layer->value_gate.rows) project(w, &layer->value_gate, 1, w->gates);
#pragma omp barrier
    append(w, layer, keys, values, head_size);
    if (m->parallel) units = feed_forward(w, layer);
#pragma omp barrier
    attend_all(w, layer, keys, values, head_size);
#pragma omp barrier
    round_input(&w->worker, &layer->output, 1, w->attended, units_of(w, count));
    multiply(&w->worker, &layer->output, rows, (Input){w->attended, 0, count}, output_of(w, &layer->attention));
    settle(w, &layer->attention);
    if (!m->parallel) {
        units = feed_forward(w, layer);
#pragma omp barrier
    }
    round_input(&w->worker, &layer->experts->down, 1, w->inner, units);
    for (int64_t e = 0; e < (experts ? experts : 1); e++) {
        g = next_group(w, layer, e, g);
        Output out = output_of(w, &layer->ffn);
        out.tokens = g.tokens;
        out.weights = g.share;
        multiply(&w->worker, &g.ffn->down, rows, (Input){w->inner, g.unit, g.count}, out);
    }
    settle(w, &layer->ffn);
}

enum { NONE = -1, NOT_NUMBERS = -2 };

/* Place of the first of the largest logits; NONE if all are -inf, NOT_NUMBERS if one is NaN. */
static int64_t likeliest(const REAL *logits, int64_t count) {
    int64_t place = NONE;
    REAL largest = -INFINITY;
    for (int64_t i = 0; i < count; i++)
        if (!(logits[i] <= largest)) {
            if (logits[i] != logits[i]) return NOT_NUMBERS;
            largest = logits[i];
            place = i;
        }
    return place;
}

/* Hidden states of the outputs of a prompt, and the logits of the last token of each text. */
static void head(const Pass *w) {
    const Model *const m = w->m;
    const Task *const t = w->task;
    const Matrix *const matrix = &m->head;
    const int64_t results = results_of(t), outputs = t->is_prompt ? t->outputs : results, d = w->d;
    const Span rows = part(matrix->rows, w->me, w->threads);
    for (int64_t i = 0; i < outputs; i++) {
        const int64_t result = i - (outputs - results), is_mine = t->is_prompt && i % w->threads == w->me;
        REAL *const to = result >= 0 ? w->inside + result * d : t->hidden + i * d;
        if (result < 0 && !is_mine) continue;
        normalise(m->final_norm, d, w->x + (t->count - outputs + i) * d, to);
        for (int64_t j = 0; j < d; j++) to[j] *= (REAL)m->hidden_scale;
        if (result >= 0 && is_mine) memcpy(t->hidden + i * d, to, (size_t)d * sizeof *to);
    }
    round_input(&w->of_head, matrix, 1, w->inside, results);
    const Output out = {t->logits, matrix->rows, .scale = 1};
    multiply(&w->of_head, matrix, rows, (Input){w->inside, 0, results}, out);
    for (int64_t b = 0; b < results; b++)
        softcap(t->logits + b * matrix->rows + rows.begin, rows.end - rows.begin, m->logit_cap);
}

void forward(const Task *task) {
    Pass of_all;
    int64_t alone;
    REAL *const own = task->room + lay_out(task, &of_all, 0, &alone);
    memset(of_all.y, 0, (size_t)(task->count * of_all.d) * sizeof(REAL));

#pragma omp parallel num_threads((int)task->threads)
    {
        Pass w;
        int64_t size;
        const int64_t me = omp_get_thread_num(), threads = omp_get_num_threads();
        lay_out(task, &w, own + me * alone, &size);
        w.me = w.worker.me = w.of_head.me = me;
        w.threads = w.worker.threads = w.of_head.threads = threads;
        embed(&w);
#pragma omp barrier
        for (int64_t l = 0; l < task->model->layers; l++) run_layer(&w, l);
        if (results_of(task)) head(&w);
    }
    for (int64_t i = 0; i < results_of(task); i++)
        task->likeliest[i] = likeliest(task->logits + i * task->model->head.rows, task->vocab_size);
}
