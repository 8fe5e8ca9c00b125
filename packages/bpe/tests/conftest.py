"""Fixtures and settings of all tests of this package."""

from __future__ import annotations  # pytest.TerminalReporter is younger than the oldest pytest that is allowed

import os
import re
import signal
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import TEXT
from hypothesis import settings

from bpe.commands.main import main
from bpe.native import cpu

settings.register_profile("groundup", deadline=None, print_blob=True)  # a time limit would fail on a busy machine
settings.load_profile("groundup")

# A shell that starts the tests in the background has them, and what they start and stop by Ctrl-C, ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The code that has a version for each SIMD level classifies bytes, finds places in a mask and the least key of a lane,
# and makes UTF-8 of a str. These files reach it by texts of their own kind. Others run at the best level alone, and so
# do test_levels, test_scanner and test_joins, which compare the levels with each other.
_EACH_LEVEL = "arrow canonical changing_texts counting encode fuzz ids_of_tiktoken_and_tokenizers lost_bytes"
_EACH_LEVEL += " normal_forms orders_of_merging patterns pre_tokenizers pretoken_counts reference safety sentencepiece"
_EACH_LEVEL += " special_tokens streaming threads tokenizer training windows"
if cpu.level() != cpu.AVAILABLE[-1]:
    _names = (path.name for path in Path(__file__).parent.glob("test_*.py"))
    collect_ignore_glob = [name for name in _names if name[5:-3] not in _EACH_LEVEL.split()]

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # Not all libraries that tests compare with can be installed there: the files that import others are left out.
    _imports = {
        path.stem: set(re.findall(r"^(?:from|import) (\w+)", path.read_text("utf-8"), re.MULTILINE))
        for path in Path(__file__).parent.glob("*.py")
    }
    _missing = {name for names in _imports.values() for name in names if find_spec(name) is None}
    _missing |= {name for name, names in _imports.items() if names & _missing}  # helpers that import one
    collect_ignore = [f"{name}.py" for name, names in _imports.items() if names & _missing]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at which SIMD level everything ran that did not choose one: BPE_SIMD=level chooses another."""
    here = ", ".join(cpu.AVAILABLE)
    terminalreporter.write_line(f"bpe ran at the SIMD level {cpu.level()}; this machine has {here}")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a corpus and a tokenizer that the command has trained on it."""
    (tmp_path / "corpus.txt").write_text(TEXT)
    arguments = ["train", str(tmp_path / "corpus.txt"), "--vocab-size", "280", "--out", str(tmp_path / "tok.json")]
    assert main(arguments) == 0
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Makes the folder of all temporary folders, before several threads of a test ask for it at once. In it are the
    tables of large tokenizers that are loaded twice, and not in the user's folder.
    """
    os.environ["BPE_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "tables")
