"""The buffer that ids are written to: an array that grows, whose memory becomes that of the NumPy array in the end.

A buffer always has one owner:

    owner            its ids                               comes from            goes to
    Scratch.ids      the ids of the text being encoded     the system            IdMemory if many, else it stays
    a local Ids      the ids of a part of a text or batch  the system            IdMemory, or the system
    IdMemory         the ids that NumPy arrays look into   one of these two      the system

The ids of a long text get pages of their own, with room for one id for each byte, so that they seldom have to move.
"""

from cpython.ref cimport Py_INCREF
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from bpe.native.memory cimport (
    BLOCKS_LAZY, checked_malloc, checked_realloc, free_block, trim_block, zeroed_block
)

from bpe.native.lazy_imports import import_lock

cdef extern from "encoding/cache.h" nogil:
    enum:
        IDS_BEYOND              # ids that a batch of pretokens may write, or reserve, beyond its text's

cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyArrayObject
    enum:
        NPY_UINT32
    void **PyArray_API                  # NULL until the next is called
    int _import_array() except -1
    object PyArray_SimpleNew(int dimensions, Py_ssize_t *shape, int dtype)
    object PyArray_SimpleNewFromData(int dimensions, Py_ssize_t *shape, int dtype, void *data)
    int PyArray_SetBaseObject(PyArrayObject *array, object base) except -1
    void *PyArray_DATA(PyArrayObject *array)

cdef enum:
    LONG_TEXT = 1 << 20         # bytes of a text whose ids get pages of their own
    FEW = 1 << 14               # ids that are copied into an array, so that their memory serves the next text

cdef inline int need_numpy() except -1:
    """Make NumPy's C API ready. Not at import: see bpe.native.lazy_imports."""
    return import_numpy() if PyArray_API == NULL else 0


cdef int import_numpy() except -1:
    with import_lock:
        return _import_array()


cdef class IdMemory:
    """Owns ids that arrays look into: the memory is freed with the last of the arrays."""

    def __dealloc__(self):
        free_ids(&self.owned)

    cdef object view(self, const uint32_t *ids, Py_ssize_t size):
        """Some of the ids as an array."""
        need_numpy()
        cdef object array = PyArray_SimpleNewFromData(1, &size, NPY_UINT32, <void *> ids)
        Py_INCREF(self)                     # PyArray_SetBaseObject steals a reference
        PyArray_SetBaseObject(<PyArrayObject *> array, self)
        return array


cdef int grow(Ids *ids, size_t room) except -1 nogil:
    cdef uint32_t *larger
    if ids.mapped:
        larger = <uint32_t *> checked_malloc(room * sizeof(uint32_t))
        memcpy(larger, ids.ids, ids.size * sizeof(uint32_t))
        free_block(ids.ids, ids.mapped)
        ids.ids, ids.mapped = larger, 0
    else:
        ids.ids = <uint32_t *> checked_realloc(ids.ids, room * sizeof(uint32_t))
    ids.room = room
    return 0


cdef int reserve_for_text(Ids *ids, size_t size) except -1:
    """Room for as many ids as most texts of `size` bytes have; more are reserved as they are written.

    For a long text it is one id for each byte, which costs nothing where the system takes memory only as it is written.
    """
    cdef size_t bytes = (size + IDS_BEYOND) * sizeof(uint32_t)
    cdef uint32_t *pages
    if BLOCKS_LAZY and size >= LONG_TEXT and ids.size == 0:
        pages = <uint32_t *> zeroed_block(bytes)
        if pages != NULL:
            free_ids(ids)
            ids.ids, ids.mapped, ids.room = pages, bytes, bytes // sizeof(uint32_t)
            return 0
    return reserve(ids, size // 4)          # most texts have fewer


cdef object to_array(Ids *ids):
    """Ids as an array of uint32. It takes the memory of many; few are copied, and stay."""
    cdef Py_ssize_t size = ids.size
    cdef object array
    cdef IdMemory memory
    need_numpy()
    if size <= FEW:
        array = PyArray_SimpleNew(1, &size, NPY_UINT32)
        if size:
            memcpy(PyArray_DATA(<PyArrayObject *> array), ids.ids, size * sizeof(uint32_t))
        return array
    memory = IdMemory()
    trim(ids)
    memory.owned = ids[0]
    memset(ids, 0, sizeof(Ids))
    return memory.view(memory.owned.ids, size)


cdef void trim(Ids *ids) noexcept nogil:
    """Give back the memory that the ids do not fill; there is at least one."""
    cdef void *smaller
    if ids.mapped:
        ids.mapped = trim_block(ids.ids, ids.mapped, ids.size * sizeof(uint32_t))
    else:
        smaller = realloc(ids.ids, ids.size * sizeof(uint32_t))
        if smaller == NULL:
            return
        ids.ids = <uint32_t *> smaller
    ids.room = ids.size


cdef void free_ids(Ids *ids) noexcept nogil:
    if ids.mapped:
        free_block(ids.ids, ids.mapped)
    else:
        free(ids.ids)
    memset(ids, 0, sizeof(Ids))
