"""The page of `accounting page`: its figures beside Python's, in a headless Chromium."""

from __future__ import annotations

import ast
import importlib.util
import json
import random
from pathlib import Path
from typing import Any

import chromium
import pytest
from family_configs import FAMILIES, published_config, small_config

from accounting.commands.parser import main
from accounting.models.defaults import defaults
from accounting.page import questions

GENERATOR = Path(__file__).parent.parent / "packages/accounting/generate/page_formulas.py"

NAMES = sorted(defaults())
ANSWERED = 500
SEARCHED = 12
RUN = """async (name, questions) => {
  const answers = await Promise.all(questions.map((one) =>
    ask(name, JSON.stringify(one)).catch((error) => ({ error: error.message }))));
  return JSON.stringify(answers, (key, value) => (typeof value === "bigint" ? { int: String(value) } : value));
}"""


def random_question(order: random.Random) -> dict[str, Any]:
    """A question of random settings, some of which cannot be together."""
    pick = order.choice
    chosen: dict[str, Any] = {name: pick(values) for name, values in questions.CHOICES.items()}
    for name in ("moment_dtype", "offload", "frozen_dtype", "model_code"):  # many go with few of the others
        chosen[name] = pick((chosen[name], *questions.CHOICES[name][:1] * 3))
    chosen["lora_rank"] = pick((None, None, None, 1, 16, 300))
    devices, tensor, pipeline = pick(((1, 1, 1), (1, 1, 1), (8, 1, 1), (64, 1, 1), (8, 8, 1), (16, 2, 2), (12, 2, 1)))
    chosen |= {"devices": devices, "tensor": tensor, "pipeline": pipeline, "micro_batches": pick((1, 1, 2, 7))}
    chosen |= {"batch": order.randint(1, 9), "context": order.randint(1, 1 << order.randint(0, 12))}
    chosen |= {
        "tokens": order.randint(1, 10**12),
        "output": order.randint(2, 300),
        "price": order.randint(0, 900) / 100,
    }
    return chosen | {"config": random_config(order) if order.random() < 0.4 else None}


def large_question() -> dict[str, Any]:
    """A step of more FLOPs than a double counts."""
    sizes = {"devices": 8, "tensor": 1, "pipeline": 1, "micro_batches": 4096, "batch": 1, "context": 8192}
    others = {"tokens": 10**12, "output": 2, "price": 1, "config": None, "lora_rank": None}
    chosen = {name: values[0] for name, values in questions.CHOICES.items()}
    return {**chosen, **sizes, **others, "model": "llama-3-70b", "device": "h100"}


def random_config(order: random.Random) -> dict[str, Any]:
    """A config.json of a family with the defaults of its class, most with sizes of its own."""
    family = order.choice(NAMES)
    heads = order.choice((4, 8, 16))
    width = heads * order.choice((16, 64, 80))
    sizes = {
        "vocab_size": order.randint(1000, 200_000),
        "num_hidden_layers": order.randint(1, 40),
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": order.choice((heads, heads // 4)),
        "intermediate_size": order.randint(1, 20) * 64,
        "tie_word_embeddings": order.random() < 0.5,
        "max_position_embeddings": 1 << 13,
        "rms_norm_eps": 1e-6,
    }
    return {"model_type": family, **{name: value for name, value in sizes.items() if order.random() < 0.6}}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "page.html"
    assert main(["page", "--out", str(out)]) == 0
    return out


def python(name: str, one: dict[str, Any]) -> Any:
    try:
        return getattr(questions, name)(one)
    except (ValueError, KeyError) as error:
        return {"error": str(error.args[0])}


def javascript(browser: chromium.Chromium, page: Path, name: str, asked: list[dict[str, Any]]) -> Any:
    browser.open(page)
    text = browser.run(f"({RUN})({json.dumps(name)}, {json.dumps(asked)})")

    def whole(value: dict[str, Any]) -> Any:
        return int(value["int"]) if set(value) == {"int"} else value

    return json.loads(str(text), object_hook=whole)


