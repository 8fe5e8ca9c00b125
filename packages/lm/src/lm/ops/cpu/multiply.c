/* Matmuls of what is in the cache, for attention: goes on from passes.c.

   They read Words: one REAL, or two bfloat16 that are neighbours in the sum (AVX512-BF16 adds both products). */

#ifdef __AVX512F__
enum { BYTES = 64, ROWS = 8 };
#else
enum { BYTES = 32, ROWS = 4 };
#endif
enum { LANES = BYTES / sizeof(REAL), COLUMNS = 2 * LANES };
typedef REAL Vector __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef Stored Element __attribute__((may_alias));

#ifdef BF16
typedef uint32_t Word;
typedef Word Words __attribute__((vector_size(BYTES), aligned(sizeof(Word)), may_alias));
#else
typedef REAL Word;
typedef Vector Words;
#endif
enum { PAIR = sizeof(Word) / sizeof(Stored) };

static inline Vector add_product(Vector sum, Word a, Words b) {
    const Words left = a - (Words){0};
#if defined BF16 && defined __AVX512BF16__
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)b);
#elif defined BF16
    sum += (Vector)(left << 16) * (Vector)(b << 16);
    return sum + (Vector)(left & 0xffff0000) * (Vector)(b & 0xffff0000);
#else
    return sum + left * b;
#endif
}

/* out (rows, columns) = a b, or that added to it: the words of a (rows, depth) lie row_step and step apart, b is
   (depth, b_step), out (rows, out_step). rows is a multiple of ROWS, columns of COLUMNS. */
static void multiply(int64_t rows, int64_t columns, int64_t depth, const Word *a, int64_t row_step, int64_t step,
                     const Word *b, int64_t b_step, REAL *out, int64_t out_step, int add) {
    for (int64_t column = 0; column < columns; column += COLUMNS)
        for (int64_t row = 0; row < rows; row += ROWS) {
            REAL *to = out + row * out_step + column;
            Vector sums[ROWS][2] = {0};
            if (add)
                for (int i = 0; i < ROWS; i++)
                    for (int j = 0; j < 2; j++) sums[i][j] = *(const Vector *)(to + i * out_step + j * LANES);
            for (int64_t k = 0; k < depth; k++) {
                const Word *from = a + row * row_step + k * step, *by = b + k * b_step + column;
                const Words left = *(const Words *)by, right = *(const Words *)(by + LANES);
                for (int i = 0; i < ROWS; i++) {
                    sums[i][0] = add_product(sums[i][0], from[i * row_step], left);
                    sums[i][1] = add_product(sums[i][1], from[i * row_step], right);
                }
            }
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < 2; j++) *(Vector *)(to + i * out_step + j * LANES) = sums[i][j];
        }
}

/* `width` columns of x, whose rows lie x_step apart, as pairs of neighbours in a column: (rows / PAIR, step) words. */
static void pair_rows(int64_t rows, int64_t width, const Stored *x, int64_t x_step, Word *out, int64_t step) {
    for (int64_t row = 0; row < rows; row += PAIR, x += PAIR * x_step, out += step) {
        Element *to = (Element *)out;
        EACH to[PAIR * i] = x[i], to[PAIR * i + PAIR - 1] = x[i + (PAIR - 1) * x_step];
    }
}

static inline int64_t up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
