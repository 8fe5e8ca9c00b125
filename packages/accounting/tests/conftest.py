"""Lets the tests import their strategies, whatever folder pytest was started in."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# No test holds a clock: on a busy machine anything may take long.
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


def benchmark(name: str) -> ModuleType:
    """A program of benchmarks/ as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def published() -> ModuleType:
    """Published training runs beside what is predicted of them."""
    return benchmark("published_runs")


@pytest.fixture(scope="session")
def generation() -> ModuleType:
    """Published speeds of generation beside what is predicted of them."""
    return benchmark("published_generation")
