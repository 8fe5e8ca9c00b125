"""`lm export`: a model for other programs."""

from __future__ import annotations

import argparse

from lm.commands.cli import Commands, add, add_step


def register(commands: Commands) -> None:
    text = "write a model for transformers (a folder), llama.cpp (a .gguf file) or as a page that runs in a browser"
    parser = add(commands, "export", export, text)
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", help="a folder, or FILE.gguf; it is written whole or not at all")
    help = "a folder with the adapters alone that the run trained, as PEFT loads them beside the model they began with"
    target.add_argument("--adapter", metavar="FOLDER", help=help)
    target.add_argument("--page", metavar="FILE.html", help="a file that a browser opens: it holds and runs the model")
    help = "dtype of the weights: fp32 (default) or bf16 in a folder, also fp16 (default), q8_0 and q4_k_m in a .gguf; "
    help += "fp16 (default) or int8 in a page"
    parser.add_argument("--dtype", choices=("fp32", "fp16", "bf16", "q8_0", "q4_k_m", "int8"), help=help)
    parser.add_argument("--shard-bytes", type=int, help="split weights above this size into files (default: 5 billion)")
    parser.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    parser.add_argument("--course", metavar="URL", help="address of the course's chapters, {} for the name, for a page")
    help = "read what was written again, by lm and by transformers or llama_cpp if installed, and compare it with RUN"
    parser.add_argument("--check", action="store_true", help=help)
    help = "send what was written to this model of the Hugging Face Hub, which is made if it is not there"
    parser.add_argument("--push", metavar="OWNER/NAME", help=help)
    parser.add_argument("--private", action="store_true", help="with --push, only its owners see a model that is made")
    parser.add_argument("--dry-run", action="store_true", help="with --push, name the files and their sizes, send none")
    add_step(parser)


def export(options: argparse.Namespace) -> None:
    from lm import to_gguf, to_huggingface
    from lm.interop import check
    from lm.interop import push as hub
    from lm.interop.peft import to_peft
    from lm.page.export import to_page

    # Each kind of target refuses the options that have no effect on it.
    is_gguf, useless = str(options.out).endswith(".gguf"), tuple[str, ...]()
    if options.page is not None:
        target, useless = "--page", ("shard_bytes", "check", "push")
    elif options.adapter is not None:
        target, useless = "--adapter", ("dtype", "shard_bytes", "tokenizer", "course", "check")
    else:
        target, useless = ("a .gguf", ("course", "shard_bytes")) if is_gguf else ("a folder", ("course",))
    for name in useless:
        if getattr(options, name):
            raise ValueError(f"--{name.replace('_', '-')} has no effect with {target}: leave it out")
    if options.push is None and (options.private or options.dry_run):
        raise ValueError("--private and --dry-run go with --push OWNER/NAME: add it, or leave them out")
    if str(options.out).endswith(".html"):
        raise ValueError(f"--out is a folder or FILE.gguf: for a page write --page {options.out}")
    source = {"tokenizer": options.tokenizer, "step": options.step}
    if options.page is not None:
        path = to_page(options.run, options.page, dtype=options.dtype or "fp16", course=options.course, **source)
        print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
        return
    if options.adapter is not None:
        path = to_peft(options.run, options.adapter, step=options.step)
    elif is_gguf:
        path = to_gguf(options.run, options.out, dtype=options.dtype or "fp16", **source)
    else:
        size = {} if options.shard_bytes is None else {"shard_bytes": options.shard_bytes}
        path = to_huggingface(options.run, options.out, dtype=options.dtype or "fp32", **size, **source)
    print(path)
    if options.check:
        dtype = options.dtype or ("fp16" if is_gguf else "fp32")
        print(*check.check_export(options.run, options.out, dtype=dtype, **source), sep="\n")
    if options.push is not None:
        for line in hub.push(str(path), options.push, private=options.private, dry_run=options.dry_run):
            print(line, flush=True)
