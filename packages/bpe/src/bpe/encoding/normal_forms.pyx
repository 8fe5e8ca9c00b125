"""The normal forms of Unicode, of bytes of UTF-8: see normal_forms.h."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from bpe.native.lazy_imports import numpy as np
from bpe.native.text import utf8

from bpe.scanning.special_tokens cimport Hit, SpecialTokens

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)

cdef extern from "encoding/normal_forms.h" nogil:
    ctypedef struct NormalText:
        uint8_t *bytes
        size_t size, room
        uint64_t *origins
        size_t parts
        bint wants_origins
    void normal_prepare()
    size_t normal_find(const void *units, int width, size_t count, size_t at, int form)
    uint8_t normal_mark(uint32_t code, int form)
    bint normal_text(NormalText *out, const uint8_t *text, size_t size, int form, int *changed)

cdef enum:
    PART = 4096                 # code points that are converted together where one of them may change

cdef str STROKE = "\u0338"      # the only mark with which an ASCII character that is no letter composes
cdef tuple FORMS = ("NFD", "NFKD", "NFC", "NFKC")
normal_prepare()


def normalized(const uint8_t[::1] text not None, str form not None):
    """The text in a form, as bytes; None where it is in that form already."""
    return normalize(text, FORMS.index(form), False)


def in_form(text, str form not None, SpecialTokens special not None, bint alone=False):
    """A text in a form, as itself where it is in that form already, for an encoder that looks for special tokens in it.

    None if the caller has to prepare the text itself: it changes and contains a special token before or after (with
    `alone`: it contains one), or it is a str with a lone surrogate. The form "" changes nothing. Names of ASCII that
    end in a symbol are changed by no form, unless a STROKE follows: for these the text is not searched before it
    changed.
    """
    cdef object changed = None
    cdef Hit hit
    if type(text) is str:
        if PyUnicode_IS_ASCII(text):
            if not alone or special.find(
                <const uint8_t *> PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text), 0
            ).index < 0:
                return text
            return None
        changed = normalize_str(text, FORMS.index(form)) if form else text
        if changed is text and not alone:
            return text
        if type(changed) is bytes and special.end_in_symbols and STROKE not in text:
            hit = special.find(<const uint8_t *> PyBytes_AS_STRING(changed), PyBytes_GET_SIZE(changed), 0)
            return changed if hit.index < 0 else None
        text = utf8(text)
        if text is None or changed is None:
            return None
        if type(changed) is str:
            changed = text
    else:
        changed = (normalized(text, form) if form else None) or text
        if changed is text and not alone:
            return text
    return None if special.search(text) is not None or special.search(changed) is not None else changed


cdef object normalize_str(str text, int form):
    """The text in a form, as bytes, or itself where it is in that form already; None for a lone surrogate."""
    cdef const void *units = PyUnicode_DATA(text)
    cdef int width = PyUnicode_KIND(text)
    cdef size_t count = PyUnicode_GET_LENGTH(text), at, begin, end = 0
    cdef list parts = []
    cdef bint changes = False
    while True:
        with nogil:
            at = begin = normal_find(units, width, count, end, form)
        if at == count:
            break
        while begin > end and normal_mark(text[begin], form):
            begin -= 1
        parts.append(utf8(text[end:begin]))
        end = min(count, max(at + 1, begin + PART))
        while end < count and normal_mark(text[end], form):
            end += 1
        part = utf8(text[begin:end])
        changed = None if part is None else normalized(part, FORMS[form])
        changes = changes or changed is not None
        parts.append(part if changed is None else changed)
    if None in parts:
        return None
    return b"".join([*parts, utf8(text[end:])]) if changes else text


def normalized_with_origins(const uint8_t[::1] text not None, str form not None):
    """The text in a form, and where its parts come from; None where it is in that form already.

    The second result has a row for each part: twice the position where it begins, and 1 more where it is copied; and
    the position in the text of the copy, or of the character that it belongs to.
    """
    return normalize(text, FORMS.index(form), True)


cdef object normalize(const uint8_t[::1] text, int form, bint wants_origins):
    cdef NormalText out
    cdef size_t size = text.shape[0]
    cdef bint done
    cdef int changed = 0
    if size == 0:
        return None
    memset(&out, 0, sizeof(NormalText))
    out.wants_origins = wants_origins
    try:
        with nogil:
            done = normal_text(&out, &text[0], size, form, &changed)
        if not done:
            raise MemoryError
        if not changed:
            return None
        data = PyBytes_FromStringAndSize(<const char *> out.bytes, out.size)
        if not wants_origins:
            return data
        return data, np.array(<uint64_t[:out.parts, :2]> out.origins, dtype=np.int64)
    finally:
        free(out.bytes)
        free(out.origins)
