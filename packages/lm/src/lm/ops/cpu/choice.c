/* A token chosen from logits as Sampling.choose does, and steps that go on with the tokens so chosen. */

#define NUCLEUS 128 /* the likeliest tokens, which mostly reach top_p; else eight times as many, and so on */

typedef struct {
    double temperature, top_p, min_p; /* 0: the likeliest; 1: all; 0: all */
    int64_t top_k;                    /* 0: all */
} Choice;

typedef struct {
    REAL logit;
    int64_t token;
} Candidate;

static inline int above(Candidate a, Candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* Puts a candidate into a heap of `size` in the place of its root, which is below all others. */
static void replace_root(Candidate *heap, int64_t size, Candidate with) {
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && above(heap[child], heap[child + 1])) child++;
        if (!above(with, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = with;
}

/* The `count` largest of logits, the largest first, of equal ones the first. */
static void largest(const REAL *logits, int64_t vocab_size, int64_t count, Candidate *heap) {
    for (int64_t i = 0; i < count; i++) heap[i] = (Candidate){-INFINITY, vocab_size};
    for (int64_t i = 0; i < vocab_size; i++) {
        const Candidate candidate = {logits[i], i};
        if (above(candidate, heap[0])) replace_root(heap, count, candidate);
    }
    for (int64_t size = count - 1; size > 0; size--) {
        Candidate least = heap[0];
        replace_root(heap, size, heap[size]);
        heap[size] = least;
    }
}

/* e^(logit / temperature), as parts of that of the largest. */
static inline double weight(const Choice *by, REAL logit, REAL most) {
    const REAL temperature = (REAL)by->temperature;
    return exp((double)(logit / temperature) - (double)(most / temperature));
}

/* A token of logits (vocab_size,), drawn by `uniform`, a part of the whole; NOT_NUMBERS if there is none. sums and
   candidates: room for vocab_size each. */
int64_t choose_token(const REAL *logits, int64_t vocab_size, const Choice *by, double uniform, double *sums,
                     Candidate *candidates) {
    const int64_t top_k = by->top_k > 0 && by->top_k < vocab_size ? by->top_k : 0;
    const int ordered = top_k || by->top_p < 1;
    int64_t count = vocab_size, token = likeliest(logits, vocab_size);
    if (token < 0) return NOT_NUMBERS;
    const REAL most = logits[token];
    double total = 0, before = 0, sum = 0;
    if (by->top_p < 1 && !top_k)
        for (int64_t i = 0; i < vocab_size; i++) total += weight(by, logits[i], most);
    if (ordered) count = top_k ? top_k : NUCLEUS;
    for (;; count *= 8, sum = 0) { /* as many as there may be, or as reach top_p */
        if (count > vocab_size) count = vocab_size;
        if (ordered) largest(logits, vocab_size, count, candidates);
        for (int64_t i = 0; i < count; i++) {
            sums[i] = weight(by, ordered ? candidates[i].logit : logits[i], most);
            sum += sums[i];
        }
        if (top_k || count == vocab_size || sum >= by->top_p * total) break;
    }
    if (top_k) total = sum;
    if (by->top_p < 1) { /* the one that crosses top_p stays */
        int64_t inside = 0;
        while (inside < count && before < by->top_p * total) before += sums[inside++];
        count = inside;
    }
    total = 0;
    for (int64_t i = 0; i < count; i++) sums[i] = total += sums[i] >= by->min_p ? sums[i] : 0; /* the largest is 1 */
    if (!(total > 0)) return NOT_NUMBERS;
    double part = total * uniform, last = total * (1 - 0x1p-52);
    for (part = part < last ? part : last, token = 0; sums[token] <= part; token++);
    return ordered ? candidates[token].token : token;
}

/* `count` steps of the texts of a task, each of which reads the tokens that the one before chose. The token of step i
   and text t goes to chosen[i batch + t], by choices[t] and uniform[i batch + t]. Ends after a step that chose one of
   `stop`, or where none can be chosen. The logits that a token is chosen from are copied to `copy` (count, batch,
   vocab_size), if that is not null. Returns the number of steps. */
int64_t continue_texts(const Task *task, int64_t *tokens, int64_t *positions, int64_t count, const Choice *choices,
                       const double *uniform, double *sums, Candidate *candidates, const int64_t *stop, int64_t stops,
                       int64_t *chosen, REAL *copy) {
    const int64_t batch = task->count, vocab_size = task->vocab_size;
    int ended = 0;
    for (int64_t i = 0; i < count; i++) {
        forward(task);
        for (int64_t t = 0; t < batch; t++) {
            const REAL *logits = task->logits + t * task->model->head.rows;
            if (copy) memcpy(copy + (i * batch + t) * vocab_size, logits, (size_t)vocab_size * sizeof *logits);
            positions[t] += 1;
            tokens[t] = chosen[i * batch + t] =
                choices[t].temperature == 0
                    ? task->likeliest[t]
                    : choose_token(logits, vocab_size, choices + t, uniform[i * batch + t], sums, candidates);
            for (int64_t j = 0; j < stops; j++) ended |= tokens[t] == stop[j];
            ended |= tokens[t] < 0;
        }
        if (ended) return i + 1;
    }
    return count;
}
