"""accelerate(): a tokenizer of transformers that encodes and decodes by bpe, in place, with the results it had.

The tokenizer stays the object it was, of its class, with its backend of the package tokenizers, which everything else
goes on using: what saves it, what adds tokens to it, what asks for offsets. Two of its methods are replaced, on this
object alone: the one that turns texts into ids, and the one that turns ids into text. A call that bpe has no exact
answer for goes to the method that was there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bpe.encoding.decoder import Decoder
from bpe.encoding.offsets import characters_of_bytes
from bpe.formats import huggingface
from bpe.formats.vocabularies import from_printable
from bpe.integrations.backend import Encodings, has_types, state_of, threads
from bpe.native.lazy_imports import numpy as np
from bpe.tokenizer import Tokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

AnyTokenizer = TypeVar("AnyTokenizer")

REPLACED = ("_encode_plus", "_decode")
# Arguments with which a call goes to the original method.
OTHERWISE = (
    *("is_split_into_words", "return_overflowing_tokens", "return_special_tokens_mask", "split_special_tokens"),
    *("sanitize_control_tokens", "stride"),
)


def accelerate(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """Make a fast tokenizer of transformers encode and decode by bpe, in place.

    Its class, its methods and their results stay as they are; pickles and copies of it are accelerated too. Offsets
    in tensors, pairs, texts that are split into words and what else bpe does not do are done by the tokenizer's own
    backend, as before. Tokens that are added later are known: the next call takes the time of reading the tokenizer
    again.

    Args:
        tokenizer: A fast tokenizer (a PreTrainedTokenizerFast), such as AutoTokenizer.from_pretrained() gives.

    Returns:
        The same object.

    Raises:
        TypeError: It is no fast tokenizer, or its class encodes in a way of its own.
        ValueError: Its model or one of its steps is not supported; the message names it, and the tokenizer stays as it
            was.

    Example:
        >>> import transformers
        >>> bpe.train(["low lower lowest"], 262).to_huggingface("tokenizer.json")
        >>> fast = transformers.PreTrainedTokenizerFast(tokenizer_file="tokenizer.json")
        >>> bpe.integrations.transformers.accelerate(fast)("low lower")["input_ids"]
        [258, 260, 114]
    """
    from transformers import PreTrainedTokenizerFast

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise TypeError(f"a fast tokenizer of transformers is accelerated, not {type(tokenizer).__name__}")
    for name in REPLACED:
        if getattr(type(tokenizer), name) is not getattr(PreTrainedTokenizerFast, name):
            raise TypeError(f"{type(tokenizer).__name__} has a {name}() of its own, which would not be called any more")
    engine = _Engine(tokenizer)
    engine.read()
    engine.attach()
    return tokenizer


def accelerate_if_supported(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """accelerate(), which leaves a tokenizer that is not supported as it is."""
    with suppress(TypeError, ValueError):
        accelerate(tokenizer)
    return tokenizer


class AutoTokenizer:
    """transformers.AutoTokenizer by name, whose tokenizers encode and decode by bpe where that is supported.

    Example:
        >>> import transformers
        >>> bpe.train(["low lower lowest"], 262).to_huggingface("tokenizer.json")
        >>> transformers.PreTrainedTokenizerFast(tokenizer_file="tokenizer.json").save_pretrained("folder") is None
        False
        >>> bpe.integrations.transformers.AutoTokenizer.from_pretrained("folder").encode("low lower")
        [258, 260, 114]
    """

    @staticmethod
    def from_pretrained(*arguments: Any, **options: Any) -> Any:
        """transformers.AutoTokenizer.from_pretrained(), accelerated; arguments, results and errors are its own."""
        import transformers

        return accelerate_if_supported(transformers.AutoTokenizer.from_pretrained(*arguments, **options))

    @staticmethod
    def register(*arguments: Any, **options: Any) -> None:
        """transformers.AutoTokenizer.register()."""
        import transformers

        loader: Any = transformers.AutoTokenizer
        loader.register(*arguments, **options)


def patch_transformers() -> None:
    """Make transformers.AutoTokenizer.from_pretrained() give accelerated tokenizers, in the whole process.

    For programs that load their tokenizer themselves, such as servers. A second call changes nothing.
    """
    import transformers

    loader: Any = transformers.AutoTokenizer
    original = loader.from_pretrained
    if not hasattr(original, "before_bpe"):

        @functools.wraps(original)
        def from_pretrained(*arguments: Any, **options: Any) -> Any:
            return accelerate_if_supported(original(*arguments, **options))

        vars(from_pretrained)["before_bpe"] = original
        loader.from_pretrained = staticmethod(from_pretrained)


def unpatch_transformers() -> None:
    """Undo patch_transformers(). Tokenizers that were loaded in between stay as they are."""
    import transformers

    loader: Any = transformers.AutoTokenizer
    original = getattr(loader.from_pretrained, "before_bpe", None)
    if original is not None:
        loader.from_pretrained = original


class _Engine:
    """The bpe tokenizer that does what a backend does, read again when the backend was changed."""

    def __init__(self, tokenizer: Any) -> None:
        _keep_copies_apart()
        self.tokenizer = tokenizer
        self.state: tuple[Any, ...] | None = None  # of the backend when it was read
        self.decoder: Decoder | None = None  # of ids as the backend decodes them
        self.bpe: Tokenizer | None = None  # None: the backend was changed to something that is not supported

    def __reduce__(self) -> tuple[Any, ...]:
        return _Engine, (None,), {"tokenizer": self.tokenizer}

    def attach(self) -> None:
        """Replace the methods of the tokenizer."""
        vars(self.tokenizer)["_encode_plus"], vars(self.tokenizer)["_decode"] = _Encode(self), _Decode(self)

    def read(self) -> None:
        """Make the tokenizer of the backend as it is. ValueError where it is not supported."""
        backend = self.tokenizer._tokenizer
        self.state, self.bpe = state_of(backend), None
        file = json.loads(backend.to_str())
        file["truncation"] = file["padding"] = None  # of the last call
        data = huggingface.parse(json.dumps(file).encode(), "the tokenizer")
        self.bpe = Tokenizer.from_data(data)
        ids = data.special_tokens
        self.prefix = np.array([ids[name] for name in data.prefix], dtype=np.uint32)
        self.suffix = np.array([ids[name] for name in data.suffix], dtype=np.uint32)
        self.has_types = has_types(file["post_processor"])
        added = data.special_tokens | data.added_tokens
        self.spaced_ids = [number for name, number in added.items() if name != name.strip()]
        self.special_ids = frozenset(ids.values())
        shown = {number: from_printable(text) or text.encode() for text, number in added.items()}
        self.decoder = None
        if (file["decoder"] or {}).get("type") == "ByteLevel":  # the others change more than bytes
            self.decoder = Decoder({**data.vocab, **shown})

    def current(self) -> Tokenizer | None:
        """The tokenizer of the backend as it is now; None where it is not supported."""
        if self.state != state_of(self.tokenizer._tokenizer):
            try:
                self.read()
            except ValueError:
                self.bpe = None
        return self.bpe

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.uint32]] | None:
        """The ids of each text, without those around it; None where the backend has to say what is wrong with one."""
        if self.bpe is None:
            return None
        try:
            if len(texts) == 1:
                return [self.bpe.encode_to_numpy(texts[0], allowed_special="all")]
            return self.bpe.encode_batch_to_numpy(texts, num_threads=threads(), allowed_special="all")
        except UnicodeError:  # a lone surrogate
            return None

    def offsets(self, texts: Sequence[str], rows: Sequence[NDArray[np.uint32]]) -> list[NDArray[np.int64]] | None:
        """Begin and end of each id in characters, (ids, 2) of each text; None where the backend has to give them.

        As tokenizers gives them before its post-processor trims them: a part of a character has the whole one's.
        """
        spans = []
        for text, ids in zip(texts, rows, strict=True):
            if self.bpe is None or self.decoder is None:
                return None
            encoder = self.bpe._text_encoder
            if not encoder.takes_unchanged(text, encoder.policy.rules("all", ())):
                return None
            data, begins = self.bpe.decode_bytes_with_offsets(ids)
            if data != text.encode() or (self.bpe.data.trim_offsets and np.isin(ids, self.spaced_ids).any()):
                return None
            edges = np.array([*begins, len(data)], dtype=np.int64)
            of_bytes = np.append(characters_of_bytes(data), 0)
            spans.append(np.stack([of_bytes[edges[:-1]], of_bytes[edges[1:] - 1] + 1], axis=1))
        return spans

    def trim(self, ids: NDArray[np.uint32], offsets: NDArray[np.int64]) -> None:
        """Take the spaces of tokens from their offsets, in place, as the steps of the post-processor do."""
        if self.bpe is None or not self.bpe.data.trim_offsets:
            return
        tokens = self.bpe.decode_tokens_bytes(ids)
        for kind in self.bpe.data.trim_offsets:
            for place, token in enumerate(tokens):
                if token.startswith(b" ") or token.endswith(b" "):
                    begin, end = offsets[place].tolist()
                    leading, trailing = len(token) - len(token.lstrip(b" ")), len(token) - len(token.rstrip(b" "))
                    if leading and kind == "prefix" and (place == 0 or begin == 0):
                        leading -= 1
                    begin = min(begin + leading, end)
                    offsets[place] = begin, max(end - trailing, begin) if trailing <= end else end


@functools.cache
def _keep_copies_apart() -> None:
    """Have copy.copy() give the copy of an accelerated tokenizer an engine of its own."""
    from transformers import PreTrainedTokenizerFast

    def copied(tokenizer: Any) -> Any:
        copy = object.__new__(type(tokenizer))
        vars(copy).update(vars(tokenizer))
        if isinstance(encode := vars(copy).get("_encode_plus"), _Encode):
            engine = _Engine(copy)
            vars(engine).update(vars(encode.engine) | {"tokenizer": copy})
            engine.attach()
        return copy

    setattr(PreTrainedTokenizerFast, "__copy__", copied)  # noqa: B010 (a class that declares no such method)


class _Encode:
    """Replace a tokenizer's _encode_plus()."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine

    def __call__(self, text: Any = None, text_pair: Any = None, *more: Any, **options: Any) -> Any:
        tokenizer = self.engine.tokenizer
        request = None if more or text_pair is not None else _Request.of(tokenizer, text, options)
        if request is None or self.engine.current() is None or (request.types and self.engine.has_types):
            return type(tokenizer)._encode_plus(tokenizer, text, text_pair, *more, **options)
        plain_rows = self.engine.encode(request.texts)
        places = self.engine.offsets(request.texts, plain_rows) if request.offsets and plain_rows is not None else None
        rows = None if plain_rows is None or (request.offsets and places is None) else self._around(plain_rows, request)
        if rows is None:
            return type(tokenizer)._encode_plus(tokenizer, text, **options)
        tokenizer.set_truncation_and_padding(
            padding_strategy=request.padding,
            truncation_strategy=request.truncation,
            max_length=request.max_length,
            stride=0,
            pad_to_multiple_of=request.multiple,
            padding_side=request.padding_side,
        )
        if tokenizer._tokenizer.encode_special_tokens:
            tokenizer._tokenizer.encode_special_tokens = False
        spans = None if places is None or plain_rows is None else self._offsets_around(plain_rows, places, request)
        if request.single and not request.fills and spans is None:
            data = _lists_of_one(rows[0], request)
        else:
            data = _filled(rows, request, tokenizer, spans)
        for ids in [data["input_ids"]] if request.single else data["input_ids"]:
            tokenizer._eventual_warn_about_too_long_sequence(ids, request.max_length, request.verbose)
        batch = _names().BatchEncoding(None, Encodings(tokenizer, text, options), n_sequences=1)
        batch.data = data  # as an argument it would be copied key by key, which takes as long as a few tokens
        return batch.convert_to_tensors(request.tensors)

    def _around(self, plain_rows: list[NDArray[np.uint32]], request: _Request) -> list[NDArray[np.uint32]] | None:
        """Cut the ids of each text, and put the special tokens around them. None where these alone are too many."""
        prefix, suffix = self.engine.prefix, self.engine.suffix
        added = len(prefix) + len(suffix) if request.special else 0
        if request.cut is not None:
            room = request.cut - added
            if room < 0 or (room == 0 and added == 0):
                return None
            plain_rows = [request.shortened(ids, room) for ids in plain_rows]
        return [np.concatenate([prefix, ids, suffix]) for ids in plain_rows] if added else plain_rows

    def _offsets_around(
        self, plain_rows: list[NDArray[np.uint32]], places: list[NDArray[np.int64]], request: _Request
    ) -> list[NDArray[np.int64]]:
        """The offsets of what _around() gives: (0, 0) for the special tokens around a text."""
        before, after = (len(ids) if request.special else 0 for ids in (self.engine.prefix, self.engine.suffix))
        spans = []
        for ids, offsets in zip(plain_rows, places, strict=True):
            if request.cut is not None:
                room = request.cut - before - after
                ids, offsets = request.shortened(ids, room), request.shortened(offsets, room)
            self.engine.trim(ids, offsets)
            spans.append(np.pad(offsets, ((before, after), (0, 0))))
        return spans


