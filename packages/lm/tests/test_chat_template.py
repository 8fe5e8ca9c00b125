"""Chat templates as transformers renders them, with the model's own stops, through import, tuning, export and GGUF."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llama2c_files import tokenizer_file
from models import SHAPES, make, random_model
from published_templates import CHATML, FAMILIES, GEMMA, LLAMA3, MARKED, MISTRAL, QWEN3, TWO_TURNS
from talks import MARKS, TALK, lines, tokenizer

import lm
from lm.chat_template import ROLES, ChatTemplate, Message, default_template
from lm.commands.cli import main
from lm.data.rows import read_messages
from lm.interop.loading import chat_template, model_text
from lm.interop.ollama import go_template, modelfile
from lm.tokenizer import BEGINS, TextConfig, end_of_text_of, load_tokenizer, read_text_config, write_text_config

bpe = pytest.importorskip("bpe")
transformers = pytest.importorskip("transformers")
TEXT = "user\nassistant\nsystem\n### end\n12 yes! (sure).\n\n\tindeed, d\u00e9j\u00e0 vu: 100 of them; and so on\n" * 3


@pytest.fixture(scope="module", params=FAMILIES)
def published(request, tmp_path_factory):
    """A folder as a model's publisher has it: weights, tokenizer, template and stops; and which family it is."""
    source, special, names, stops = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "model"
    tokenizer = bpe.train([TEXT], 300, pattern="llama3", special_tokens=special)
    tokenizer.save(folder.with_name("tok.json"))
    model = random_model(300, 128, 1, 32, 2, 32)
    lm.to_huggingface(model, folder, tokenizer=folder.with_name("tok.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    if request.param == "gemma":  # where newer models have it
        (folder / "chat_template.jinja").write_text(source)
    else:
        about["chat_template"] = source
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    ids = [tokenizer.special_tokens[name] for name in stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids if len(ids) > 1 else ids[0]}))
    return folder, request.param


def conversations(system):
    texts = st.text(st.sampled_from("aé1 .!?()\n\t'\u6f22#\"\\{}%"), max_size=12)
    turns = st.lists(texts, min_size=1, max_size=5)
    return st.tuples(turns, texts if system else st.none()).map(
        lambda drawn: (
            ([{"role": "system", "content": drawn[1]}] if drawn[1] is not None else [])
            + [{"role": ROLES[1 + n % 2], "content": text} for n, text in enumerate(drawn[0])]
        )
    )


def test_transformers_writes_the_same_ids_of_a_models_own_template(published):
    folder, family = published
    template, theirs = model_text(folder).template, transformers.AutoTokenizer.from_pretrained(folder)
    assert not template.is_default

    @settings(max_examples=60, deadline=None)
    @given(talk=conversations(system=family != "gemma"))
    @example(talk=[{"role": "user", "content": ""}, {"role": "assistant", "content": "\n 1"}])
    def same(talk):
        messages = read_messages(talk)
        for prompt in (True, False):
            want = theirs.apply_chat_template(talk, add_generation_prompt=prompt, tokenize=False)
            assert template.render(messages, add_generation_prompt=prompt) == want
        assert template.prompt(messages) == theirs.apply_chat_template(
            talk, add_generation_prompt=True, return_dict=False
        )
        if any(one["role"] == "assistant" and one["content"].strip() for one in talk):
            ids, _ = template.encode(messages)
            assert ids == theirs.apply_chat_template(talk, add_generation_prompt=False, return_dict=False)

    same()


LEARNED = {
    "chatml": "4 é<|im_end|>yes<|im_end|>",
    "llama3": "4 é<|eot_id|>yes<|eot_id|>",
    "qwen3": "4 é<|im_end|><think>\n\n</think>\n\nyes<|im_end|>",
    "mistral": " 4 é</s> yes</s>",
    "gemma": "4 é<end_of_turn>yes<end_of_turn>",
    # its template marks more than transformers' prompt leaves to the answer
    "deepseek": "<|Assistant|>4 é<|end_of_sentence|><|Assistant|>yes<|end_of_sentence|>",
}


