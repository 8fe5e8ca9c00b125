# The buffer that ids are written to: an array that grows, whose memory becomes that of the NumPy array in the end.
#
# A buffer always has one owner:
#
#     owner            its ids                               comes from            goes to
#     Scratch.ids      the ids of the text being encoded     the system            IdMemory if many, else it stays
#     a local Ids      the ids of a part of a text or batch  the system            IdMemory, or the system
#     IdMemory         the ids that NumPy arrays look into   one of these two      the system

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
    FEW = 1 << 14               # ids that are copied into an array, so that their memory serves the next text

cdef inline int need_numpy() except -1:
    """Make NumPy's C API ready. Not at import: see bpe.native.lazy_imports."""
    return import_numpy() if PyArray_API == NULL else 0


cdef int import_numpy() except -1:
    with import_lock:
        return _import_array()


ctypedef struct Ids:
    uint32_t *ids
    size_t size, room           # ids there are, and that there is room for


cdef class IdMemory:
    """Owns ids that arrays look into: the memory is freed with the last of the arrays."""

    cdef Ids owned

    def __dealloc__(self):
        free_ids(&self.owned)

    cdef object view(self, const uint32_t *ids, Py_ssize_t size):
        """Some of the ids as an array."""
        need_numpy()
        cdef object array = PyArray_SimpleNewFromData(1, &size, NPY_UINT32, <void *> ids)
        Py_INCREF(self)                     # PyArray_SetBaseObject steals a reference
        PyArray_SetBaseObject(<PyArrayObject *> array, self)
        return array


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
    """Give back the memory that the ids do not fill."""
    cdef void *smaller = realloc(ids.ids, ids.size * sizeof(uint32_t)) if ids.size else NULL
    if ids.size == 0:
        free_ids(ids)
    elif smaller != NULL:
        ids.ids, ids.room = <uint32_t *> smaller, ids.size


cdef void free_ids(Ids *ids) noexcept nogil:
    free(ids.ids)
    memset(ids, 0, sizeof(Ids))


cdef inline int reserve(Ids *ids, size_t more) except -1 nogil:
    """See that there is room for `more` ids beyond those that there are."""
    cdef size_t room
    if ids.size + more > ids.room:
        room = max(ids.size + more, ids.room + ids.room // 2, <size_t> 256)
        ids.ids, ids.room = <uint32_t *> checked_realloc(ids.ids, room * sizeof(uint32_t)), room
    return 0
