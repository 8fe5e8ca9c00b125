"""The page written: a model's weights, its tokenizer and the program of assets/ in one HTML file."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch

from lm.attention import rope_frequencies
from lm.config import ModelConfig, one_of
from lm.extras import need
from lm.files import atomic_write
from lm.interop.exporting import source_of
from lm.interop.loading import ModelText
from lm.model import Transformer
from lm.ops.cpu.int8 import Int8Linear
from lm.ops.cpu.products import is_linear
from lm.reporting import report
from lm.tokenizer import prompt_ids

DTYPES = ("fp16", "int8")
MOST_BYTES = 400_000_000  # of a page: a browser's strings end at 512 MB
MODEL_SCRIPTS = ("forward.js", "memory.js", "sequence.js", "unpack.js")
POLICY = (
    """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; base-uri 'none'; """
    """form-action 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'wasm-unsafe-eval'">"""
)
# What of a ModelConfig the forward pass in JavaScript reads.
SHAPE = (
    "vocab_size", "context_length", "num_layers", "d_model", "num_heads", "kv_heads", "d_ff", "ffn", "norm",
    "norm_placement", "norm_eps", "position", "sliding_window", "logit_softcap", "value_embeddings",
)  # fmt: skip


def to_page(
    model_or_run_dir: Transformer | str | Path,
    path: str | Path,
    *,
    dtype: str = "fp16",
    tokenizer: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
    title: str | None = None,
    course: str | None = None,
) -> Path:
    """Write a page that holds a model and computes with it; it loads nothing and sends nothing.

    Args:
        model_or_run_dir: A run or another program's model, as for lm.load; or a model in memory, with `tokenizer`.
        path: The file to write.
        dtype: "fp16", or "int8": linear layers and head as `lm generate --int8` has them, the rest fp16.
        tokenizer: A tokenizer file (default: the model's own).
        step: For a run, the checkpoint of this step, or "best" (default: the newest).
        title: The page's heading (default: the name of the run).
        course: Address of a chapter of the course, with {} for the chapter's name, that views link to (default: none).

    Returns:
        The path of the file.

    Raises:
        ValueError: The model is of a class that the page does not know, has weights beyond float16, or is too large.
        FileNotFoundError: The model keeps no tokenizer, and none is named.
        MissingExtra: The package bpe is not installed.
    """
    model, text, folder = read(model_or_run_dir, tokenizer, step)
    title = title or (Path(path).stem if folder is None else folder.name)
    tokens = text.tokenizer
    about = {
        "title": title,
        "begin": prompt_ids(tokens, "", text.end_of_text),
        "prefix": prompt_ids(tokens, "a")[: -len(tokens.encode("a"))],
        "stop": text.stop_tokens,
        "course": course,
        "origin": origin(folder),
    }
    page = filled(
        "page.html",
        title=title,
        policy=POLICY,
        style=bpe_asset("dress.css") + bpe_asset("tokens.css") + asset("controls.css") + asset("page.css"),
        data=packed(model, tokens, dtype, about),
        script=model_script() + bpe_asset("tokens.js") + asset("page.js"),
    )
    atomic_write(Path(path), page)
    return Path(path)


def read(
    model_or_run_dir: Transformer | str | Path,
    tokenizer: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
) -> tuple[Transformer, ModelText, Path | None]:
    """The model, its text and its folder or file, None for a model in memory; as for to_page()."""
    folder, model, text = source_of(model_or_run_dir, tokenizer, step)
    if text is None:
        raise FileNotFoundError(f"{folder or 'a model in memory'} keeps no tokenizer: name one with --tokenizer")
    return model, text, folder


def origin(folder: Path | None) -> str:
    """A sentence on the training of a run, empty for a model of no run."""
    if folder is None or not (folder / "config.toml").is_file():
        return ""
    run = report.read(folder)
    values = {"{:,.0f} steps": "step", "{:,.0f} tokens": "tokens", "{:.3f} held-out bits per byte": "val_bits_per_byte"}
    facts = [form.format(value) for form, key in values.items() if (value := run.last(key)) is not None]
    return f"Its training: {', '.join(facts)}." if facts else ""


def chat_page_of(
    model: Transformer,
    text: ModelText,
    *,
    dtype: str,
    title: str,
    system: str | None = None,
    max_new_tokens: int = 512,
    seed: int = 0,
    temperature: float = 0.8,
    top_p: float | None = None,
) -> str:
    """A page for conversations by a model's template, which @huggingface/jinja renders. ValueError: as to_page()."""
    template = text.template
    about = {
        "template": template.source,
        "names": dict(template.names),
        "read_in_answers": sorted(template.read_in_answers),
        "stop": list(template.stop_tokens),
        "stop_strings": list(template.stop),
        "system": system,
        "max_new_tokens": max_new_tokens,
        "seed": seed,
        "temperature": temperature,
        "top_p": top_p,
    }
    script = asset("jinja.min.js") + model_script() + asset("chat.js") + asset("talk.js")
    return chat_shell(title, packed(model, text.tokenizer, dtype, about), script, policy=POLICY)