def test_what_the_assistant_says_is_learned_with_what_ends_it(published):
    folder, family = published
    text = model_text(folder)
    talk = TALK[1:] if family == "gemma" else TALK
    ids, learned = text.template.encode(read_messages(talk))
    assert (
        text.tokenizer.decode([i for i, is_learned in zip(ids, learned, strict=True) if is_learned]) == LEARNED[family]
    )


def test_its_own_tokens_end_an_answer_and_all_of_it_is_kept(published, tmp_path, capsys):
    """Through import, a fine-tuning on conversations, export to a folder and to GGUF, and what is loaded from each."""
    folder, family = published
    template = model_text(folder).template
    stops = [template.tokenizer.special_tokens[name] for name in FAMILIES[family][3]]
    assert sorted(template.stop_tokens) == sorted(
        {*stops, template.tokenizer.special_tokens[template.names["eos_token"]]}
    )
    run, data, out = (str(tmp_path / name) for name in ("run", "data", "out"))
    assert main(["import", str(folder), "--out", run]) == 0
    talk = [{**one, "content": one["content"].replace("<|im_end|>", "")} for one in TALK[family == "gemma" :]]
    lines(tmp_path / "talks.jsonl", *[[*talk, {"role": "user", "content": str(n)}] for n in range(4)])
    tokenizer = ["--tokenizer", f"{run}/tokenizer.json", "--heldout", "0"]
    assert main(["data", "chat", str(tmp_path / "talks.jsonl"), "--out", data, *tokenizer]) == 0
    train = ["train", f"{run}/config.toml", "--out", run, "--data", data, "--quiet", "--train.objective=sft"]
    small = ["--train.steps=1", "--train.batch_size=1", "--train.warmup_steps=0", "--train.threads=1"]
    assert main([*train, *small]) == 0
    assert main(["export", run, "--out", out]) == 0
    assert main(["export", run, "--out", f"{out}.gguf"]) == 0
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    messages = read_messages(talk[:-1])
    assert theirs.chat_template == template.source
    want = theirs.apply_chat_template(talk[:-1], add_generation_prompt=True, return_dict=False)
    for place in (run, out, f"{out}.gguf"):
        read_template = model_text(place).template
        assert read_template.source == template.source, place
        assert set(read_template.stop_tokens) >= set(template.stop_tokens[:1]), place
        assert read_template.prompt(messages) == template.prompt(messages) == want, place
    assert set(model_text(out).template.stop_tokens) == set(template.stop_tokens)
    eos = transformers.GenerationConfig.from_pretrained(out).eos_token_id
    assert set(eos if isinstance(eos, list) else [eos]) == set(template.stop_tokens)


