from libc.stddef cimport size_t
from libc.stdint cimport uint64_t


cdef inline void push(uint64_t *heap, size_t *size, uint64_t entry) noexcept nogil:
    """Add an entry to a binary heap whose least entry is the first; there is room for it."""
    cdef size_t at = size[0], parent
    size[0] += 1
    while at:
        parent = (at - 1) // 2
        if heap[parent] <= entry:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = entry


cdef inline uint64_t pop(uint64_t *heap, size_t *size) noexcept nogil:
    """Remove and return the least entry."""
    cdef size_t at = 0, child
    cdef uint64_t least = heap[0], last
    size[0] -= 1
    last = heap[size[0]]
    while 2 * at + 1 < size[0]:
        child = 2 * at + 1
        child += child + 1 < size[0] and heap[child + 1] < heap[child]
        if heap[child] >= last:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = last
    return least
