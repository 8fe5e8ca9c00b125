/* A model, what is asked of it, and the scratch memory of a forward pass: goes on from matrices.c. forward.py and
   describe.py have the same structures. */

typedef struct {
    Matrix gate, up, down; /* gate: or without rows; round_input takes gate and up together */
} FeedForward;

typedef struct {
    Norm before, after, of_sum; /* of a sublayer's input, of its output, and of the sum of x and that */
} Norms;

typedef struct {
    Norms attention, ffn;
    Norm q_norm, k_norm;
    Matrix qkv[3], output, value_gate, router; /* without rows: there is none; qkv: of one, two or three parts */
    const REAL *value_embedding, *sinks;       /* (vocab, kv_heads head_dim), (heads,), or none */
    const REAL *rope[2];                       /* (context, pairs, 2): cosines and sines, or none; of long texts */
    const FeedForward *experts;                /* one for each row of the router, or one alone */
    int64_t pairs, window;                     /* pairs of a head that are rotated; window 0: a query sees all */
} Layer;

typedef struct {
    int64_t layers, d_model, heads, kv_heads, head_dim, d_ff, expert_d_ff;
    int64_t wide_norms;            /* q_norm and k_norm are of all heads together */
    int64_t neighbours;            /* pairs are (2i, 2i + 1), in place of (i, i + pairs) */
    int64_t long_rope_from;        /* texts longer than this have the second rope; 0: none */
    int64_t parallel;              /* the feed-forward layer reads x as it was before attention */
    int64_t per_token, normalised; /* experts of a token; their weights add up to 1 */
    double embedding_scale, query_scale, score_cap, residual_scale, hidden_scale, logit_cap;
    Activation activation;
    const REAL *positions; /* (context, d_model) or none */
    Norm final_norm;
    Matrix embedding, head;
    const Layer *layer;
} Model;

typedef struct {
    const Model *model;
    REAL *cache;   /* (layers, 2, kv_heads, slots, head_dim) */
    int64_t slots; /* from head to head */
    int64_t page, capacity, count, outputs, is_prompt, threads, vocab_size;
    const int64_t *tokens, *positions; /* (count,); of a prompt one position: that of its first token */
    const int64_t *const *tables;      /* the pages of each text, in order; `page` slots make one */
    int64_t *likeliest;                /* (results,): likeliest() of each text's logits of the vocabulary */
    REAL *room, *logits, *hidden;      /* scratch() numbers; (results, head.rows); of a prompt (outputs, d_model) */
} Task;

/* Tokens whose logits are computed: the last of a prompt, if it has outputs, or one of each text. */
static int64_t results_of(const Task *t) { return t->is_prompt ? t->outputs > 0 : t->count; }

/* A thread of the pass. The first half is shared; vectors of tokens stand one after another, or in panels. */
typedef struct {
    const Task *task;
    const Model *m;
    int64_t d, width, heads, kv, me, threads, is_prompt;
    REAL *x, *y, *qkv, *gates, *attended;  /* d, d, (heads + 2 kv) width, kv, heads width of each token */
    REAL *packed;                          /* of a prompt: panels of d, the input of the next matrix */
    REAL *inner, *gated;                   /* d_ff, and again if there is a gate */
    REAL *scores, *share, *pair_share;     /* of each token: of all experts; of each that it passes, and by expert */
    int64_t *choice, *pair_token, *begins; /* the experts that each token passes; by expert: tokens, first of each */
    REAL *inside;          /* d of each text or pair, computed by each thread whole: waiting would take longer */
    REAL *query, *weights; /* of a head: a panel of it; a weight for each position, or a panel of them */
    Worker worker, of_head;
} Pass;

/* Vectors, or panels, that `count` tokens are. */
static int64_t units_of(const Pass *w, int64_t count) { return w->is_prompt ? (count + PANEL - 1) / PANEL : count; }

