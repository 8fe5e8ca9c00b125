"""`lm profile`: the time and the memory of a training step, by operator."""

from __future__ import annotations

import argparse
import os

from lm.commands.cli import Commands, add
from lm.commands.configuration import configuration, presets


def register(commands: Commands) -> None:
    text = "where a training step's time and memory go on this machine, by torch.profiler; settings as for `lm train`"
    parser = add(commands, "profile", profile, text, takes_settings=True)
    parser.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    parser.add_argument("--steps", type=int, default=3, help="profiled steps (default: 3)")
    parser.add_argument("--most", type=int, least=1, default=15, help="rows to show (default: 15)")
    parser.add_argument("--trace", metavar="FILE", help="a trace of the steps, as JSON, which ui.perfetto.dev opens")


def profile(options: argparse.Namespace) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its start and end are told of; read with torch
    from lm.device import choose_device, device_name
    from lm.training import measure as measuring
    from lm.training.run import resolve

    model, config = configuration(options.config, options.settings)
    config = resolve(config)
    device = choose_device(config.device)
    if options.trace and not os.path.isdir(os.path.dirname(os.path.abspath(options.trace))):
        raise FileNotFoundError(f"there is no folder {os.path.dirname(os.path.abspath(options.trace))} for the trace")
    profiler = measuring.profile(model, config, steps=options.steps, device=device)
    tokens, column = config.batch_size * model.context_length, "device" if device.type == "cuda" else "cpu"
    speed = f"{tokens / measuring.measure(model, config):,.0f} tokens/s without the profiler"
    print(f"{tokens:,} tokens a step on {device_name(device)}, {config.precision}: {speed}")
    rows = profiler.key_averages()
    print(rows.table(sort_by=f"self_{column}_time_total", row_limit=options.most, max_name_column_width=36))
    if options.trace:
        profiler.export_chrome_trace(options.trace)
        print(f"the trace is in {options.trace}: open it at ui.perfetto.dev")
