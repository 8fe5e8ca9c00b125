"""Write the tables that bpe's split patterns and normalizers go by, asked of the engines whose ids they promise.

    python packages/bpe/generate/expression_tables.py            # rewrites two files in packages/bpe/src/bpe
    python packages/bpe/generate/expression_tables.py --check    # exits 1 if one of them is out of date

expressions/unicode_sets.py: scripts, binary properties and case folding, as Oniguruma (in tokenizers) has them, and
what the steps of tokenizers that follow another Unicode take for digits and punctuation. Whether fancy-regex (in
tiktoken) agrees, packages/bpe/tests/test_expressions.py asks. General categories are in scanning/unicode.h.

encoding/normalizer_tables.py: what tokenizers' normalizers make of each character.

They are written as ruff formats them, so ruff is needed.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import regex
import regex._regex_core
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers
from unicode_tables import CATEGORIES, PACKAGE, write_or_check

EVERY = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ASSIGNED = "".join(chr(code) for code in EVERY if not regex.match(r"\p{Cn}|\p{Co}", chr(code)))
BINARY = [
    *("Alphabetic", "Uppercase", "Lowercase", "Emoji", "Emoji_Presentation", "Extended_Pictographic", "Ideographic"),
    *("Math", "Dash", "Hex_Digit", "Diacritic", "ID_Start", "ID_Continue", "XID_Start", "XID_Continue"),
    "Default_Ignorable_Code_Point",
]


def asked(expression: str, text: str = ASSIGNED) -> set[int]:
    """The characters of a text that Oniguruma matches; ValueError where it knows no such expression."""
    try:
        split = pre_tokenizers.Split(Regex(f"(?:{expression})+"), "removed", invert=True)
    except Exception as error:
        raise ValueError(str(error)) from None
    return {ord(character) for piece, _ in split.pre_tokenize_str(text) for character in piece}


def ranges(codes: set[int]) -> str:
    """First code point and how many follow it, in hexadecimal, for each range."""
    found: list[list[int]] = []
    for code in sorted(codes):
        if found and found[-1][0] + found[-1][1] + 1 == code:
            found[-1][1] += 1
        else:
            found.append([code, 0])
    return " ".join(f"{first:x}+{more:x}" if more else f"{first:x}" for first, more in found)


@functools.cache
def categories() -> dict[str, set[int]]:
    return {name: asked(rf"\p{{{name}}}") for name in CATEGORIES if name not in ("Cs", "Co", "Cn")}


def spelled(codes: set[int]) -> str:
    """The ranges of a set; general categories first, and at the end what it lacks of them, where that is shorter."""

    def text(names: list[str]) -> str:
        members = set().union(*(categories()[name] for name in names))
        lacking = "".join(f" -{word}" for word in ranges(members - codes).split())
        return f"{' '.join(names)} {ranges(codes - members)}{lacking}".strip()

    names: list[str] = []
    for name, members in categories().items():
        if members & codes and len(text([*names, name])) < len(text(names)):
            names.append(name)
    return text(names)


def runs(groups: Iterable[tuple[int, ...]]) -> str:
    """Groups of code points; those that follow one another, each a step of 1 or 2 on, by the first and their number."""
    words, remaining = [], set(groups)
    for group in sorted(remaining):
        if group not in remaining:
            continue
        longest: list[tuple[int, ...]] = []
        for step in (1, 2):
            run = [group]
            while (after := tuple(code + step for code in run[-1])) in remaining:
                run.append(after)
            longest = max(longest, run, key=len)
        remaining -= set(longest)
        word = "=".join(f"{code:x}" for code in group)
        if len(longest) > 1:
            word += f"+{len(longest) - 1:x}" + ("*2" if longest[1][0] - group[0] == 2 else "")
        words.append(word)
    return " ".join(words)


def script_names() -> dict[str, list[str]]:
    """The long name of every script of `regex`, which follows a later Unicode, with its short names."""
    names: dict[int, list[str]] = {}
    for name, number in regex._regex_core.PROPERTIES["SCRIPT"][1].items():
        names.setdefault(number, []).append(name.lower())
    return {found[0]: found[1:] for found in names.values()}


def scripts() -> tuple[dict[str, str], dict[str, str]]:
    sets: dict[str, str] = {}
    aliases: dict[str, str] = {}
    for name, others in script_names().items():
        if name == "unknown":
            continue
        try:
            found = asked(rf"\p{{{name}}}")
        except ValueError:
            continue  # newer than the engine
        if found:
            sets[name] = spelled(found)
            aliases |= dict.fromkeys(others, name)
    return sets, aliases


def orbits() -> list[tuple[int, ...]]:
    """The groups of characters that (?i) takes for one another."""
    cased = [
        code
        for code in EVERY
        if any(chr(code) != other for other in (chr(code).lower(), chr(code).upper(), chr(code).casefold()))
        or regex.fullmatch(r"[\p{Ll}\p{Lu}\p{Lt}\p{Changes_When_Casemapped}]", chr(code))
    ]
    text = "".join(map(chr, cased))
    # what folds to several characters is found among them too; those of one character are the groups
    found = {frozenset(one for one in asked(rf"(?i:[\x{{{code:X}}}])", text)) for code in cased}
    return [tuple(sorted(group)) for group in found if len(group) > 1]


def foldings() -> dict[str, str]:
    """The characters that (?i) of Oniguruma takes for several: the several, folded, and the characters."""
    found: dict[str, str] = {}
    for code in EVERY:
        folded = chr(code).casefold()
        if len(folded) > 1 and code in asked(f"(?i:{folded})", chr(code) + "\n"):
            found[folded] = found.get(folded, "") + chr(code)
    return found


def separated(step: pre_tokenizers.PreTokenizer) -> set[int]:
    """The characters that a step parts from a letter on both sides."""
    text = "a".join(map(chr, EVERY))
    return {ord(piece) for piece, _ in step.pre_tokenize_str(text) if len(piece) == 1 and piece != "a"}


def step_scripts() -> list[set[int]]:
    """What UnicodeScripts takes for one script, for each of them; what goes with any is in none."""
    step = pre_tokenizers.UnicodeScripts()
    text = "".join(chr(code) for code in EVERY if step.pre_tokenize_str(chr(code)))
    found: dict[str, set[int]] = {}  # by one character of each
    for begin in range(0, len(text), 4096):
        for run, _ in step.pre_tokenize_str(text[begin : begin + 4096]):
            same = next((one for one in found if len(step.pre_tokenize_str(one + run[0])) == 1), run[0])
            found.setdefault(same, set()).update(map(ord, run))
    return list(found.values())


def lowercase() -> dict[int, str]:
    """What Lowercase makes of every character that it changes."""
    step = normalizers.Lowercase()
    made = {code: step.normalize_str(chr(code)) for code in EVERY}
    return {code: text for code, text in made.items() if text != chr(code)}


def marks() -> set[int]:
    """What StripAccents takes away."""
    kept = set(map(ord, normalizers.StripAccents().normalize_str("".join(map(chr, EVERY)))))
    return set(EVERY) - kept


def nmt() -> tuple[set[int], set[int]]:
    """What Nmt takes away, and what it makes a space."""
    step = normalizers.Nmt()
    made = {code: step.normalize_str(chr(code)) for code in EVERY if regex.match(r"[\p{C}\p{Z}\p{M}\p{S}]", chr(code))}
    return {code for code, text in made.items() if not text}, {c for c, text in made.items() if text == " " != chr(c)}


def bert() -> tuple[set[int], set[int], set[int]]:
    """What BertNormalizer takes away, what it makes a space, and what it puts spaces around."""
    clean = normalizers.BertNormalizer(True, False, False, False)
    han = normalizers.BertNormalizer(False, True, False, False)
    made = {code: clean.normalize_str(chr(code)) for code in EVERY}
    around = {code for code in EVERY if code > 0x7F and len(han.normalize_str(chr(code))) == 3}
    return {c for c, text in made.items() if not text}, {c for c, text in made.items() if text == " " != chr(c)}, around


def bert_accents() -> set[int]:
    """What BertNormalizer takes for accents, once they stand apart."""
    step = normalizers.BertNormalizer(False, False, True, False)
    return {code for code in EVERY if not step.normalize_str(chr(code))}


def wrapped(text: str) -> str:
    """A string of words as lines of Python strings."""
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) > 108:
            lines.append(line)
            line = ""
        line += word + " "
    lines.append(line.rstrip())
    return "\n".join(f'    "{line}"' for line in lines)


def one(name: str, text: str) -> str:
    return f"{name} = (\n{wrapped(text)}\n)\n"


def table(name: str, entries: dict[str, str]) -> str:
    body = "".join(f'    "{key}": (\n{wrapped(text)}\n    ),\n' for key, text in entries.items())
    return f"{name} = {{\n{body}}}\n"


def sets_module() -> str:
    names, aliases = scripts()
    several = " ".join(
        "=".join(["".join(f"{ord(c):x}," for c in folded).rstrip(","), *(f"{ord(c):x}" for c in characters)])
        for folded, characters in sorted(foldings().items())
    )
    properties = {name.lower().replace("_", ""): spelled(asked(rf"\p{{{name}}}")) for name in BINARY}
    return f'''"""Generated by packages/bpe/generate/expression_tables.py from tokenizers {tokenizers.__version__}.

