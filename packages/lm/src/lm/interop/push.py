"""An export sent to the Hugging Face Hub or a mirror (HF_ENDPOINT), by huggingface_hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lm.data.hub import endpoint, in_a_sentence, library


def push(path: str | Path, repo: str, *, private: bool = False, dry_run: bool = False) -> Iterator[str]:
    """Send an export to a model's repository, which is made if it is not there, in one commit.

    A file that the repository has already is not sent again, so that the same call continues one that was stopped.

    Args:
        path: The folder that to_huggingface() or to_peft() wrote, or a .gguf file, with its Modelfile.
        repo: OWNER/NAME. The token is HF_TOKEN, or that of `hf auth login`.
        private: Only its owners see a repository that is made.
        dry_run: Send nothing.

    Yields:
        A line for each file with its size, then the address of the commit.

    Raises:
        ValueError: `repo` is not OWNER/NAME.
        PermissionError, ConnectionError: The Hub refuses, or cannot be reached.
        MissingExtra: The package huggingface_hub is not installed.
    """
    if not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", repo):
        raise ValueError(f"expected a repository OWNER/NAME, got {repo!r}")
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    files = sorted(folder.iterdir()) if path.is_dir() else [path, *path.parent.glob(f"{path.stem}.Modelfile")]
    for file in files:
        yield f"{file.name}: {file.stat().st_size:,} bytes"
    if dry_run:
        return
    api = library().HfApi(endpoint=endpoint())
    with in_a_sentence(repo):
        api.create_repo(repo, private=private, exist_ok=True)
        names = [file.name for file in files]
        commit = api.upload_folder(repo_id=repo, folder_path=folder, allow_patterns=names, commit_message="lm export")
    yield str(commit.commit_url)
