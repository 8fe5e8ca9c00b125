/* The C of bpe that needs no Python, each function beside a plain one, at every level that the processor has.
 *
 *     headers [LEVELS [LOOKUPS]]     LEVELS: how many levels to test, 0 for all that the processor says it has
 *                                    LOOKUPS: how many words one thread looks up in a cache that another one fills
 *
 * test_headers.py compiles and runs it here; tools/cross_compile.py for other systems, under their emulators. */
#include <stdio.h>
#include <stdlib.h>

#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#endif

#include "encoding/cache.h"
#include "encoding/lanes.h"
#include "native/bytes.h"
#include "native/cpu.h"
#include "native/utf8.h"
#include "scanning/classes.h"

static uint64_t state = 1;
static const char *level_name;
static long checks, failures;
static const uint64_t seed = 0x8f3a1c5e97b24d60ULL; /* a text of eight bytes equal to it would make a factor zero */

static uint64_t draw(uint64_t below) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return (z ^ (z >> 31)) % below;
}

static void check(int holds, const char *function, long detail) {
    checks++;
    if (!holds && failures++ < 10) printf("%s at %s is wrong (%ld)\n", function, level_name, detail);
}

static void test_bytes(void) {
    for (int bit = 0; bit < 64; bit++) {
        const uint64_t word = (uint64_t)1 << bit;
        check(count_trailing_zeros(word | draw(2) << 63) == bit, "count_trailing_zeros", bit);
        check(count_leading_zeros(word | draw(2)) == 63 - bit, "count_leading_zeros", bit);
    }
    check(multiply_fold(~0ULL, ~0ULL) == (1 ^ 0xfffffffffffffffeULL), "multiply_fold", 0);
    check(multiply_fold(1ULL << 32, 1ULL << 33) == 2, "multiply_fold", 1);
    uint8_t text[64], copy[64], unpacked[16];
    for (int round = 0; round < 2000; round++) {
        const size_t size = draw(PACKED + 1), room = size + draw(40);
        for (size_t i = 0; i < sizeof text; i++) copy[i] = text[i] = (uint8_t)draw(256);
        const packed_key key = pack_key(text, size, room);
        for (size_t i = size; i < sizeof copy; i++) copy[i] ^= 0x55;
        const packed_key same = pack_key(copy, size, size + draw(40));
        check(key.low == same.low && key.high == same.high, "pack_key reads beyond its text", (long)size);
        check(key.high >> 56 == size, "pack_key", (long)size);
        unpack_key(key, unpacked);
        check(!memcmp(unpacked, text, size), "unpack_key", (long)size);
        const size_t longer = draw(sizeof text + 1);
        memcpy(copy, text, longer);
        check(hash_bytes(text, longer, seed) == hash_bytes(copy, longer, seed), "hash_bytes", (long)longer);
        if (longer) copy[draw(longer)] ^= 1;
        check(!longer || hash_bytes(text, longer, seed) != hash_bytes(copy, longer, seed), "hash_bytes", -(long)longer);
    }
}

static void test_classify(int level) {
    fill_byte_masks();
    for (int round = 0; round < 4000; round++) {
        uint8_t text[64];
        word_masks masks;
        const uint64_t below = round % 2 ? 256 : 128;
        for (int i = 0; i < 64; i++) text[i] = (uint8_t)draw(below);
        const int family = round % FAMILIES;
        choose_classify(family, level)(text, &masks);
        for (int i = 0; i < 64; i++) {
            for (int mask = 0; mask < HIGH; mask++) {
                const int expected = family_wants[family] >> mask & 1 && in_mask(mask, text[i]);
                check((int)(masks.of[mask] >> i & 1) == expected, "classify", mask * 1000 + text[i]);
            }
            check((int)(masks.high >> i & 1) == (text[i] >= 0x80), "classify", text[i]);
            check((int)(masks.continuation >> i & 1) == (text[i] >> 6 == 2), "classify", text[i]);
        }
    }
}

/* After a fork that came while another thread was filling a table, which otherwise would be waited for for ever. */
static void test_class_tables(void) {
    for (int family = 0; family < FAMILIES; family++) {
        store_release(&class_table_state[family], FILLING_TABLE);
        after_fork_of_class_tables();
        check(load_acquire(&class_table_state[family]) == EMPTY_TABLE, "after_fork_of_class_tables", family);
        if (load_acquire(&class_table_state[family]) == EMPTY_TABLE) need_class_table(family);
        after_fork_of_class_tables(); /* a full table stays */
        check(load_acquire(&class_table_state[family]) == FULL_TABLE, "need_class_table", family);
        for (uint32_t code = 0; code < 0x10000; code += 7)
            check(class_table[family][code] == class_of(family, code), "class_table", (long)code);
    }
}

