"""Special tokens: what begins a text, what ends one or a turn, by the names that tokenizers have for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The usual names of tokens that end a text, that begin one, and that end a turn of a conversation.
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "</s>", "<eos>")
BEGINS = ("<s>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<bos>")
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|EOT|>", "<end_of_turn>")


def end_of_text_of(tokenizer: Any, name: str | None = None) -> str:
    """The name of the special token that ends a document: `name`, or the first of END_OF_TEXT that there is."""
    special = tokenizer.special_tokens
    if name is not None:
        if name not in special:
            raise KeyError(f"the tokenizer has no special token {name!r}: it has {', '.join(special) or 'none'}")
        return name
    result = next((usual for usual in END_OF_TEXT if usual in special), None)
    if result is None:
        raise ValueError(f"the tokenizer has none of {', '.join(END_OF_TEXT)}: name a token with --end-of-text")
    return result


def prompt_ids(tokenizer: Any, text: str, end_of_text: int | None = None) -> list[int]:
    """The ids of a text to continue, begun as the tokenizer begins texts; of an empty one the end-of-text token."""
    special = tokenizer.special_tokens
    begin = next(([special[name]] for name in BEGINS if name in special), [])
    ids = list(tokenizer.encode(text, allowed_special="all"))
    if begin and ids[:1] != begin:
        ids = begin + ids
    if ids or end_of_text is not None:
        return ids or [int(end_of_text)]  # type: ignore[arg-type]
    return [special[name] for name in END_OF_TEXT if name in special][:1]


def stop_ids(tokenizer: Any, also: Iterable[int] = ()) -> list[int]:
    """The ids that end a text: of the tokens with the usual names, and `also` those that a model says of itself."""
    usual = {*END_OF_TEXT, *TURN_ENDS, *BEGINS}
    result = [int(number) for name, number in tokenizer.special_tokens.items() if name in usual]
    return list(dict.fromkeys([*result, *also]))
