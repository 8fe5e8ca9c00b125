"""Text to ids and back."""

from typing import TYPE_CHECKING

from bpe.native.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from bpe.encoding import (  # noqa: F401
        arrow,
        budgets,
        canonical,
        decoding,
        normalizer_tables,
        offsets,
        preparing,
        segments,
        streaming,
        unstable,
        words,
    )

__getattr__ = lazy_modules(
    __name__, "arrow budgets canonical decoding normalizer_tables offsets preparing segments streaming unstable words"
)
