/* The numbers of a matrix, as files have them: goes on from vectors.c.

   REALS, bfloat16 and float16 are multiplied as REAL; all others are integers of 16 bits with scales. Q8_0 and the
   K-quants are GGUF's: blocks of 32 weights with a scale each, and 8 such blocks in a group, whose blocks (in Q6_K half
   blocks) have a scale of 6 or 8 bits times that of the group, and in Q4_K and Q5_K a least weight too. The weight is
   scale times word, less the least; with a scale of 16 bits every product but the difference is exact. */

enum { REALS, BF16, F16, INT8, Q8_0, Q4_K, Q5_K, Q6_K }; /* KINDS of describe.py */

typedef struct {
    const uint8_t *weight; /* (rows, columns), a row every `stride` bytes */
    const REAL *scale;     /* (rows,) of INT8 */
    const REAL *bias;      /* (rows,) or none */
    int64_t kind, rows, columns, stride;
} Matrix;

#define BLOCK 32
#define BLOCKS 8
#define GROUP (BLOCK * BLOCKS)                     /* weights */
#define HALVES (2 * BLOCKS)                        /* half blocks */
#define PAIRS ((int64_t)(BYTES / sizeof(int16_t))) /* int16 of a vector */
#define INTS (PAIRS / 2)                           /* sums of two each */
typedef int16_t Words __attribute__((vector_size(BYTES)));
typedef uint16_t Naturals __attribute__((vector_size(BYTES / 2)));
typedef uint32_t Bits __attribute__((vector_size(BYTES)));
typedef int8_t Signed __attribute__((vector_size(BYTES / 2)));
typedef int8_t Octets __attribute__((vector_size(16)));
typedef int16_t HalfBlock __attribute__((vector_size(32)));
typedef int32_t Sixteen __attribute__((vector_size(64)));
typedef uint8_t Eight __attribute__((vector_size(8)));
typedef uint16_t Doubled __attribute__((vector_size(16)));

/* sums + products of 16 bits, two in each lane. */
#if defined __AVX512VNNI__ && defined __AVX512BW__
#define add_products(sums, x, by) (Ints) _mm512_dpwssd_epi32((__m512i)(sums), (__m512i)(x), (__m512i)(by))
#elif defined __AVX512BW__
#define add_products(sums, x, by) ((sums) + (Ints)_mm512_madd_epi16((__m512i)(x), (__m512i)(by)))
#elif defined __AVX2__ && !defined __AVX512F__
#define add_products(sums, x, by) ((sums) + (Ints)_mm256_madd_epi16((__m256i)(x), (__m256i)(by)))
#else
#define add_products(sums, x, by) ((sums) + ((x) << 16 >> 16) * ((by) << 16 >> 16) + ((x) >> 16) * ((by) >> 16))
#endif

/* In each lane the sum of four products of naturals up to 63, the bytes of v, and integers of 16 bits, whose lower and
   upper bytes x has. */
#if defined __AVX512VNNI__ && defined __AVX512BW__
static inline Ints byte_products(Words v, Words low, Words high) {
    const __m512i upper = _mm512_dpbusd_epi32(_mm512_setzero_si512(), (__m512i)v, (__m512i)high);
    return (Ints)_mm512_dpbusd_epi32(_mm512_slli_epi32(upper, 8), (__m512i)v, (__m512i)low);
}
#else
#if defined __AVX512BW__
#define in_pairs(v, x) (Ints) _mm512_maddubs_epi16((__m512i)(v), (__m512i)(x))
#elif defined __AVX2__ && !defined __AVX512F__
#define in_pairs(v, x) (Ints) _mm256_maddubs_epi16((__m256i)(v), (__m256i)(x))
#else
#define in_pairs(v, x) (Ints)(((v) & 255) * ((x) << 8 >> 8) + ((v) >> 8) * ((x) >> 8))
#endif
static inline Ints byte_products(Words v, Words low, Words high) {
    const Ints zero = {0}, of_low = add_products(zero, in_pairs(v, low), zero + 0x10001);
    return add_products(of_low, in_pairs(v, high), zero + 0x1000100);
}
#endif

