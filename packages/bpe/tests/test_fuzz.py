"""The fuzzer's targets on a few inputs: that they still fit the package. `nox -s fuzz` gives them minutes."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bpe.formats import table_cache


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "fuzz"))
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("fuzz")))
        # The target of kept tables sets these two; they are put back here.
        patch.setenv("BPE_CACHE_DIR", str(tmp_path_factory.mktemp("tables")))
        patch.setattr(table_cache, "SMALLEST", table_cache.SMALLEST)
        yield importlib.import_module("targets")


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(target=st.integers(0, 255), data=st.binary(max_size=80))
def test_what_is_random_is_no_finding(targets: ModuleType, target: int, data: bytes) -> None:
    targets.run(bytes([target]) + data)


def test_an_error_that_a_sanitizer_reports_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "fuzz"))
    sanitized = importlib.import_module("sanitized")
    monkeypatch.setattr(sanitized, "environment", lambda compiler, folder: {})
    for report, status in (("ERROR: LeakSanitizer: 8 bytes, of others", 0), ("==7==ERROR: AddressSanitizer: …", 1)):
        program = (
            f"open({str(tmp_path / 'report.7')!r}, 'w').write({report!r})"  # and ends with 0, as told to for leaks
        )
        assert sanitized.main(tmp_path, [sys.executable, "-c", program]) == status
    assert "AddressSanitizer" in capfd.readouterr().out