class _Request(NamedTuple):
    """A call that bpe answers: texts, each by itself, to ids that may be cut and filled up."""

    texts: Sequence[str]
    single: bool  # one text, whose lists come without a list around them
    special: bool  # whether special tokens are put around each
    padding: Any
    fills: bool  # whether padding fills up lists
    truncation: Any
    max_length: int | None
    cut: int | None  # to how many ids; None where nothing is cut
    truncation_side: str
    multiple: int | None
    padding_side: str | None
    tensors: Any
    types: bool  # which of the lists are wanted
    mask: bool
    offsets: bool
    length: bool
    verbose: bool

    @classmethod
    def of(cls, tokenizer: Any, text: Any, options: dict[str, Any]) -> _Request | None:
        """The call with these arguments; None where it is one for the original method."""
        TruncationStrategy, PaddingStrategy = _names().TruncationStrategy, _names().PaddingStrategy
        if tokenizer.split_special_tokens or any(map(options.get, OTHERWISE)):
            return None
        is_text = type(text) is str
        texts = [text] if is_text else text
        if not is_text and (type(texts) not in (list, tuple) or set(map(type, texts)) != {str}):
            return None
        truncation = options.get("truncation_strategy", TruncationStrategy.DO_NOT_TRUNCATE)
        padding = options.get("padding_strategy", PaddingStrategy.DO_NOT_PAD)
        max_length, tensors = options.get("max_length"), options.get("return_tensors")
        if tensors is not None and options.get("return_offsets_mapping"):
            return None
        cuts, fills = truncation != TruncationStrategy.DO_NOT_TRUNCATE, padding != PaddingStrategy.DO_NOT_PAD
        if cuts and (truncation == TruncationStrategy.ONLY_SECOND or type(max_length) is not int):
            return None
        if fills and tokenizer.pad_token_id is None:
            return None
        side = options.get("padding_side")
        if side not in (None, "left", "right") or tokenizer.truncation_side not in ("left", "right"):
            return None
        types, mask = options.get("return_token_type_ids"), options.get("return_attention_mask")
        return cls(
            texts,
            is_text and tensors is None,
            options.get("add_special_tokens", True),
            padding,
            fills,
            truncation,
            max_length,
            max_length if cuts else None,
            tokenizer.truncation_side,
            options.get("pad_to_multiple_of"),
            side,
            tensors,
            "token_type_ids" in tokenizer.model_input_names if types is None else bool(types),
            "attention_mask" in tokenizer.model_input_names if mask is None else bool(mask),
            bool(options.get("return_offsets_mapping")),
            bool(options.get("return_length")),
            options.get("verbose", True),
        )

    def shortened(self, items: NDArray[Any], room: int) -> NDArray[Any]:
        """The items of a text of which no more than `room` are left, on the side that is not cut."""
        return items[max(0, len(items) - room) :] if self.truncation_side == "left" else items[:room]


