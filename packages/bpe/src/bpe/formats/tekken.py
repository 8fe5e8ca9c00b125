"""tekken.json, the byte-level vocabularies of Mistral: tokens by rank, as in tiktoken, behind the special tokens.

A file without a list of special tokens has the first Tekken's; special tokens without a name are placeholders.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from bpe.formats import TokenizerData, check_bytes, parse_json, refuse, without_collector
from bpe.formats.vocabulary import data_of_ranks
from bpe.native.atomic_file import StrPath
from bpe.patterns import resolve

MOST_TOKENS = 1 << 24  # a damaged file shall not fill the memory with placeholders
FIRST_SPECIAL_TOKENS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


@without_collector()
def parse(data: bytes, path: StrPath) -> TokenizerData:
    """Return the tokenizer of the bytes of a tekken.json; path is the name of the file in errors."""
    file = parse_json(data, path)
    try:
        config = file["config"]
        special_count, vocab_size = config["default_num_special_tokens"], config["default_vocab_size"]
        if not 0 <= special_count <= vocab_size <= MOST_TOKENS:
            refuse(path, f"{special_count} special tokens of {vocab_size} are more than there can be")
        pattern = resolve((config["pattern"],), "fancy-regex")
        special = _special_tokens(file.get("special_tokens"), special_count, path)
        ranks = {
            base64.b64decode(entry["token_bytes"], validate=True): special_count + entry["rank"]
            for entry in file["vocab"]
            if entry["rank"] < vocab_size - special_count
        }
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        refuse(path, f"not a tekken.json: {type(error).__name__} {error}")
    if len(ranks) != vocab_size - special_count:
        refuse(path, f"expected {vocab_size - special_count} tokens of different bytes, got {len(ranks)}")
    check_bytes(ranks, path)
    try:
        return data_of_ranks(ranks, special, pattern, "tekken")
    except (TypeError, ValueError) as error:
        refuse(path, str(error))


def _special_tokens(entries: list[dict[str, Any]] | None, count: int, path: StrPath) -> dict[str, int]:
    if entries is None:
        entries = [{"rank": rank, "token_str": text} for rank, text in enumerate(FIRST_SPECIAL_TOKENS)]
    texts = {entry["rank"]: entry["token_str"] for entry in entries}
    return {texts.get(rank, f"<SPECIAL_{rank}>"): rank for rank in range(count)}
