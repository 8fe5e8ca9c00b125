"""`lm data`: token files of corpora, text, conversations, pairs and prompts; clean text from pages of the web."""

from __future__ import annotations

import argparse
import contextlib
import functools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lm.commands.cli import STOPPED, Commands, Ended, Parser, add

if TYPE_CHECKING:
    from lm.data.conversations import Kind
    from lm.data.prepare import Progress, Recipe

FIM = ("fim_spm_rate", "fim_tokens")  # options that go with --fim-rate


class Examples(NamedTuple):
    """A command that encodes examples to learn from."""

    kind: Kind
    settings: str  # of a run that learns them
    help: str
    line: str  # of a file


EXAMPLES = {
    "chat": Examples(
        "conversation",
        "sft --train.document_masking true --train.epochs 3",
        "encode conversations, whose assistant's part alone a model then learns",
        "{\"messages\": …}, or ShareGPT's, Alpaca's or trl's rows",
    ),
    "preferences": Examples(
        "pair",
        "dpo --train.document_masking true --train.epochs 3",
        "encode pairs of answers: a model learns to prefer the first",
        '{"prompt": …, "chosen": …, "rejected": …}',
    ),
    "prompts": Examples(
        "prompt",
        "grpo --train.reward REWARD --train.document_masking true --train.steps 100",
        "encode prompts, whose answers a model draws and rewards judge",
        '{"prompt": …} with other fields, as "answer" or "tests"',
    ),
}


def register(commands: Commands) -> None:
    names = "get, clean, prepare, chat, preferences, prompts, verify"
    parser = commands.add_parser("data", help=f"token files: {names}", description=__doc__.partition(": ")[2])
    parts = parser.add_subparsers(required=True, metavar=names.replace(", ", " | "))

    parser = add(parts, "get", get, "download a published corpus and encode it; the same command continues")
    corpora = "tinystories, openwebtext, fineweb-edu-10bt, slimpajama, shakespeare; and, to be encoded by `lm data "
    corpora += "chat`, `preferences` or `prompts` then: smoltalk, ultrachat, alpaca, dolly, ultrafeedback, gsm8k"
    parser.add_argument("corpus", metavar="CORPUS", help=corpora)
    recipe_arguments(parser, needs_tokenizer=False)

    parser = add(parts, "clean", clean, "text worth learning from, out of pages of the web or documents")
    parser.add_argument("files", metavar="FILE", nargs="+", help="HTML, WARC, text, JSON lines, Parquet; URLs of such")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the documents go, as Parquet")
    parser.add_argument("--key", default="text", help="where JSON lines and Parquet have the text (default: text)")
    parser.add_argument("--html", action="store_true", help="texts of JSON lines and Parquet are HTML too")
    parser.add_argument("--language", default="en", help="ISO 639-1 code, or any (default: en)")
    help = "gopher-quality, gopher-repetition, c4, fineweb (default: the first two)"
    usual = ("gopher-quality", "gopher-repetition")
    parser.add_argument("--filters", nargs="*", default=usual, metavar="FILTER", help=help)
    parser.add_argument("--like", nargs="+", default=(), metavar="FILE", help="texts as they should be, to classify by")
    parser.add_argument("--unlike", nargs="+", default=(), metavar="FILE", help="texts as they should not be")
    help = "texts; no document may have 12 words in a row of them"
    parser.add_argument("--benchmarks", nargs="+", default=(), metavar="FILE", help=help)
    parser.add_argument("--keep-duplicates", action="store_true", help="leave near duplicates in")
    parser.add_argument("--mask", action="store_true", help="mask e-mail and IP addresses, and phone numbers")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one for each processor)")

    parser = add(parts, "prepare", prepare, "encode text of your own; the same command continues")
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="text, JSON lines, Parquet, also compressed; a folder")
    recipe_arguments(parser)
    parser.add_argument("--key", default="text", help="where JSON lines and Parquet have the text (default: text)")

    for name, examples in EXAMPLES.items():
        parser = add(parts, name, functools.partial(encode_examples, name), examples.help)
        help = f"JSON lines or Parquet, or a folder, of {examples.line}"
        parser.add_argument("files", metavar="FILE", nargs="+", help=help)
        parser.add_argument("--tokenizer", required=True, help="the tokenizer of the model that learns them")
        parser.add_argument("--out", required=True, metavar="FOLDER", help="where the token files go")
        help = "held-out share of the examples, by hash (default: 0.05)"
        parser.add_argument("--heldout", type=float, default=0.05, metavar="SHARE", help=help)
        help = "tokens of a window (default: the context of the model beside the tokenizer)"
        parser.add_argument("--context", type=int, metavar="N", help=help)
        parser.add_argument("--end-of-text", metavar="NAME", help="token before each example (default: a usual one)")
        if name == "prompts":
            parser.add_argument("--prompt", default="prompt", metavar="KEY", help="where a line has it")

    parser = add(parts, "verify", verify, "read token files through: counts, hashes, ids, tokenizers; name all damage")
    parser.add_argument("folder", metavar="FOLDER", help="a folder of token files, or one")
    parser.add_argument("--tokenizer", help="the tokenizer that must have made them")
    parser.add_argument("--vocab-size", type=int, least=1, help="above every id (default: the tokenizer's)")