def _lists_of_one(ids: NDArray[np.uint32], request: _Request) -> dict[str, Any]:
    """The lists of a BatchEncoding of one text, which nothing is filled into: as _filled() makes them, and faster."""
    data = {"input_ids": ids.tolist()}
    if request.types:
        data["token_type_ids"] = [0] * len(ids)
    if request.mask:
        data["attention_mask"] = [1] * len(ids)
    if request.length:
        data["length"] = [len(ids)]
    return data


def _filled(
    rows: list[NDArray[np.uint32]], request: _Request, tokenizer: Any, spans: list[NDArray[np.int64]] | None
) -> dict[str, Any]:
    """The lists of a BatchEncoding, filled up to one length if that was asked for; arrays, where tensors are wanted."""
    sizes = full = [len(row) for row in rows]
    pad = 0  # what is filled in, if anything is: pad_token_id takes as long to find as ten tokens
    if request.fills:
        pad, full = tokenizer.pad_token_id, _full_sizes(sizes, request)
    at_left = (request.padding_side or tokenizer.padding_side) == "left"
    as_array = request.tensors is not None and len(set(full)) == 1 and full[0] > 0
    as_tensor = _torch().from_numpy if as_array and request.tensors == "pt" and _torch() else None

    def filled(parts: Sequence[Any], fill: int) -> Any:
        """Each part in its place; `parts` are arrays, or one number for all of a text's."""
        if as_array:
            out = np.full((len(rows), full[0]), fill, dtype=np.int64)
            for i, (part, size) in enumerate(zip(parts, sizes, strict=True)):
                out[i, full[0] - size if at_left else 0 : full[0] if at_left else size] = part
            return as_tensor(out) if as_tensor else out
        lists = [[part] * size if type(part) is int else part.tolist() for part, size in zip(parts, sizes, strict=True)]
        if full is not sizes:
            more = [[fill] * (whole - size) for whole, size in zip(full, sizes, strict=True)]
            pairs = zip(more, lists, strict=True) if at_left else zip(lists, more, strict=True)
            lists = [first + second for first, second in pairs]
        return lists

    data = {"input_ids": filled(rows, pad)}
    if request.types:
        data["token_type_ids"] = filled([0] * len(rows), tokenizer.pad_token_type_id)
    if request.mask:
        data["attention_mask"] = filled([1] * len(rows), 0)
    if spans is not None:
        pairs = [[(begin, end) for begin, end in offsets.tolist()] for offsets in spans]
        more = [[(0, 0)] * (whole - size) for whole, size in zip(full, sizes, strict=True)]
        both = zip(more, pairs, strict=True) if at_left else zip(pairs, more, strict=True)
        data["offset_mapping"] = [first + second for first, second in both]
    if request.length:
        data["length"] = full
    if request.single:
        return {key: value[0] if isinstance(value[0], list) else value for key, value in data.items()}
    return data