static size_t plain_utf8(uint32_t code, uint8_t *to) {
    if (code < 0x80) return to[0] = (uint8_t)code, 1;
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    for (int i = more; i; i--, code >>= 6) to[i] = (uint8_t)(0x80 | code % 64);
    to[0] = (uint8_t)(0xff00 >> (more + 1) | code);
    return (size_t)more + 1;
}

static void test_utf8(int level) {
    static const uint32_t bounds[] = {0x80, 0x100, 0x800, 0xd800, 0x110000};
    for (int round = 0; round < 6000; round++) {
        const int width = 1 << round % 3;
        const uint32_t largest = width == 1 ? 0x100 : width == 2 ? 0x10000 : 0x110000;
        uint8_t units[4 * 80], expected[4 * 80], written[4 * 80 + UTF8_SLACK];
        const size_t count = draw(80);
        size_t size = 0;
        int lone = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t code = (uint32_t)draw(bounds[draw(5)]) % largest;
            if (code >> 11 == 27 && draw(4)) code = 'a'; /* few surrogates */
            lone |= code >> 11 == 27;
            size += plain_utf8(code, expected + size);
            if (width == 1) units[i] = (uint8_t)code;
            else if (width == 2) memcpy(units + 2 * i, &(uint16_t){(uint16_t)code}, 2);
            else memcpy(units + 4 * i, &code, 4);
        }
        const size_t result = choose_utf8(width, level)(units, count, written);
        check(lone ? result == UTF8_LONE : result == size, "utf8: size", (long)count);
        check(lone || result != size || !memcmp(written, expected, size), "utf8: bytes", (long)count);
    }
}

/* A vocabulary of random merges of few bytes, by the definitions in merge_tables.h and without its shortcuts. */
enum { MERGES = 200, LETTERS = 6, SYMBOLS = 256 + MERGES };
static uint32_t left_of[MERGES], right_of[MERGES];
static uint8_t first_byte[SYMBOLS], last_byte[SYMBOLS];

static uint32_t rank_of(uint32_t left, uint32_t right) {
    for (uint32_t rank = 0; rank < MERGES; rank++)
        if (left_of[rank] == left && right_of[rank] == right) return rank;
    return NONE;
}

static void make_tables(MergeTables *tables) {
    enum { SLOTS = 1024 };
    static uint64_t pairs[SLOTS + 1], filter[SLOTS * 4 / 64], byte_pairs[BYTE_PAIRS];
    *tables = (MergeTables){.pairs = pairs, .filter = filter, .byte_pairs = byte_pairs};
    tables->first_made = 256;
    tables->mask = SLOTS - 1;
    tables->shift = 64 - 10;
    tables->filter_shift = 64 - 12;
    tables->symbol_bits = tables->merge_bits = 16;
    memset(pairs, 0xff, sizeof pairs);
    memset(filter, 0, sizeof filter);
    for (uint32_t i = 0; i < 256; i++) tables->symbol_of_byte[i] = first_byte[i] = last_byte[i] = (uint8_t)i;
    for (uint32_t rank = 0; rank < MERGES; rank++) {
        do { /* pairs of letters, or of what was merged before */
            left_of[rank] = draw(2) || !rank ? 'a' + (uint32_t)draw(LETTERS) : 256 + (uint32_t)draw(rank);
            right_of[rank] = draw(2) || !rank ? 'a' + (uint32_t)draw(LETTERS) : 256 + (uint32_t)draw(rank);
        } while (rank_of(left_of[rank], right_of[rank]) < rank);
        first_byte[256 + rank] = first_byte[left_of[rank]];
        last_byte[256 + rank] = last_byte[right_of[rank]];
        add_merge(tables, left_of[rank], right_of[rank], rank);
    }
    for (uint32_t a = 0; a < 256; a++)
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t takes_first = UINT32_MAX, takes_second = UINT32_MAX, later = UINT32_MAX;
            const uint32_t merge = rank_of(a, b);
            for (uint32_t rank = 0; rank < MERGES; rank++) {
                if (left_of[rank] == a && first_byte[right_of[rank]] == b && rank < takes_first) takes_first = rank;
                if (right_of[rank] == b && last_byte[left_of[rank]] == a && rank < takes_second) takes_second = rank;
                if ((left_of[rank] == 256 + merge || right_of[rank] == 256 + merge) && rank < later) later = rank;
            }
            uint64_t word = byte_pair_entry(takes_first, takes_second);
            if (merge != NONE && later > merge) word = with_joining(word, merge);
            byte_pairs[byte_pair_at((uint8_t)a, (uint8_t)b)] = word;
        }
}

