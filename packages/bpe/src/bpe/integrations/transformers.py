"""accelerate(): a tokenizer of transformers that encodes and decodes by bpe, in place, with the results it had.

Two methods are replaced, on this object alone: that of texts to ids, and that of ids to text. A call that bpe has no
exact answer for, such as one for offsets, goes to the method that was there. All else is done by its own backend.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bpe.encoding.decoder import Decoder
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
    *("is_split_into_words", "return_overflowing_tokens", "return_special_tokens_mask", "return_offsets_mapping"),
    *("split_special_tokens", "sanitize_control_tokens", "stride"),
)


def accelerate(tokenizer: AnyTokenizer) -> AnyTokenizer:
    """Make a fast tokenizer of transformers encode and decode by bpe, in place.

    Its class, its methods and their results stay as they are; pickles and copies of it are accelerated too. Offsets,
    pairs and texts that are split into words are done by the tokenizer's own backend, as before. Tokens may be added
    later: the next call then takes the time of reading the tokenizer again.

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
    """accelerate(), or the unchanged tokenizer if it is not supported."""
    with suppress(TypeError, ValueError):
        accelerate(tokenizer)
    return tokenizer


def patch_transformers() -> None:
    """Make transformers.AutoTokenizer.from_pretrained() give accelerated tokenizers, in the whole process.

    For programs that load their tokenizer themselves, such as servers. A second call changes nothing.
    """
    import transformers

    loader: Any = transformers.AutoTokenizer
    original = loader.from_pretrained
    if hasattr(original, "before_bpe"):
        return

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
        vars(self.tokenizer)["_encode_plus"], vars(self.tokenizer)["_decode"] = self.encode_plus, self.decode

    def read(self) -> None:
        """Read the tokenizer of the backend. ValueError where it is not supported."""
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
        self.special_ids = frozenset(ids.values())
        self.decoder = None
        if (file["decoder"] or {}).get("type") == "ByteLevel":  # the others change more than bytes
            added = (ids | data.added_tokens).items()
            self.decoder = Decoder({**data.vocab, **{n: from_printable(text) or text.encode() for text, n in added}})

    def current(self) -> Tokenizer | None:
        """The current tokenizer of the backend; None where it is not supported."""
        if self.state != state_of(self.tokenizer._tokenizer):
            with suppress(ValueError):
                self.read()
        return self.bpe

    def encode_plus(self, text: Any = None, text_pair: Any = None, *more: Any, **options: Any) -> Any:
        """Replace the tokenizer's _encode_plus()."""
        tokenizer = self.tokenizer
        rows = None if more or text_pair is not None else self.rows(text, options)
        if rows is None:
            return type(tokenizer)._encode_plus(tokenizer, text, text_pair, *more, **options)
        names, max_length = _names(), options.get("max_length")
        tokenizer.set_truncation_and_padding(
            padding_strategy=options.get("padding_strategy", names.DO_NOT_PAD),
            truncation_strategy=options.get("truncation_strategy", names.DO_NOT_TRUNCATE),
            max_length=max_length,
            stride=0,
            pad_to_multiple_of=options.get("pad_to_multiple_of"),
            padding_side=options.get("padding_side"),
        )
        if tokenizer._tokenizer.encode_special_tokens:
            tokenizer._tokenizer.encode_special_tokens = False
        data = _lists(rows, tokenizer, options)
        tensors, verbose = options.get("return_tensors"), options.get("verbose", True)
        for ids in data["input_ids"]:
            tokenizer._eventual_warn_about_too_long_sequence(ids, max_length, verbose)
        if type(text) is str and tensors is None:  # its lists come without a list around them
            data = {key: value[0] if key != "length" else value for key, value in data.items()}
        batch = names.BatchEncoding(None, Encodings(tokenizer, text, options), n_sequences=1)
        batch.data = data  # as an argument it would be copied key by key, which takes as long as a few tokens
        return batch.convert_to_tensors(tensors)

    def rows(self, text: Any, options: dict[str, Any]) -> list[NDArray[np.uint32]] | None:
        """The ids of each text of a call, cut, special tokens around them; None for a call of the original method."""
        tokenizer, names = self.tokenizer, _names()
        texts = [text] if type(text) is str else text
        truncation = options.get("truncation_strategy", names.DO_NOT_TRUNCATE)
        cuts, max_length = truncation != names.DO_NOT_TRUNCATE, cast(Any, options.get("max_length"))
        fills = options.get("padding_strategy", names.DO_NOT_PAD) != names.DO_NOT_PAD
        if (
            (type(texts) not in (list, tuple) or set(map(type, texts)) != {str})
            or (tokenizer.split_special_tokens or any(map(options.get, OTHERWISE)))
            or (cuts and (truncation == names.ONLY_SECOND or type(max_length) is not int))
            or (fills and tokenizer.pad_token_id is None)
            or (options.get("padding_side") not in (None, "left", "right"))
            or (tokenizer.truncation_side not in ("left", "right"))
            or (encoder := self.current()) is None
            or (self.has_types and _is_returned("token_type_ids", tokenizer, options))
        ):
            return None
        try:
            if len(texts) == 1:
                rows = [encoder.encode_to_numpy(texts[0], allowed_special="all")]
            else:
                rows = encoder.encode_batch_to_numpy(texts, num_threads=threads(), allowed_special="all")
        except UnicodeError:  # a lone surrogate, which the backend refuses
            return None
        added = len(self.prefix) + len(self.suffix) if options.get("add_special_tokens", True) else 0
        if cuts:
            room = max_length - added
            if room < 0 or (room == 0 and added == 0):  # the special tokens alone are too many
                return None
            at_left = tokenizer.truncation_side == "left"
            rows = [ids[max(0, len(ids) - room) :] if at_left else ids[:room] for ids in rows]
        return [np.concatenate([self.prefix, ids, self.suffix]) for ids in rows] if added else rows

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **more: Any,
    ) -> str:
        """Replace the tokenizer's _decode()."""
        tokenizer, cleans = self.tokenizer, clean_up_tokenization_spaces
        if not (tokenizer.clean_up_tokenization_spaces if cleans is None else cleans):
            ids = [token_ids] if type(token_ids) is int else token_ids
            if type(ids) is list and self.current() is not None and self.decoder is not None:
                if skip_special_tokens:
                    ids = [number for number in ids if number not in self.special_ids]
                with suppress(KeyError, OverflowError, TypeError):  # the backend leaves out some, or names the error
                    return self.decoder.decode(ids).decode("utf-8", "replace")
        original: str = type(tokenizer)._decode(tokenizer, token_ids, skip_special_tokens, cleans, **more)
        return original


