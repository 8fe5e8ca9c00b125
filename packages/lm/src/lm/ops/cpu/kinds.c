/* The numbers of a matrix, as files have them: goes on from vectors.c.

   REALS, bfloat16 and float16 are multiplied as REAL; all others are integers of 16 bits with scales. Q8_0 and the
   K-quants are GGUF's: blocks of 32 weights with a scale each, and 8 such blocks in a group, whose blocks (in Q6_K half
   blocks) have a scale of 6 or 8 bits times that of the group, and in Q4_K and Q5_K a least weight too. The weight is
   scale times word, less the least; with a scale of 16 bits every product but the difference is exact. */

enum { REALS, BF16, F16, INT8, Q8_0, Q4_K, Q5_K, Q6_K };   /* KINDS of describe.py */

typedef struct {
    const uint8_t *weight;   /* (rows, columns), a row every `stride` bytes */
    const REAL *scale;       /* (rows,) of INT8 */
    const REAL *bias;        /* (rows,) or none */
    int64_t kind, rows, columns, stride;
} Matrix;

#define BLOCK 32
#define BLOCKS 8
#define GROUP (BLOCK * BLOCKS)   /* weights */
#define PAIRS ((int64_t)(BYTES / sizeof(int16_t)))   /* int16 of a vector */
#define INTS (PAIRS / 2)                             /* sums of two each */
typedef int16_t Words __attribute__((vector_size(BYTES)));
typedef uint16_t Naturals __attribute__((vector_size(BYTES / 2)));
typedef uint32_t Bits __attribute__((vector_size(BYTES)));
typedef uint8_t Narrow __attribute__((vector_size(BYTES / 2)));
typedef int8_t Signed __attribute__((vector_size(BYTES / 2)));

/* sums + products of 16 bits, two in each lane. */
#if defined __AVX512VNNI__ && defined __AVX512BW__
#define add_products(sums, x, by) (Ints)_mm512_dpwssd_epi32((__m512i)(sums), (__m512i)(x), (__m512i)(by))
#elif defined __AVX512BW__
#define add_products(sums, x, by) ((sums) + (Ints)_mm512_madd_epi16((__m512i)(x), (__m512i)(by)))
#elif defined __AVX2__ && !defined __AVX512F__
#define add_products(sums, x, by) ((sums) + (Ints)_mm256_madd_epi16((__m256i)(x), (__m256i)(by)))
#else
#define add_products(sums, x, by) ((sums) + ((x) << 16 >> 16) * ((by) << 16 >> 16) + ((x) >> 16) * ((by) >> 16))
#endif

static inline Lanes as_lanes(Ints v) { return (Lanes)__builtin_convertvector(v, Floats); }   /* of float32 */

static inline Words widened(const uint8_t *from)
{
    Narrow v;
    memcpy(&v, from, sizeof v);
    return __builtin_convertvector(v, Words);
}

/* LANES numbers. The exponent of float16 has a bias of 15, that of float32 of 127. */
static inline __attribute__((always_inline)) Lanes load_as(const int kind, const uint8_t *from)
{
    if (kind == REALS) return load((const REAL *)from);
    Naturals v;
    memcpy(&v, from, sizeof v);
    const Bits bits = __builtin_convertvector(v, Bits);
    if (kind == BF16) return (Lanes)(bits << 16);
    return (Lanes)((Bits)((Floats)((bits & 0x7fff) << 13) * 0x1p112f) | (bits & 0x8000) << 16);
}

static inline __attribute__((always_inline)) REAL number_as(const int kind, const uint8_t *from)
{
    REAL number;
    float single;
    if (kind == REALS) {
        memcpy(&number, from, sizeof number);
        return number;
    }
#if defined __AVX2__ && defined __F16C__
    if (kind == F16) return _cvtsh_ss((uint16_t)(from[0] | from[1] << 8));
#endif
    uint32_t bits = from[0] | (uint32_t)from[1] << 8, rest = kind == BF16 ? bits << 16 : (bits & 0x7fff) << 13;
    memcpy(&single, &rest, sizeof single);
    return kind == BF16 ? single : bits & 0x8000 ? single * -0x1p112f : single * 0x1p112f;
}

/* The bytes of a group. */
static inline int64_t group_bytes(const int kind)
{
    return kind == INT8 ? GROUP : kind == Q8_0 ? 272 : kind == Q4_K ? 144 : kind == Q5_K ? 176 : 210;
}

/* Weights in turn whose sum of products with words of 16 bits an int32 holds: in Q6_K words are up to 4,096. */
static inline int64_t exact(const int kind) { return kind == INT8 ? GROUP : kind == Q6_K ? BLOCK / 2 : BLOCK; }

static inline int has_least(const int kind) { return kind == Q4_K || kind == Q5_K; }

/* The scale of a group (Q8_0 has one of each block, before its words), the least of each block, and the integers that
   multiply the words of each block, or half block, twice in 32 bits. */
typedef struct {
    REAL scale, least[BLOCKS];
    int32_t by[2 * BLOCKS];
} Scales;

