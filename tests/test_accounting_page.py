"""The page that computes, in a browser: its answers are those of Python, to the last integer."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from family_configs import FAMILIES, published_config, small_config

from accounting.commands.parser import main
from accounting.page.questions import CHOICES, answer

pytestmark = pytest.mark.skipif(chromium.PATH is None, reason="there is no Chromium")
NUMBERS = {
    "devices": [1, 1, 2, 8, 64, 1000],
    "batch": [1, 2, 3, 32],
    "micro_batches": [1, 4, 7],
    "context": [1, 128, 1000, 4096, 131072],
    "tokens": [10**9, 12345678901234],
    "price": [1.5, 0.99],
}
ASK = """JSON.stringify(%s.map(ask), (_, value) => typeof value === "bigint" ? value + "n" : value)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    folder = tmp_path_factory.mktemp("page")
    assert main(["page", "--out", str(folder / "page.html")]) == 0
    assert (folder / "page.html").stat().st_size < 400_000
    with chromium.Chromium(folder / "profile", (390, 800)) as browser:
        browser.call("Page.navigate", url=(folder / "page.html").as_uri())
        while browser.run("document.readyState") != "complete":
            pass
        yield browser


def random_question(chance: random.Random) -> dict[str, Any]:
    question = {name: chance.choice(values) for name, values in CHOICES.items() if chance.random() < 0.8}
    return question | {name: chance.choice(values) for name, values in NUMBERS.items() if chance.random() < 0.9}


def plain(value: Any) -> Any:
    """A value as the page's answer is read: integers as text."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{int(value)}n"
    return float(value) if isinstance(value, float) else value


def differences(ours: Any, theirs: Any, path: tuple[Any, ...] = ()) -> list[Any]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [one for name in ours for one in differences(ours[name], theirs[name], (*path, name))]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [one for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) for one in differences(a, b, (*path, i))]
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return [] if math.isclose(ours, theirs, rel_tol=1e-9) else [(path, ours, theirs)]
    return [] if ours == theirs else [(path, ours, theirs)]


def compare(page: chromium.Chromium, questions: list[dict[str, Any]]) -> None:
    for at in range(0, len(questions), 10):
        some = questions[at : at + 10]
        answers = json.loads(str(page.run(ASK % json.dumps(some))))
        for question, theirs in zip(some, answers, strict=True):
            assert not differences(plain(answer(question)), theirs), question


def test_answers_are_those_of_python(page: chromium.Chromium) -> None:
    chance = random.Random(1)
    compare(page, [{}, *(random_question(chance) for _ in range(20))])


@pytest.mark.soak
def test_five_hundred_answers_are_those_of_python(page: chromium.Chromium) -> None:
    chance = random.Random(2)
    compare(page, [random_question(chance) for _ in range(500)])


def test_shapes_of_pasted_files(page: chromium.Chromium) -> None:
    small = {"devices": 1, "context": 64}
    configs = [small_config(family, {}) for family in FAMILIES]
    configs += [published_config(family, {}) for family in ("Qwen3", "Gemma2", "Olmo2", "GPTNeoX", "Bloom", "Phi3")]
    questions = [{**small, "config": json.loads(config.to_json_string(use_diff=False))} for config in configs]
    compare(page, [*questions, {"config": {"model_type": "nobody"}}, {"model": "nobody"}])


def test_the_question_is_in_the_link_and_comes_back_from_it(page: chromium.Chromium) -> None:
    page.run("location.hash = 'model=gpt2-xl&devices=2&context=512&precision=fp32'")
    page.run("fill(), show()")
    assert page.run("form.elements.model.value + form.elements.devices.value") == "gpt2-xl2"
    rows = page.run("document.querySelector('section tr.sum .number').textContent")
    assert rows == "1.56 G parameters"
    page.run("form.elements.batch.value = '3'; show()")
    assert "batch=3" in str(page.run("location.hash"))
    assert "micro_batches" not in str(page.run("location.hash"))


def test_mistakes_are_sentences_on_the_page(page: chromium.Chromium) -> None:
    page.run("form.elements.config.value = '{'; show()")
    assert "not JSON" in str(page.run("out.textContent"))
    page.run('form.elements.config.value = \'{"model_type": "t5"}\'; show()')
    assert "t5" in str(page.run("out.textContent"))
    page.run("form.elements.config.value = ''; form.elements.batch.value = '0'; show()")
    assert "out of range" in str(page.run("out.textContent"))
    page.run("form.elements.batch.value = '1'; show()")


def test_it_fits_a_telephone_and_names_its_controls(page: chromium.Chromium) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    assert page.run("document.documentElement.scrollWidth") == 390
    unnamed = "[...document.querySelectorAll('select, input, textarea')].filter((one) => !one.labels.length).length"
    assert page.run(unnamed) == 0


def test_it_is_written_where_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page", "--out", str(tmp_path / "no" / "page.html")]) == 2
    assert "no/page.html" in capsys.readouterr().err
