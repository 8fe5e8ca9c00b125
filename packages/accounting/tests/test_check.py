"""accounting check: headers of safetensors files beside the count."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from accounting.commands.parser import main

CONFIG = {
    **{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 10},
    **{"intermediate_size": 12, "tie_word_embeddings": False},
}
SIZES = {"BF16": 2, "F32": 4, "U8": 1}
MODEL = {
    "model.embed_tokens.weight": ("BF16", [10, 8]),
    **{f"model.layers.0.self_attn.{name}_proj.weight": ("BF16", [8, 8]) for name in "qkvo"},
    **{f"model.layers.0.mlp.{name}_proj.weight": ("BF16", [12, 8]) for name in ("gate", "up", "down")},
    **{f"model.layers.0.{name}_layernorm.weight": ("BF16", [8]) for name in ("input", "post_attention")},
    "model.norm.weight": ("BF16", [8]),
    "lm_head.weight": ("BF16", [10, 8]),
}


def write(path: Path, tensors: dict[str, tuple[str, list[int]]], cut: int = 0) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = SIZES[dtype]
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(text)) + text + bytes(at))[: -cut or None])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def checked(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, dict[str, Any]]:
    assert main(["check", str(folder), "--json"]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_model_equals_its_count(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    names = list(MODEL)
    write(folder / "model-1.safetensors", {name: MODEL[name] for name in names[:4]})
    write(folder / "model-2.safetensors", {name: MODEL[name] for name in names[4:]})
    rows = checked(capsys, folder)
    assert rows["difference"]["elements"] == 0
    assert rows["parameters"]["elements"] == rows["counted"]["elements"] == 2 * 80 + 4 * 64 + 3 * 96 + 3 * 8
    assert rows["parameters"]["bytes"] == 2 * rows["parameters"]["elements"]
    assert main(["check", str(folder)]) == 0
    assert "they are equal" in capsys.readouterr().out


def test_what_is_beside_the_parameters_is_named(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    more = {
        "model.layers.1.mlp.up_proj.weight": ("BF16", [12, 8]),
        "visual.blocks.0.attn.weight": ("BF16", [4, 4]),
        "model.layers.0.mlp.up_proj.weight_scale_inv": ("F32", [1, 1]),
        "model.rotary_emb.inv_freq": ("F32", [2]),
    }
    write(folder / "model.safetensors", MODEL | more)
    rows = checked(capsys, folder)
    assert rows["difference"]["elements"] == 0
    assert rows["layers for further tokens"]["elements"] == 96
    assert rows["towers of other inputs"]["elements"] == 16
    assert rows["scales of quantised weights"]["bytes"] == 4
    assert rows["tables that are computed"]["tensors"] == 1
    write(folder / "model.safetensors", MODEL | {"model.layers.0.extra.weight": ("BF16", [3, 3])})
    assert checked(capsys, folder)["difference"]["elements"] == 9


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: None, "no file that ends in .safetensors"),
        (lambda path: path.write_bytes(b""), "no safetensors file"),
        (lambda path: path.write_bytes(struct.pack("<Q", 1 << 40) + b"{}"), "no safetensors file"),
        (lambda path: path.write_bytes(struct.pack("<Q", 5) + b"{{{{{"), "no safetensors file"),
        (lambda path: write(path, MODEL, cut=2), "ends before its tensor"),
        (lambda path: path.write_bytes(struct.pack("<Q", 10) + b'{"a": [1]}'), "broken entry for 'a'"),
        (lambda path: [write(path.with_stem(name), MODEL) for name in "ab"], "an earlier file has too"),
    ],
)
def test_files_that_lie_are_one_sentence(
    capsys: pytest.CaptureFixture[str], folder: Path, spoil: Any, words: str
) -> None:
    spoil(folder / "model.safetensors")
    assert main(["check", str(folder)]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["check", str(tmp_path / "nowhere")]) == 2
    assert "is no folder" in capsys.readouterr().err