static void test_lowest(int level) {
    uint32_t keys[LANE_BYTES];
    for (int round = 0; round < 2000; round++) {
        const size_t count = 8 * (1 + draw(LANE_BYTES / 8));
        uint32_t least = NONE;
        for (size_t i = 0; i < count; i++) {
            keys[i] = draw(3) ? NONE - (uint32_t)draw(100) : (uint32_t)draw((uint64_t)1 << 32);
            least = keys[i] < least ? keys[i] : least;
        }
        check(choose_lowest(level)(keys, count) == least, "lowest", (long)count);
    }
}

static size_t plain_merge(const uint8_t *text, size_t size, uint32_t *symbols) {
    for (size_t i = 0; i < size; i++) symbols[i] = text[i];
    for (;;) {
        uint32_t best = NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < size; i++) {
            const uint32_t rank = rank_of(symbols[i], symbols[i + 1]);
            if (rank < best) best = rank, at = i;
        }
        if (best == NONE) return size;
        symbols[at] = 256 + best;
        memmove(symbols + at + 1, symbols + at + 2, (size - at - 2) * sizeof *symbols);
        size--;
    }
}

static void test_merging(int level) {
    static Lane lanes[LANES];
    static uint8_t texts[LANES][LANE_BYTES];
    uint32_t expected[LANE_BYTES];
    MergeTables tables;
    Piece pieces[LANES];
    for (int round = 0; round < 30; round++) {
        make_tables(&tables);
        const size_t count = 1 + draw(LANES);
        for (size_t n = 0; n < count; n++) {
            pieces[n] = (Piece){texts[n], 1 + draw(LANE_BYTES)};
            for (size_t i = 0; i < pieces[n].size; i++) texts[n][i] = (uint8_t)('a' + draw(LETTERS + 1));
        }
        merge_lanes(&tables, choose_lowest(level), lanes, pieces, count);
        for (size_t n = 0; n < count; n++) {
            const size_t size = plain_merge(pieces[n].text, pieces[n].size, expected);
            const int same = size == lanes[n].count && !memcmp(expected, lanes[n].symbols, size * sizeof *expected);
            check(same, "merge_lanes", (long)n);
        }
    }
}

#ifndef _WIN32
/* One thread puts words into a cache of a single set, so that nearly each one pushes another out; the other looks words
 * up, and is stopped by a timer at any of its instructions, as a system that gives its processor to others does. */
enum { WORDS = 12, WORD_BYTES = 32, SET_RING = 256 };
static struct {
    uint8_t text[WORD_BYTES + 16];
    uint32_t ids[COPIED_IDS + 1];
    size_t size, count;
} words[WORDS];
static cache_table shared_table;
static cache_reader cache_users[2];
static int readers_done;

static void stop_for_a_moment(int signal) {
    (void)signal;
    for (int turns = 1 << draw(8); turns; turns--) sched_yield();
}

static packed_key word_key(int word) {
    packed_key key = {hash_bytes(words[word].text, words[word].size, seed), LONG_KEY + words[word].size};
    return words[word].size <= PACKED ? pack_key(words[word].text, words[word].size, words[word].size) : key;
}

static void *fill_cache(void *unused) {
    uint64_t chance = 7;
    while (!__atomic_load_n(&readers_done, __ATOMIC_RELAXED)) {
        while (!reader_enters(&cache_users[1], &shared_table)) sched_yield();
        for (int i = 0; i < BATCH && !cache_needs_care(&shared_table); i++) {
            chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
            const int word = (int)(chance >> 33) % WORDS;
            const packed_key key = word_key(word);
            cache_keep(&shared_table, key, cache_set(&shared_table, key), words[word].text, words[word].ids,
                       words[word].count);
        }
        reader_leaves(&cache_users[1]);
        if (cache_needs_care(&shared_table)) {
            be_alone(&shared_table);
            if (shared_table.worn) cache_renew(&shared_table);
            be_no_longer_alone(&shared_table);
        }
    }
    return unused;
}

