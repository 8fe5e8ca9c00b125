"""SentencePiece's byte-pair encoding, as Llama 2 and llama2.c have it: pieces of text, spaces and all, and bytes for the rest.

It is another thing than byte-level BPE: characters, not bytes, are merged; a character that is no piece becomes its bytes,
which merge with nothing; every text gets a space in front. So that models which come with such a tokenizer can be used, this
reads tok.bin of llama2.c and the tokenizer.json that tokenizers has for it, and writes the latter.
"""

from __future__ import annotations

import codecs
import hashlib
import heapq
import itertools
import json
import os
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPACE = "▁"  # U+2581, which stands for a space in tokenizer.json
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
# Which parts of a text, between special tokens, get a space in front: "always" every one (tokenizers' Prepend), "each" every
# one without a space there already, "first" that of these which begins the text (its Metaspace), "never" none.
PREFIXES = ("always", "each", "first", "never")
CACHED = 1 << 16  # words


class PieceTokenizer:
    """pieces: the text of each id, a space as a space; byte_ids: the ids of the 256 bytes, whose pieces are not looked up;
    merges: {(left id, right id): (rank, id of both)}, the lowest rank first; special_tokens: {name: id}, no part of a text
    unless asked for. ValueError: what contradicts itself.
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
        apart = {*byte_ids, *self.special_tokens.values()}
        self._ids = {piece: number for number, piece in reversed(list(enumerate(pieces))) if number not in apart}
        self._bytes = [piece.encode() for piece in pieces]
        for value, number in enumerate(byte_ids):
            self._bytes[number] = bytes([value])
        # Where no piece goes on after a space, words can be encoded one by one, and remembered.
        self._by_words = not any(" " in piece.lstrip(" ") for piece in self._ids)
        self._word = re.compile(r" *[^ ]+| +" if self._by_words else r"(?s:.+)")
        self._known: dict[str, list[int]] = {}

    @classmethod
    def from_llama2c(cls, path: str | Path) -> PieceTokenizer:
        """From llama2.c's tok.bin: the longest length, then a score, a length and the text of each token. The best score merges
        first; ids 0, 1 and 2 are <unk>, <s> and </s>, the next 256 the bytes.
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
        order = sorted(range(259, len(pieces)), key=lambda number: (-scores[number], number))
        ids = {piece: number for number, piece in reversed(list(enumerate(pieces))) if number >= 259}
        merges = {}
        for rank, number in enumerate(order):
            piece = pieces[number]
            if ids[piece] != number:
                continue
            for cut in range(1, len(piece)):
                left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
                if left is not None and right is not None:
                    merges[left, right] = (rank, number)
        return cls(pieces, list(range(3, 259)), merges, {UNKNOWN: 0, BEGIN: 1, END: 2})

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
        path = Path(path)
        temporary = path.with_name(f".{path.name}.partial")
        try:
            temporary.write_text(json.dumps(self._to_json(), ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    to_huggingface = save

    def _to_json(self) -> dict[str, Any]:
        names = {number: name for name, number in self.special_tokens.items()}
        of_bytes = {number: f"<0x{value:02X}>" for value, number in enumerate(self.byte_ids)}
        spelled = [names.get(i) or of_bytes.get(i) or piece.replace(" ", SPACE) for i, piece in enumerate(self.pieces)]
        vocab: dict[str, int] = {}
        for number, text in enumerate(spelled):
            vocab.setdefault(text, number)
        merges = [pair for pair, _ in sorted(self.merges.items(), key=lambda item: (item[1][0], item[0]))]
        prepend = [{"type": "Prepend", "prepend": SPACE}] if self.prefix == "always" else []
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        meta = self.prefix in ("each", "first")
        when = "always" if self.prefix == "each" else self.prefix
        scheme = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": when, "split": False}
        strip = [] if self.prefix == "never" else [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
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

    @property
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
        """The ids of a text, <s> not among them. allowed_special: special tokens to recognise, "all" or by name."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a lone surrogate is no character
        refused = set(self.special_tokens) if disallowed_special == "all" else set(disallowed_special)
        allowed = set(self.special_tokens) if allowed_special == "all" else set(allowed_special)
        for name in sorted(refused - allowed):
            if name in text:
                raise ValueError(f"the text holds the special token {name!r}, which is not allowed here")
        ids: list[int] = []
        names = sorted(allowed & self.special_tokens.keys(), key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
        for place, part in enumerate(parts):
            if place % 2:
                ids.append(self.special_tokens[part])
            elif part:
                part = part.replace(SPACE, " ")
                asked = self.prefix == "each" or (self.prefix == "first" and place == 0)
                spaced = self.prefix == "always" or (asked and not part.startswith(" "))
                ids += self._encode(" " + part if spaced else part)
        return ids

    def encode_to_numpy(self, text: str | bytes, **special: Any) -> NDArray[np.uint32]:
        """As encode(), to an array."""
        return np.array(self.encode(text, **special), dtype=np.uint32)

    def encode_iterable(self, chunks: Iterable[str | bytes], *, allowed_special: Collection[str] = ()) -> Iterator[int]:
        """As encode() of the joined chunks, wherever they are cut, in memory for a word more than a chunk."""
        if allowed_special:
            raise ValueError("encode_iterable() recognises no special tokens: encode the text between them")
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held, begun = "", False
        for chunk in itertools.chain(chunks, [None]):
            text = chunk if isinstance(chunk, str) else decoder.decode(chunk or b"", final=chunk is None)
            if text and not begun:
                begun = True
                spaced = self.prefix == "always" or (self.prefix != "never" and text[0] not in (" ", SPACE))
                text = " " + text if spaced else text
            held += text.replace(SPACE, " ")
            cut = len(held) if chunk is None else self._last_cut(held)
            yield from self._encode(held[:cut])
            held = held[cut:]

    def _last_cut(self, text: str) -> int:
        """The last place where one word ends and the next begins; 0 where there is none."""
        if not self._by_words:
            return 0
        return next((i for i in range(len(text) - 1, 0, -1) if text[i] == " " != text[i - 1]), 0)

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self._word.findall(text):
            known = self._known.get(word)
            if known is None:
                known = self._merge(word)
                if len(self._known) < CACHED:
                    self._known[word] = known
            ids += known
        return ids

    def _merge(self, word: str) -> list[int]:
        """The ids of a word: its characters, then the best pair of neighbours merged until there is none."""
        ids: list[int] = []
        for character in word:
            number = self._ids.get(character)
            ids += [number] if number is not None else [self.byte_ids[byte] for byte in character.encode()]
        before, after = list(range(-1, len(ids) - 1)), [*range(1, len(ids)), -1]
        queue: list[tuple[int, int, int, int]] = []

        def offer(left: int) -> None:
            right = after[left] if left >= 0 else -1
            found = self.merges.get((ids[left], ids[right])) if right >= 0 else None
            if found is not None:
                heapq.heappush(queue, (found[0], left, ids[left], ids[right]))

        for left in range(len(ids) - 1):
            offer(left)
        while queue:
            _, left, was, beside = heapq.heappop(queue)
            right = after[left]
            if ids[left] != was or right < 0 or ids[right] != beside:
                continue  # one of the two has been merged with another since
            ids[left], ids[right] = self.merges[was, beside][1], -1
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            offer(left)
            offer(before[left])
        return [number for number in ids if number >= 0]

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
    """Ids to text as they come, as they follow a text: feed() gives what is certain, finish() what was held back."""

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, tokens: int | Iterable[int]) -> str:
        """The text that is certain after these ids: whole characters only."""
        ids = [tokens] if isinstance(tokens, int) else tokens
        return self._decoder.decode(self._tokenizer.decode_bytes(ids))

    def finish(self) -> str:
        """What is left: U+FFFD for a character that never ended."""
        return self._decoder.decode(b"", final=True)


def _prefix_of(file: dict[str, Any]) -> str:
    """Which parts of a text get a space in front, by normalizer and pre-tokenizer. ValueError: they do something else."""
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
