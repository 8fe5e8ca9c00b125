"""`lm verify`: train parts of a run once more, between checkpoints that it kept, and compare them to the bit."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm.commands.cli import Commands, Ended, add


def register(commands: Commands) -> None:
    text = "train the last steps of a run once more, between checkpoints that it kept, and compare them to the bit"
    parser = add(commands, "verify", verify, text)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data", action="append", required=True, help="its data, as for `lm train`")
    help = "parts from one kept checkpoint to the next, the newest first (default: 1; see train.keep_checkpoints)"
    parser.add_argument("--segments", type=int, default=1, metavar="N", help=help)


def verify(options: argparse.Namespace) -> None:
    from lm.commands.configuration import data_of
    from lm.training import checkpoint

    run = Path(options.run)
    steps = sorted(checkpoint.steps(run / checkpoint.CHECKPOINTS))
    segments = list(itertools.pairwise(steps))[::-1][: max(0, options.segments)]
    if not segments:
        raise ValueError(f"expected at least one segment, and two checkpoints in {options.run}, got {len(steps)}")
    differ = False
    for first, last in segments:
        differences = "; ".join(replayed(run, data_of("", options.data), first, last))
        print(f"steps {first + 1} to {last}: {differences or 'weights, optimizer and losses are equal to the bit'}")
        differ |= bool(differences)
    if differ:
        raise Ended(f"{options.run} is not what its steps come to here")


def replayed(run_dir: Path, data: Any, first: int, last: int) -> Iterator[str]:
    """Train the steps after `first` up to `last` again; yield each difference from the run."""
    import torch

    from lm.device import Processes
    from lm.tokenizer import kept_tokenizer
    from lm.training import checkpoint, metrics, resume, run
    from lm.training.train import Stopped, train

    config = run.read(run_dir)
    assert config.train is not None
    own = dataclasses.replace(config.train, init_from="scratch", checkpoint_every=0)
    with tempfile.TemporaryDirectory() as folder:
        again, tokenizer = Path(folder) / "run", kept_tokenizer(run_dir)
        how: dict[str, Any] = {"progress": False, "branch": run_dir, "step": first, "tokenizer": tokenizer}
        with contextlib.suppress(Stopped):
            train(config.model, own, data, again, callbacks=[lambda trainer, line: trainer.step == last], **how)
        old, new = (checkpoint.load(path / checkpoint.CHECKPOINTS, last) for path in (run_dir, again))
        assert old is not None
        assert new is not None
        lines = (map(json.loads, metrics.read_lines(path / metrics.METRICS, last)) for path in (run_dir, again))
        losses, others = ({line["step"]: line["loss"] for line in of_run if "loss" in line} for of_run in lines)
        if (step := next((step for step in losses if losses[step] != others.get(step)), None)) is not None:
            yield f"the loss of step {step} was {losses[step]}, and is {others.get(step)}"
        for name, weight in old.model.items():
            if not torch.equal(weight, new.model[name]):
                count, most = int((weight != new.model[name]).sum()), float((weight - new.model[name]).abs().max())
                yield f"{count:,} of {weight.numel():,} elements of {name} differ, by at most {most:.3g}"
                break
        states = [
            [torch.as_tensor(value) for state in each.optimizer.get("state", {}).values() for value in state.values()]
            for each in (old, new)
        ]
        if not all(map(torch.equal, *states)):
            yield "the optimizer's state differs"
        if note := resume.rounding_note(old, run.computed_by(own, Processes(device=torch.device(own.device)))):
            yield note.partition(": the run")[0]