def recipe_arguments(parser: Parser, needs_tokenizer: bool = True) -> None:
    parser.add_argument("--tokenizer", required=needs_tokenizer, help="a tokenizer file, as `bpe train` writes it")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the token files go")
    help = "held-out share (default: 0.005 of the documents, by hash; the last 0.1 of a single text)"
    parser.add_argument("--heldout", type=float, metavar="SHARE", help=help)
    parser.add_argument("--end-of-text", metavar="NAME", help="the special token after each document")
    parser.add_argument("--shard-tokens", type=int, least=1, default=100_000_000, help="of a file (default: 1e8)")
    help = "share of documents cut to fill in the middle (default: 0)"
    parser.add_argument("--fim-rate", type=float, default=0.0, help=help)
    parser.add_argument("--fim-spm-rate", type=float, help="of those, share in the order SPM, not PSM (default: 0.5)")
    parser.add_argument("--fim-tokens", nargs=3, metavar=("PREFIX", "MIDDLE", "SUFFIX"), help="its special tokens")
    parser.add_argument("--limit-bytes", type=int, least=1, metavar="N", help="stop after N bytes of text to train on")
    parser.add_argument("--num-threads", type=int, least=1, help="threads (default: one for each processor)")
    parser.add_argument("--quiet", action="store_true", help="no live line")


def get(options: argparse.Namespace) -> None:
    from lm.data.corpora import corpus
    from lm.data.get import fetch
    from lm.data.get import get as get_corpus
    from lm.data.hub import Cancelled

    source, out = corpus(options.corpus), Path(options.out)
    if source.command:
        fetch(options.corpus, out, options.limit_bytes)
        rest = "--tokenizer TOKENIZER --out FOLDER" + " --prompt question" * (options.corpus == "gsm8k")
        print(f"{out}: the rows of {source.repo}; to encode it: lm data {source.command} {out} {rest}")
        return
    if options.tokenizer is None:
        raise ValueError(f"{options.corpus} is encoded as it comes: give --tokenizer")
    recipe, request = recipe_of(options, one_text=bool(source.url))
    request, threads = {"corpus": options.corpus, **request}, options.num_threads
    with encoding(options) as encoded:
        try:
            reached = get_corpus(options.corpus, recipe, out, request, encoded=encoded, num_threads=threads)
        except Cancelled:
            raise KeyboardInterrupt from None
    print(in_words(reached, options.out))


def clean(options: argparse.Namespace) -> None:
    from lm.data.clean import Recipe
    from lm.data.clean import clean as clean_files

    for path in (*options.files, *options.like, *options.unlike, *options.benchmarks):
        if "://" not in path and not Path(path).is_file():
            raise FileNotFoundError(f"there is no file {path}: name files")
    lists = {name: tuple(getattr(options, name)) for name in ("filters", "like", "unlike", "benchmarks")}
    language = None if options.language == "any" else options.language
    recipe = Recipe(language, **lists, keep_duplicates=options.keep_duplicates, mask=options.mask)
    reading = {"key": options.key, "html": options.html, "jobs": options.jobs}
    written, left_out = clean_files(options.files, options.out, recipe, **reading)
    print(f"{options.out}: {written:,} documents")
    print("left out: " + (", ".join(f"{reason} {n:,}" for reason, n in left_out.most_common()) or "none"))


