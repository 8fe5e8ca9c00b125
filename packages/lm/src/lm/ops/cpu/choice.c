/* A token chosen from logits as Sampling.choose does, and steps that go on with the tokens so chosen. */

#ifndef MOST   /* else this stands behind it, in one source */
#include "forward.c"
#endif

#define NUCLEUS 128   /* the likeliest tokens, which mostly reach top_p; else eight times as many, and so on */

typedef struct {
    double temperature, top_p, min_p;   /* 0: the likeliest; 1: all; 0: all */
    int64_t top_k;                      /* 0: all */
} Choice;

typedef struct {
    REAL logit;
    int64_t token;
} Candidate;

static inline int above(Candidate a, Candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

/* Puts a candidate into a heap of `size` in the place of its root, which is below all others. */
static void replace_root(Candidate *heap, int64_t size, Candidate with)
{
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && above(heap[child], heap[child + 1])) child++;
        if (!above(with, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = with;
}

/* The `count` largest of logits, the largest first, of equal ones the first. */
static void largest(const REAL *logits, int64_t vocab_size, int64_t count, Candidate *heap)
{
    for (int64_t i = 0; i < count; i++) {
        Candidate new = {logits[i], i};
        int64_t at = i;
        for (; at && above(heap[(at - 1) / 2], new); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        heap[at] = new;
    }
    for (int64_t i = count; i < vocab_size; i++)
        if (logits[i] > heap[0].logit) replace_root(heap, count, (Candidate){logits[i], i});
    for (int64_t size = count - 1; size > 0; size--) {
        Candidate least = heap[0];
        replace_root(heap, size, heap[size]);
        heap[size] = least;
    }
}

/* e^(logit / temperature), as parts of that of the largest. */
static inline double weight(const Choice *by, REAL logit, REAL most)
{
    const REAL temperature = (REAL)by->temperature;
    return exp((double)(logit / temperature) - (double)(most / temperature));
}

/* At least as many of the likeliest tokens as reach top_p, the likeliest first. Returns how many; *total: the weight of
   all tokens. */
static int64_t nucleus(const REAL *logits, int64_t vocab_size, const Choice *by, REAL most, Candidate *candidates,
                       double *total)
{
    *total = 0;
    for (int64_t i = 0; i < vocab_size; i++) *total += weight(by, logits[i], most);
    for (int64_t count = NUCLEUS;; count *= 8) {
        double sum = 0;
        if (count > vocab_size) count = vocab_size;
        largest(logits, vocab_size, count, candidates);
        for (int64_t i = 0; i < count; i++) sum += weight(by, candidates[i].logit, most);
        if (count == vocab_size || sum >= by->top_p * *total) return count;
    }
}

/* A token of logits (vocab_size,), drawn by `uniform`, a part of the whole; NOT_NUMBERS if there is none. sums and
   candidates: room for vocab_size each. */
int64_t choose_token(const REAL *logits, int64_t vocab_size, const Choice *by, double uniform, double *sums,
                     Candidate *candidates)
{
    const int64_t top_k = by->top_k > 0 && by->top_k < vocab_size ? by->top_k : 0;
    const int ordered = top_k || by->top_p < 1;
    int64_t count = vocab_size, odd = 0, token = 0;
    REAL most = -INFINITY;
    for (int64_t i = 0; i < vocab_size; i++) {
        most = logits[i] > most ? logits[i] : most;
        odd |= logits[i] != logits[i];
    }
    if (odd) return NOT_NUMBERS;

    double total = 0, before = 0;
    if (top_k) largest(logits, vocab_size, count = top_k, candidates);
    else if (ordered) count = nucleus(logits, vocab_size, by, most, candidates, &total);
    for (int64_t i = 0; i < count; i++) sums[i] = weight(by, ordered ? candidates[i].logit : logits[i], most);
    if (top_k) for (int64_t i = 0; i < count; i++) total += sums[i];
    if (by->top_p < 1) {   /* the one that crosses top_p stays */
        int64_t inside = 0;
        while (inside < count && before < by->top_p * total) before += sums[inside++];
        count = inside;
    }
    total = 0;
    for (int64_t i = 0; i < count; i++) sums[i] = total += sums[i] >= by->min_p ? sums[i] : 0;   /* the largest is 1 */
    if (!(total > 0)) return NOT_NUMBERS;
    double part = total * uniform, last = total * (1 - 0x1p-52);
    for (part = part < last ? part : last; sums[token] <= part; token++)
        ;
    return ordered ? candidates[token].token : token;
}

/* `count` steps of the texts of a task, each of which reads the tokens that the one before chose. The token of step i
   and text t goes to chosen[i batch + t], by choices[t] and uniform[i batch + t]. Ends after a step that chose one of
   `stop`, or where none can be chosen. The logits that a token is chosen from are copied to `copy` (count, batch,
   vocab_size), if that is not null. Returns the number of steps. */
int64_t continue_texts(const Task *task, int64_t *tokens, int64_t *positions, int64_t count, const Choice *choices,
                       const double *uniform, double *sums, Candidate *candidates, const int64_t *stop, int64_t stops,
                       int64_t *chosen, REAL *copy)
{
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