def _full_sizes(sizes: list[int], request: _Request) -> list[int]:
    """Return the number of ids of each text after padding."""
    is_fixed = request.padding == _names().PaddingStrategy.MAX_LENGTH and request.max_length is not None
    size = request.max_length if is_fixed and request.max_length is not None else max(sizes)
    if request.multiple and size % request.multiple:
        size += request.multiple - size % request.multiple
    return [max(one, size) for one in sizes]


class _Decode:
    """Replace a tokenizer's _decode()."""

    def __init__(self, engine: _Engine) -> None:
        self.engine = engine

    def __call__(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **more: Any,
    ) -> str:
        engine = self.engine
        cleans = clean_up_tokenization_spaces
        if not (engine.tokenizer.clean_up_tokenization_spaces if cleans is None else cleans):
            ids = [token_ids] if type(token_ids) is int else token_ids
            if type(ids) is list and engine.current() is not None and engine.decoder is not None:
                if skip_special_tokens:
                    ids = [number for number in ids if number not in engine.special_ids]
                with suppress(KeyError, OverflowError, TypeError):  # the backend leaves out some, or says what is wrong
                    return engine.decoder.decode(ids).decode("utf-8", "replace")
        original: str = type(engine.tokenizer)._decode(
            engine.tokenizer, token_ids, skip_special_tokens, clean_up_tokenization_spaces, **more
        )
        return original


@functools.cache
def _names() -> Any:
    """Names that every call needs, without the time of an import statement."""
    from types import SimpleNamespace

    from transformers import BatchEncoding
    from transformers.tokenization_utils_base import TruncationStrategy
    from transformers.utils.generic import PaddingStrategy

    names = {"TruncationStrategy": TruncationStrategy, "PaddingStrategy": PaddingStrategy}
    return SimpleNamespace(BatchEncoding=BatchEncoding, **names)


@functools.cache
def _torch() -> Any:
    """torch, where transformers makes tensors of it, else None."""
    from transformers.utils.import_utils import is_torch_available

    if not is_torch_available():
        return None
    import torch

    return torch
