"""SentencePiece's byte-pair encoding, as Llama 2 and llama2.c have it: pieces of text, spaces and all, and bytes for
the rest.

It is another thing than byte-level BPE: characters, not bytes, are merged; a character that is no piece becomes its
bytes, which merge with nothing; every text gets a space in front. The package tokenizers encodes; what is here reads
tok.bin of llama2.c and the tokenizer.json of such models, and gives them the face of a bpe.Tokenizer.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import itertools
import json
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.extras import need
from lm.files import atomic_write

SPACE = "▁"  # U+2581, which stands for a space in tokenizer.json
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
# Which parts of a text, between special tokens, get a space in front: "always" every one (tokenizers' Prepend), "each"
# every one without a space there already, "first" that of these which begins the text (its Metaspace), "never" none.
PREFIXES = ("always", "each", "first", "never")


class PieceTokenizer:
    """A tokenizer of SentencePiece's kind.

    Args:
        pieces: The text of each id, a space as a space.
        byte_ids: The ids of the 256 bytes, whose pieces are not looked up.
        merges: {(left id, right id): (rank, id of both)}; the lowest rank is merged first.
        special_tokens: {name: id}; they are no part of a text unless asked for.
        prefix: Which parts of a text get a space in front, one of PREFIXES.

    Raises:
        ValueError: What contradicts itself.
    """

    def __init__(
        self,
        pieces: list[str],
        byte_ids: list[int],
        merges: Mapping[tuple[int, int], tuple[int, int]],
        special_tokens: Mapping[str, int],
        prefix: str = "always",
    ) -> None:
        if len(byte_ids) != 256:
            raise ValueError(f"{len(byte_ids)} of 256 bytes have a token: such a vocabulary cannot encode every text")
        if prefix not in PREFIXES:
            raise ValueError(f"prefix {prefix!r} is unknown: use one of {', '.join(PREFIXES)}")
        self.pieces, self.byte_ids, self.merges = pieces, byte_ids, dict(merges)
        self.special_tokens, self.prefix = dict(special_tokens), prefix
        self._bytes = [piece.encode() for piece in pieces]
        for value, number in enumerate(byte_ids):
            self._bytes[number] = bytes([value])
        apart = {*byte_ids, *self.special_tokens.values()}
        # Where no piece goes on after a space, a stream may be cut between two words.
        self._by_words = not any(" " in piece.lstrip(" ") for i, piece in enumerate(pieces) if i not in apart)
        self._encoders: dict[tuple[frozenset[str], str], Any] = {}

    @classmethod
    def from_llama2c(cls, path: str | Path) -> PieceTokenizer:
        """From llama2.c's tok.bin: the longest length, then a score, a length and the text of each token. The best
        score merges first; ids 0, 1 and 2 are <unk>, <s> and </s>, the next 256 the bytes.
        """
        data = Path(path).read_bytes()
        pieces, scores, at = list[str](), list[float](), 4
        try:
            while at < len(data):
                score, size = struct.unpack_from("<fi", data, at)
                text = data[at + 8 : at + 8 + size]
                if size < 0 or len(text) != size:
                    raise ValueError("it is cut short")
                pieces.append(text.decode())
                scores.append(score)
                at += 8 + size
            if [BYTE.fullmatch(piece) is not None for piece in pieces[3:259]] != [True] * 256:
                raise ValueError("its tokens 3 to 258 are not the 256 bytes")
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{path} is no tokenizer of llama2.c: {error}") from None
        pieces[:3] = UNKNOWN, BEGIN, END
        bytes_of = {value: 3 + value for value in range(256)}
        return cls.from_scores(pieces, scores, bytes_of, {UNKNOWN: 0, BEGIN: 1, END: 2})

    @classmethod
    def from_scores(
        cls,
        pieces: list[str],
        scores: Sequence[float],
        bytes_of: Mapping[int, int],
        special_tokens: Mapping[str, int],
        prefix: str = "always",
    ) -> PieceTokenizer:
        """From a score for each piece, as SentencePiece and GGUF keep them: the best score is merged first."""
        apart = {*bytes_of.values(), *special_tokens.values()}
        order = sorted((i for i in range(len(pieces)) if i not in apart), key=lambda i: (-scores[i], i))
        ids = {pieces[number]: number for number in reversed(range(len(pieces))) if number not in apart}
        merges = {}
        for rank, number in enumerate(order):
            piece = pieces[number]
            if ids[piece] != number:
                continue
            for cut in range(1, len(piece)):
                left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
                if left is not None and right is not None:
                    merges[left, right] = (rank, number)
        return cls(pieces, [bytes_of[value] for value in sorted(bytes_of)], merges, special_tokens, prefix)

    @classmethod
    def load(cls, path: str | Path) -> PieceTokenizer:
        """From a tokenizer.json with byte_fallback. ValueError names what in it is not supported."""
        try:
            file = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls._from_json(file)
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no tokenizer.json of this kind: {error!r}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def _from_json(cls, file: dict[str, Any]) -> PieceTokenizer:
        model, added = file["model"], file.get("added_tokens") or []
        if model.get("type", "BPE") != "BPE" or not model.get("byte_fallback"):
            raise ValueError("its model is no BPE with byte_fallback")
        for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
            if model.get(key):
                raise ValueError(f"{key} = {model[key]!r} is not supported")
        by_id = {number: text for text, number in model["vocab"].items()}
        by_id |= {token["id"]: token["content"] for token in added}
        if sorted(by_id) != list(range(len(by_id))):
            raise ValueError("its ids are not 0, 1, 2, …")
        spelled = [by_id[number] for number in range(len(by_id))]
        bytes_of = {int(m[1], 16): i for i, text in enumerate(spelled) if (m := BYTE.fullmatch(text))}
        vocab, merges = model["vocab"], {}
        for rank, merge in enumerate(model["merges"]):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            merges[vocab[left], vocab[right]] = (rank, vocab[left + right])
        special = {token["content"]: token["id"] for token in added}
        pieces = [text if text in special else text.replace(SPACE, " ") for text in spelled]
        return cls(pieces, [bytes_of[value] for value in sorted(bytes_of)], merges, special, _prefix_of(file))

    def save(self, path: str | Path) -> None:
        """Writes a tokenizer.json, whole or not at all, that load() reads and tokenizers encodes alike with."""
        atomic_write(Path(path), json.dumps(self._to_json(), ensure_ascii=False) + "\n")

    to_huggingface = save

    def _to_json(self, prefix: str | None = None) -> dict[str, Any]:
        prefix = prefix or self.prefix
        names = {number: name for name, number in self.special_tokens.items()}
        of_bytes = {number: f"<0x{value:02X}>" for value, number in enumerate(self.byte_ids)}
        spelled = [names.get(i) or of_bytes.get(i) or piece.replace(" ", SPACE) for i, piece in enumerate(self.pieces)]
        vocab: dict[str, int] = {}
        for number, text in enumerate(spelled):
            vocab.setdefault(text, number)
        merges = [pair for pair, _ in sorted(self.merges.items(), key=lambda item: (item[1][0], item[0]))]
        prepend = [{"type": "Prepend", "prepend": SPACE}] if prefix == "always" else []
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        meta = prefix in ("each", "first")
        when = "always" if prefix == "each" else prefix
        scheme = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": when, "split": False}
        strip = [] if prefix == "never" else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": i, "content": name, **plain}
                for name, i in sorted(self.special_tokens.items(), key=lambda item: item[1])
            ],
            "normalizer": None if meta else {"type": "Sequence", "normalizers": [*prepend, replace]},
            "pre_tokenizer": scheme if meta else None,
            "post_processor": self._template(),
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    *strip,
                ],
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": UNKNOWN if UNKNOWN in self.special_tokens else None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": vocab,
                "merges": [[spelled[left], spelled[right]] for left, right in merges],
            },
        }

    def _template(self) -> dict[str, Any] | None:
        """What puts <s> in front, where there is one."""
        if BEGIN not in self.special_tokens:
            return None

        def one(letter: str, kind: int) -> list[dict[str, Any]]:
            return [{"SpecialToken": {"id": BEGIN, "type_id": kind}}, {"Sequence": {"id": letter, "type_id": kind}}]

        begin = {"id": BEGIN, "ids": [self.special_tokens[BEGIN]], "tokens": [BEGIN]}
        return {
            "type": "TemplateProcessing",
            "single": one("A", 0),
            "pair": one("A", 0) + one("B", 1),
            "special_tokens": {BEGIN: begin},
        }

    @property
    def n_vocab(self) -> int:
        """How many ids there are."""
        return len(self.pieces)

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id."""
        return dict(enumerate(self._bytes))

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""
        return hashlib.sha256(json.dumps(self._to_json(), sort_keys=True).encode()).hexdigest()

    def encode(
        self,
        text: str | bytes,
        *,
        allowed_special: str | Collection[str] = (),
        disallowed_special: str | Collection[str] = (),
    ) -> list[int]:
        """The ids of a text, <s> not among them.

        Args:
            text: The text.
            allowed_special: Special tokens to recognise, "all" or by name; others are text.
            disallowed_special: Special tokens that the text may not hold, "all" or by name.

        Raises:
            ValueError: The text holds a token of disallowed_special.
        """
        return list(self._encoding(text, allowed_special, disallowed_special).ids)

    def encode_with_offsets(
        self,
        text: str,
        *,
        allowed_special: str | Collection[str] = (),
        disallowed_special: str | Collection[str] = (),
    ) -> tuple[list[int], list[int]]:
        """As encode(), and the character at which each token begins."""
        encoding = self._encoding(text, allowed_special, disallowed_special)
        return list(encoding.ids), [begin for begin, _ in encoding.offsets]

    def _encoding(
        self, text: str | bytes, allowed_special: str | Collection[str], disallowed_special: str | Collection[str]
    ) -> Any:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a lone surrogate is no character
        refused = set(self.special_tokens) if disallowed_special == "all" else set(disallowed_special)
        allowed = set(self.special_tokens) if allowed_special == "all" else set(allowed_special)
        for name in sorted(refused - allowed):
            if name in text:
                raise ValueError(f"the text holds the special token {name!r}, which is not allowed here")
        names = frozenset(allowed & self.special_tokens.keys())
        return self._encoder(names, self.prefix).encode(text, add_special_tokens=False)

    def _encoder(self, names: frozenset[str], prefix: str) -> Any:
        """What encodes, with these special tokens and no others."""
        found = self._encoders.get((names, prefix))
        if found is None:
            tokenizers = need("tokenizers", "a tokenizer of SentencePiece's kind", "groundup-lm[text]")
            made = self._to_json(prefix)
            made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] in names]
            made["post_processor"] = None
            found = self._encoders[names, prefix] = tokenizers.Tokenizer.from_str(json.dumps(made))
        return found

    def encode_to_numpy(self, text: str | bytes, **special: Any) -> NDArray[np.uint32]:
        """As encode(), to an array."""
        return np.array(self.encode(text, **special), dtype=np.uint32)

    def encode_iterable(
        self,
        chunks: Iterable[str | bytes],
        *,
        allowed_special: Collection[str] = (),
        disallowed_special: Collection[str] = (),
    ) -> Iterator[int]:
        """As encode() of the joined chunks, wherever they are cut, in memory for a word more than a chunk."""
        if allowed_special or disallowed_special:
            raise ValueError("encode_iterable() looks for no special tokens: encode the text between them")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held, begun = "", False
        for chunk in itertools.chain(chunks, [None]):
            text = chunk if isinstance(chunk, str) else decoder.decode(chunk or b"", final=chunk is None)
            if text and not begun:
                begun = True
                spaced = self.prefix == "always" or (self.prefix != "never" and text[0] not in (" ", SPACE))
                text = " " + text if spaced else text
            held += text
            cut = len(held) if chunk is None else self._last_cut(held)
            yield from self._encoder(frozenset(), "never").encode(held[:cut], add_special_tokens=False).ids
            held = held[cut:]

    def _last_cut(self, text: str) -> int:
        """The last place where one word ends and the next begins; 0 where there is none."""
        if not self._by_words:
            return 0
        spaces = (" ", SPACE)
        return next((i for i in range(len(text) - 1, 0, -1) if text[i] in spaces and text[i - 1] not in spaces), 0)

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids, as they stand. KeyError: an unknown id."""
        try:
            return b"".join([self._bytes[number] for number in ids])
        except IndexError:
            raise KeyError(f"an id is unknown: they go from 0 to {len(self.pieces) - 1}") from None

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The text of ids, without special tokens and without the space that encode() puts in front."""
        special = set(self.special_tokens.values())
        text = self.decode_bytes(number for number in ids if number not in special).decode("utf-8", errors)
        return text[1:] if self.prefix != "never" and text.startswith(" ") else text

    def decode_stream(self) -> PieceStream:
        """A decoder to which ids are fed as they come, and which never gives part of a character."""
        return PieceStream(self)