A set is a list of ranges: the first code point and, after a plus, how many more follow, in hexadecimal. Before them may
stand general categories, and after them, each with a minus, the ranges of these that it lacks. A group is a list of
code points; after a plus, how many more such groups follow, each one code point on, or two (*2).
"""

{table("SCRIPTS", names)}
{one("SCRIPT_ALIASES", " ".join(f"{short}={name}" for short, name in sorted(aliases.items())))}
{table("PROPERTIES", properties)}
# Characters that (?i) takes for one another, and texts that Oniguruma's takes for one character.
{one("FOLDED", runs(orbits()))}
{one("FOLDED_FROM_SEVERAL", several)}
# What the steps Digits and Punctuation of tokenizers take for a digit and a punctuation mark.
{one("STEP_DIGITS", spelled(separated(pre_tokenizers.Digits(individual_digits=True))))}
{one("STEP_PUNCTUATION", spelled(separated(pre_tokenizers.Punctuation())))}
# What the step UnicodeScripts takes for one script, for each of them; the rest goes with what stands before it.
{one("STEP_SCRIPTS", " / ".join(map(ranges, step_scripts())))}'''


def normalizer_module() -> str:
    lower = runs((code, *map(ord, text)) for code, text in lowercase().items())
    removed, spaces = nmt()
    bert_removed, bert_spaces, bert_around = bert()
    return f'''"""Generated by packages/bpe/generate/expression_tables.py from tokenizers {tokenizers.__version__}.

What its normalizers change, as sets and groups are written in expressions/unicode_sets.py; LOWERCASE: each character
and what it becomes.
"""

{one("LOWERCASE", lower)}
{one("ACCENTS", spelled(marks()))}
{one("NMT_REMOVED", spelled(removed))}
{one("NMT_SPACES", spelled(spaces))}
{one("BERT_REMOVED", spelled(bert_removed))}
{one("BERT_SPACES", spelled(bert_spaces))}
{one("BERT_SPACED", spelled(bert_around))}
{one("BERT_ACCENTS", spelled(bert_accents()))}'''


def formatted(path: Path, text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    tables = {
        PACKAGE / "encoding" / "normalizer_tables.py": normalizer_module(),
        PACKAGE / "expressions" / "unicode_sets.py": sets_module(),
    }
    sys.exit(write_or_check(__doc__, {path: formatted(path, text) for path, text in tables.items()}))
