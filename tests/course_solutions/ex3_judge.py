"""A solution of the exercises of chapter 3."""

import bpe


def compression_ratio(tokenizer: bpe.Tokenizer, text: str) -> float:
    return len(text.encode()) / len(tokenizer.encode(text))


def unused_tokens(tokenizer: bpe.Tokenizer, text: str) -> list[int]:
    return sorted(set(tokenizer.vocab) - set(tokenizer.encode(text)))


def parts_of_characters(tokenizer: bpe.Tokenizer) -> list[int]:
    def whole(token: bytes) -> bool:
        return token.decode(errors="ignore").encode() == token

    return [number for number, token in sorted(tokenizer.vocab.items()) if not whole(token)]
