// Matrix by vector in WebAssembly SIMD: y[row] = Σ weight[row, column] · x[column], for float32 weights and for int8
// weights with a scale for each row. Rows lie one after another; the number of columns is a multiple of 16.
// The page holds kernel.wasm.base64: what tools/cross_compile.py compiles of this.
#include <wasm_simd128.h>

#define EXPORT(name) __attribute__((export_name(#name))) void name
#define LANE(i) wasm_f32x4_extract_lane(sum, i)

static v128_t add_product(v128_t sum, v128_t a, const float *x) {
    return wasm_f32x4_add(sum, wasm_f32x4_mul(a, wasm_v128_load(x)));
}

static float total(const v128_t sums[4]) {
    v128_t sum = wasm_f32x4_add(wasm_f32x4_add(sums[0], sums[1]), wasm_f32x4_add(sums[2], sums[3]));
    return LANE(0) + (LANE(1) + (LANE(2) + LANE(3)));
}

EXPORT(multiply_float32)(const float *weight, const float *x, float *y, int rows, int columns) {
    for (int row = 0; row < rows; row++) {
        v128_t sums[4] = {0};
        for (int i = 0; i < columns; i += 16, weight += 16)
            for (int n = 0; n < 4; n++) sums[n] = add_product(sums[n], wasm_v128_load(weight + 4 * n), x + i + 4 * n);
        y[row] = total(sums);
    }
}

EXPORT(multiply_int8)(const signed char *weight, const float *scale, const float *x, float *y, int rows, int columns) {
    for (int row = 0; row < rows; row++) {
        v128_t sums[4] = {0};
        for (int i = 0; i < columns; i += 16, weight += 16) {
            v128_t low = wasm_i16x8_load8x8(weight), high = wasm_i16x8_load8x8(weight + 8);
            v128_t whole[4] = {wasm_i32x4_extend_low_i16x8(low), wasm_i32x4_extend_high_i16x8(low),
                               wasm_i32x4_extend_low_i16x8(high), wasm_i32x4_extend_high_i16x8(high)};
            for (int n = 0; n < 4; n++)
                sums[n] = add_product(sums[n], wasm_f32x4_convert_i32x4(whole[n]), x + i + 4 * n);
        }
        y[row] = total(sums) * scale[row];
    }
}