class PieceStream:
    """Ids to text as they come, as they follow a text: step() gives what is certain, finish() what was held back."""

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, tokens: int | Iterable[int]) -> str:
        """The text that is certain after these ids: whole characters only."""
        ids = [tokens] if isinstance(tokens, int) else tokens
        return self._decoder.decode(self._tokenizer.decode_bytes(ids))

    def finish(self) -> str:
        """What is left: U+FFFD for a character that never ended."""
        return self._decoder.decode(b"", final=True)


def _prefix_of(file: dict[str, Any]) -> str:
    """Which parts of a text get a space in front, by normalizer and pre-tokenizer.

    ValueError: they do something else.
    """
    steps = file.get("normalizer") or {"type": "Sequence", "normalizers": []}
    steps = steps["normalizers"] if steps["type"] == "Sequence" else [steps]
    kinds = [(step["type"], step.get("prepend") or step.get("content")) for step in steps]
    before = file.get("pre_tokenizer")
    if before is None and kinds in ([("Prepend", SPACE), ("Replace", SPACE)], [("Replace", SPACE)]):
        return "always" if len(kinds) == 2 else "never"
    if before is not None and not kinds and before["type"] == "Metaspace" and not before.get("split", True):
        scheme = {"always": "each", "first": "first", "never": "never"}.get(before.get("prepend_scheme", "always"))
        if before.get("replacement") == SPACE and scheme is not None:
            return scheme
    raise ValueError("its normalizer and pre-tokenizer are not those of Llama, and are not supported")
