/* Zeroed blocks for what is reached at random. A large one is asked for in huge pages: with 4 KiB pages nearly every
 * visit to hundreds of megabytes waits for the page tables first, and prefetching waits with it. */
#ifndef BPE_MEMORY_H
#define BPE_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__GLIBC__)
#include <malloc.h>
/* Give back to the system what was freed in small pieces, and which the library would keep. */
static void trim_heap(void) { malloc_trim(0); }
#else
static void trim_heap(void) {}
#endif

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE (2 * HUGE_PAGE)

static size_t whole_pages(size_t size) { return (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1); }

static void *zeroed_block(size_t size) {
    if (size < LARGE || size > SIZE_MAX - 2 * HUGE_PAGE) return calloc(size ? size : 1, 1);
    size_t kept = whole_pages(size);
    uint8_t *found =
        mmap(NULL, kept + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - ((uintptr_t)found & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (before) munmap(found, before);
    if (before < HUGE_PAGE) munmap(found + before + kept, HUGE_PAGE - before);
    madvise(found + before, kept, MADV_HUGEPAGE);
    return found + before;
}

/* `size` as it was asked for. */
static void free_block(void *block, size_t size) {
    if (block == NULL || size < LARGE || size > SIZE_MAX - 2 * HUGE_PAGE) free(block);
    else munmap(block, whole_pages(size));
}

/* Whether a large block takes memory only where it is written, so that asking for more than is needed costs nothing.
 * */
#define BLOCKS_LAZY 1

/* Give back what lies beyond the first `used` bytes; returns the size that free_block() wants from now on. */
static size_t trim_block(void *block, size_t size, size_t used) {
    size_t kept = whole_pages(used < LARGE ? LARGE : used);
    if (size < LARGE || kept >= whole_pages(size)) return size;
    munmap((uint8_t *)block + kept, whole_pages(size) - kept);
    return kept;
}
/* A block with the pages of another at its beginning, whatever is in them, as far as they go; the other one is no
 * more.
 *
 * The other is moved and widened in one, and so stays one mapping: before Linux 6.17 several cannot be moved at once.
 * */
static void *block_with_pages(size_t size, void *other, size_t other_size) {
    void *block = zeroed_block(size); /* for the sake of its place */
    if (block == NULL || size < LARGE || other_size < LARGE) {
        free_block(other, other_size);
        return block;
    }
    size_t wanted = whole_pages(size), there = whole_pages(other_size);
    if (there > wanted) {
        munmap((uint8_t *)other + wanted, there - wanted);
        there = wanted;
    }
    if (mremap(other, there, wanted, MREMAP_MAYMOVE | MREMAP_FIXED, block) != MAP_FAILED) return block;
    munmap(other, there);
    return zeroed_block(size); /* what was at `block` may be gone, and the place somebody else's by now */
}

/* Have the pages of a part of a block there before it is written: at once, which is cheaper than one by one as they
 * are reached (and those that are read first are made twice), and before several threads write it: where two meet on a
 * new page, each makes and clears one, and one of them is thrown away. A system that cannot (Linux before 5.14) makes
 * them as they are written. */
static void touch_block(void *part, size_t size) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
    size_t before = (uintptr_t)part & ((size_t)getpagesize() - 1);
    madvise((uint8_t *)part - before, size + before, MADV_POPULATE_WRITE);
}
#else
#define HUGE_PAGE ((size_t)2 << 20)
#define BLOCKS_LAZY 0
static void touch_block(void *part, size_t size) {
    (void)part;
    (void)size;
}
static size_t trim_block(void *block, size_t size, size_t used) {
    (void)block;
    (void)used;
    return size;
}
static void *block_with_pages(size_t size, void *other, size_t other_size) {
    (void)other_size;
    free(other);
    return calloc(size, 1);
}
static void *zeroed_block(size_t size) { return calloc(size ? size : 1, 1); }
static void free_block(void *block, size_t size) {
    (void)size;
    free(block);
}
#endif
#endif