def test_figures_equal_pythons(browser: chromium.Chromium, page: Path):
    order, asked = random.Random(7), [large_question()]
    expected = [python("answer", asked[0])]
    while sum("error" not in one for one in expected) < ANSWERED:
        asked.append(random_question(order))
        expected.append(python("answer", asked[-1]))
    for one, answer, result in zip(asked, expected, javascript(browser, page, "answer", asked), strict=True):
        assert result == answer, one
    integers = [row["value"] for one in expected for table in one.get("tables", ()) for row in table["rows"]]
    assert sum(isinstance(value, int) for value in integers) > 10 * ANSWERED
    assert max(value for value in integers if isinstance(value, int)) > 1 << 53  # beyond what a double counts


def test_what_fits_equals_pythons(browser: chromium.Chromium, page: Path):
    order, asked = random.Random(11), []
    while len(asked) < SEARCHED:
        one = random_question(order) | {"config": random_config(order)}
        if "error" not in python("answer", one):
            asked.append(one)
    assert javascript(browser, page, "largest", asked) == [python("largest", one) for one in asked]


def test_pasted_files_equal_pythons(browser: chromium.Chromium, page: Path):
    one = random_question(random.Random(3)) | {name: questions.CHOICES[name][0] for name in questions.OF_POLICY}
    one |= {"devices": 1, "tensor": 1, "pipeline": 1, "micro_batches": 1, "context": 64, "weights": "bf16"}
    one |= {"precision": "bf16", "lora_rank": None}
    configs = [small_config(family, {}) for family in FAMILIES]
    configs += [published_config(family, {}) for family in ("qwen3", "gemma2", "olmo2", "gpt_neox", "bloom", "phi3")]
    files = [json.loads(config.to_json_string(use_diff=False)) for config in configs]
    cases = [{**one, "purpose": purpose, "config": file} for file in files for purpose in ("generate", "train")]
    expected = [python("answer", one) for one in cases]
    assert sum("tables" in one for one in expected) > 2 * len(FAMILIES)  # training of some mixtures is refused
    assert javascript(browser, page, "answer", cases) == expected


def test_page_is_one_small_file(page: Path):
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < 450_000
    assert " src=" not in text
    assert "<link" not in text
    assert "http" not in text.partition('<script id="program"')[0]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_layout(browser: chromium.Chromium, page: Path, tmp_path: Path, width: int, dark: bool):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500)
    browser.open(page)
    browser.picture(tmp_path / "page.png", dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    colours: Any = browser.run(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = [sum(map(int, one[4:-1].split(","))) > 3 * 128 for one in colours]
    assert light == ([False, True] if dark else [True, False])
    assert browser.run("[...document.querySelectorAll('#bar span')].length") > 5
    edges = "((box) => [box.left, box.right])(document.querySelector('#bar b').getBoundingClientRect())"
    for model in ("llama-3-8b", "llama-3-70b"):  # a device with more than is needed, and one with a tenth of it
        browser.run(f"form.elements.model.value = '{model}'; form.elements.zero.value = 0; update()")
        left, right = list(browser.run(edges))  # type: ignore[call-overload]
        assert 0 <= left < right <= width
    controls = "select, input:not([type=radio], [type=checkbox]), button"
    sizes = f"[...form.querySelectorAll('{controls}')].filter((one) => one.offsetParent)"
    assert browser.run(f"Math.min(...{sizes}.map((one) => one.getBoundingClientRect().height))") >= 40


def test_every_control_has_a_label_and_a_key(browser: chromium.Chromium, page: Path):
    browser.open(page)
    assert browser.run("[...form.elements].every((one) => one.labels?.length || one.tagName !== 'INPUT')")
    tree = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("combobox", "textbox", "radio", "button")
    controls = [one for one in tree if one.get("role", {}).get("value") in roles]
    assert len(controls) > 15
    assert all(one["name"]["value"].strip() for one in controls)
    browser.run("form.elements.model.focus()")
    browser.press("ArrowDown")
    assert (
        browser.run("new Promise((resolve) => setTimeout(() => resolve(location.hash), 400))") == "#model=llama-3-70b"
    )
    reached = set()
    for _ in range(30):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        reached.add(browser.run("document.activeElement.name || document.activeElement.id"))
    assert {"batch", "device", "price", "precision", "zero", "copy"} <= reached


def test_address_is_the_question(browser: chromium.Chromium, page: Path):
    browser.open(page)
    config = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}
    browser.run(
        f"form.elements.config.value = {json.dumps(json.dumps(config))}; form.elements.tokens.value = '1.5B'; update()"
    )
    address = str(browser.run("location.href"))
    shown = browser.run("document.getElementById('cards').textContent")
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=address)
    while browser.run("document.readyState") != "complete":
        pass
    browser.run("ready.then(() => 1)")
    assert browser.run("document.getElementById('cards').textContent") == shown
    assert browser.run("form.elements.tokens.value") == "1.5B"
    assert json.loads(str(browser.run("question(fields())")))["config"] == config
    assert json.loads(str(browser.run("question(fields())")))["tokens"] == 1_500_000_000