#define IN_LANES(count) (((count) + LANES - 1) / LANES * LANES) /* parts of scratch memory: loads of lines */
#define INTEGERS(count, type) (((count) * (int64_t)sizeof(type) + (int64_t)sizeof(REAL) - 1) / (int64_t)sizeof(REAL))
#define TAKE(name, numbers) (name = room ? (void *)(room + at) : 0, at += IN_LANES(numbers))

/* Sets what a pass shares, at the begin of its scratch memory, and what a thread has alone, at `own`. Returns the
   numbers of the one and, in *alone, of the other. */
static int64_t lay_out(const Task *t, Pass *w, REAL *own, int64_t *alone) {
    const Model *const m = t->model;
    const int64_t d = m->d_model, width = m->head_dim, heads = m->heads, kv = m->kv_heads, ff = m->expert_d_ff;
    const int64_t count = t->count, pairs = count * m->per_token, prompt = t->is_prompt, size = prompt ? PANEL : 1;
    *w = (Pass){.task = t, .m = m, .d = d, .width = width, .heads = heads, .kv = kv, .is_prompt = prompt};
    const int64_t units = units_of(w, count);
    const int64_t widest = LARGER(LARGER(d, m->d_ff), heads * width), wide = LARGER(d, ff);
    int64_t experts = 0, at = 0;
    for (int64_t l = 0; l < m->layers; l++) experts = LARGER(experts, m->layer[l].router.rows);
    /* Each expert may have a panel that is not full. */
    const int64_t of_pairs = prompt ? pairs / PANEL + (experts < pairs ? experts : pairs) : pairs;
    const int64_t most = LARGER(units, of_pairs), inner = LARGER(units * m->d_ff, of_pairs * ff) * size;
    REAL *room = t->room;
    TAKE(w->x, count * d);
    TAKE(w->y, count * d);
    TAKE(w->qkv, count * (heads + 2 * kv) * width);
    TAKE(w->gates, count * kv);
    TAKE(w->attended, units * size * heads * width);
    TAKE(w->packed, prompt * most * PANEL * d);
    TAKE(w->inner, inner);
    TAKE(w->gated, inner);
    TAKE(w->scores, count * experts);
    TAKE(w->share, pairs);
    TAKE(w->pair_share, pairs);
    TAKE(w->choice, INTEGERS(pairs, int64_t));
    TAKE(w->pair_token, INTEGERS(pairs, int64_t));
    TAKE(w->begins, INTEGERS(experts + 1, int64_t));
    TAKE(w->worker.words, prompt * PANEL * LARGER(units * ((widest + 1) / 2), of_pairs * ((wide + 1) / 2)));
    TAKE(w->worker.sums, prompt * PANEL * LARGER(units * PADDED(widest), of_pairs * PADDED(wide)) / BLOCK);
    TAKE(w->worker.steps, prompt * PANEL * most);
    const int64_t shared = at, vectors = prompt ? 1 : most;
    const int64_t integers = prompt ? PADDED(d) : LARGER(units * PADDED(widest), of_pairs * PADDED(wide));
    room = own;
    at = 0;
    TAKE(w->inside, (prompt ? LANES : most) * d);
    TAKE(w->of_head.words, INTEGERS(2 * integers, int16_t));
    TAKE(w->of_head.sums, HALVES * (prompt ? GROUPS(d) : LARGER(units * GROUPS(widest), of_pairs * GROUPS(wide))));
    TAKE(w->of_head.steps, vectors);
    if (!prompt) w->worker = w->of_head;
    TAKE(w->worker.rows, prompt * STRIP * (PADDED(LARGER(widest, wide)) + 1));
    TAKE(w->worker.strip, prompt * STRIP * PANEL);
    TAKE(w->worker.less, prompt * TALL * PANEL);
    TAKE(w->query, prompt * PANEL * width);
    TAKE(w->weights, prompt ? t->capacity * PANEL : t->capacity + LANES);
    w->worker.is_prompt = prompt;
    *alone = at;
    return shared;
}

/* Numbers of scratch memory that a task needs. */
int64_t scratch(const Task *task) {
    Pass w;
    int64_t alone, shared = lay_out(task, &w, 0, &alone);
    return shared + task->threads * alone;
}