static void test_cache(long lookups) {
    static uint8_t text[BATCH * WORD_BYTES + 16];
    static uint32_t ids[BATCH * (INLINE_IDS + 1) + COPIED_IDS + BATCH * COPIED_IDS];
    size_t ends[BATCH], size = 0;
    int numbers[BATCH];
    cache_batch batch;
    pthread_t writer;
    for (int word = 0; word < WORDS; word++) { /* short and long, of few ids and many */
        words[word].size = 3 + (size_t)word * 5 / 2;
        words[word].count = 1 + (size_t)(word * 5 % 9);
        for (size_t i = 0; i < words[word].size; i++) words[word].text[i] = (uint8_t)('a' + word + (int)i % 3);
        for (uint32_t i = 0; i < COPIED_IDS + 1; i++) words[word].ids[i] = (uint32_t)word * 1000 + i;
    }
    for (int i = 0; i < BATCH; i++) {
        numbers[i] = (int)draw(WORDS);
        memcpy(text + size, words[numbers[i]].text, words[numbers[i]].size);
        ends[i] = size += words[numbers[i]].size;
    }
    memset(&shared_table, 0, sizeof shared_table);
    shared_table.seed = seed;
    shared_table.slots = aligned_alloc(64, WAYS * sizeof(cache_slot));
    shared_table.ring = malloc(SET_RING + COPIED_IDS * sizeof(uint32_t));
    shared_table.ring_size = SET_RING;
    memset(shared_table.slots, 0, WAYS * sizeof(cache_slot));
    memset(shared_table.ring, 0, SET_RING + COPIED_IDS * sizeof(uint32_t));
    shared_table.shared = shared_table.bounded = 1;
    for (uint32_t ids3[COPIED_IDS + 1] = {0}; !cache_needs_care(&shared_table); ids3[0]++) /* to the last version */
        cache_keep(&shared_table, word_key(0), shared_table.slots, words[0].text, ids3, 1);
    const cache_slot worn = shared_table.slots[0];
    check(worn.last >> VERSION_SHIFT == VERSION_COUNT - 2, "cache_write", (long)(worn.last >> VERSION_SHIFT));
    cache_keep(&shared_table, word_key(0), shared_table.slots, words[0].text, words[0].ids, 1);
    check(!memcmp(&worn, shared_table.slots, sizeof worn), "cache_worn", 0);
    cache_renew(&shared_table);
    check(shared_table.slots[0].last >> VERSION_SHIFT == 0 && shared_table.slots[0].ids == worn.ids, "cache_renew", 0);
    memset(shared_table.slots, 0, WAYS * sizeof(cache_slot));
    add_reader(&shared_table, &cache_users[0]);
    add_reader(&shared_table, &cache_users[1]);
    readers_done = 0;
    sigset_t alarm_only; /* only this thread is stopped */
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    pthread_create(&writer, NULL, fill_cache, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    struct sigaction action = {.sa_handler = stop_for_a_moment, .sa_flags = SA_RESTART}, before;
    sigaction(SIGALRM, &action, &before);
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    long hits = 0;
    for (long done = 0; done < lookups; done += BATCH) {
        while (!reader_enters(&cache_users[0], &shared_table)) sched_yield();
        cache_prepare(&shared_table, text, size, 0, ends, BATCH, &batch);
        for (size_t i = 0; i < BATCH;) {
            uint32_t *to = ids;
            size_t first = i, at = 0;
            uint64_t offset;
            i = cache_take(&shared_table, text, &batch, i, BATCH, &to, ids + sizeof ids / sizeof *ids);
            for (; first < i; first++, hits++)
                for (size_t n = 0; n < words[numbers[first]].count; n++, at++)
                    if (ids[at] != words[numbers[first]].ids[n]) check(0, "cache_take", numbers[first]);
            if (i == BATCH) break;
            const int word = numbers[i++];
            const size_t count = cache_find(&shared_table, word_key(word), ids, &offset);
            const size_t bytes = words[word].size > PACKED ? words[word].size : 0;
            if (!count) continue;
            if (offset != NO_OFFSET && !cache_copy(&shared_table, offset, count, words[word].text, bytes, ids))
                continue;
            check(count == words[word].count && !memcmp(ids, words[word].ids, count * sizeof *ids), "cache_find", word);
            hits++;
        }
        reader_leaves(&cache_users[0]);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    __atomic_store_n(&readers_done, 1, __ATOMIC_RELAXED);
    pthread_join(writer, NULL);
    check(lookups < 1000000 || hits > lookups / 1000, "test_cache: too few hits", hits);
    checks += hits;
    free(shared_table.slots);
    free(shared_table.ring);
}
#endif

int main(int argc, char **argv) {
    const int levels = argc > 1 && atoi(argv[1]) ? atoi(argv[1]) : best_level() + 1;
    const long lookups = argc > 2 ? atol(argv[2]) : 2000000;
    printf("levels:");
    for (int level = 0; level < levels; level++) {
        level_name = level_names[level];
        printf(" %s", level_name);
        test_bytes();
        test_classify(level);
        test_utf8(level);
        test_lowest(level);
        test_merging(level);
    }
    test_class_tables();
#ifndef _WIN32
    test_cache(lookups);
#endif
    printf("; %ld checks, %ld failures\n", checks, failures);
    return failures != 0;
}
