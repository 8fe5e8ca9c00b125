/* The abilities of the processor. This is the only file that asks it, and the only one that names instruction sets.
 *
 *     level      functions of the level may use                                   first processors
 *     portable   what every machine of the architecture has (x86-64: SSE2)
 *     avx2       avx2 bmi bmi2 popcnt                                             Haswell 2013, Zen 2017
 *     avx512     avx2's and avx512f  avx512bw avx512dq avx512vl avx512vbmi2    Ice Lake 2019, Zen 4 2022
 *     neon       on ARM: NEON, also called Advanced SIMD                          all of 64 bits
 *
 * On x86-64 the levels are portable, avx2 and avx512, each with all before it; on 64-bit ARM portable and
 * neon. cpu.pyx asks once for each process and keeps the answer; every header with vector code has a function
 * choose_...(level), which gives the best of its versions that the level allows. A version for x86-64 begins with
 * TARGET_AVX2 or TARGET_AVX512, so that it is compiled for exactly the features that were checked. Where neither
 * BPE_X86 nor BPE_NEON is defined (another architecture, or a compiler without target attributes), portable is all
 * there is. */
#ifndef BPE_CPU_H
#define BPE_CPU_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define BPE_X86 1
#include <immintrin.h>

enum { LEVEL_PORTABLE, LEVEL_AVX2, LEVEL_AVX512 };
static const char *const level_names[] = {"portable", "avx2", "avx512"};

#define TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define TARGET_AVX512 __attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2")))

/* The highest level that this processor and its operating system support. */
static inline int best_level(void) {
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
          __builtin_cpu_supports("popcnt")))
        return LEVEL_PORTABLE;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512vbmi2")))
        return LEVEL_AVX2;
    return LEVEL_AVX512;
}
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define BPE_NEON 1
#include <arm_acle.h>
#include <arm_neon.h>

enum { LEVEL_PORTABLE, LEVEL_NEON };
static const char *const level_names[] = {"portable", "neon"};

static inline int best_level(void) { return LEVEL_NEON; }
#else
enum { LEVEL_PORTABLE };
static const char *const level_names[] = {"portable"};

static inline int best_level(void) { return LEVEL_PORTABLE; }
#endif
#endif
