"""Models from wherever they lie, with the tokenizer, the chat template and the stop tokens that they came with."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from lm.config import one_of
from lm.device import choose_device, use_huge_pages
from lm.files import no_model, read_json
from lm.interop.model_folder import of_folder
from lm.tokenizer import PAIR, TextConfig, kept_tokenizer, load_tokenizer, read_text_config, stop_ids
from lm.training.run import Run, best_step, is_run, located, read

if TYPE_CHECKING:
    from lm.chat_template import ChatTemplate
    from lm.model import Transformer

ADAPTER = "adapter_config.json"
FILE = "file"  # the dtype of weights that stay as their file has them
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


def load(
    path: str | Path,
    step: int | Literal["best", "average"] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "fp32",
) -> Transformer:
    """Loads a model to evaluate or to generate with, in eval mode.

    Args:
        path: A run; a Hugging Face folder; a .gguf file; or a model on the Hub, which is downloaded: hf://OWNER/NAME,
            or its bare name ("gpt2", "OWNER/NAME") where nothing on this machine has that path.
        step: For a run, the checkpoint of this step, or "best", that of the best evaluation (default: the newest);
            "average": of a run with train.ema, the moving average of its weights.
        device: "cpu", "cuda", "mps", or "auto", the fastest of them that is here.
        dtype: "fp32", "bf16", "fp16" or "fp64", or a torch.dtype: what the weights are converted to. "file", of a .gguf
            or a folder, on a CPU: the matrices keep the types that the file has, and stay in the mapped file, which may
            not be changed meanwhile; such a model is there at once, takes the file's memory, and is not trained.

    Returns:
        The model.

    Raises:
        FileNotFoundError: There is nothing of the kind at `path`.
        ValueError: The model is damaged or not supported, by name; or the device or the dtype is unknown.

    >>> import lm, tempfile
    >>> lm.load("./runs/first")
    Traceback (most recent call last):
    FileNotFoundError: there is no runs/first: name a run, or a model to load
    """
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        one_of("dtype", dtype, (*DTYPES, FILE))
    target = device if isinstance(device, torch.device) else choose_device(str(device))
    if dtype == FILE and torch.device(target).type != "cpu":
        raise ValueError(f"dtype 'file' is for a CPU, and the device is {target}: name another dtype")
    model = read_model(located(path), step, stored=dtype == FILE)
    check_finite(model, path)
    if dtype == FILE:
        return model
    model = model.to(device=target, dtype=dtype if isinstance(dtype, torch.dtype) else DTYPES[dtype]).eval()
    if torch.device(target).type == "cpu":
        use_huge_pages(model)
    return model


def check_finite(model: Transformer, path: str | Path) -> None:
    """ValueError: a weight holds NaN or infinities, with its name."""
    for name, weight in model.named_parameters():
        low, high = weight.detach().aminmax()
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise ValueError(f"{path}: the weight {name} holds NaN or infinities: take another copy of the model")


def read_model(path: Path, step: int | Literal["best", "average"] | None, *, stored: bool = False) -> Transformer:
    """Read the model of a run or of another program's files, on the CPU. stored: see from_gguf."""
    if stored and (is_run(path) or (path / ADAPTER).is_file()):
        raise ValueError(f"{path}: dtype 'file' is for a .gguf file or a folder of weights: export it, or take fp32")
    if is_run(path):
        return Run.load(path, best_step(path) if step == "best" else step)
    if step is not None:
        raise ValueError(f"{path} is not a run, and only a run has steps: leave out step {step}")
    if (base := base_of(path)) is not None:
        from lm.interop.peft import from_peft

        return from_peft(path, read_model(base, None))
    if (path / "config.json").is_file():
        from lm.interop.huggingface import from_huggingface

        return from_huggingface(path, stored=stored)
    if path.suffix == ".gguf":
        from lm.interop.gguf_reader import from_gguf

        return from_gguf(path, stored=stored)
    must_exist(path)
    raise no_model(path)