/* The 32 bytes at `from`, in a vector of 64 twice; the scales of its half blocks from number i on, each in four lanes;
   and 16 int8. gcc makes slow code of loops that do this. */
static inline Words both(const uint8_t *from) {
#ifdef __AVX512F__
    return (Words)_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)from));
#else
    Words v;
    memcpy(&v, from, sizeof v);
    return v;
#endif
}

static inline Lanes spread(const float *by, const int64_t i) {
#ifdef __AVX512F__
    const __m512i places = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return (Lanes)_mm512_permutexvar_ps(_mm512_add_epi32(places, _mm512_set1_epi32((int)i)), _mm512_loadu_ps(by));
#else
    return (Lanes)(Floats){by[i], by[i], by[i], by[i], by[i + 1], by[i + 1], by[i + 1], by[i + 1]};
#endif
}

static inline Sixteen sixteen(Octets bytes) {
#ifdef __AVX512F__
    return (Sixteen)_mm512_cvtepi8_epi32((__m128i)bytes);
#else
    Sixteen v;
    for (int i = 0; i < HALVES; i++) v[i] = bytes[i];
    return v;
#endif
}

static inline Lanes as_lanes(Ints v) { return (Lanes) __builtin_convertvector(v, Floats); } /* of float32 */

/* LANES numbers. The exponent of float16 has a bias of 15, that of float32 of 127. */
static inline __attribute__((always_inline)) Lanes load_as(const int kind, const uint8_t *from) {
    if (kind == REALS) return load((const REAL *)from);
    Naturals v;
    memcpy(&v, from, sizeof v);
    const Bits bits = __builtin_convertvector(v, Bits);
    if (kind == BF16) return (Lanes)(bits << 16);
    return (Lanes)((Bits)((Floats)((bits & 0x7fff) << 13) * 0x1p112f) | (bits & 0x8000) << 16);
}

