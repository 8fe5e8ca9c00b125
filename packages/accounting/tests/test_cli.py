"""The command: tables that add up, machine-readable faces, and one sentence for a mistake."""

import contextlib
import csv
import errno
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accounting
from accounting import SHAPES, Policy, from_huggingface, max_batch_size, memory_line, training_memory
from accounting.commands import sections
from accounting.commands.parser import main
from accounting.models.defaults import defaults
from accounting.shape import NotCounted

XL = ["report", "gpt2-xl-swiglu", "--context", "1024", "--batch", "4"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_columns_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    for extra in (
        [],
        ["--gib"],
        ["--data-parallel", "7", "--zero", "3"],
        ["--tensor", "5", "--pipeline", "3", "--gpus", "30", "--micro-batches", "4", "--sequence-parallel"],
        ["--precision", "bf16", "--attention-kernel", "eager", "--loss", "chunked"],
        ["--precision", "autocast", "--activation-checkpointing", "selective", "--allocator", "cuda"],
    ):
        pages = run(capsys, *XL, *extra).split("\n\n")
        assert len(pages) == 16 + ("--activation-checkpointing" in extra) + (
            4 if "--tensor" in extra else 3 if "--data-parallel" in extra else 0
        )
        for page in pages:
            rows = [line for line in page.splitlines()[2:] if not line.startswith(("  (", "   "))]
            if not any(line.startswith("  total") for line in rows):
                continue
            columns = [[re.sub("[^0-9.]", "", cell) for cell in re.split(r"\s{2,}", line.strip())[1:]] for line in rows]
            *parts, total = columns
            assert sum(int(part[0]) for part in parts) == int(total[0])
            shares = {part[0]: part[2] for part in parts if len(part) > 2}
            for exact, share in shares.items():
                assert abs(float(share) - 100 * int(exact) / int(total[0])) <= 0.05000001


def test_active_parameters_are_those_of_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    """Model card of gpt-oss: 3.61 and 5.13 billion active parameters, without the embedding table."""
    for name, billions in (("gpt-oss-20b", 3.61), ("gpt-oss-120b", 5.13)):
        _, active = json.loads(run(capsys, "report", name, "--only", "parameters", "--json"))
        values = {row["name"]: row["value"] for row in active["rows"]}
        assert round(values["without it"] / 1e9, 2) == billions
        assert values["with the embedding table"] - values["without it"] == 201088 * 2880
    assert len(json.loads(run(capsys, "report", "gpt2", "--only", "parameters", "--json"))) == 1


def test_memory_names_whose_code_it_follows(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("report", "llama-3-8b", "--precision", "bf16", "--only", "peak")
    for code in ("lm", "transformers"):
        words = " ".join(run(capsys, *command, "--model-code", code).split())
        assert f"as {code} computes it without dropout" in words
    assert main(["report", "mixtral-8x7b", "--model-code", "transformers", "--only", "peak"]) == 2
    assert "dense ones with softmax attention" in capsys.readouterr().err


def test_equal_figures_look_equal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "report", "llama-3-8b", "--only", "parameters").splitlines()
    embedding, head = (next(line for line in lines if line.startswith(f"  {name}")) for name in ("embedding", "head"))
    assert embedding.split()[1:] == head.split()[1:]
    assert "525,336,576" in head


def test_gb_and_gib_are_never_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    decimal, binary = run(capsys, *XL), run(capsys, *XL, "--gib")
    assert "GiB" not in decimal
    assert "34.03 GB" in decimal
    assert "31.70 GiB" in binary
    # the cards' own sizes are in GB, whatever the tables are in
    cards = [f"{size} GB" for size in (24, 40, 80, 141)] + ["; GB is 10^9 bytes"]
    for card in cards:
        binary = binary.replace(card, "")
    assert "GB" not in binary


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    words = run(capsys, *XL, "--explain")
    assert "= 6·batch·seq·n_layers·d_model·d_ff = 6·4·1,024·48·1,600·6,400" in words
    assert "= 6·(n_params - embedding_params)·batch·seq = 6·(2,127,057,600 - 160,822,400)·4·1,024" in words
    # of all tables only those of whole numbers found by trying have none
    told = [page.splitlines()[0] for page in words.split("\n\n") if "\n" in page and "  = " not in page]
    assert told == ["largest batch that fits", "names in formulas"]
    assert "= model FLOPs/rate" in run(
        capsys, "time", "gpt2", "--tokens", "1e9", "--device", "h100", "--mfu", "0.4", "--explain"
    )
    assert re.search(r"\n  d_model +width of the residual stream\n", words)
    assert max(len(line) for line in words.splitlines()) <= 120
    without = run(capsys, "report", "gpt2", "--context", "64", "--only", "batch", "--explain")
    assert "names in formulas" not in without


def test_json_and_csv_hold_the_same_exact_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capsys, *XL, "--json"))
    table = list(csv.DictReader(io.StringIO(run(capsys, *XL, "--csv"))))
    flat = [(one["title"], row["name"], str(row["value"]), one["unit"]) for one in data for row in one["rows"]]
    assert flat == [(row["section"], row["name"], row["value"], row["unit"]) for row in table]
    by_title = {one["title"]: one for one in data}
    assert by_title["parameters"]["total"] == 2_127_057_600
    assert by_title["forward FLOPs"]["total"] == 4 * 4_513_336_524_800


