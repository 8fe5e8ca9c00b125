"""The speedrun: the fewest bits per byte of held-out text, learned in ten minutes on two cores (docs/speedrun.md).

nox -s bench -- speedrun run NAME …     run entries of speedrun.json in turns, score them, and rewrite the board
nox -s bench -- speedrun score FOLDER   score what an entry has left in a folder
python demo/speedrun.py --check         hold every row to the rules, and the board's page to the rows
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --check needs the standard library alone
    from corpus import Document, Split

ARCHIVE = "django-5.2.8.tar.gz"  # of PyPI: documentation in English and the Python that it describes, under BSD
SHA256 = "23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f"
SUFFIXES = (".txt", ".py")
SECONDS = 600.0
CORES = 2
SEEDS = (0, 1, 2)
FOLDER = Path("runs/speedrun")
ROWS = Path(__file__).with_name("speedrun.json")
PAGE = Path(__file__).parents[1] / "docs/speedrun.md"
BEGIN, END = "<!-- board -->\n", "<!-- end of board -->"


def main(arguments: list[str] | None = None) -> int:
    """Run, score or check; a broken rule is one sentence and status 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", nargs="?", choices=["run", "score"])
    parser.add_argument("names", nargs="*", help="run: names of entries; score: a folder")
    parser.add_argument("--check", action="store_true", help="check the rows and the page, and do nothing else")
    options = parser.parse_args(arguments)
    if not options.check and not (options.action and options.names):
        parser.error("expected `run NAME …`, `score FOLDER` or --check")
    try:
        if options.action == "run":
            run(options.names)
        elif options.action == "score":
            heldout = text().heldout
            for folder in options.names:
                print(f"{folder}: {bits_per_byte(Path(folder), heldout):.4f} bits per byte")
        else:
            check(read_rows(), PAGE.read_text(encoding="utf-8"))
    except (ValueError, FileNotFoundError) as error:
        print(f"speedrun: {error}", file=sys.stderr)
        return 1
    return 0


# The text


def text() -> Split:
    """Fetch the archive from PyPI by pip, unless it is there, and split its documents as the demo does."""
    from corpus import Document, split

    archive = FOLDER / ARCHIVE
    if not archive.exists():
        name, _, version = ARCHIVE.removesuffix(".tar.gz").partition("-")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", name]
        subprocess.run([*pip, "--dest", FOLDER, f"{name}=={version}"], check=True)
    if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
        raise ValueError(f"{archive} has SHA-256 {digest}, expected {SHA256}: remove it and run this again")
    documents = []
    with tarfile.open(archive) as members:
        for member in members:
            file = members.extractfile(member) if member.name.endswith(SUFFIXES) else None
            if file is not None and (content := file.read()).strip():
                with contextlib.suppress(UnicodeDecodeError):  # some files of Django's tests are meant not to be text
                    content.decode()
                    documents.append(Document(member.name, content))
    return split(sorted(documents, key=lambda document: document.name))


# Running an entry


