"""The bytes of an ASCII str where they lie: its memory is its UTF-8, so that a long text need not be copied to be read."""

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    int PyBuffer_FillInfo(Py_buffer *buffer, object owner, void *memory, Py_ssize_t size, int readonly, int flags) except -1


cdef class AsciiText:
    """A read-only buffer over an ASCII str, which it keeps alive. ValueError for another."""

    cdef str text

    def __cinit__(self, str text not None):
        if not PyUnicode_IS_COMPACT_ASCII(text):
            raise ValueError("the text is not ASCII; encode() it")
        self.text = text

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, PyUnicode_DATA(self.text), PyUnicode_GET_LENGTH(self.text), 1, flags)

    def __len__(self):
        return PyUnicode_GET_LENGTH(self.text)
