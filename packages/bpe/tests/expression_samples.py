"""Expressions for the tests of bpe.expressions: the constructs of both languages, random ones, and the engines."""

from __future__ import annotations

import random
from collections.abc import Callable

import tiktoken
from tokenizers import Regex, pre_tokenizers

LANGUAGES = ("oniguruma", "fancy-regex")

# One character each: sets, escapes, properties, brackets. What a language does not know is refused in it.
# ruff: noqa: SIM905
ONE_CHARACTER = [
    *(rf"\{letter}" for letter in "wWdDsShHNOtnrfvae"),
    *(
        rf"\p{{{name}}}"
        for name in "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So".split()
    ),
    *(
        rf"\p{{{name}}}"
        for name in "Z Zs Zl Zp C Cc Cf Co Cn LC Han Latin Greek Cyrl Hiragana Katakana Thai Arab".split()
    ),
    *(
        rf"\p{{{name}}}"
        for name in "Alphabetic Uppercase Lowercase Any Assigned ASCII White_Space Emoji Common".split()
    ),
    *(rf"\p{{{name}}}" for name in "Alpha Alnum Blank Cntrl Digit Upper Lower Space Punct Word XDigit Graph".split()),
    *(
        r"\P{L}",
        r"\p{^L}",
        r"\P{^L}",
        r"\p{ upper case_letter }",
        r"\pL",
        r"\p{Script=Han}",
        r"\p{sc=Greek}",
        r"\p{gc=Nd}",
    ),
    *(
        f"[[:{name}:]]"
        for name in "alnum alpha ascii blank cntrl digit graph lower print punct space upper word".split()
    ),
    *r"[[:xdigit:]] [[:^alpha:]] [^[:punct:]] . (?s:.) (?m:.) [^\n] [a-f] [^a-f] []a] [^]a]".split(),
    *r"[a-] [-a] [\]\[] [$^.|] [a[bc]d] [a[^b]] [^[^a]] [\p{Lu}&&\p{Latin}] [^\p{Lu}&&\p{Latin}]".split(),
    *r"[a-z&&[aeiou]&&[^e]] [a&b] [a-z--[aeiou]] [a-z~~[x-~]] [\w&&[^\d]] [\h_] [\b] [\x{41}-\x{5A}]".split(),
    *r"\x41 \u0041 \u{41} \x{1F600} \U0001F600 \- \. \é é 世 😀 [\x{41}-\x{5A}]".split(),
    *r"(?i:s) (?i:k) (?i:é) (?i:σ) (?i:[a-k]) (?i:[^k]) (?i:\p{Lu}) (?i:[\p{Greek}&&\p{Lu}]) (?i:Ω)".split(),
]
REFUSED = [
    r"\X",
    r"\K",
    r"\G",
    r"\1",
    r"(a)\k<1>",
    "(?(1)a|b)",
    "(?~a)",
    "(?x)a b",
    r"\p{Nothing}",
    "[[:nothing:]]",
    "a**",
]
REFUSED += r"[b-a] ( ) [a *a \p{L a{2,1} (?=a)* (?z)a \ \x{110000} [a-\d] a{1,99999}".split()

LETTERS = "abAB1 \n\ts'k\r.-"
OTHERS = "é世ſKßΣ٣²\u0301\u200d\x85\u3000😀ǅ"


def theirs_oniguruma(expression: str) -> Callable[[str], list[str]] | None:
    """The matches of an expression as tokenizers isolates them; None where it refuses it."""
    try:
        split = pre_tokenizers.Split(Regex(expression), "isolated")
    except Exception:
        return None
    return lambda text: [piece for piece, _ in split.pre_tokenize_str(text)]


def matched_oniguruma(expression: str, text: str) -> set[str] | None:
    """The characters of a text that Oniguruma matches."""
    try:
        split = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    except Exception:
        return None
    return {character for piece, _ in split.pre_tokenize_str(text) for character in piece}


def theirs_fancy(expression: str) -> Callable[[str], bytes] | None:
    """The matches that tiktoken leaves of a text, one after another, each behind a byte 0xff."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    try:
        encoding = tiktoken.Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    except Exception:
        return None
    return lambda text: bytes(encoding.encode_ordinary(text))


def matched_fancy(expression: str, text: str) -> set[str] | None:
    """The characters of a text that fancy-regex matches."""
    actual = theirs_fancy(f"(?:{expression})+")
    return None if actual is None else set(actual(text).decode())


def random_expression(chance: random.Random, language: str, depth: int = 3) -> str:
    """An expression that most of the time is right."""

    def atom(depth: int) -> str:
        kind = chance.randrange(14)
        if kind < 4:
            return chance.choice("abAB1 s'k") + (chance.choice("abs") if chance.random() < 0.3 else "")
        if kind < 7:
            return chance.choice([r"\w", r"\d", r"\s", r"\p{L}", r"\p{N}", r"[^\s\p{L}]", r"\S", ".", r"\p{Lu}", r"\W"])
        if kind < 9:
            inner = "".join(
                chance.choice(["a-k", "A", "1", r"\s", r"\p{Lu}", "é", "'", r"[:alpha:]"]) for _ in range(2)
            )
            inner = inner.replace("[:alpha:]", "[[:alpha:]]")
            return f"[{chance.choice(['', '^'])}{inner}{chance.choice(['', '', '&&[^b]'])}]"
        if kind == 9 and depth:
            return f"(?i:{expression(depth - 1)})"
        if kind == 10 and depth:
            return f"{chance.choice(['(?:', '(', '(?>'])}{expression(depth - 1)})"
        if kind == 11:
            return chance.choice([r"(?!\S)", r"(?=\s)", r"\b", r"\B", "^", "$", r"(?<=a)", r"(?<!\s)", r"\z", r"\A"])
        if kind == 12 and depth:
            return f"{chance.choice(['(?=', '(?!'])}{expression(depth - 1)})"
        return chance.choice("ab1 ")

    def repeated(depth: int) -> str:
        part = atom(depth)
        if (
            chance.random() < 0.55
            or part[:3] in ("(?=", "(?!", "(?<")
            or part in (r"\b", r"\B", "^", "$", r"\z", r"\A")
        ):
            return part
        if len(part) > 1 and part[0] not in "\\[(.":
            part = f"(?:{part})"
        return part + chance.choice("* + ? + *? +? ?? ++ ?+ *+ {2} {1,3} {2,} {1,2}? {1,3}+".split())

    def expression(depth: int) -> str:
        branches = [
            "".join(repeated(depth) for _ in range(chance.randrange(1, 4))) for _ in range(chance.randrange(1, 4))
        ]
        return "|".join(branches)

    return expression(depth)


def random_text(chance: random.Random, longest: int = 24) -> str:
    """A text of few different characters."""
    letters = LETTERS if chance.random() < 0.5 else LETTERS + OTHERS
    return "".join(chance.choice(letters) for _ in range(chance.randrange(1, longest)))
