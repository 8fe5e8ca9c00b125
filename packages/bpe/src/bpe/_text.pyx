"""A str as the bytes of its UTF-8, where Python keeps them.

Of an ASCII str that is the str itself. Any other makes its UTF-8 once and keeps it for as long as it lives, as it does for every
extension that asks, so that a text encoded twice is not converted twice.
"""

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    int PyBuffer_FillInfo(Py_buffer *buffer, object owner, void *memory, Py_ssize_t size, int readonly, int flags) except -1


cdef class Utf8:
    """A read-only buffer over the UTF-8 of a str, which it keeps alive. UnicodeEncodeError for lone surrogates."""

    cdef str text
    cdef const char *memory
    cdef Py_ssize_t size

    def __cinit__(self, str text not None):
        self.text = text
        self.memory = PyUnicode_AsUTF8AndSize(text, &self.size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *> self.memory, self.size, 1, flags)

    def __len__(self):
        return self.size
