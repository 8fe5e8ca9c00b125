"""Mistakes of users, and figures that are easily read wrongly."""

import json

import pytest

import accounting
from accounting import DEVICES, SHAPES, Bytes, from_config
from accounting.commands.parser import main
from accounting.page import questions
from accounting.shape import TransformerShape

NEXT = {"model_type": "qwen3_next", "num_hidden_layers": 48}


def answered(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(command.split()) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], command: str) -> str:
    try:
        status = main(command.split())
    except SystemExit as error:  # of argparse
        status = error.code
    assert status == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "remedy"),
    [("--price 2,5", "2.5"), ("--mfu 0,4", "2.5"), ("--batch 8,0", "2.5"), ("--price 1,00,000", "2,500")],
)
def test_a_decimal_comma_is_refused(capsys: pytest.CaptureFixture[str], option: str, remedy: str) -> None:
    rest = "" if option.startswith("--mfu") else "--mfu 0.4"
    message = refused(capsys, f"time gpt2 --tokens 1e12 --device h100 {rest} {option}")
    assert option.split()[1] in message
    assert remedy in message


def test_commas_before_three_digits_are_separators(capsys: pytest.CaptureFixture[str]) -> None:
    tables = [
        answered(capsys, f"time gpt2 --tokens {numbers} --device H100 --price 2.5 --csv")
        for numbers in ("1,024,000 --mfu 40%", "1024000 --mfu 0.4", "1_024_000 --mfu 0.4", "1,024k --mfu .4")
    ]
    assert len(set(tables)) == 1


@pytest.mark.parametrize("memory", ["80GiB", "85.89934592", "85.89934592GB", "0.08589934592TB", "81920MiB"])
def test_memory_may_have_a_unit(capsys: pytest.CaptureFixture[str], memory: str) -> None:
    assert "gpt2 in 85.90 GB" in answered(capsys, f"fit gpt2 --memory {memory}")


