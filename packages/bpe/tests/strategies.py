"""Text that is hostile to a byte-level tokenizer."""

import itertools
import random
from collections.abc import Sequence

from hypothesis import strategies as st

# The corner cases of the split patterns: contractions in both cases and with U+017F, the control characters that Python
# calls space and `regex` does not, spaces of one, two and three bytes, digits, marks, emoji with joiners and selectors,
# letters of each case and of none (o200k), slashes after line ends (o200k), and what is Han or kana to deepseek-v3
# beside what is not: letters, marks, punctuation, symbols and unassigned code points of both.
PIECES = [
    *["a", "b", "Z", "'", "'s", "'S", "'t", "'re", "'ve", "'m", "'ll", "'LL", "'d", "'\u017f", "''", " '"],
    *[" ", "  ", "   ", "\n", "\r\n", "\t", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\u1680"],
    *["1", "12", "1234", "\u0663", "\u00bd", "\u2167", "\u00e9", "e\u0301", "\u4e2d", "\u6587", "\u3042"],
    *["\u01c5", "\u0130", "/\n"],
    *["_", ".", "...", "!?", "<|", "|>", "<|endoftext|>", "\x00", "\U0001f600", "\U0001f468\u200d\U0001f469", "\u200b"],
    *["AB", "aB", "Ab", "\u00c9", "\u02b0", "\u0301", "\u0903", "\ufe0f", "\u2764\ufe0f", "'T", "'Re", "/", "\n/", "+"],
    *["\u30ab", "\u30fb", "\u30fc", "\u3040", "\u3099", "\u309b", "\u30a0", "\u9fa5", "\u9fa6", "\uac00", "\u3002"],
    *["\uff0c", "\x7f", "\ue000", "\u0378", "\U0001d7d8", "\u0e01\u0e34", "\u20ac"],
]
PRETOKENS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)

TEXTS = st.one_of(PRETOKENS, st.text(max_size=60), st.text(alphabet="ab \n'", max_size=200))

# Bytes that are nearly UTF-8: text with bytes changed, cut or thrown in, and bytes that are anything.
NEARLY_UTF8 = st.builds(
    lambda text, at, byte, drop: (
        (data := text.encode("utf-8", "surrogatepass"))[: at % (len(data) + 1)]
        + byte
        + data[at % (len(data) + 1) + drop :]
    ),
    TEXTS,
    st.integers(0, 300),
    st.binary(max_size=3),
    st.integers(0, 2),
)
DATA = st.one_of(NEARLY_UTF8, st.binary(max_size=200))


def corpus(seed: int, words: int = 4000) -> str:
    """Words of a Zipf-like distribution, with end-of-text tokens among them."""
    rng = random.Random(seed)
    names = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(200)]
    words_of_people = "the cat sat on the mat; the dog's dinner wasn't théirs"
    names += [*words_of_people.split(), "", "\n1234", "中文", "😀", ""]
    text = rng.choices(names, weights=[1 / (i + 1) for i in range(len(names))], k=words)
    return " ".join(word if rng.random() > 0.01 else "<|endoftext|>" for word in text)


def words_of(letters: str, sizes: Sequence[int], seed: int) -> list[str]:
    """Words of these sizes, of letters drawn at random."""
    text = "".join(random.Random(seed).choices(letters, k=sum(sizes)))
    ends = [*itertools.accumulate(sizes)]
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def fibonacci_word(size: int) -> str:
    """The word in which no part comes back at equal distances."""
    before, word = "b", "a"
    while len(word) < size:
        before, word = word, word + before
    return word[:size]


@st.composite
def long_texts(draw: st.DrawFn, largest: int = 700) -> str:
    """Runs, runs of changing lengths, periods, chance, and Fibonacci's word: what windows cut at the worst places."""
    size = draw(st.integers(60, largest // 2) | st.integers(60, largest))  # merging whole takes quadratic time
    chance = draw(st.randoms(use_true_random=False))
    kind = draw(st.sampled_from(["run", "runs", "period", "chance", "fibonacci"]))
    if kind == "run":
        text = draw(st.text("ab", max_size=3)) + "a" * size
    elif kind == "runs":
        text = "".join(chance.choice("ab") * chance.randrange(1, 90) for _ in range(size // 20))
    elif kind == "period":
        text = "".join(chance.choices("ab", k=chance.randrange(2, 80))) * size
    elif kind == "chance":
        text = "".join(chance.choices("abc", k=size))
    else:
        text = fibonacci_word(size + 50)[chance.randrange(50) :]
    return text[:size]


@st.composite
def growing_vocabularies(draw: st.DrawFn) -> tuple[dict[bytes, int], list[tuple[bytes, bytes]]]:
    """({token: id}, merges in any order), tokens joined from tokens, so that they double in length now and then."""
    tokens = [b"a", b"b", b"c"]
    merges = []
    for _ in range(draw(st.integers(1, 14))):
        left, right = draw(st.sampled_from(tokens[-4:])), draw(st.sampled_from(tokens[-4:]))
        if len(left + right) <= 300 and (left, right) not in merges:
            merges.append((left, right))
            tokens += [left + right] if left + right not in tokens else []
    everything = [*(bytes([byte]) for byte in range(256)), *tokens[3:]]
    chance = draw(st.randoms(use_true_random=False))
    chance.shuffle(everything)
    if draw(st.booleans()):
        chance.shuffle(merges)  # a token's halves may be made after it
    return {token: number for number, token in enumerate(everything)}, merges