static inline __attribute__((always_inline)) Scales scales_of(const int kind, const uint8_t *from, REAL scale)
{
    Scales group = {.scale = scale};
    if (kind == Q6_K) {
        group.scale = number_as(F16, from + 208);
        for (int i = 0; i < 2 * BLOCKS; i++) group.by[i] = (int32_t)((uint16_t)(int8_t)from[192 + i] * 0x10001u);
    }
    if (!has_least(kind)) return group;
    /* 6 bits each: of blocks 0 to 3 the lower bits of a byte, of 4 to 7 four bits of another below its upper 2 bits. */
    uint32_t scales, least, both;
    const uint32_t six = 0x3f3f3f3f, half = 0x0f0f0f0f, two = 0x30303030;
    memcpy(&scales, from + 4, 4);
    memcpy(&least, from + 8, 4);
    memcpy(&both, from + 12, 4);
    const uint64_t all = (scales & six) | (uint64_t)((both & half) | (scales >> 2 & two)) << 32;
    const uint64_t all_least = (least & six) | (uint64_t)((both >> 4 & half) | (least >> 2 & two)) << 32;
    const REAL step = number_as(F16, from + 2);
    group.scale = number_as(F16, from);
    for (int i = 0; i < BLOCKS; i++) group.by[i] = (int32_t)(all >> 8 * i & 63) * 0x10001;
    for (int i = 0; i < BLOCKS; i++) group.least[i] = step * (REAL)(all_least >> 8 * i & 63);
    return group;
}

static inline Words int8_words(const uint8_t *from)
{
    Signed bytes;
    memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Words);
}

/* The first `count` of int8, fewer than a vector has, and zeros; a function by itself, so that the loop stays short. */
static __attribute__((noinline)) Words some_words(const uint8_t *from, int64_t count)
{
    Signed bytes = {0};
    memcpy(&bytes, from, (size_t)count);
    return __builtin_convertvector(bytes, Words);
}

#define OF_QUARTER (2 * BLOCK / PAIRS)   /* of the two blocks of a quarter of a group */

/* The words of vector v of a quarter of a group, which has `left` weights from there on in the row. */
static inline __attribute__((always_inline)) Words
words_of(const int kind, const uint8_t *from, int64_t quarter, const int64_t v, const Scales *scales, int64_t left)
{
    const int64_t second = v * PAIRS / BLOCK, in = v * PAIRS % BLOCK, block = 2 * quarter + second;
    if (kind <= Q8_0) {
        const uint8_t *const at = from + (kind == Q8_0 ? 34 * block + 2 : BLOCK * block) + in;
        return kind == INT8 && (v + 1) * PAIRS > left ? some_words(at, left - v * PAIRS) : int8_words(at);
    }
    Ints by = (Ints){0} + scales->by[kind == Q6_K ? (block * BLOCK + in) / (BLOCK / 2) : block];
    if (kind == Q6_K) {
        const int64_t half = quarter / 2, shift = quarter % 2 * 4;
        const Words low = widened(from + 64 * half + BLOCK * second + in) >> shift & 15;
        const Words high = widened(from + 128 + BLOCK * half + in) >> shift >> 2 * second & 3;
        Ints upper;   /* a vector may be two half blocks */
        for (int64_t lane = 0; lane < INTS; lane++) upper[lane] = PAIRS == BLOCK && lane >= INTS / 2 ? -1 : 0;
        by = (by & ~upper) | (((Ints){0} + scales->by[2 * block + 1]) & upper);
        return ((low | high << 4) - 32) * (Words)by;
    }
    Words words = widened(from + (kind == Q4_K ? 16 : 48) + quarter * BLOCK + in) >> 4 * second & 15;
    if (kind == Q5_K) words |= (widened(from + 16 + in) >> 2 * quarter >> second & 1) << 4;
    return words * (Words)by;
}

/* A row of integers: words with zeros up to a multiple of BLOCK; scales, of each block of Q8_0, else of each group; and
   the least of each block. */
static void unpack(const Matrix *m, int64_t r, int16_t *words, REAL *scales, REAL *least)
{
    const int kind = (int)m->kind;
    for (int64_t at = 0; at < m->columns; at += GROUP) {
        const uint8_t *const from = m->weight + r * m->stride + at / GROUP * group_bytes(kind);
        const Scales group = scales_of(kind, from, m->scale ? m->scale[r] : 0);
        const int64_t left = m->columns - at, blocks = left < GROUP ? (left + BLOCK - 1) / BLOCK : BLOCKS;
        for (int64_t quarter = 0; 2 * quarter < blocks; quarter++)
            for (int64_t v = 0, i = 2 * BLOCK * quarter; v < OF_QUARTER && i < blocks * BLOCK; v++, i += PAIRS) {
                Words some = {0};
                if (i < left) some = words_of(kind, from, quarter, v, &group, left - 2 * BLOCK * quarter);
                memcpy(words + at + i, &some, sizeof some);
            }
        for (int64_t b = 0; b < blocks && kind == Q8_0; b++) scales[at / BLOCK + b] = number_as(F16, from + 34 * b);
        if (kind != Q8_0) scales[at / GROUP] = group.scale;
        if (has_least(kind)) memcpy(least + at / BLOCK, group.least, sizeof group.least);
    }
}

/* Row r of a matrix as REAL: a group after the other. */
static void widen(const Matrix *m, int64_t r, REAL *to)
{
    const uint8_t *const row = m->weight + r * m->stride;
    const int64_t size = m->kind == REALS ? sizeof(REAL) : 2;
    for (int64_t j = 0; m->kind < INT8 && j < m->columns; j++) to[j] = number_as((int)m->kind, row + j * size);
    for (int64_t at = 0; m->kind >= INT8 && at < m->columns; at += GROUP) {
        Matrix part = *m;
        int16_t words[GROUP];
        REAL scales[BLOCKS], least[BLOCKS] = {0};
        part.weight = row + at / GROUP * group_bytes((int)m->kind);
        part.columns = m->columns - at < GROUP ? m->columns - at : GROUP;
        unpack(&part, 0, words, scales, least);
        for (int64_t j = 0; j < part.columns; j++)
            to[at + j] = words[j] * scales[m->kind == Q8_0 ? j / BLOCK : 0] - least[j / BLOCK];
    }
}