def base_of(path: Path) -> Path | None:
    """Return the model of a folder of adapters (see peft.py); None if it is no such folder."""
    if not (path / ADAPTER).is_file():
        return None
    base = read_json(path / ADAPTER).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ValueError(f"{path} does not name the model of its adapters: put base_model_name_or_path into {ADAPTER}")
    return located(base)


def text_config(path: Path) -> TextConfig:
    """Special tokens and chat template of a run, a model's folder or a .gguf file."""
    if path.suffix == ".gguf" and path.is_file():
        from lm.interop.gguf_reader import gguf_text_config

        return gguf_text_config(path)
    return read_text_config(base_of(path) or path)


def tokenizer_of(path: str | Path) -> Path | None:
    """The tokenizer that lies in a run or in the folder of another program's model; a .gguf file has it in itself."""
    path = located(path)
    path = base_of(path) or path
    if is_run(path):
        return kept_tokenizer(path)
    if path.suffix == ".gguf" and path.is_file():
        return path
    beside = path / "tokenizer.json"
    if not beside.is_file() and all((path / name).is_file() for name in PAIR):
        beside = path / PAIR[0]
    return of_folder(beside) if beside.is_file() else None


@dataclass(frozen=True)
class ModelText:
    """A model's tokenizer, chat template and stop tokens."""

    tokenizer: Any  # a bpe.Tokenizer
    config: TextConfig
    end_of_text: int | None = None  # the id that ended documents in training, if the run records it
    learned_chats: bool = False  # True if the run learned from conversations that `lm data chat` made

    @property
    def stop_tokens(self) -> list[int]:
        """The ids that end a text."""
        own = () if self.end_of_text is None else (self.end_of_text,)
        return stop_ids(self.tokenizer, (*self.config.stop_tokens(self.tokenizer), *own))

    @functools.cached_property
    def template(self) -> ChatTemplate:
        """The model's own chat template, or the default one where it has none."""
        return chat_template(self.tokenizer, self.config, self.end_of_text)

    @property
    def kept_template(self) -> ChatTemplate | None:
        """The template that an export has: none for a model that never saw a conversation."""
        return self.template if self.config.chat_template is not None or self.learned_chats else None


def chat_template(tokenizer: Any, config: TextConfig, end_of_text: str | int | None = None) -> ChatTemplate:
    """The chat template of a model's files, or the default one, with end_of_text as the name or id of its token."""
    from lm.chat_template import ChatTemplate, default_template

    if config.chat_template is None:
        if isinstance(end_of_text, int):
            names = {int(number): name for name, number in tokenizer.special_tokens.items()}
            end_of_text = names.get(end_of_text)
        return default_template(tokenizer, end_of_text)
    stops = config.stop_tokens(tokenizer) or stop_ids(tokenizer)
    return ChatTemplate(tokenizer, config.chat_template, tuple(stops), (), config.names)


def must_exist(path: Path) -> None:
    """FileNotFoundError where nothing is."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: name a run, or a model to load")


def model_text(path: str | Path, tokenizer: str | Path | None = None) -> ModelText:
    """The text side of a model, as `load` takes it; tokenizer: the file of another one. FileNotFoundError: none."""
    here = located(path)
    must_exist(here)
    file = tokenizer_of(here) if tokenizer is None else Path(tokenizer)
    if file is None:
        raise FileNotFoundError(f"{path} keeps no tokenizer: name one with --tokenizer")
    data = read(here).data if is_run(here) else {}
    sets = [about for about in (data, *data.values()) if isinstance(about, dict)]
    end = data.get("end_of_text")
    loaded = load_tokenizer(file)
    recorded = {about["tokenizer"] for about in sets if "tokenizer" in about}
    if recorded and loaded.fingerprint not in recorded:
        warnings.warn(f"{file} is not the tokenizer that made the data of {path}: text may be nonsense", stacklevel=2)
    learned_chats = any("train_mask_sha256" in about for about in sets)
    return ModelText(loaded, text_config(here), end if isinstance(end, int) else None, learned_chats)
