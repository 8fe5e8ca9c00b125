"""Fixtures that tests of several packages share."""

from __future__ import annotations

from collections.abc import Iterator

import chromium
import pytest


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    if chromium.PATH is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(chromium.NAMES)}; CHROMIUM names another)")
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Models this small are slower on several threads, and far slower where others use the cores too."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
