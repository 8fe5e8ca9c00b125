/* Which edges of the extension an input takes, as AFL counts them: an instrumented block says where it is, and where it
 * was reached from; a map counts the pairs. The compiler's -fsanitize-coverage=trace-pc calls the function; fuzz.py
 * reads. */

#include <stdint.h>
#include <string.h>

#define EDGES (1 << 16)

static uint8_t counts[EDGES];   /* of the input that is running */
static uint8_t known[EDGES];    /* the counts of each edge so far, as bits: 1, 2, 3, 4-7, 8-15, 16-31, 32-127, more */
static uint64_t blocks;         /* executed so far, by one thread: for tests of what work costs */
static __thread uintptr_t before;

void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    uintptr_t place = (here ^ (here >> 16)) * 0x9e3779b1u;
    uint8_t *count = &counts[(place ^ before) & (EDGES - 1)];
    if (*count != 255) ++*count;
    before = (place & (EDGES - 1)) >> 1;
    blocks++;
}

void coverage_begin(void) {
    memset(counts, 0, EDGES);
    before = 0;
}

static uint8_t bit(uint8_t count) {
    return count < 4 ? 1 << (count - 1) : count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* How many (edge, count) pairs since coverage_begin() had never been seen. */
int coverage_new(void) {
    int found = 0;
    for (int i = 0; i < EDGES; i++) {
        if (counts[i] && !(known[i] & bit(counts[i]))) {
            known[i] |= bit(counts[i]);
            found++;
        }
    }
    return found;
}

int coverage_edges(void) {
    int edges = 0;
    for (int i = 0; i < EDGES; i++) edges += known[i] != 0;
    return edges;
}

uint64_t coverage_blocks(void) { return blocks; }
