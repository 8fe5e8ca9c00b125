"""Chat templates of exports: transformers and llama.cpp write a conversation as the ids that ours is trained on."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conversations import MARKS, TALK, lines

from lm.chat_template import ROLES, Template, messages_of
from lm.commands.cli import main
from lm.tokenizer import load_tokenizer

bpe = pytest.importorskip("bpe")
transformers = pytest.importorskip("transformers")
TEXT = "user\nassistant\nsystem\n### end\n12 yes! (sure).\n\n\tindeed, d\u00e9j\u00e0 vu: 100 of them; and so on\n" * 3
KINDS = {
    "marked, gpt2": ("gpt2", MARKS),
    "marked, llama3": ("llama3", MARKS),
    "plain, gpt2": ("gpt2", MARKS[:1]),
}


def tokenizer(kind):
    pattern, special = KINDS[kind]
    return bpe.train([TEXT], 300, pattern=pattern, special_tokens=special)


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """A run that learned from conversations for a step, and its export."""
    folder = tmp_path_factory.mktemp("talk")
    tokenizer(request.param).save(folder / "tok.json")
    lines(folder / "talks.jsonl", *[[*TALK, {"role": "user", "content": str(n)}] for n in range(8)])
    given = ["--tokenizer", str(folder / "tok.json")]
    data, run, out = (str(folder / name) for name in ("data", "run", "out"))
    assert main(["data", "chat", str(folder / "talks.jsonl"), "--out", data, "--heldout", "0", *given]) == 0
    size = {"vocab_size": 300, "context_length": 32, "num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 32}
    settings = [f"--model.{name}={value}" for name, value in size.items()]
    settings += ["--train.steps=1", "--train.batch_size=1", "--train.warmup_steps=0", "--train.threads=1"]
    assert main(["train", "cpu-demo", "--data", data, "--out", run, "--quiet", *given, *settings]) == 0
    assert main(["export", run, "--to", out]) == 0
    return run, out


def test_transformers_writes_the_ids_that_ours_is_trained_on(exported):
    run, out = exported
    template, theirs = (
        Template(load_tokenizer(f"{run}/tokenizer.json")),
        transformers.AutoTokenizer.from_pretrained(out),
    )

    said = st.text(st.sampled_from("aé1 .!?()\n\t'\u6f22#\"\\{}%"), max_size=12).map(str.lstrip)

    @settings(max_examples=150, deadline=None)
    @given(talk=st.lists(st.tuples(st.sampled_from(ROLES[1:]), said), min_size=1, max_size=4), system=st.booleans())
    def same(talk, system):
        if not template.marked:  # an ending of white space is one with the mark after it
            talk = [(role, content.rstrip()) for role, content in talk]
        found = [{"role": role, "content": content} for role, content in talk]
        if system:
            found.insert(0, {"role": "system", "content": "be brief"})
        messages = messages_of(found)
        for prompt, want in ((True, template.prompt(messages)), (False, template.encode(messages)[0])):
            ids = theirs.apply_chat_template(found, add_generation_prompt=prompt, return_dict=False)
            assert ids == want

    same()
    with open(f"{out}/generation_config.json") as file:
        assert json.load(file)["eos_token_id"] == template.stop_tokens
    assert transformers.GenerationConfig.from_pretrained(out).eos_token_id == template.stop_tokens


def test_a_gguf_has_the_same_template(exported, tmp_path):
    gguf = pytest.importorskip("gguf")
    run, out = exported
    assert main(["export", run, "--to", str(tmp_path / "model.gguf")]) == 0
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    with open(f"{out}/tokenizer_config.json") as file:
        assert reader.fields["tokenizer.chat_template"].contents() == json.load(file)["chat_template"]


def test_a_tokenizer_that_joins_marks_and_contents_gets_none():
    """Llama 3's pattern takes the line's end with the mark before it: "yes!⏎" is one pretoken."""
    text = "yes!\n" * 9
    assert Template(bpe.train([text], 260, pattern="llama3", special_tokens=MARKS[:1])).jinja() is None
    assert Template(bpe.train([text], 262, pattern="llama3", special_tokens=MARKS)).jinja() is not None
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"\na"}
    assert Template(bpe.Tokenizer(vocab, [(b"\n", b"a")], special_tokens=MARKS)).jinja() is None


def test_a_tokenizer_of_pieces_gets_none(tmp_path):
    """It puts a space before every text, and so before every content."""
    from test_pieces import tok_bin

    (tmp_path / "tok.bin").write_bytes(tok_bin())
    assert Template(load_tokenizer(tmp_path / "tok.bin"), "</s>").jinja() is None


def test_a_run_that_learned_no_conversations_has_none(tmp_path, exported):
    run, _ = exported
    base = tmp_path / "base"
    assert main(["import", run, "--to", str(base)]) == 0
    assert main(["export", str(base), "--to", str(tmp_path / "out")]) == 0
    with open(tmp_path / "out/tokenizer_config.json") as file:
        assert "chat_template" not in json.load(file)


def test_gpt2s_pair_of_files_is_the_tokenizer_of_a_folder(tmp_path):
    """vocab.json and merges.txt beside the weights, as GPT-2 was published: text in, ids out, as transformers has them."""
    from test_interop import GPT2, make

    from lm.interop import to_huggingface
    from lm.interop.importing import own_tokenizer

    made = bpe.train([TEXT], 288, special_tokens=MARKS[:1])
    folder = to_huggingface(make(vocab_size=290, **GPT2), tmp_path / "model")
    os.remove(folder / "checksums.json")
    made.to_gpt2(folder)
    assert not (folder / "tokenizer.json").exists()
    assert (folder / "vocab.json").exists()
    text = "it is 12, d\u00e9j\u00e0 vu! <|endoftext|>and so"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert own_tokenizer(folder).encode(text, allowed_special="all") == theirs(text)["input_ids"]
    assert main(["import", str(folder), "--to", str(tmp_path / "run")]) == 0
    assert own_tokenizer(tmp_path / "run").encode(text, allowed_special="all") == theirs(text)["input_ids"]
    assert main(["generate", str(folder), "--prompt", "it is", "--max-new-tokens", "2"]) == 0
    (folder / "added_tokens.json").write_text('{"<|pad|>": 289}')
    assert own_tokenizer(folder).special_tokens == {
        "<|endoftext|>": made.special_tokens["<|endoftext|>"],
        "<|pad|>": 289,
    }
    for about, says in [
        ({"tokenizer_class": "Qwen2Tokenizer"}, "Qwen2Tokenizer"),
        ({"add_prefix_space": True}, "True"),
    ]:
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
        with pytest.raises(ValueError, match=f"{says}.*only GPT-2's kind is read"):
            own_tokenizer(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        own_tokenizer(folder)
