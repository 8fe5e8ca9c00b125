"""Corpora as their publishers serve them: where they are, in what form, and what of them is held out."""

from __future__ import annotations

from dataclasses import dataclass

from lm.config import did_you_mean
from lm.data.hub import HubFile, dataset_commit, dataset_files


@dataclass(frozen=True)
class Corpus:
    """A published corpus: a dataset on the Hub, or one text at an address."""

    repo: str = ""  # on the Hub
    train: str = ""  # a pattern of the paths of its files there, which begins with their folder
    heldout: str = ""  # likewise; empty: documents are held out by their hash
    url: str = ""  # of a corpus that is one text, whose end is held out
    key: str = "text"  # of the text in JSON lines and Parquet
    command: str = ""  # of `lm data` that encodes its rows: chat, preferences or prompts; empty: it is text


PART = r"\d+-of-\d+[\w-]*\.parquet"  # the end of a file's name, with a hash in some
CORPORA = {
    # 2.2 GB of short stories written by GPT-4 (Eldan and Li 2023)
    "tinystories": Corpus("roneneldan/TinyStories", r"TinyStoriesV2-GPT4-train\.txt", r"TinyStoriesV2-GPT4-valid\.txt"),
    # 40 GB of pages that Reddit linked to (Gokaslan and Cohen 2019)
    "openwebtext": Corpus("Skylion007/openwebtext", r"plain_text/train-\d+-of-\d+\.parquet"),
    # 10 billion tokens of educational pages (Penedo et al. 2024)
    "fineweb-edu-10bt": Corpus("HuggingFaceFW/fineweb-edu", r"sample/10BT/\d+_\d+\.parquet"),
    # 627 billion tokens of web, code, books and papers, deduplicated (Soboleva et al. 2023)
    "slimpajama": Corpus(
        "cerebras/SlimPajama-627B",
        r"train/chunk\d+/example_train_\d+\.jsonl\.zst",
        r"validation/chunk\d+/example_holdout_\d+\.jsonl\.zst",
    ),
    # 1.1 MB of plays, the usual first text (Karpathy 2015)
    "shakespeare": Corpus(
        url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
    ),
    "smoltalk": Corpus("HuggingFaceTB/smoltalk", r"data/all/train-\d+-of-\d+\.parquet", command="chat"),
    "ultrachat": Corpus("HuggingFaceH4/ultrachat_200k", rf"data/train_sft-{PART}", command="chat"),
    "alpaca": Corpus("tatsu-lab/alpaca", rf"data/train-{PART}", command="chat"),
    "dolly": Corpus("databricks/databricks-dolly-15k", r"databricks-dolly-15k\.jsonl", command="chat"),
    "ultrafeedback": Corpus(
        "HuggingFaceH4/ultrafeedback_binarized", rf"data/train_prefs-{PART}", command="preferences"
    ),
    "gsm8k": Corpus("openai/gsm8k", r"main/train-\d+-of-\d+\.parquet", command="prompts"),
}


def corpus(name: str) -> Corpus:
    """The corpus of that name. ValueError: there is none."""
    if name not in CORPORA:
        raise ValueError(f"no corpus is named {name!r}{did_you_mean(name, CORPORA)}")
    return CORPORA[name]


def corpus_files(name: str, *, limit: int | None = None) -> list[HubFile]:
    """List the files of a corpus, the held-out ones first, at its newest commit.

    limit: bytes of training text. The files after those that hold as many are left out; of the held-out ones, those
    after a tenth as much.
    """
    source = corpus(name)
    if source.url:
        return [HubFile("", "", source.url, split="tail")]
    commit, files = dataset_commit(source.repo), list[HubFile]()
    for pattern, split in ((source.heldout, "heldout"), (source.train, "train" if source.heldout else "hash")):
        most = held_out_limit(limit) if split == "heldout" else limit
        size = 0
        for file in dataset_files(source.repo, commit, pattern, split) if pattern else ():
            if most is not None and size > most:
                break
            files.append(file)
            size += file.size or 0  # a compressed file holds more text than that, so the limit is reached
        if pattern and size == 0:
            raise ValueError(f"{source.repo} has no {pattern} at {commit[:12]}: its publisher has moved them")
    return files


def held_out_limit(limit: int | None) -> int | None:
    """Bytes of held-out text for a limit of training text: a tenth."""
    return None if limit is None else -(-limit // 10)
