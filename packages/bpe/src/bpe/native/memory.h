/* Zeroed blocks of memory for tables.
 *
 * A large block is a mapping of its own, in huge pages: a table is read in random order, and with pages of 4 KiB nearly
 * every read of a table of hundreds of megabytes would first wait for the page tables, and so would prefetching.
 * Without huge pages the first pass over a text takes 10 to 26% longer and training 3 to 14% (`python
 * benchmarks/parts.py huge FILE`, on a Zen 5). */
#ifndef BPE_MEMORY_H
#define BPE_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>
/* Give memory that was freed in small pieces, and that the C library keeps, back to the system. */
static void trim_heap(void) { malloc_trim(0); }
#else
static void trim_heap(void) {}
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE HUGE_PAGE

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

static size_t whole_pages(size_t size) { return (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); }

static void *zeroed_block(size_t size) {
    if (size < LARGE || size > SIZE_MAX - 2 * HUGE_PAGE) return calloc(size ? size : 1, 1);
    size_t rounded = whole_pages(size);
    uint8_t *region =
        mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - ((uintptr_t)region & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (before) munmap(region, before);
    if (before < HUGE_PAGE) munmap(region + before + rounded, HUGE_PAGE - before);
    madvise(region + before, rounded, MADV_HUGEPAGE);
    return region + before;
}

/* `size`: what zeroed_block() was asked for. */
static void free_block(void *block, size_t size) {
    if (block == NULL || size < LARGE || size > SIZE_MAX - 2 * HUGE_PAGE) free(block);
    else munmap(block, whole_pages(size));
}

/* A zeroed block for sparse use: pages that are never written to take no memory. calloc() would clear the pages of a
 * block that was freed before, and so make them resident. */
static void *sparse_block(size_t size) {
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return NULL;
    madvise(block, size, MADV_NOHUGEPAGE);
    return block;
}

static void free_sparse_block(void *block, size_t size) {
    if (block != NULL) munmap(block, size);
}

/* A block of `size` bytes, a smaller block's first and zeroes after them; NULL if there is no memory for it, and
 * the smaller one then stays. The pages of a large block are moved, not copied. */
static void *grown_block(void *block, size_t old_size, size_t size) {
    uint8_t *grown = zeroed_block(size);
    if (grown == NULL) return NULL;
    if (old_size >= LARGE) {
        const size_t pages = whole_pages(old_size);
        if (mremap(block, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, grown) != MAP_FAILED) return grown;
        free_block(grown, size); /* it may have a hole now */
        grown = zeroed_block(size);
        if (grown == NULL) return NULL;
    }
    memcpy(grown, block, old_size);
    free_block(block, old_size);
    return grown;
}

/* Give back what lies beyond the first `used` bytes; returns the size that free_block() wants from now on. */
static size_t trim_block(void *block, size_t size, size_t used) {
    size_t rounded = whole_pages(used < LARGE ? LARGE : used);
    if (size < LARGE || rounded >= whole_pages(size)) return size;
    munmap((uint8_t *)block + rounded, whole_pages(size) - rounded);
    return rounded;
}

/* Make the pages of a part of a block before it is written. All at once is cheaper than one by one,
 * and threads that meet on a new page would each make and clear one. Linux before 5.14 cannot, and makes them as they
 * are written. */
static void touch_block(void *part, size_t size) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
    size_t before = (uintptr_t)part & ((size_t)getpagesize() - 1);
    madvise((uint8_t *)part - before, size + before, MADV_POPULATE_WRITE);
}
#else
static void touch_block(void *part, size_t size) {
    (void)part;
    (void)size;
}
static size_t trim_block(void *block, size_t size, size_t used) {
    (void)block;
    (void)used;
    return size;
}
static void *zeroed_block(size_t size) { return calloc(size ? size : 1, 1); }
static void free_block(void *block, size_t size) {
    (void)size;
    free(block);
}
static void *sparse_block(size_t size) { return zeroed_block(size); }
static void free_sparse_block(void *block, size_t size) { free_block(block, size); }
static void *grown_block(void *block, size_t old_size, size_t size) {
    void *grown = zeroed_block(size);
    if (grown == NULL) return NULL;
    memcpy(grown, block, old_size);
    free(block);
    return grown;
}
#endif
#endif
