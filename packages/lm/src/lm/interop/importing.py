"""A run out of another program's model, from which training goes on."""

from __future__ import annotations

import os
from pathlib import Path

from lm.interop.exporting import source_of
from lm.model import Transformer
from lm.tokenizer import write_text_config
from lm.training import checkpoint
from lm.training.checkpoint import CHECKPOINTS
from lm.training.resume import RunConfig
from lm.training.run import place_of, write, writing


def import_run(source: str | Path, run_dir: str | Path, *, tokenizer: str | Path | None = None) -> Transformer:
    """Make a run of another program's model, with its weights as step 0, and return it in fp32.

    The run keeps the model's chat template and stop tokens, and its tokenizer if no other file is named.
    FileExistsError: there is something in run_dir. ValueError: a part is not supported, by name; nothing is written.
    """
    run = Path(run_dir)
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise FileExistsError(f"{run} is not an empty folder: choose another for the imported model")
    _, model, text = source_of(source, tokenizer, None)
    data = {} if text is None else {"tokenizer": text.tokenizer.fingerprint}
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
        if text is not None:
            text.tokenizer.save(run / "tokenizer.json")
            write_text_config(run, text.config)
        name = os.path.basename(os.path.abspath(source))
        checkpoint.save(run / CHECKPOINTS, 0, model, None, {"imported": name})
        start = {"kind": "import", "from": place_of(source)}
        write(run, RunConfig(model.config, None, data, start))  # the last: a folder without it is no run
    return model
