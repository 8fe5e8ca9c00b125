"""Regular expressions of split patterns: each read in the language of its file, run by one automaton or by `regex`."""

from typing import TYPE_CHECKING

from bpe.native.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from bpe.expressions import automaton, parsing, properties, steps, tree, unicode_sets  # noqa: F401

__getattr__ = lazy_modules(__name__, "automaton parsing properties steps tree unicode_sets")