def prepare(options: argparse.Namespace) -> None:
    from lm.data.documents import is_one_text
    from lm.data.prepare import prepare as prepare_texts
    from lm.data.rows import ENDINGS, files_in

    texts = list(map(str, files_in(options.texts, (".txt", ".md", *ENDINGS))))
    recipe, request = recipe_of(options, one_text=False)
    if options.heldout is None and len(texts) == 1 and is_one_text(texts[0], recipe.end_of_text.encode()):
        recipe, request = recipe_of(options, one_text=True)
    request, how = {"key": options.key, **request}, {"key": options.key, "num_threads": options.num_threads}
    with encoding(options) as encoded:
        reached = prepare_texts(texts, recipe, Path(options.out), request, report=encoded, **how)
    print(in_words(reached, options.out))


def encode_examples(command: str, options: argparse.Namespace) -> None:
    from lm.data import conversations
    from lm.interop.loading import chat_template
    from lm.tokenizer import load_tokenizer, read_text_config

    path, examples = Path(options.tokenizer), EXAMPLES[command]
    template = chat_template(load_tokenizer(path), read_text_config(path.parent), options.end_of_text)
    context = options.context or context_of(path.parent)
    if context is None:
        raise ValueError("the model's context is not known: give --context, or the tokenizer in the model's folder")
    more: dict[str, Any] = {"context_length": context, "end_of_text": options.end_of_text, "heldout": options.heldout}
    more |= {"key": options.prompt} if command == "prompts" else {}
    splits = conversations.prepare_rows(examples.kind, options.files, template, options.out, **more)
    for split, count in splits.counts.items():
        tokens = f", {count.tokens:,} tokens" if command == "chat" else ""
        if tokens and count.tokens:
            tokens += f", {count.learned / count.tokens:.0%} of them learned, {count.padding:,} padding"
        print(f"{options.out}/{split}: {count.examples:,} {examples.kind}s{tokens}")
    for key, reason in (
        (conversations.CUT, f"longer than {splits.window:,} tokens, and cut after the last answer that fits"),
        (conversations.TOO_LONG, f"left out, because they have no room in {splits.window:,} tokens"),
        (conversations.SILENT, "left out, because the assistant says nothing in them"),
        (conversations.ENDLESS, "learned without a token that ends an answer: put it inside of {% generation %}"),
    ):
        if splits.left_out[key]:
            print(f"{reason}: {splits.left_out[key]:,}")
    if command == "chat" and template.stop:
        print("the tokenizer has no special tokens that mark turns: they are marked in text (### user, ### end)")
    print(f"to learn them: lm train MODEL --data {options.out} --out RUN --train.objective {examples.settings}")


def context_of(folder: Path) -> int | None:
    """The context length of the run or the Hugging Face model in a folder, None where there is neither."""
    from lm.files import read_json
    from lm.training.run import is_run, read

    if is_run(folder):
        return read(folder).model.context_length
    about = read_json(folder / "config.json", missing_ok=True)
    length = about.get("max_position_embeddings", about.get("n_positions"))
    return length if isinstance(length, int) else None