def test_a_token_of_linear_attention_has_no_cache_but_its_sequence_a_state(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    path = f"{tmp_path}/config.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(NEXT, file)
    (table,) = json.loads(answered(capsys, f"report {path} --only cache --json"))
    rows = {row["name"]: row["value"] for row in table["rows"]}
    assert rows["for each token"] == 12 * 2 * 2 * 256 * 2  # layers of softmax attention, keys and values of two heads
    two, one = (int(accounting.kv_cache(from_config(NEXT), 1, length).total) for length in (2, 1))
    assert rows["for each token"] == two - one
    assert rows["state of a sequence"] + rows["for each token"] == one


def test_fp8_is_of_the_matrices_of_the_blocks() -> None:
    # vLLM's log of Llama 3.3 70B in FP8
    assert int(accounting.weight_bytes(SHAPES["llama-3-70b"], weights="fp8")) / 2**30 == pytest.approx(67.72, rel=2e-3)
    stored = accounting.weight_bytes(SHAPES["llama-3-8b"], weights="fp8")
    assert stored["head"] == stored["embedding"] == 2 * 128256 * 4096


def test_utilisation_counts_what_is_computed(capsys: pytest.CaptureFixture[str]) -> None:
    command = "plan mistral-7b --devices 8xh100 --tokens 1e9 --context 32768 --batch-tokens 1048576 --most 1 --json"
    (computed,), (every,) = (json.loads(answered(capsys, command + more)) for more in ("", " --pairs full"))
    assert computed["MFU"] < DEVICES["h100"].attainable < every["MFU"]
    words = answered(capsys, command.removesuffix(" --json") + " --pairs full")
    assert "those that a mask or a window leaves out too" in " ".join(words.split())


@pytest.mark.parametrize("config", [[], "", 0, {}, {"model_type": "nope"}])
def test_the_page_refuses_what_is_no_config(config: object) -> None:
    question = dict.fromkeys(questions.CHOICES)
    question = {name: values[0] for name, values in questions.CHOICES.items()} | {"config": config, "lora_rank": None}
    with pytest.raises(ValueError, match=r"config|model_type"):
        questions.answer({**question, "batch": 1, "context": None})


def test_more_than_the_context_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    command = "infer llama-3-8b --device h200 --output 2 --prompt"
    assert "more than the 8,192" in " ".join(answered(capsys, f"{command} 200000").split())
    assert "own context" not in " ".join(answered(capsys, f"{command} 8190").split())


def test_every_format_of_weights_is_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n  mxfp4" in answered(capsys, "report gpt-oss-120b --only load")
    assert "\n  mxfp4" not in answered(capsys, "report gpt2 --only load")


def test_optimal_needs_one_number_that_buys_something(capsys: pytest.CaptureFixture[str]) -> None:
    assert "got neither" in refused(capsys, "optimal")
    assert "got both" in refused(capsys, "optimal --compute 1e20 --parameters 1e9")
    assert "at least one parameter" in refused(capsys, "optimal --compute 1")


def test_a_percentage_says_what_it_should_be(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "time gpt2 --tokens 1e9 --device h100 --mfu 40")
    assert "got 40.0: 0.4 means 40%" in message
    assert "1.0001" in refused(capsys, "time gpt2 --tokens 1e9 --device h100 --mfu 1.0001")


def test_names_are_found_in_any_case_and_wrong_ones_are_explained() -> None:
    assert DEVICES["H100"] is DEVICES["h100"]
    assert SHAPES["GPT2"] is SHAPES["gpt2"]
    with pytest.raises(KeyError, match="did you mean 'rtx-4090'"):
        DEVICES["rtx-4091"]
    shape, device = SHAPES["gpt2"], DEVICES["h100"]
    for call in (
        lambda: accounting.parameters("gpt2"),
        lambda: accounting.training_memory("gpt2", 1),
        lambda: accounting.training_time("gpt2", 10, device, 0.4),
        lambda: accounting.training_time(shape, 10, "h100", 0.4),
        lambda: accounting.plan(shape, "h100", 8, 10**9),
        lambda: accounting.decode_time(shape, "h100"),
    ):
        with pytest.raises(TypeError, match=r"expected (shape|device) as a"):
            call()
    with pytest.raises(ValueError, match=r"device_bytes.*'80GB'"):
        accounting.max_batch_size(shape, "80GB")


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    plain = TransformerShape(1000, 64, 2, 64, 4, 256)
    assert TransformerShape(numpy.int64(1000), 64, numpy.int32(2), 64, 4, 256) == plain
    assert accounting.training_memory(plain, numpy.int64(3)).total == accounting.training_memory(plain, 3).total


def test_quantities_keep_their_unit() -> None:
    assert type(abs(Bytes(-3))) is Bytes
    quotient, rest = divmod(Bytes(7), 2)
    assert (quotient, rest) == (3, 1)
    assert type(quotient) is type(rest) is Bytes
    with pytest.raises(TypeError, match=r"2\.7"):
        Bytes(2.7)


def test_energy_and_carbon_follow_from_the_hours(capsys: pytest.CaptureFixture[str]) -> None:
    base = "time llama-3-8b --tokens 1T --device h100 --devices 64 --mfu 0.4 --json"
    rows = {row["name"]: row["value"] for row in json.loads(answered(capsys, f"{base} --watts 1200 --carbon 400"))}
    assert rows["energy"] == pytest.approx(rows["device hours"] * 1.2)
    assert rows["carbon dioxide"] == pytest.approx(rows["energy"] * 0.4)
    plan = "plan llama-3.2-1b --devices 8xh100 --tokens 1e9 --most 1 --context 2048"
    (one,) = json.loads(answered(capsys, f"{plan} --json --watts 1000"))
    assert one["energy kWh"] == pytest.approx(one["seconds"] / 3600 * 8)
    assert one["carbon dioxide kg"] is None
    assert "energy, MWh" in answered(capsys, f"{plan} --watts 1000 --carbon 100")
    assert "energy" not in answered(capsys, plan)
    assert "--watts" in refused(capsys, f"{plan} --carbon 100")
    assert "--watts" in refused(capsys, f"{plan} --watts 0")