@functools.cache
def _keep_copies_apart() -> None:
    """Have copy.copy() give the copy of an accelerated tokenizer an engine of its own."""
    from transformers import PreTrainedTokenizerFast

    def copied(tokenizer: Any) -> Any:
        copy = object.__new__(type(tokenizer))
        vars(copy).update(vars(tokenizer))
        original = getattr(vars(copy).get("_encode_plus"), "__self__", None)
        if isinstance(original, _Engine):
            engine = _Engine(copy)
            vars(engine).update(vars(original) | {"tokenizer": copy})
            engine.attach()
        return copy

    setattr(PreTrainedTokenizerFast, "__copy__", copied)  # noqa: B010 (a class that declares no such method)


def _is_returned(name: str, tokenizer: Any, options: dict[str, Any]) -> bool:
    """True if a call returns token_type_ids, or attention_mask."""
    option = options.get(f"return_{name}")
    return name in tokenizer.model_input_names if option is None else bool(option)


def _lists(rows: list[NDArray[np.uint32]], tokenizer: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The lists of a BatchEncoding, filled up to one length if padding asks for it; arrays if tensors are returned."""
    names, tensors = _names(), options.get("return_tensors")
    padding, side = options.get("padding_strategy", names.DO_NOT_PAD), options.get("padding_side")
    at_left = (side or tokenizer.padding_side) == "left"
    sizes = full = [len(row) for row in rows]
    pad = 0  # pad_token_id takes as long to find as ten tokens
    if padding != names.DO_NOT_PAD:
        max_length: Any = options.get("max_length")
        multiple: int = options.get("pad_to_multiple_of") or 1
        is_fixed = padding == names.MAX_LENGTH and max_length is not None
        size = -(-(max_length if is_fixed else max(sizes)) // multiple) * multiple
        pad, full = tokenizer.pad_token_id, [max(one, size) for one in sizes]
    as_array = tensors is not None and len(set(full)) == 1 and full[0] > 0

    def filled(parts: Sequence[Any], fill: int) -> Any:
        """Each part in its place; `parts` are arrays, or one number for all of a text's."""
        if as_array:
            out = np.full((len(rows), full[0]), fill, dtype=np.int64)
            for i, (part, size) in enumerate(zip(parts, sizes, strict=True)):
                out[i, full[0] - size if at_left else 0 : full[0] if at_left else size] = part
            return out
        lists = [[part] * size if type(part) is int else part.tolist() for part, size in zip(parts, sizes, strict=True)]
        if full is not sizes:
            more = [[fill] * (longest - size) for longest, size in zip(full, sizes, strict=True)]
            pairs = zip(more, lists, strict=True) if at_left else zip(lists, more, strict=True)
            lists = [first + second for first, second in pairs]
        return lists

    data = {"input_ids": filled(rows, pad)}
    if _is_returned("token_type_ids", tokenizer, options):
        data["token_type_ids"] = filled([0] * len(rows), tokenizer.pad_token_type_id)
    if _is_returned("attention_mask", tokenizer, options):
        data["attention_mask"] = filled([1] * len(rows), 0)
    if options.get("return_length"):
        data["length"] = full
    return data


@functools.cache
def _names() -> Any:
    """Names that every call needs, without the time of an import statement."""
    from transformers import tokenization_utils_base

    base: Any = tokenization_utils_base
    strategies = {**base.TruncationStrategy.__members__, **base.PaddingStrategy.__members__}
    return SimpleNamespace(BatchEncoding=base.BatchEncoding, **strategies)