@pytest.mark.parametrize(
    "arguments",
    [
        "report mixtral-8x7b --data-parallel 4 --expert 2 --tensor 2 --context 512",
        "compare gpt2 gpt2-xl",
        "fit gpt2 --memory 0.1",
        "fit gpt2-swiglu --device rtx-5070 --gpus 4 --zero 1 --tensor 2",
        "report gpt2 gpt2-swiglu --precision bf16 --only line,batch",
        "time gpt2 --tokens 1e9 --device h100 --mfu 0.4 --batch 8 --price 2",
        "infer gpt2 --device rtx-3090 --devices 2 --price 1",
        "infer mixtral-8x7b --device h200 --batch 3",
        "optimal --compute 1e20",
        "devices",
        "devices h100 m1",
        "infer gpt2 --device tpu-v5p",
        "infer gpt-oss-20b --device h100 --first-token 1 --each-token 0.05 --page 16 --hybrid-pages",
    ],
)
def test_every_command_answers_programs_too(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    data = json.loads(run(capsys, *arguments.split(), "--json"))
    table = list(csv.DictReader(io.StringIO(run(capsys, *arguments.split(), "--csv"))))
    if arguments.startswith("report mixtral"):
        data = [{"section": one["title"], "unit": one["unit"], **row} for one in data for row in one["rows"]]
    assert len(table) == len(data) > 0
    for line, record in zip(table, data, strict=True):
        for key, value in record.items():
            assert line[key] == ("" if value is None else str(value)), key


def test_fit_explains_its_answer_by_one_more(capsys: pytest.CaptureFixture[str]) -> None:
    for extra in ("", " --data-parallel 4 --zero 3 --tensor 2 --pipeline 2 --micro-batches 4 --sequence-parallel"):
        how = "--activation-checkpointing selective --loss chunked"
        command = f"fit gpt2 --device rtx-5070 --context 512 --batch 2 {how}{extra}"
        for record in json.loads(run(capsys, *command.split(), "--json")):
            assert record["value"] > 0
            assert record["bytes"] <= 12 * 10**9 < record["bytes of one more"]
        assert run(capsys, *command.split(), "--explain").count("at the peak,") == 4
    assert "one takes" in run(capsys, "fit", "gpt2", "--memory", "0.1", "--explain")


def test_the_others_explain_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert "= the longer of" in run(capsys, "infer", "gpt2", "--device", "h100", "--explain")
    assert "1.69 + 406.4/N^0.34 + 410.7/D^0.28" in run(capsys, "optimal", "--compute", "1e20", "--explain")


def test_differences_and_lines_show_their_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    words = run(capsys, "compare", "gpt2", "gpt2-swiglu", "--explain")
    assert "gpt2: n_layers·(2·d_model·d_ff + d_ff + d_model) = 12·(2·768·3,072 + 3,072 + 768)\n" in words
    assert "gpt2-swiglu: n_layers·3·d_model·d_ff = 12·3·768·3,072\n" in words
    for name in ("gpt2", "gpt2-xl", "mixtral-8x7b"):
        line = memory_line(SHAPES[name], policy=Policy(precision="bf16"))
        for of, total in ((line.per_sequence, line.slope), (line.fixed, line.intercept)):
            assert of.total == total
            for part, numbers in of.explain().items():
                assert eval(numbers.replace(",", "").replace("·", "*")) == of[part]
                assert "batch" not in of.formula[part]
        words = run(capsys, "report", name, "gpt2-medium", "--precision", "bf16", "--only", "line", "--explain")
        assert words.count(f"{int(line.slope):,}") == 2
        assert words.count(f"{int(line.intercept):,}") == 2


def test_tables_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = run(capsys, *XL, "--only", "load,matmuls", "--only", "optimizer")
    assert [page.splitlines()[0].split(" (")[0] for page in words.split("\n\n")] == [
        "memory to load",
        "forward FLOPs by matrix multiplication",
        "optimizer FLOPs",
    ]
    assert main([*XL, "--only", "colours"]) == 2
    assert "no table is called 'colours': use one of parameters, load," in capsys.readouterr().err


def test_a_shape_by_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--layers 48 --d-model 1600 --heads 25 --d-ff 6400 --vocab 50257 --context 1024"
    for arguments in (sizes, sizes.replace("--d-ff 6400 ", "")):
        assert run(capsys, "report", *arguments.split(), "--batch", "4") == run(capsys, *XL)
    found = json.loads(run(capsys, "report", "gpt2", "--layers", "24", "--only", "parameters", "--json"))
    assert found[0]["total"] == 124_439_808 + 12 * 7_087_872
    # a longer context has more learned positions
    found = json.loads(run(capsys, "report", "gpt2-xl", "--context", "16384", "--only", "parameters", "--json"))
    assert found[0]["total"] == 1_557_611_200 + 15 * 1024 * 1600
    assert main(["report", "--layers", "2"]) == 2
    assert "or all of --layers, --d-model, --heads, --vocab, --context" in capsys.readouterr().err


def test_a_measured_rate_is_no_peak(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(run(capsys, "time", "gpt2", "--tokens", "1e9", "--measured", "275e12", "--mfu", "0.46").split())
    assert "at 46.0% of the 275.00 TFLOP/s that were measured;" in words
    assert "peak" not in words


def test_the_beginning_of_a_name_suggests_all_that_begin_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "gpt2", "--device", "a100"]) == 2
    said = capsys.readouterr().err
    assert "did you mean one of 'a100-40gb', 'a100-80gb', 'a100-80gb-pcie'?" in said


