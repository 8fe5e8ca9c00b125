"""Checks of the exercises of chapter 11; their texts stand here, nothing is downloaded."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from itertools import combinations, pairwise
from typing import Any

from grading import NOT_WRITTEN, Wrong, drawing, same, shown

PAGE = """<html><head><title>A  page</title><style>p { color: red }</style>
<script>var x = "<p>not text</p>";</script></head><body><h1>Tom &amp; Jerry</h1>
<p>One   line
of <b>text</b>.</p><ul><li>first</li><li>second &lt;3</li></ul>left<br>right<table>
<tr>cell</tr></table></body></html>"""
SHOWN = "A page\nTom & Jerry\nOne line of text.\nfirst\nsecond <3\nleft\nright\ncell"
LANGUAGES = {
    "en": "the quick brown fox jumps over the lazy dog and then it goes to the river where the water is cold and deep",
    "de": "der schnelle braune fuchs springt über den faulen hund geht dann zum fluss wo das wasser kalt und tief ist",
    "fr": "le renard brun et rapide saute par dessus le chien paresseux et puis il va à la rivière où l'eau est froide",
}


def extract_text(yours: Callable[..., Any]) -> None:
    for page, right, hint in (
        (PAGE, SHOWN, "Look at what stands in script and style, at entities, and where lines begin."),
        ("<p>a</p>b", "a\nb", "The end of a block begins a new line too."),
        ("<div>x<script>1</script>y</div>", "xy", "After the end of a script the page is shown again."),
        ("plain", "plain", ""),
        ("AT&T and R&D", "AT&T and R&D", "HTMLParser keeps back what may be half an entity until close()."),
        ("<p>ok</p>R&D", "ok\nR&D", "HTMLParser keeps back what may be half an entity until close()."),
        ("a</script>b", "ab", "An end tag without a beginning hides nothing, and shows nothing."),
        ("a<br/>b<BR>c</P>d", "a\nb\nc\nd", "Tags may be in upper case, or end in a slash."),
        ("x<!-- <p>no</p> -->y", "xy", "A comment is not shown."),
        ('<p title="a > b">c</p><a href="d">e</a>f', "c\nef", "Attributes are not shown; a link is within a line."),
        ("&amp;lt; &#233;&nbsp;&eacute;", "&lt; é é", "Entities become characters once; &nbsp; is white space."),
        ("<style>p</style><STYLE>q</STYLE>z", "z", "Look at what stands in script and style."),
        ("a<span>b</span>c <i>d</i>e", "abc de", "Only the tags of BLOCKS begin a line."),
        ("", "", ""),
    ):
        same(f"extract_text({shown(page)})", yours(page), right, hint)


def bigrams(yours: Callable[..., Any]) -> None:
    drawn = "".join(drawing("bigrams").choices("abcABCé ", k=60))
    for text in ("Aab aAB", "x", "", "ééé", " a ", "\na", drawn):
        right = Counter(a + b for a, b in pairwise(text.lower()))
        answer = yours(text)
        if answer is None:
            raise Wrong(f"bigrams returns None: {NOT_WRITTEN}.")
        same(f"bigrams({text!r})", dict(answer), dict(right), "Neighbours overlap: each character begins a pair.")


def classify(yours: Callable[..., Any]) -> None:
    profiles = {name: Counter(a + b for a, b in pairwise(text)) for name, text in LANGUAGES.items()}
    for text, right in (
        ("Where is the water?", "en"),
        ("Wo ist denn der Hund?", "de"),
        ("Où est la rivière, le chien?", "fr"),
        ("", "en"),
    ):
        same(f"classify({text!r}, …)", yours(text, profiles), right, "Add the logarithms over all bigrams of the text.")
    long = "wo ist der hund und wie kalt ist das wasser im fluss, the river? " * 40
    hint = "The product of so many probabilities is 0 for every class: add logarithms."
    same("classify(a text of 2,600 characters, …)", yours(long, profiles), "de", hint)
    two = f"{LANGUAGES['en']} " + "wo ist der hund und wie kalt ist das wasser " * 40
    same("classify(one line of English before 40 of German, …)", yours(two, profiles), "de", "All of the text counts.")
    hint = "Bigrams are in lower case, as those of the profiles."
    same("classify('LE CHIEN EST PARESSEUX', …)", yours("LE CHIEN EST PARESSEUX", profiles), "fr", hint)
    numbers = drawing("classify")
    letters = [Counter({a + b: numbers.randint(0, 40) for a in "abc" for b in "abc"}) for _ in range(4)]
    profiles = {f"class {i}": counts for i, counts in enumerate(letters)}
    for length in (3, 30, 800):
        text = "".join(numbers.choices("abc", k=length))
        scores = {name: score(text, profile) for name, profile in profiles.items()}
        hint = "The probability is (count + 1) / (sum + 1000)."
        likeliest = max(scores, key=lambda name: scores[name])
        same(f"classify({shown(text)}, {shown(profiles)})", yours(text, profiles), likeliest, hint)
    # the winner depends on the 1 that is added, on the 1000, and on how often a bigram occurs
    for text, counts in (
        ("ababab", {"a": {"ab": 30}, "b": {"ab": 20, "ba": 2}}),
        ("abab", {"a": {"ab": 30}, "b": {"ab": 9, "ba": 4}}),
        ("ababac", {"a": {"ab": 30}, "b": {"ac": 400}}),
        ("ab", {"a": {"ab": 2}, "b": {"ab": 4, "zz": 400}}),
        ("ab", {"a": {"ab": 2}, "b": {"ab": 4, "zz": 1500}}),
        ("ab", {"a": {"zz": 100}, "b": {"zz": 100}}),
        ("ab", {"a": {"ab": 1, "zz": 999}, "b": {}}),
        ("ab", {"a": {"ab": 1, "zz": 1000}, "b": {}}),
        ("ab", {"b": {}, "a": {"ab": 1, "zz": 998}}),
    ):
        profiles = {name: Counter(count) for name, count in counts.items()}
        scores = {name: score(text, profile) for name, profile in profiles.items()}
        hint = "The probability is (count + 1) / (sum + 1000); the first of equal classes wins."
        same(f"classify({text!r}, {counts})", yours(text, profiles), max(scores, key=scores.__getitem__), hint)


def score(text: str, profile: Counter[str]) -> float:
    total = sum(profile.values()) + 1000
    return sum(math.log((profile[a + b] + 1) / total) for a, b in pairwise(text.lower()))


def mask_emails(yours: Callable[..., Any]) -> None:
    mask = "|||EMAIL_ADDRESS|||"
    for text, right in (
        ("write to jane.doe+x@mail.example.com, or not", (f"write to {mask}, or not", 1)),
        ("a@b.org b_%c@d-e.co", (f"{mask} {mask}", 2)),
        ("no address: a@b, @c.de, a.b.c", ("no address: a@b, @c.de, a.b.c", 0)),
        ("a@b.c is none, a@b.cd is one.", (f"a@b.c is none, {mask} is one.", 1)),
        ("(x9@y8.info)", (f"({mask})", 1)),
        ("Jane.Doe@Example.COM", (mask, 1)),
        ("a@b.museum and a@b.technology.", (f"{mask} and {mask}.", 2)),
        ("a@b.c1 is none, nor a@b.1a.", ("a@b.c1 is none, nor a@b.1a.", 0)),
        ("x@localhost is none", ("x@localhost is none", 0)),
        (f"{mask} stood here, a@b.de too", (f"{mask} stood here, {mask} too", 1)),
        ("a@b.de, a@b.de", (f"{mask}, {mask}", 2)),
        ("a@b.de,c@d.org;e@f.net", (f"{mask},{mask};{mask}", 3)),
        ("UP_9%+-.low@a-b.c-d.Ef\nnext", (f"{mask}\nnext", 1)),
        ("", ("", 0)),
    ):
        hint = "The last label has two letters or more, and no digit. Marks that stood there before do not count."
        same(f"mask_emails({text!r})", yours(text), right, hint)


PHONE, IP = "|||PHONE_NUMBER|||", "|||IP_ADDRESS|||"


def mask_phone_numbers(yours: Callable[..., Any]) -> None:
    digits = "".join(drawing("mask_phone_numbers").choices("23456789", k=10))
    forms = ("2831823829", "(283)-182-3829", "(283) 182 3829", "283-182-3829", "283.182.3829", "283 182 3829")
    forms += (f"({digits[:3]}) {digits[3:6]}-{digits[6:]}",)
    for form in forms:
        same(f"mask_phone_numbers('call {form}!')", yours(f"call {form}!"), (f"call {PHONE}!", 1), "All forms count.")
    for text, right in (
        ("2831823829 or (283) 182-3829", (f"{PHONE} or {PHONE}", 2)),
        ("2831823829, 2831823829", (f"{PHONE}, {PHONE}", 2)),
        ("123456789 has nine digits", ("123456789 has nine digits", 0)),
        ("12345678901 has eleven, 1234567890123456 sixteen", ("12345678901 has eleven, 1234567890123456 sixteen", 0)),
        ("283-1823829x", (f"{PHONE}x", 1)),
        ("28-31-82-38-29 and 2831-823-829", ("28-31-82-38-29 and 2831-823-829", 0)),
        ("283--182-3829, (283).182-3829", ("283--182-3829, (283).182-3829", 0)),
        (f"{PHONE} is masked", (f"{PHONE} is masked", 0)),
        ("", ("", 0)),
    ):
        hint = "Ten digits, 3 + 3 + 4, with one blank, hyphen or dot between, or none; no digit before or behind."
        same(f"mask_phone_numbers({text!r})", yours(text), right, hint)


def mask_ips(yours: Callable[..., Any]) -> None:
    numbers = drawing("mask_ips")
    drawn = ".".join(str(numbers.randint(0, 255)) for _ in range(4))
    for text, right in (
        (f"from {drawn}", (f"from {IP}", 1)),
        ("192.0.2.146 and 0.0.0.0, 255.255.255.255.", (f"{IP} and {IP}, {IP}.", 3)),
        ("256.1.1.1 and 1.1.1.999", ("256.1.1.1 and 1.1.1.999", 0)),
        ("1.2.3 and 1.2.3.4.5", ("1.2.3 and 1.2.3.4.5", 0)),
        ("1-2-3-4, 1,2,3,4 and 1.2.3-4", ("1-2-3-4, 1,2,3,4 and 1.2.3-4", 0)),
        (f"{drawn}, {drawn}", (f"{IP}, {IP}", 2)),
        ("99.249.250.199:80", (f"{IP}:80", 1)),
        ("1234.5.6.7 and 5.6.7.1234", ("1234.5.6.7 and 5.6.7.1234", 0)),
        (f"{IP} is masked", (f"{IP} is masked", 0)),
        ("", ("", 0)),
    ):
        hint = "Four numbers from 0 to 255 with dots between, and neither a digit nor a dot with a digit beside them."
        same(f"mask_ips({text!r})", yours(text), right, hint)


RULES = "Words are text.split(), their mean length in characters, lines text.splitlines()."


def gopher_rules(yours: Callable[..., Any]) -> None:
    many = " ".join(["word"] * 60)
    for what, text, right in (
        ("60 words", many, []),
        ("49 words", " ".join(["word"] * 49), ["words"]),
        ("50 words", " ".join(["word"] * 50), []),
        ("100,000 words", " ".join(["word"] * 100_000), []),
        ("100,001 words", " ".join(["word"] * 100_001), ["words"]),
        ("60 words of 2 letters", " ".join(["it"] * 60), ["length"]),
        ("60 words of 3 letters", " ".join(["its"] * 60), []),
        ("60 words of 10 letters", " ".join(["characters"] * 60), []),
        ("60 words of 11 letters", " ".join(["charactersx"] * 60), ["length"]),
        ("10 lines, 3 with an ellipsis", "\n".join([many + "..."] * 3 + [many] * 7), []),
        ("10 lines, 4 with an ellipsis", "\n".join([many + "..."] * 4 + [many] * 6), ["ellipsis"]),
        ("60 words, 12 without a letter", " ".join(["word"] * 48 + ["1234"] * 12), []),
        ("60 words, 13 without a letter", " ".join(["word"] * 47 + ["1234"] * 13), ["letters"]),
        ("60 words with digits", " ".join(["w0rd"] * 60), []),
        ("10 numbers", "12345678901 " * 10, ["words", "length", "letters"]),
        ("40 words of 1 letter and 20 of 7", " ".join(["a"] * 40 + ["letters"] * 20), []),
        ("59 words of 10 letters and one of 11", " ".join(["characters"] * 59 + ["charactersx"]), ["length"]),
        ("59 words of 3 letters and one of 2", " ".join(["its"] * 59 + ["it"]), ["length"]),
        ("40 words of 3 letters and 20 of 30", " ".join(["its"] * 40 + ["x" * 30] * 20), ["length"]),
        ("3 lines, 1 with an ellipsis, each with CR and LF", (many + "\r\n") * 2 + many + "...\r\n", ["ellipsis"]),
        ("3 lines with an ellipsis inside", "\n".join([many + "... and on"] * 3), []),
        ("3 lines with two dots at the end", "\n".join([many + ".."] * 3), []),
        ("60 Greek words of 9 letters", " ".join(["γράμματα1"] * 60), []),
        ("60 words of 9 digits and a letter", " ".join(["123456789é"] * 60), []),
        ("60 words of 6 Japanese characters", " ".join(["日本語日本語"] * 60), []),
        ("60 words with tabs and line breaks between", many.replace(" ", "\t\n "), []),
    ):
        hint = f"{RULES} A bound itself is still allowed; a letter is str.isalpha, of any script."
        if right:
            hint = f"Here {' and '.join(right)} of the rules break. {hint}"
        same(f"gopher_rules(a text of {what})", yours(text), right, hint)
    # a mean over no words is left open, but is no error
    same("The first of gopher_rules(' ')", yours(" ")[:1], ["words"], RULES)


def unique_lines(yours: Callable[..., Any]) -> None:
    documents = ["menu\nfirst text\nmenu", "menu\nsecond text\nboth", "both\nthird", ""]
    right = ["first text", "second text", "third", ""]
    hint = "A line that occurs twice goes everywhere, from its first place too."
    same(f"unique_lines({documents})", yours(documents), right, hint)
    same("unique_lines(['a\\nb\\nc'])", yours(["a\nb\nc"]), ["a\nb\nc"])
    documents = ["a\n\nb", "c\na ", "A\n\n d"]
    hint = "Lines are the same character by character, or they are two; an empty line is a line."
    same(f"unique_lines({documents})", yours(documents), ["a\nb", "c\na ", "A\n d"], hint)
    same("unique_lines(['x\\nx', 'y'])", yours(["x\nx", "y"]), ["", "y"], "Twice in one document is twice.")
    many = [f"line {drawing('unique_lines').random()} {i}" for i in range(3000)]
    hint = "Different lines are kept: a hash needs enough bits."
    same("unique_lines(a document of 3,000 lines)", yours(["\n".join(many)]), ["\n".join(many)], hint)


def right_hash(text: str, seed: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest(), "little")


def shingles(yours: Callable[..., Any]) -> None:
    for text, n, right in (
        ("The cat, the CAT sat.", 2, {"the cat", "cat the", "cat sat"}),
        ("a b c", 3, {"a b c"}),
        ("a b c d", 3, {"a b c", "b c d"}),
        ("Two words", 5, {"two words"}),
        ("snake_case 42!", 1, {"snake_case", "42"}),
        ("Größe und ÉTÉ", 2, {"größe und", "und été"}),
        ("日本 語", 1, {"日本", "語"}),
        ("don't", 2, {"don t"}),
        ("a  b\nc", 2, {"a b", "b c"}),
    ):
        same(f"shingles({text!r}, {n})", yours(text, n), right, r"Words are \w+ in lower case, of every script.")


def minhash(yours: Callable[..., Any]) -> None:
    drawn = {str(drawing("minhash").random()) for _ in range(9)} | {"drawn"}
    for words, count in (({"one", "two", "three"}, 5), ({"x"}, 1), (drawn, 33), ({"a b", "a c", "d a b"}, 9)):
        right = [min(right_hash(word, seed) for word in words) for seed in range(count)]
        same(f"minhash({sorted(words)}, {count})", yours(words, count), right, "The seeds are 0, 1, 2, …")


def candidates(yours: Callable[..., Any]) -> None:
    few = [[1, 2, 3, 4], [1, 2, 9, 9], [9, 9, 3, 4], [2, 1, 4, 3], [1, 7, 3, 8], [1, 2, 5, 5]]
    numbers = drawing("candidates")
    drawn = [numbers.choices((1, 2, 3), k=12) for _ in range(15)]
    digits = [[1, 23], [12, 3], [1, 2], [-1, -2]]  # alike as text, or to Python's hash
    for signatures, bands in ((few, 1), (few, 2), (few, 4), (drawn, 4), (drawn, 3), (digits, 1)):
        rows = len(signatures[0]) // bands
        cuts = [slice(at, at + rows) for at in range(0, bands * rows, rows)]
        pairs = {
            (i, j)
            for i, j in combinations(range(len(signatures)), 2)
            if any(signatures[i][cut] == signatures[j][cut] for cut in cuts)
        }
        hint = "A band is a part of the signature, compared as a whole, with the same part of the others."
        same(f"candidates({signatures}, {bands})", yours(signatures, bands), pairs, hint)


def near_duplicates(yours: Callable[..., Any]) -> None:
    numbers = drawing("near_duplicates")
    words = [f"word{i}" for i in range(400)]
    texts = [" ".join(numbers.choices(words, k=60)) for _ in range(6)]

    def changed(text: str, count: int) -> str:
        parts = text.split()
        for place in numbers.sample(range(len(parts)), count):
            parts[place] = "other"
        return " ".join(parts)

    chain = [texts[0]]
    for _ in range(3):
        chain.append(changed(chain[-1], 3))
    documents = [texts[1], *chain, texts[2], texts[1].upper() + "!", changed(texts[2], 30), texts[3], chain[0]]
    for n, threshold in ((1, 0.8), (3, 0.7), (3, 0.5)):
        sets = [words_of(text, n) for text in documents]
        first = list(range(len(documents)))
        changing = True
        while changing:  # every cluster has the index of its first document
            changing = False
            for i, j in combinations(range(len(documents)), 2):
                alike = len(sets[i] & sets[j]) / len(sets[i] | sets[j])
                if alike >= threshold and first[i] != first[j]:
                    first[i] = first[j] = min(first[i], first[j])
                    changing = True
        right = [i for i in range(len(documents)) if first[i] == i]
        call = f"near_duplicates(10 documents, 128, 64, {n}, {threshold})"
        hint = "Compare the shingles of every candidate; clusters join what is joined by others; the first one stays."
        same(call, yours(documents, 128, 64, n, threshold), right, hint)
    pair = ["a b c d", "a b c e"]  # 3 common shingles of 5
    same("near_duplicates of two texts at their similarity", yours(pair, 64, 64, 1, 0.6), [0], "≥, not >.")
    same("near_duplicates of two texts above their similarity", yours(pair, 64, 64, 1, 0.61), [0, 1])
    turned = ["a b c d", "d c b a"]
    same("near_duplicates of a text and the same words turned round", yours(turned, 64, 64, 2, 0.6), [0, 1], "n is 2.")
    joined = ["a b c x", "b c d y", "a b c d"]  # the third is like both others, which are not like each other
    hint = "The first and the second are joined by the third."
    same("near_duplicates of three texts in one cluster", yours(joined, 64, 64, 1, 0.6), [0], hint)
    far = "near_duplicates with one band of 64 hashes"
    same(far, yours(pair, 64, 1, 1, 0.6), [0, 1], "Only candidates are compared: documents that share a whole band.")


def words_of(text: str, n: int) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    11: {
        "extract_text": extract_text,
        "bigrams": bigrams,
        "classify": classify,
        "mask_emails": mask_emails,
        "mask_phone_numbers": mask_phone_numbers,
        "mask_ips": mask_ips,
        "gopher_rules": gopher_rules,
        "unique_lines": unique_lines,
        "shingles": shingles,
        "minhash": minhash,
        "candidates": candidates,
        "near_duplicates": near_duplicates,
    }
}
