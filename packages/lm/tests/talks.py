"""Conversations to learn from, and a tokenizer of bytes with the marks of turns."""

from __future__ import annotations

import json

TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "2+2? <|im_end|>"},
    {"role": "assistant", "content": "4 é"},
    {"role": "user", "content": "sure?"},
    {"role": "assistant", "content": "yes"},
]
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def tokenizer(special=MARKS):
    import bpe

    return bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=special)


def lines(path, *talks):
    path.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    return str(path)