static inline __attribute__((always_inline)) REAL number_as(const int kind, const uint8_t *from) {
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
static inline int64_t group_bytes(const int kind) {
    return kind == INT8 ? GROUP : kind == Q8_0 ? 272 : kind == Q4_K ? 144 : kind == Q5_K ? 176 : 210;
}

static inline int has_least(const int kind) { return kind == Q4_K || kind == Q5_K; }

/* Of a group of a K-quant: its scale, and for each half block the integer that multiplies that, both together, and what
   is taken off each weight. */
typedef struct {
    REAL scale, least[HALVES];
    float scales[HALVES];
    int32_t by[HALVES];
} Scales;

/* Each of eight bytes twice. */
static inline Octets twice(uint64_t bytes) {
#ifdef __AVX2__
    return (Octets)_mm_unpacklo_epi8(_mm_cvtsi64_si128((long long)bytes), _mm_cvtsi64_si128((long long)bytes));
#else
    return (Octets)(__builtin_convertvector((Eight)bytes, Doubled) * 0x101);
#endif
}

static inline __attribute__((always_inline)) Scales scales_of(const int kind, const uint8_t *from) {
    Scales group = {.scale = number_as(F16, from + (kind == Q6_K ? 208 : 0))};
    const REAL step = kind == Q6_K ? 32 * group.scale : number_as(F16, from + 2);
    Octets all, least;
    if (kind == Q6_K) {
        memcpy(&all, from + 192, sizeof all);
        least = all;
    } else { /* 6 bits each: of blocks 0 to 3 the lower bits of a byte, of 4 to 7 four of another below its upper 2 */
        uint32_t a, b, c;
        const uint32_t six = 0x3f3f3f3f, half = 0x0f0f0f0f, two = 0x30303030;
        memcpy(&a, from + 4, 4);
        memcpy(&b, from + 8, 4);
        memcpy(&c, from + 12, 4);
        all = twice((a & six) | (uint64_t)((c & half) | (a >> 2 & two)) << 32);
        least = twice((b & six) | (uint64_t)((c >> 4 & half) | (b >> 2 & two)) << 32);
    }
    const Sixteen by = sixteen(all), less = sixteen(least);
    memcpy(group.by, &by, sizeof by);
    for (int i = 0; i < HALVES; i++) group.scales[i] = (float)group.scale * (float)by[i];
    for (int i = 0; i < HALVES; i++) group.least[i] = step * less[i];
    return group;
}

/* The weights of a K-quant's group from number c on, a vector of bytes: naturals, in Q6_K 32 more than the weight. */
static inline __attribute__((always_inline)) Words bytes_of(const int kind, const uint8_t *from, const int64_t c) {
    const int16_t quarter = (int16_t)(c / (2 * BLOCK)), half = quarter / 2, shift = quarter % 2 * 4, bit = 2 * quarter;
    Words second; /* 1 in the lanes of every second block */
    for (int64_t i = 0; i < PAIRS; i++) second[i] = (c + 2 * i) / BLOCK % 2;
    if (kind == Q6_K) {
        Words low;
        memcpy(&low, from + 64 * half + c % (2 * BLOCK), sizeof low);
        return (low >> shift & 0x0f0f) | (both(from + 128 + BLOCK * half) >> (2 * second + shift) & 0x0303) << 4;
    }
    const Words low = both(from + (kind == Q4_K ? 16 : 48) + quarter * BLOCK) >> 4 * second & 0x0f0f;
    return kind == Q4_K ? low : low | (both(from + 16) >> (second + bit) & 0x0101) << 4;
}

static inline Words int8_words(const uint8_t *from) {
    Signed bytes;
    memcpy(&bytes, from, sizeof bytes);
    return __builtin_convertvector(bytes, Words);
}

/* A row of integers: words, up to a multiple of BLOCK; scales, of each block of Q8_0, else of each group; and
   the least of each block of Q4_K and Q5_K. */
static void unpack(const Matrix *m, int64_t r, int16_t *words, REAL *scales, REAL *least) {
    const int kind = (int)m->kind;
    const uint8_t *from = m->weight + r * m->stride;
    if (kind <= Q8_0)
        for (int64_t at = 0; at < m->columns; at += BLOCK, from += kind == Q8_0 ? 34 : BLOCK) {
            for (int64_t i = 0; i < BLOCK; i++) words[at + i] = (int8_t)from[(kind == Q8_0 ? 2 : 0) + i];
            if (kind == Q8_0) scales[at / BLOCK] = number_as(F16, from);
            else scales[at / GROUP] = m->scale[r];
        }
    else
        for (int64_t at = 0; at < m->columns; at += GROUP, from += group_bytes(kind)) {
            const Scales group = scales_of(kind, from);
            const int16_t less = kind == Q6_K ? 32 : 0;
            int8_t bytes[GROUP];
            for (int64_t c = 0; c < GROUP; c += BYTES) {
                const Words some = bytes_of(kind, from, c);
                memcpy(bytes + c, &some, sizeof some);
            }
            for (int64_t h = 0; h < HALVES; h++) { /* as vectors, or gcc goes number by number */
                Octets some;
                memcpy(&some, bytes + h * BLOCK / 2, sizeof some);
                const HalfBlock v = (__builtin_convertvector(some, HalfBlock) - less) * (int16_t)group.by[h];
                memcpy(words + at + h * BLOCK / 2, &v, sizeof v);
            }
            scales[at / GROUP] = group.scale;
            for (int64_t b = 0; b < BLOCKS && has_least(kind); b++) least[at / BLOCK + b] = group.least[2 * b];
        }
}

/* Row r of a matrix as REAL: a group after the other. */
static void widen(const Matrix *m, int64_t r, REAL *to) {
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