KINDS = {
    "marked, gpt2": ("gpt2", MARKS, []),
    "marked, llama3": ("llama3", MARKS, []),
    "plain, gpt2": ("gpt2", MARKS[:1], ["\n### end"]),
    "plain, llama3": ("llama3", MARKS[:1], ["\n### end"]),
    "llama3's own tokens": (
        "llama3",
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        [],
    ),
    "deepseek's own tokens": ("deepseek-v3", ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|EOT|>"], []),
}
MARKED_NAMES = tuple(
    sorted(set(re.findall(r"<[^ <>]+>|\[gMASK\]", "".join(expected for _, expected in MARKED.values()))))
)
# Behind each template: tools and calls as published ones write them, whole and in parts.
WITH_TOOLS = """{% if tools %}{{ tools | tojson }}{{ tools[0].function.parameters | tojson(ensure_ascii=true) }}
{% endif %}{% for message in messages if message.tool_calls is defined %}{% for call in message.tool_calls %}
{{ call | tojson(indent=2) }}{{ call.function.name }}{{ call.function.arguments | string | trim }}
{% for key, value in call.function.arguments | items %}{{ key }}={{ value if value is string else value | tojson }}
{% endfor %}{% endfor %}{{ message.reasoning_content }}{% endfor %}{{ extra }}"""


def templates_of_chats():
    """Published ones, those of models with {% generation %}, and those of tokenizers without one."""
    for name, (source, special, names, stops) in FAMILIES.items():
        yield name, source, special, names, stops
    for name, (source, _) in MARKED.items():
        yield f"{name}, marked", source, list(MARKED_NAMES), {}, [MARKED_NAMES[0]]
    for name, (_, special, _) in KINDS.items():
        yield name, None, special, {}, special[-1:]


def nested(text):
    """Text in keys and values at several depths."""
    return {"a": text, f"k {text}": [{"deep": [text, 1, None, {text: True}]}]}


@pytest.mark.parametrize("added", [False, True], ids=["special", "added"])
@pytest.mark.parametrize("name", [name for name, *_ in templates_of_chats()])
def test_no_text_ends_a_turn_or_begins_one_wherever_it_stands(name, added):
    """Tools, arguments, results, earlier answers and more, each with the names of all tokens in it."""
    (chat,) = [one for one in templates_of_chats() if one[0] == name]
    _, source, special, names, stops = chat
    size = 256 + len(special) + 40
    tokenizer = bpe.train([TEXT], size, pattern="llama3", special_tokens=special)
    if added:
        data = tokenizer.data
        tokenizer = bpe.Tokenizer.from_data(data._replace(special_tokens={}, added_tokens=data.special_tokens))
    ids_of = tokenizer.data.special_tokens | tokenizer.data.added_tokens
    if source is None:
        if added:
            return  # its turns are special tokens, or it has none
        template = default_template(tokenizer)
        template = dataclasses.replace(template, source=template.source + WITH_TOOLS)
    else:
        template = ChatTemplate(tokenizer, source + WITH_TOOLS, tuple(ids_of[stop] for stop in stops), (), names)
    has_system = name != "gemma"

    def prompt(place, text):
        at = dict.fromkeys(("system", "user", "tool", "arguments", "call", "answer", "thought", "extra"), "x") | {
            place: text
        }
        calls = [
            {"id": "1", "type": "function", "function": {"name": at["call"], "arguments": nested(at["arguments"])}}
        ]
        described = {"name": "f", "description": at["tool"], "parameters": {"type": "object", **nested(at["tool"])}}
        messages = [
            *([Message("system", at["system"])] if has_system else []),
            Message("user", at["user"]),
            Message("assistant", at["answer"], {"tool_calls": calls, "reasoning_content": at["thought"]}),
            Message("user", "x"),
        ]
        return template.with_names({"extra": at["extra"]}).prompt(
            messages, [{"type": "function", "function": described}]
        )

    tokens = set(ids_of.values())
    harmless = Counter(token for token in prompt("user", "x") if token in tokens)
    assert harmless
    everything = "weather" + "".join(special) + "\n".join(special) + "\nobey"
    places = ["user", "tool", "arguments", "call", "answer", "thought", "extra", *(["system"] if has_system else [])]
    for place in places:
        ids = prompt(place, everything)
        allowed = {ids_of[one] for one in template.read_in_answers} if place == "answer" else set()
        assert Counter(token for token in ids if token in tokens - allowed) == harmless, place
        assert "obey" in tokenizer.decode(ids)
    assert template.read_in_answers <= {"<think>", "</think>"}


def test_names_that_mark_no_turn_stay_tokens_where_the_template_looks_for_them():
    source, special, names, _ = FAMILIES["qwen3"]
    tokenizer = bpe.train([TEXT], 300, pattern="llama3", special_tokens=special)
    template = ChatTemplate(tokenizer, source, (tokenizer.special_tokens["<|im_end|>"],), (), names)
    assert template.read_in_answers == {"<think>", "</think>"}
    talk = [Message("user", "1"), Message("assistant", "<think>\nno\n</think>\n\nyes<|im_end|>"), Message("user", "2")]
    assert "<think>" not in template.render(talk)  # earlier thoughts are left out by the template
    assert template.prompt(talk).count(tokenizer.special_tokens["<|im_end|>"]) == 3
    ids, _ = template._encode(template._written(talk[:2], False))
    assert tokenizer.decode(ids) == template.render(talk[:2], add_generation_prompt=False)
    assert [ids.count(tokenizer.special_tokens[name]) for name in ("<think>", "</think>", "<|im_end|>")] == [1, 1, 2]
    # As gpt-oss' template does: it looks for names that begin turns, and these stay text.
    refusing = (
        "{% for m in messages %}{% if '<|im_start|><think>' in m.content %}{{ raise_exception('no') }}{% endif %}"
    )
    refusing += "<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    assert ChatTemplate(tokenizer, refusing, (0,)).read_in_answers == {"<think>"}


def test_a_conversation_with_names_in_it_is_learned_to_the_same_place(published):
    """The ids of text with names of tokens are those of the prompt, and what is learned is the same text."""
    folder, family = published
    text = model_text(folder)
    name = FAMILIES[family][3][-1]
    talk = [Message("user", f"4 é {name}b"), Message("assistant", f"12 {name} é!"), Message("user", "x")]
    ids, learned = text.template.encode(talk)
    assert text.tokenizer.decode(ids) == text.template.render(talk, add_generation_prompt=False)
    answer = text.tokenizer.decode([id for id, is_learned in zip(ids, learned, strict=True) if is_learned])
    assert f"12 {name} é!" in answer
    assert "4 é" not in answer
    prompt = text.template.prompt(talk)
    assert prompt[: len(ids)] == ids or family in ("qwen3",)


def test_what_a_template_refuses_or_may_not_do_is_one_sentence():
    tokenizer = bpe.train([TEXT], 300, special_tokens=MARKS)
    user = [Message("user", "hi")]
    for source, says in [
        (GEMMA, "System role not supported"),
        ("{{ messages[0].nothing.more }}", "refuses the conversation"),
        ("{% for", "refuses the conversation"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses the conversation"),
        ("{{ 1 / 'a' }}", "fails on the conversation"),
    ]:
        template = ChatTemplate(tokenizer, source, (0,))
        with pytest.raises(ValueError, match=says):
            template.prompt([Message("system", "brief"), *user])
    changed = ChatTemplate(tokenizer, "{% for m in messages %}{{ m.content | upper }}{% endfor %}", (0,))
    assert changed.render(user) == "HI"
    with pytest.raises(ValueError, match="mark the answers in it"):
        changed.encode([*user, Message("assistant", "yes")])
    shortened = ChatTemplate(tokenizer, "{{ messages[-1].content }}", (0,))
    with pytest.raises(ValueError, match="mark the answers in it"):
        shortened.encode([*user, Message("assistant", "yes"), *user])


def test_generation_marks_say_what_is_learned(tmp_path):
    tokenizer = bpe.train([TEXT], 300, pattern="llama3", special_tokens=MARKS)
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}"
        "<think></think>{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )
    template = ChatTemplate(tokenizer, source, (tokenizer.special_tokens["<|im_end|>"],))
    talk = [*TALK[3:], {"role": "user", "content": "a \ue002 b"}]
    options = {"chat_template": source, "return_assistant_tokens_mask": True, "return_dict": True}
    want = theirs.apply_chat_template(talk, **options)
    ids, learned = template.encode(read_messages(talk))
    assert ids == want["input_ids"]
    assert list(map(int, learned)) == want["assistant_masks"]
    text = theirs.apply_chat_template(talk, chat_template=source, tokenize=False)
    assert template.render(read_messages(talk)) == text


def test_the_masks_of_published_templates_are_those_of_trl():
    size = 256 + len(MARKED_NAMES) + 40
    tokenizer = bpe.train([TEXT], size, pattern="llama3", special_tokens=list(MARKED_NAMES))
    for name, (source, expected) in MARKED.items():
        template = ChatTemplate(tokenizer, source, (0,))
        parts = re.split("[\u27e6\u27e7]", expected)  # in turn not learned and learned
        want = [
            (id, number % 2 == 1)
            for number, part in enumerate(parts)
            for id in tokenizer.encode(part, allowed_special="all")
        ]
        ids, learned = template.encode(read_messages(TWO_TURNS))
        assert tokenizer.decode(ids) == "".join(parts), name
        assert list(zip(ids, learned, strict=True)) == want, name


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """A run on conversations for a step, with a tokenizer that came without a template; and its export."""
    pattern, special, stop = KINDS[request.param]
    folder = tmp_path_factory.mktemp("talk")
    bpe.train([TEXT], 300, pattern=pattern, special_tokens=special).save(folder / "tok.json")
    lines(folder / "talks.jsonl", *[[*TALK, {"role": "user", "content": str(n)}] for n in range(8)])
    arguments = ["--tokenizer", str(folder / "tok.json")]
    data, run, out = (str(folder / name) for name in ("data", "run", "out"))
    talks = ["data", "chat", str(folder / "talks.jsonl"), "--out", data, "--heldout", "0", "--context", "128"]
    assert main([*talks, *arguments]) == 0
    size = {"vocab_size": 300, "context_length": 128, "num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 32}
    settings = [f"--model.{name}={value}" for name, value in size.items()]
    training = {"objective": "sft", "steps": 1, "batch_size": 1, "warmup_steps": 0, "threads": 1}
    settings += [f"--train.{name}={value}" for name, value in training.items()]
    assert main(["train", "cpu-demo", "--data", data, "--out", run, "--quiet", *arguments, *settings]) == 0
    assert main(["export", run, "--out", out]) == 0
    return run, out, stop


def test_transformers_writes_the_ids_of_the_default_template(exported, tmp_path):
    run, out, stop = exported
    template, theirs = model_text(run).template, transformers.AutoTokenizer.from_pretrained(out)
    assert template.is_default

    @settings(max_examples=60, deadline=None)
    @given(talk=conversations(system=True))
    def same(talk):
        messages = read_messages(talk)
        for prompt, want in ((True, template.prompt(messages)), (False, template.encode(messages)[0])):
            ids = theirs.apply_chat_template(talk, add_generation_prompt=prompt, return_dict=False)
            assert ids == want

    same()
    generation = transformers.GenerationConfig.from_pretrained(out)
    assert generation.eos_token_id == list(template.stop_tokens)
    assert list(template.stop) == stop
    assert (generation.stop_strings or []) == stop
    assert main(["export", run, "--out", str(tmp_path / "model.gguf")]) == 0
    for place in (out, tmp_path / "model.gguf"):
        assert model_text(place).template.source == template.source


@pytest.mark.parametrize("special", [special for _, special, _ in KINDS.values()] + [["<s>", "</s>"], ["<end>"]])
def test_a_run_writes_conversations_as_they_were_written_when_it_learned_them(special):
    """A run knows the id between its examples; `lm data chat` has the name that the user gave, or none."""
    tok = tokenizer(special)
    name = "<end>" if special == ["<end>"] else None
    number = tok.special_tokens[end_of_text_of(tok, name)]
    assert chat_template(tok, TextConfig(), number).source == chat_template(tok, TextConfig(), name).source


def test_a_run_that_learned_no_conversations_has_none(tmp_path, exported):
    run, _, _ = exported
    base = tmp_path / "base"
    assert main(["import", run, "--out", str(base)]) == 0
    assert main(["export", str(base), "--out", str(tmp_path / "out")]) == 0
    with open(tmp_path / "out/tokenizer_config.json") as file:
        assert "chat_template" not in json.load(file)


def test_a_tokenizer_of_pieces_writes_the_ids_of_transformers(tmp_path):
    """It puts a space before every text, and none before what follows a special token's text inside of one."""
    tokenizer = load_tokenizer(tokenizer_file(tmp_path))
    template = default_template(tokenizer, "</s>")
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    talk = [{"role": "user", "content": "the hello"}, {"role": "assistant", "content": "and the"}]
    ids, learned = template.encode(read_messages(talk))
    want = theirs.apply_chat_template(talk, chat_template=template.source, return_dict=False)
    assert ids == want
    answer = tokenizer.decode([i for i, is_learned in zip(ids, learned, strict=True) if is_learned])
    assert answer.strip() == "and the\n### end"


def test_gpt2s_pair_of_files_is_the_tokenizer_of_a_folder(tmp_path):
    """vocab.json and merges.txt beside the weights, as GPT-2 was published, are read as transformers reads them."""
    tokenizer = bpe.train([TEXT], 288, special_tokens=MARKS[:1])
    folder = lm.to_huggingface(make(vocab_size=290, **SHAPES["gpt2"]), tmp_path / "model")
    tokenizer.to_gpt2(folder)
    assert not (folder / "tokenizer.json").exists()
    assert (folder / "vocab.json").exists()
    text = "it is 12, d\u00e9j\u00e0 vu! <|endoftext|>and so"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert model_text(folder).tokenizer.encode(text, allowed_special="all") == theirs(text)["input_ids"]
    assert main(["import", str(folder), "--out", str(tmp_path / "run")]) == 0
    assert model_text(tmp_path / "run").tokenizer.encode(text, allowed_special="all") == theirs(text)["input_ids"]
    assert main(["generate", str(folder), "--prompt", "it is", "--max-new-tokens", "2"]) == 0
    (folder / "added_tokens.json").write_text('{"<|pad|>": 288}')
    ids = transformers.AutoTokenizer.from_pretrained(folder)("it is<|pad|>")["input_ids"]
    assert ids[-1] == 288
    assert model_text(folder).tokenizer.encode("it is<|pad|>") == ids  # not special, in transformers either
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(ValueError, match="names the class 'BertTokenizer'"):
        model_text(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json.* JSON"):
        model_text(folder)


@pytest.mark.parametrize("names", [{}, {"eos_token": "<|end|>"}])
@pytest.mark.parametrize("source", [None, "{{ messages }}"])
def test_a_run_keeps_names_with_and_without_a_template(tmp_path, names, source):
    write_text_config(tmp_path, TextConfig(names, source, (3,)))
    assert read_text_config(tmp_path) == TextConfig(names, source, (3,))


# Ollama's Modelfile: its template, run as Go runs it, writes what the chat template writes


def template_of(source):
    return ChatTemplate(tokenizer(["<bos>", *MARKS]), source, (258,), ("\n### end",), {"bos_token": "<bos>"})


def run_in_go(source, messages):
    """The text of a Go template that has one range over messages, with a condition for each role."""
    before, loop, after = re.fullmatch(r"(.*?){{ range .Messages }}(.*){{ end }}(.*)", source, re.S).groups()
    cases = dict(re.findall(r'{{ if eq .Role "(\w+)" }}(.*?){{ end }}', loop, re.S))
    return before + "".join(cases[one.role].replace("{{ .Content }}", one.content) for one in messages) + after


def test_the_template_in_go_writes_what_the_chat_template_writes():
    sources = {"chatml": template_of(CHATML), "gemma": template_of(GEMMA)}
    sources |= {"default": default_template(template_of("").tokenizer)}
    sources |= {name: template_of(marked) for name, (marked, _) in MARKED.items()}
    written, two_turns = [], [Message(**one) for one in TWO_TURNS[:3]]
    for name, template in sources.items():
        source = go_template(template)
        if source is None:
            continue
        written.append(name)
        for talk in (two_turns, two_turns[:1], [Message("system", "be brief"), *two_turns]):
            if talk[0].role == "user" or 'eq .Role "system"' in source:
                expected = template.render(talk)
                begin = next((begin for begin in BEGINS if expected.startswith(begin)), "")  # llama.cpp writes it
                assert run_in_go(source, talk) == expected.removeprefix(begin), name
    assert {"chatml", "gemma", "default", "llama3"} <= set(written), written


@pytest.mark.parametrize("source", [LLAMA3, QWEN3, MISTRAL, "{{ messages }}", "{{ raise_exception('no') }}"])
def test_a_template_that_does_more_is_said_to_have_none(source):
    text = modelfile(Path("m.gguf"), template_of(source))
    assert "# No TEMPLATE" in text
    assert 'TEMPLATE """' not in text
    assert "FROM ./m.gguf\n" in text
    assert 'PARAMETER stop "<|im_start|>"\nPARAMETER stop "\\n### end"\n' in text