def run(names: list[str]) -> None:
    """Run the entries in turns, seed by seed, and write their rows and the board."""
    from corpus import joined

    from lm.device import cpuinfo

    rows = read_rows()
    unknown = [name for name in names if name not in rows]
    if unknown:
        raise ValueError(f"no entry {unknown[0]!r} in {ROWS}: add its command there first")
    documents = text()
    train = FOLDER / "train.txt"
    train.write_bytes(joined(documents.train))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for seed in SEEDS:
        for name in names:
            out = FOLDER / f"{name}-{seed}"
            seconds = run_entry(rows[name]["command"].format(text=train, seed=seed, out=out))
            bits = bits_per_byte(out, documents.heldout)
            results[name].append({"seed": seed, "seconds": round(seconds, 1), "bits_per_byte": round(bits, 4)})
            print(f"{name}, seed {seed}: {seconds:.0f} s, {bits:.4f} bits per byte", flush=True)
    git = ["git", "rev-parse", "--short=10", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    where = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": commit, "machine": cpuinfo().get("model name", "?")}
    for name in names:
        rows[name] |= where | {"runs": results[name]}
    ROWS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    before, after = around_board(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + board(rows) + after, encoding="utf-8")


def run_entry(command: str) -> float:
    """Run a command on two cores; return its seconds.

    Raises:
        ValueError: It failed, or it was stopped because its time was over.
    """
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    began = time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": str(CORES)}
    arguments = [sys.executable if part == "python" else part for part in shlex.split(command)]
    with subprocess.Popen(
        ["taskset", "--cpu-list", ",".join(map(str, cores)), *arguments], env=environment, start_new_session=True
    ) as process:
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise ValueError(f"not done after {SECONDS:.0f} seconds: {command}") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it started ends with it, after Ctrl-C too
                os.killpg(process.pid, signal.SIGKILL)
    if status:
        raise ValueError(f"status {status}: {command}")
    return time.monotonic() - began


def bits_per_byte(folder: Path, documents: list[Document]) -> float:
    """Score the model that an entry has left, on every token of the held-out documents.

    A window moves by half of the model's context. The documents are separated as in the text to learn from; only
    their own tokens and bytes count (see Score.bits_per_byte).

    Raises:
        ValueError: The tokenizer does not give the text back.
    """
    import numpy as np
    from corpus import SEPARATOR, joined

    import bpe
    import lm
    from lm.data import describe

    tokenizer, model = bpe.load(folder / "tokenizer.json"), lm.load(folder)
    heldout, tokens = folder / "speedrun_heldout.txt", folder / "speedrun_heldout.npy"
    heldout.write_bytes(joined(documents))
    tokenizer.encode_file(heldout, tokens)
    size = sum(len(document.text) for document in documents)
    end_of_text = tokenizer.special_tokens.get(SEPARATOR)
    data = describe(tokens, tokenizer=tokenizer.fingerprint, text_bytes=size, end_of_text=end_of_text)
    if tokenizer.decode_bytes(np.load(tokens)) != heldout.read_bytes():
        raise ValueError(f"{folder / 'tokenizer.json'} does not give the held-out text back from its ids")
    score = lm.evaluate(model, data, stride=max(1, model.config.context_length // 2), progress=True)
    assert score.bits_per_byte is not None  # the bytes are in the description
    return score.bits_per_byte


# The board


def read_rows() -> dict[str, dict[str, Any]]:
    """Read the entries, by name."""
    rows: dict[str, dict[str, Any]] = json.loads(ROWS.read_text(encoding="utf-8"))
    return rows


def check(rows: dict[str, dict[str, Any]], page: str) -> None:
    """Hold rows to the rules and the page to the rows.

    Raises:
        ValueError: A row breaks a rule, or the page shows another board.
    """
    for name, row in rows.items():
        if missing := {"command", "date", "commit", "machine", "runs"} - set(row):
            raise ValueError(f"{name} lacks {', '.join(sorted(missing))}: `run {name}` writes its row")
        if [result["seed"] for result in row["runs"]] != list(SEEDS):
            raise ValueError(f"{name} takes the seeds {SEEDS}, each once, in this order")
        for result in row["runs"]:
            if not 0 < result["seconds"] <= SECONDS or not 0 < result["bits_per_byte"] < 8:
                raise ValueError(f"{name}: {result} is outside {SECONDS:.0f} seconds and 8 bits per byte")
    before, after = around_board(page)
    if page != before + board(rows) + after:
        raise ValueError(f"{PAGE} shows another board than {ROWS}: write\n{board(rows)}")


def around_board(page: str) -> tuple[str, str]:
    """Return a page up to its board, and after it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN, END + after


def board(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as a table, the best first."""

    def bits(row: dict[str, Any]) -> list[float]:
        return [result["bits_per_byte"] for result in row["runs"]]

    lines = ["| bits per byte | three seeds | entry | machine | date, commit |", "|---|---|---|---|---|"]
    for name, row in sorted(rows.items(), key=lambda item: mean(bits(item[1]))):
        seeds = ", ".join(f"{value:.4f}" for value in bits(row))
        lines.append(
            f"| **{mean(bits(row)):.4f}** | {seeds} | {name}: `{row['command']}` | {row['machine']} "
            f"| {row['date']}, {row['commit']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