def test_whether_it_fits_is_the_largest_and_comes_with_what_would_make_it_fit(browser: chromium.Chromium, page: Path):
    browser.open(page)
    verdict = "document.getElementById('verdict')"
    assert "It fits" in str(browser.run(f"{verdict}.textContent"))
    browser.run(
        "form.elements.devices.value = 1; form.elements.batch.value = 4; form.elements.model.value = 'gpt2-xl'; "
        "form.elements.device.value = 'rtx-4090'; form.elements.precision.value = 'fp32'; update()"
    )
    text = str(browser.run(f"{verdict}.textContent"))
    assert "does not fit" in text
    assert "It would with" in text
    assert "activation checkpointing full" in text
    assert "selective full" not in text  # the words of a label are not those of its menu
    assert "cost" not in str(browser.run("document.getElementById('cards').textContent"))
    sizes = "[...document.querySelectorAll('#result *')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
    assert browser.run(f"parseFloat(getComputedStyle({verdict}.firstChild).fontSize) === Math.max(...{sizes})")
    kinds = "[...document.querySelectorAll('#bar span')].map((one) => [one.title.split(':')[0], one.className])"
    before = dict(browser.run(kinds))  # type: ignore[call-overload]
    browser.run("document.getElementById('pin').click(); form.elements.batch.value = 1; update()")
    after = dict(browser.run(kinds))  # type: ignore[call-overload]
    assert {name: after[name] for name in before if name in after}.items() <= before.items()
    assert "gpt2-xl" in str(browser.run("document.getElementById('pinned').textContent"))
    drawn = "getComputedStyle(document.querySelector('#bar .kind2')).backgroundImage"
    assert "gradient" in str(browser.run(drawn))


def test_mistakes_are_named(browser: chromium.Chromium, page: Path):
    browser.open(page)
    error = "document.getElementById('error')"
    for field, value, words in (
        ("devices", "12.5", "whole number"),
        ("tensor", "3", "tensor × pipeline 3"),
        ("config", "{", "config.json"),
        ("config", '{"model_type": "other"}', "other"),
        ("config", "[]", "expected an object"),
        ("config", "null", "expected an object"),
        ("price", "2,5", "comma"),
        ("tokens", "0", "tokens"),
        ("batch", "", "batch"),
    ):
        browser.run(f"read(); form.elements[{json.dumps(field)}].value = {json.dumps(value)}; update()")
        assert words in str(browser.run(f"{error}.hidden ? '' : {error}.textContent")), field
        assert browser.run("form.querySelector('[aria-invalid]').name") in (field, "devices"), field
        browser.run("history.replaceState(null, '', '#'); read(); update()")
    assert browser.run(f"{error}.hidden")
    browser.run("history.replaceState(null, '', '#model=nope'); read(); update()")
    assert "nope" in str(browser.run(f"{error}.hidden ? '' : {error}.textContent"))


@pytest.fixture(scope="module")
def generator() -> Any:
    spec = importlib.util.spec_from_file_location("page_formulas", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "code", ["with open(name) as file: pass", "for x in y: pass\nelse: pass", "assert x", "x @ y", "~x", "x[1:2:3]"]
)
def test_what_is_not_translated_is_refused(generator: Any, code: str):
    with pytest.raises((TypeError, KeyError)):
        generator._statement(ast.parse(code).body[0])


def test_only_what_is_needed_is_translated(generator: Any):
    code = generator.program([("accounting.counting.parameters", "parameters")])
    assert '$modules["accounting.shape"]' in code
    assert "step_time" not in code


def test_formulas_are_those_of_today(generator: Any):
    assert generator.OUT.read_text(encoding="utf-8") == generator.program(generator.ROOTS)


def test_it_is_written_where_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["page", "--out", str(tmp_path / "no" / "page.html")]) == 2
    assert "no/page.html" in capsys.readouterr().err
