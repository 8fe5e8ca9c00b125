from collections.abc import Collection, Iterable, Mapping, Sequence
from mmap import mmap
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bpe.counting.pretoken_counts import PretokenCounts
from bpe.encoding.text_encoder import TextEncoder
from bpe.scanning.special_tokens import Rules

_Buffer = bytes | bytearray | memoryview | mmap
_Text = str | _Buffer
_Special = Literal["all"] | Collection[str]

class Ranks:
    symbols: int
    all_bytes: bool
    def __new__(
        cls,
        *,
        symbols: Sequence[bytes] = (),
        merges: NDArray[Any] | None = None,
        ignore_merges: bool = False,
        aliases: Mapping[int, int] | None = None,
        parts: Mapping[str, bytes | memoryview] | None = None,
        drops_bytes: bool = False,
    ) -> Self: ...
    def parts(self) -> dict[str, bytes]: ...

class Encoder:
    cache_bytes: int
    def __new__(
        cls,
        *,
        ranks: Ranks,
        ids: NDArray[np.uint32] | memoryview,
        scanner: int,
        cache_bytes: int,
        cuts: bool = True,
        space: str = "never",
        stands_for: dict[int, tuple[int, ...]] | None = None,
        added_ids: Sequence[int] = (),
    ) -> Self: ...
    def encode_array(self, text: _Text, rules: Rules, begins: bool = True) -> NDArray[np.uint32]: ...
    def encode_pieces(self, pieces: Iterable[_Buffer]) -> NDArray[np.uint32]: ...

class Batch:
    size: int
    threads: int
    failures: dict[int, ValueError]
    def __new__(
        cls,
        encoder: Encoder,
        texts: Iterable[_Text] | memoryview,
        rules: Rules,
        *,
        threads: int = 1,
        thread_text: int = 1,
        longest: int = ...,
        block: int = ...,
        begins: NDArray[np.int64] | None = None,
        sizes: NDArray[np.int64] | None = None,
        continued: Iterable[bool] = (),
    ) -> Self: ...
    def work(self) -> None: ...
    def arrays(self) -> list[NDArray[np.uint32] | None]: ...
    def lists(self) -> list[list[int] | None]: ...
    def joined(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...

NO_NAMES: frozenset[str]

class EncodeMethods:
    @property
    def _text_encoder(self) -> TextEncoder: ...
    def _use(self, text_encoder: TextEncoder) -> None: ...
    def _count(self, text: _Text, allowed: _Special, disallowed: _Special) -> int: ...
    def encode(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> list[int]: ...
    def encode_ordinary(self, text: _Text) -> list[int]: ...
    def encode_to_numpy(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> NDArray[np.uint32]: ...

class SpelledCounts(PretokenCounts):
    def spell_by(self, encoder: Encoder, tokens: list[bytes]) -> None: ...
    @property
    def text_bytes(self) -> int: ...