def chat_shell(title: str, data: str, script: str, policy: str = "") -> str:
    """The page of a conversation; the script says where answers come from."""
    style = bpe_asset("dress.css") + asset("controls.css") + asset("chat.css")
    return filled("chat.html", title=title, policy=policy, style=style, data=data, script=script)


def packed(model: Transformer, tokenizer: Any, dtype: str, about: Mapping[str, Any]) -> str:
    """The elements of a page that hold the model: what unpack.js reads."""
    tensors, weights = packed_weights(model, dtype)
    if (size := len(weights) * 4 // 3) > MOST_BYTES:
        limit = f"browsers open {MOST_BYTES / 1e6:,.0f} at the most"
        raise ValueError(f"the page would have {size / 1e6:,.0f} MB, and {limit}: take a smaller model, or int8")
    about = {
        **about,
        "dtype": dtype,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "config": shape_of(model.config),
        "tensors": tensors,
    }
    tokenizers = need("bpe.reporting.javascript", "a page", "groundup-lm[text]")
    contents = {
        "vocabulary": tokenizers.packed(tokenizer.data).decode(),
        "kernel": asset("kernel.wasm.base64").strip(),
        "weights": base64.b64encode(weights).decode(),
    }
    json_of_about = json.dumps(about).replace("<", "\\u003c")
    return f'<script type="application/json" id="about">{json_of_about}</script>\n' + "\n".join(
        f'<script type="text/plain" id="{name}">{content}</script>' for name, content in contents.items()
    )


def model_script() -> str:
    """The tokenizer and the model in JavaScript."""
    return bpe_asset("encoder.js") + "".join(map(asset, MODEL_SCRIPTS))


def filled(body: str, *, title: str, **parts: str) -> str:
    """The page with this body, an HTML file of assets/, and its {{marks}} filled."""
    parts["title"] = html.escape(title)
    parts["body"] = asset(body).replace("{{title}}", parts["title"])
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], asset("shell.html"))


def shape_of(config: ModelConfig) -> dict[str, Any]:
    """Return the settings of a configuration that forward.js reads."""
    shape = {name: getattr(config, name) for name in SHAPE} | {"head_dim": config.head_width}
    if config.position == "rope":
        frequencies = rope_frequencies(config.head_width, config.rope_theta, config.rope_scaling)
        shape["rope_frequencies"] = frequencies.tolist()
    return shape


def packed_weights(model: Transformer, dtype: str) -> tuple[list[dict[str, Any]], bytes]:
    """Names, shapes and kinds of the tensors, and their numbers in that order, little-endian. int8: the scales of the
    rows as bfloat16, then the rows. "tied int8": nothing; the page makes it of the embedding."""
    one_of("dtype", dtype, DTYPES)
    if type(model) is not Transformer:
        raise ValueError(f"the model is a {type(model).__name__}, and a page computes plain Transformers only")
    state: dict[str, Any] = model.state_dict()
    if dtype == "int8":  # the linear layers as lm.ops.cpu.int8 has them, of weights rounded to float16
        layers = ((name, module) for name, module in model.named_modules() if is_linear(module))
        state |= {f"{name}.weight": Int8Linear(layer.weight.detach().cpu().half().float()) for name, layer in layers}
    tensors, parts = list[dict[str, Any]](), list[bytes]()
    for name, tensor in state.items():
        if isinstance(tensor, Int8Linear):
            parts += [tensor.scale.view(torch.int16).numpy().tobytes(), tensor.whole.numpy().tobytes()]
            tensors.append({"name": name, "shape": [tensor.outputs, tensor.inputs], "kind": "int8"})
        else:
            numbers = tensor.detach().cpu().half()
            if not torch.isfinite(numbers).all():
                raise ValueError(f"the weight {name} holds values beyond 65,504, the range of a page's float16")
            parts.append(numbers.numpy().tobytes())
            tensors.append({"name": name, "shape": list(tensor.shape), "kind": "fp16"})
    if dtype == "int8" and model.config.tied_embeddings:
        tensors.append({"name": "head.weight", "shape": list(model.head_weight.shape), "kind": "tied int8"})
    return tensors, zlib.compress(b"".join(parts), 9)


def asset(name: str) -> str:
    return (resources.files("lm.page") / "assets" / name).read_text("utf-8")


def bpe_asset(name: str) -> str:
    """A file of the assets of bpe's pages, which have the one tokenizer in JavaScript."""
    return str(need("bpe.reporting.view", "a page", "groundup-lm[text]").asset(name))
