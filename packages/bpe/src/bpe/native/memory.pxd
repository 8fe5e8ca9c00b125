from libc.stddef cimport size_t
from libc.stdlib cimport malloc, realloc

cdef inline void *checked(void *block) except NULL nogil:
    """The block itself; MemoryError for NULL."""
    if block == NULL:
        with gil:
            raise MemoryError
    return block


cdef inline void *checked_malloc(size_t size) except NULL nogil:
    return checked(malloc(size if size else 1))


cdef inline void *checked_realloc(void *block, size_t size) except NULL nogil:
    """On failure the old block stays as it was, for its owner to free."""
    return checked(realloc(block, size if size else 1))


cdef extern from "native/memory.h" nogil:
    void *zeroed_block(size_t size)
    void free_block(void *block, size_t size)
    void *sparse_block(size_t size)
    void free_sparse_block(void *block, size_t size)
    void *grown_block(void *block, size_t old_size, size_t size)
    size_t trim_block(void *block, size_t size, size_t used)
    void touch_block(void *part, size_t size)
    void trim_heap()
    const size_t LARGE


cdef inline void *checked_block(size_t size) except NULL nogil:
    """Zeroes, in huge pages where that pays; to be freed by free_block() with the same size."""
    return checked(zeroed_block(size))


cdef inline void *checked_sparse_block(size_t size) except NULL nogil:
    """Zeroes for sparse use; to be freed by free_sparse_block() with the same size."""
    return checked(sparse_block(size))