def verify(options: argparse.Namespace) -> None:
    from lm.data.mixture import Tokens, finished, open_tokens, token_files
    from lm.tokenizer import load_tokenizer

    tokenizer = None if options.tokenizer is None else load_tokenizer(options.tokenizer)
    vocab_size = options.vocab_size or (None if tokenizer is None else tokenizer.n_vocab)
    path, damage, whole = Path(options.folder), list[str](), list[Tokens]()
    files = [path]
    if path.is_dir():
        if not finished(path):
            damage.append(f"{path} is not finished: the `lm data` command that began it goes on with it")
        files = [file for split in token_files(path, unfinished=True) for file in split]
    for file in files:
        try:
            tokens = open_tokens(file, verify=True)
        except (ValueError, OSError) as error:
            if not path.is_dir() and isinstance(error, FileNotFoundError):
                raise
            damage.append(str(error))
            continue
        whole.append(tokens)
        size = "" if tokens.bytes is None else f"  {tokens.bytes:>15,} bytes"
        about = f"highest id {tokens.highest:>6,}  sha256 {tokens.sha256[:16]}"
        print(f"{tokens.path}  {len(tokens):>15,} tokens{size}  {about}")
        if not file.with_suffix(".json").exists():
            damage.append(f"{file} has no {file.with_suffix('.json').name} to compare its ids to")
        if vocab_size is not None and (highest := tokens.highest or 0) >= vocab_size:
            damage.append(f"{file} holds token id {highest}, and the vocabulary ends at {vocab_size - 1}")
        if tokenizer is not None and tokens.tokenizer not in (None, tokenizer.fingerprint):
            damage.append(f"{file} was made by another tokenizer: encode the text with this one")
    if tokenizer is None and len(tokenizers := {tokens.tokenizer for tokens in whole}) > 1:
        damage.append(f"{path} holds files of {len(tokenizers)} tokenizers: encode all with one")
    if damage:
        raise Ended("\nlm: ".join(damage))
    print(f"{len(whole)} file{'s' if len(whole) > 1 else ''} hold: {sum(map(len, whole)):,} tokens")


def recipe_of(options: argparse.Namespace, *, one_text: bool) -> tuple[Recipe, dict[str, Any]]:
    """Return the recipe of the options, and a table of the settings that the result depends on."""
    from lm.data.corpora import held_out_limit
    from lm.data.infill import NAMES, FillInTheMiddle
    from lm.data.prepare import Recipe
    from lm.tokenizer import end_of_text_of, load_tokenizer

    share = options.heldout if options.heldout is not None else 0.1 if one_text else 0.005
    if not 0 <= share < 1:
        raise ValueError(f"--heldout is a share of the text, at least 0 and less than 1, got {share}")
    tokenizer = load_tokenizer(options.tokenizer)
    end = end_of_text_of(tokenizer, options.end_of_text)
    infill, fim = None, [name for name in FIM if getattr(options, name) is not None]
    if options.fim_rate:
        rates = {"rate": options.fim_rate} | ({"spm_rate": options.fim_spm_rate} if "fim_spm_rate" in fim else {})
        infill = FillInTheMiddle.of(tokenizer.special_tokens, options.fim_tokens or NAMES, **rates)
    elif fim:
        raise ValueError(f"--{fim[0].replace('_', '-')} has no effect without --fim-rate: leave it out")
    limit = options.limit_bytes
    recipe = Recipe(tokenizer, end, share, limit, held_out_limit(limit), infill, options.shard_tokens)
    request = {
        "tokenizer": tokenizer.fingerprint,
        "end_of_text": end,
        "heldout": share,
        "limit_bytes": limit,
        "shard_tokens": options.shard_tokens,
        "fill_in_the_middle": None if infill is None else vars(infill),
    }
    return recipe, request


@contextlib.contextmanager
def encoding(options: argparse.Namespace) -> Iterator[Any]:
    """A function that counts bytes on a live line; SIGTERM stops as Ctrl-C does, and the same command continues."""
    from lm.progress import progress_bar

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    hidden = options.quiet or not sys.stderr.isatty()
    try:
        with progress_bar("encode", None, "B", unit_scale=True, disable=hidden) as bar:
            yield bar.update
    except KeyboardInterrupt:
        raise Ended("stopped: the same command goes on from here", STOPPED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def in_words(reached: Progress, out: str) -> str:
    parts = [
        f"{count.tokens:,} tokens {name}, of {count.documents:,} document{'s' if count.documents != 1 else ''} and "
        f"{count.bytes:,} bytes ({count.bytes / count.tokens:.3f} a token)"
        for name, count in (("to train on", reached.train), ("held out", reached.heldout))
        if count.tokens
    ]
    if not reached.heldout.tokens:
        parts.append("nothing is held out: for that, ask for a larger --heldout")
    return f"{out}: {'; '.join(parts)}"