def test_a_measured_rate_gives_the_utilisation(capsys: pytest.CaptureFixture[str]) -> None:
    common = ("time", "gpt2", "--tokens", "1e9", "--device", "h100", "--csv")
    told = list(csv.DictReader(io.StringIO(run(capsys, *common, "--mfu", "0.4"))))
    rate = next(row["value"] for row in told if row["name"] == "tokens a second")
    again = list(csv.DictReader(io.StringIO(run(capsys, *common, "--tokens-per-second", rate))))
    found = {row["name"]: float(row["value"]) for row in again}
    assert found["MFU"] == pytest.approx(0.4, rel=1e-12)
    assert found["tokens a second"] == pytest.approx(float(rate), rel=1e-12)


def test_whole_numbers_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    for words, count in (("9007199254740993", 9007199254740993), ("1e23", 10**23), ("1_000_000", 10**6)):
        command = f"time gpt2-swiglu --tokens {words} --context 1 --device h100 --mfu 1 --csv"
        table = run(capsys, *command.split())
        assert next(csv.DictReader(io.StringIO(table)))["value"] == str(count)


def test_a_narrower_cache_is_read_sooner(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("infer", "llama-3-8b", "--device", "h100", "--batch", "16", "--json")
    wide, narrow = (json.loads(run(capsys, *command, *extra)) for extra in ((), ("--cache", "int8")))
    cache = 16 * 2 * 32 * 8 * 128
    for one, other in zip(wide, narrow, strict=True):
        assert one["bytes"] - other["bytes"] == 8192 * cache
        assert one["decoding seconds a step"] - other["decoding seconds a step"] == pytest.approx(8191 * cache / 3350e9)


def test_a_device_is_among_the_cards(capsys: pytest.CaptureFixture[str]) -> None:
    words = run(capsys, "report", "gpt2", "--device", "rtx-5070")
    most = max_batch_size(SHAPES["gpt2"], 12 * 10**9)
    assert re.search(rf"rtx-5070 +{most}\b", words)


def test_fit_time_optimal_infer_and_tables_of_several_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "largest batch at context 1,024  none fits" in run(capsys, "fit", "gpt2", "--memory", "0.1")
    schedule = run(capsys, "time", "gpt2", "--tokens", "1e9", "--device", "h100", "--mfu", "0.4", "--batch", "480")
    tokens, steps = (
        int(re.search(rf"{name} +([0-9,]+)", schedule)[1].replace(",", "")) for name in ("tokens", "steps")
    )
    assert steps == tokens // (480 * 1024)
    assert "warning:" in run(capsys, "optimal", "--compute", "5.76e23")
    stored = run(capsys, "infer", "gpt2", "--device", "rtx-4090", "--batch", "8").splitlines()
    assert [line.split()[0] for line in stored[:6]] == ["weights", "fp32", "bf16", "fp8", "int8", "int4"]
    stored = run(capsys, "infer", "gpt-oss-20b", "--device", "h100").splitlines()
    assert [line.split()[0] for line in stored[:7]] == ["weights", "fp32", "bf16", "fp8", "int8", "mxfp4", "int4"]
    table = run(capsys, "report", "gpt2", "gpt2-swiglu", "--precision", "bf16", "--only", "line,batch")
    rows = [page.replace(",", "").splitlines()[3].split() for page in table.split("\n\n")]
    assert {row[0] for row in rows} == {"gpt2"}
    slope, intercept = (int(row[-1]) for row in rows[:2])
    for limit, batch in zip((24, 40, 80, 141), map(int, rows[2][1:]), strict=True):
        assert slope * batch + intercept <= limit * 10**9 < slope * (batch + 1) + intercept
        peak = training_memory(SHAPES["gpt2"], batch, policy=Policy(precision="bf16")).total
        assert peak == slope * batch + intercept


def test_infer_names_the_cache_of_one_device_in_its_own_format(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys and values of 32 layers of 8 heads of 128: 131,072 bytes a position in bf16."""
    command = ("infer", "llama-3-8b", "--device", "h100", "--prompt", "8000", "--output", "192", "--cache")
    for cache, devices, size in (("bf16", 1, "1.07 GB"), ("fp8", 1, "536.87 MB"), ("fp8", 8, "67.11 MB")):
        words = " ".join(run(capsys, *command, cache, "--devices", str(devices)).split())
        assert f"{cache} cache of {size} on a device" in words


@pytest.mark.parametrize("family", defaults())
def test_report_of_every_family_names_the_tables_it_leaves_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, family: str
) -> None:
    path = tmp_path / "config.json"
    sizes = {"num_experts_per_tok": 2} | ({"n_routed_experts": 8} if family == "dots1" else {})  # which has no default
    path.write_text(json.dumps({"model_type": family, **sizes}))
    tables = json.loads(run(capsys, "report", str(path), "--context", "1024", "--precision", "bf16", "--json"))
    titles = [table["title"] for table in tables]
    assert {"parameters", "forward FLOPs", "KV cache"} <= set(titles)
    trained = any(title.startswith("training memory at its peak") for title in titles)
    assert ("peak, phases, line, batch, because" in tables[0]["convention"]) != trained
    with contextlib.ExitStack() as stack:
        if not trained:
            stack.enter_context(pytest.raises(NotCounted))
        training_memory(from_huggingface(str(path)), 1, 1024, policy=Policy(precision="bf16"))


def test_report_names_what_a_config_has_beside_the_shape(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    gemma: dict[str, Any] = {"model_type": "gemma3", "text_config": {}, "vision_config": {"hidden_size": 1152}}
    deepseek: dict[str, Any] = {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
    for config, name in ((gemma, "vision_config"), (deepseek, "num_nextn_predict_layers")):
        path.write_text(json.dumps(config))
        for shape in (path, tmp_path):
            words = " ".join(run(capsys, "report", str(shape), "--only", "parameters").split())
            assert f"not in any table: {name} of the config.json" in words
        table, *_ = json.loads(run(capsys, "report", str(path), "--only", "parameters", "--json"))
        assert name in table["convention"]
    path.write_text(json.dumps({**deepseek, "num_nextn_predict_layers": 0}))
    assert "not in any table" not in run(capsys, "report", str(path), "--only", "parameters")


@pytest.mark.parametrize(
    "arguments",
    [
        "report gpt2 --data-parallel 0",
        "report gpt2 --pipeline 2 --micro-batches 2",
        "report gpt2 --tensor 2 --optimizer muon",
        "infer gpt2 --device m4-max",
        "time gpt2 --tokens 1 --measured nan --mfu 0.4",
        "report gpt2 --zero 2",
        "report gpt2 --sequence-parallel",
        "report gpt2 --micro-batches 3 --batch 8",
        "report gpt2 --only devices --csv",
        "fit gpt2 --memory 24 --data-parallel 2 --allocator cuda",
        "time gpt2 --tokens 1 --device h100 --tokens-per-second 1e9",
        "time gpt2 --tokens 1 --device h100 --tokens-per-second 0",
        "devices abacus",
    ],
)
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("accounting: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "report gpt2 --batch 1.5",
        "report gpt2 --batch many",
        "report gpt2 --batch inf",
        "report gpt2 --context 1e300",
        "report gpt2 --gib --json",
        "optimal --parameters 1e200",
        "fit gpt2 --memory 1e300",
        "time gpt2 --tokens 1e300 --device h100 --mfu 0.4",
        "time gpt2 --tokens 1 --device h100",
        "nonsense",
        "fit gpt2 --devise h100",
    ],
)
def test_a_wrong_call_says_how(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("accounting")
    assert said.endswith("--help\n")
    assert said.count("\n") == 1
    assert ("--devise: did you mean --device?" in said) == ("--devise" in arguments)


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path, *_: object, **__: object) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    (out := tmp_path / "page.html").write_bytes(b"before")
    monkeypatch.setattr(Path, "write_text", fail)
    assert main(["page", "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"accounting: {out}: No space left on device\n"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_ctrl_c_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(command: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("accounting.commands.parser.parser", interrupt)
    monkeypatch.setattr("sys.argv", ["accounting", "devices"])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "the second Ctrl-C meets the interpreter's end"
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("report gpt2 --context 0", "--context must be at least 1, and 0 is not"),
        ("report gpt2 --gpus -1", "--gpus must be at least 1, and -1 is not"),
        (
            "time gpt3-175b --tokens 300e9 --devices 1024 --device a100-80gb --pairs full --hfu 0.4",
            "--activation-checkpointing",
        ),
        ("fit gpt2 --memory 0", "--memory must be a number of GB, at least a byte, and 0 is not"),
        ("report gpt2 --gpus 8 --tensor 3", "--gpus 8 is no multiple of context 1 × tensor 3 × pipeline 1 = 3"),
        (
            "report gpt2 --gpus 8 --data-parallel 8 --tensor 8 --pipeline 4",
            "--gpus 8 is not data 8 × context 1 × tensor 8 × pipeline 4 = 256 devices",
        ),
        ("report gpt2 --expert 2 --data-parallel 3", "expert 2 does not divide data × context 3"),
        ("report gpt2 --expert 2 --data-parallel 2", "expert 2 is more than experts 1"),
        ("fit gpt2 --memory inf", "--memory must be a number of GB"),
        ("fit gtp2 --memory 24", "no shape is called 'gtp2': did you mean 'gpt2'?"),
        ("fit gpt2 --device rtx_4090", "no device is called 'rtx_4090': did you mean 'rtx-4090'?"),
    ],
)
def test_a_mistake_names_what_was_given(capsys: pytest.CaptureFixture[str], arguments: str, says: str) -> None:
    assert main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "report gpt2-swiglu --attention-kernel blocks --context 1e15",
        "report gpt2-swiglu --context 1e15 --batch 1e30",
        "fit gpt2-swiglu --memory 1e30",
        "infer gpt2-swiglu --device h100 --prompt 1e36 --batch 1e36",
        "optimal --compute 1e36",
        "fit gpt2 --memory 1e-9",
    ],
)
def test_sizes_beyond_any_machine_are_answered(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    assert main(arguments.split()) == 0
    assert capsys.readouterr().out


@given(st.lists(st.integers(0, 10**15), max_size=12))
def test_shares_are_rounded_one_by_one(parts: list[int]) -> None:
    total = sum(parts) or 1
    for part, share in zip(parts, sections.percentages(parts), strict=True):
        assert abs(float(share[:-1]) - 100 * part / total) <= 0.05 + 1e-9


def test_every_name_of_the_package_is_there() -> None:
    for name in accounting.__all__:
        assert getattr(accounting, name) is not None
    with pytest.raises(AttributeError, match="accounting has no 'guess': it has DEVICES"):
        accounting.guess  # noqa: B018


def test_the_package_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "accounting", "report", "gpt2"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "124,439,808" in done.stdout
