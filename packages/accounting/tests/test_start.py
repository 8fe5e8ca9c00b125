"""What a process loads before it answers: benchmarks/start.py says how long that takes, and no test holds a clock."""

import inspect
import subprocess
import sys
from dataclasses import asdict, fields, is_dataclass, replace

import pytest

import accounting
import accounting.shape
from accounting import SHAPES, Policy, TransformerShape
from accounting.commands.parser import main

SLOW = {"csv", "difflib", "json"}


def loaded(program: str) -> set[str]:
    """The modules that a program loads, beside those of a bare Python."""
    code = (
        f"import sys; before = set(sys.modules); {program}; print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = set(done.stderr.split())
    assert {name.partition(".")[0] for name in found} <= {"accounting", *sys.stdlib_module_names}
    return found


def rooms(found: set[str]) -> set[str]:
    return {name.split(".")[1] for name in found if name.startswith("accounting.")}


def test_the_import_loads_no_other_module_of_the_package() -> None:
    assert rooms(loaded("import accounting")) == set()
    assert set(accounting.__all__) <= set(dir(accounting))


def test_an_answer_loads_nothing_but_what_it_needs() -> None:
    found = loaded("from accounting import SHAPES, training_memory; training_memory(SHAPES['gpt2'], 4).total")
    assert "accounting.memory.training" in found
    assert not {"accounting.memory.inference", "accounting.counting.optimizer", "accounting.models.files"} & found
    assert not {"cluster", "hardware", "planning", "commands"} & rooms(found)
    assert not {"argparse", "typing", *SLOW} & found


def test_a_command_loads_nothing_but_what_it_needs() -> None:
    command = "from accounting.commands.parser import main; main(['report', 'gpt2-xl', '--only', 'parameters,flops'])"
    found = loaded(command)
    assert "accounting.commands.report" in found
    assert not {"accounting.commands.plan", "accounting.commands.infer", "accounting.commands.page"} & found
    assert not {"hardware", "memory", "planning"} & rooms(found)
    assert not SLOW & found


def test_the_whole_report_loads_no_devices_and_no_cluster() -> None:
    found = loaded("from accounting.commands.parser import main; main(['report', 'gpt2-xl'])")
    assert "accounting.planning.fitting" in found
    assert not {"hardware", "cluster"} & rooms(found)
    assert not SLOW & found


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--help"], ["reprot"], ["-h", "report"]):
        with pytest.raises(SystemExit):
            main(given)
        said = "".join(capsys.readouterr())
        for name in ("report", "compare", "fit", "time", "plan", "infer", "optimal", "devices"):
            assert name in said


def test_records_are_frozen_dataclasses_to_others() -> None:
    shape = TransformerShape(100, 16, 2, 8, 2, 32, ffn="gelu")
    assert is_dataclass(shape)
    assert [field.name for field in fields(TransformerShape)] == list(inspect.signature(TransformerShape).parameters)
    assert replace(shape, num_layers=3) == TransformerShape(100, 16, 3, 8, 2, 32, ffn="gelu") != shape
    assert asdict(Policy(precision="bf16"))["precision"] == "bf16"
    assert hash(replace(shape)) == hash(shape)
    assert eval(repr(shape), vars(accounting.shape)) == shape
    assert shape != Policy()
    with pytest.raises(AttributeError, match="num_layers"):
        shape.num_layers = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="num_layers"):
        replace(shape, num_layers=0)
    with pytest.raises(TypeError, match="'depth'"):
        replace(SHAPES["gpt2"], depth=3)
    with pytest.raises(TypeError, match="positional"):
        TransformerShape(100, 16, 2, 8, 2, 32, 2)  # type: ignore[misc]
