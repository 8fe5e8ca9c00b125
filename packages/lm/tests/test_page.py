"""The page of a model: what its JavaScript computes beside lm, in a headless Chromium."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import llama2c_files
import models
import pytest
import torch
import torch.nn.functional as F
from published_templates import FAMILIES, MARKED

import lm
from lm import reference
from lm.attention import rope_at
from lm.chat_template import ChatTemplate, Message, default_template
from lm.commands.cli import main
from lm.data.rows import read_messages
from lm.generation.sampling import Sampling
from lm.generation.stream import StreamDecoder
from lm.interop.loading import ModelText, model_text
from lm.model import apply_rotary_emb
from lm.page.export import chat_page_of, origin, to_page
from lm.tokenizer import TextConfig, load_tokenizer, prompt_ids

bpe = pytest.importorskip("bpe")
chromium = pytest.importorskip("chromium")  # of bpe's tests
TEXT = (lm.__doc__ + bpe.__doc__ + torch.__doc__) * 3
SIZE: dict[str, Any] = {
    "num_layers": 2,
    "d_model": 48,
    "num_heads": 4,
    "d_ff": 80,
    "vocab_size": 300,
    "context_length": 72,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"context_length": 240},
    "gpt2": {**models.SHAPES["gpt2"], "context_length": 240},
    "grouped, windowed": {
        **models.SHAPES["grouped"], "num_kv_heads": 2, "sliding_window": 20, "logit_softcap": 5.0, "bias": True,
        "ffn": "gelu_exact", "rope_factor": 2.0,
    },
    "post, valued": {**models.SHAPES["post"], "value_embeddings": True},
    "bare": {**models.SHAPES["bare"], "num_layers": 3},
}  # fmt: skip
CONTINUE = """(ids, count) => {
  page.sequence.start(ids);
  for (let i = 0; i < count; i++) page.sequence.append(argmax(page.sequence.logits));
  return page.sequence.ids.slice(ids.length);
}"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium.PATH is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(chromium.NAMES)}; CHROMIUM names another)")
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def tokenizer():
    return bpe.train([TEXT], 300, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    """A folder with a tokenizer."""
    folder = tmp_path_factory.mktemp("pages")
    tokenizer.save(folder / "tok.json")
    return folder


def rounded(name):
    """A model whose weights are numbers of float16, computing in float32."""
    return models.make(dtype=torch.float32, **{**SIZE, **MODELS[name]}).half().float()


def open_page(browser, folder, model, **options):
    browser.open(to_page(model, folder / "model.html", tokenizer=folder / "tok.json", **options))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_greedy_ids_are_those_of_generate(browser, folder, name, dtype):
    model, prompt = rounded(name), list(range(5, 25))
    open_page(browser, folder, model, dtype=dtype)
    expected = lm.generate(
        model if dtype == "fp16" else models.rounded_to_int8(model), prompt, max_new_tokens=200, temperature=0
    )
    assert len(set(expected)) > 5
    assert browser.run(f"({CONTINUE})({prompt}, 200)") == expected


PARTS = """(() => {
  const vector = (values) => Float32Array.from(values);
  return {
    rmsNorm: Array.from(rmsNorm(vector(X), vector(W), 1e-5)),
    layerNorm: Array.from(layerNorm(vector(X), vector(W), vector(B), 1e-5)),
    softmax: Array.from(softmax(vector(X))),
    silu: X.map(silu),
    gelu: X.map(ACTIVATIONS.gelu),
    gelu_exact: X.map(ACTIVATIONS.gelu_exact),
    relu2: X.map(ACTIVATIONS.relu2),
    rotate: (() => { const x = vector(X); rotate(x, 7, page.about.config.rope_frequencies); return Array.from(x); })(),
  };
})()"""


def test_parts_are_those_of_the_reference(browser, folder):
    """Each part alone, then a block and the whole model, from the weights of one reference.TransformerLM."""
    torch.manual_seed(3)
    size = {"vocab_size": 300, "context_length": 40, "num_layers": 2, "d_model": 24, "num_heads": 2, "d_ff": 40}
    whole = reference.TransformerLM(**size)
    with torch.no_grad():
        for weight in whole.parameters():
            weight.copy_((weight + 0.1 * torch.randn_like(weight)).half().float())
    model = lm.Transformer(lm.ModelConfig(**size))
    model.load_state_dict(reference.model_state_dict(whole.state_dict(), size["num_heads"]))
    open_page(browser, folder, model)
    x, weight, bias = (3 * torch.randn(12) for _ in range(3))
    browser.run(f"X = {x.tolist()}, W = {weight.tolist()}, B = {bias.tolist()}, 0")
    norm = reference.RMSNorm(12)
    norm.weight.data = weight
    rope = reference.RoPE(10000.0, 12, 8)
    expected = {
        "rmsNorm": norm(x),
        "layerNorm": F.layer_norm(x, (12,), weight, bias),
        "softmax": reference.softmax(x),
        "silu": reference.silu(x),
        "gelu": F.gelu(x, approximate="tanh"),
        "gelu_exact": F.gelu(x),
        "relu2": F.relu(x).square(),
        # Its pairs are neighbours, the page's the halves of a head.
        "rotate": rope(x.view(2, 6).t().reshape(1, 12), torch.tensor([7])).view(6, 2).t().flatten(),
    }
    parts = browser.run(PARTS)
    assert parts.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(torch.tensor(parts[name]), values, rtol=1e-5, atol=1e-5, msg=name)

    ids = list(range(3, 20))
    hidden = [whole.token_embeddings(torch.tensor(ids))]
    for layer in whole.layers:
        hidden += [hidden[-1] + layer.attn(layer.ln1(hidden[-1])), layer(hidden[-1])]
    streams = browser.run(f"(page.sequence.start({ids}), page.sequence.streams.map(rows => Array.from(rows.data)))")
    for stream, values in zip(streams, hidden, strict=True):
        rows = torch.tensor(stream)[: values.numel()].view(values.shape)
        torch.testing.assert_close(rows, values, rtol=1e-4, atol=1e-4)
    logits = torch.tensor(browser.run("Array.from(page.sequence.logits)"))
    torch.testing.assert_close(logits, whole(torch.tensor(ids))[-1], rtol=1e-4, atol=1e-4)


def test_tokens_are_drawn_as_sampling_says(browser, folder):
    """The tokens that remain, and how often each is drawn, are those of lm's Sampling."""
    open_page(browser, folder, rounded("llama"))
    logits = 2 * torch.randn(300, generator=torch.Generator().manual_seed(4))
    draws = f"Array.from({{ length: 4000 }}, () => choose(Float32Array.from({logits.tolist()}), S, R))"
    for settings in ({}, {"top_k": 7}, {"top_p": 0.6}, {"top_k": 40, "top_p": 0.5, "temperature": 1.4}, {"top_k": 1}):
        generator, sampling = torch.Generator().manual_seed(0), Sampling(**settings)
        expected = Counter(sampling.choose(logits, generator=generator) for _ in range(4000))
        names = {"temperature": 1.0, "topK": settings.get("top_k"), "topP": settings.get("top_p")}
        names["temperature"] = settings.get("temperature", 1.0)
        drawn = browser.run(f"(S = {json.dumps(names)}, R = generator(1), {draws})")
        assert drawn == browser.run(f"(R = generator(1), {draws})")
        counts = Counter(drawn)
        if settings:
            assert counts.keys() <= (allowed := remaining(logits, **settings))
            assert len(counts) > 0.5 * len(allowed)
        for token, count in expected.most_common(5):
            assert abs(counts[token] - count) < 6 * count**0.5 + 1, (settings, token)


def remaining(logits, top_k=300, top_p=1.0, temperature=1.0):
    """The tokens that top_k and then top_p leave."""
    values, order = (logits / temperature).topk(top_k)
    shares = values.softmax(-1)
    return set(order[shares.cumsum(0) - shares < top_p].tolist())


def test_command_writes_a_page_of_a_folder(browser, folder, tokenizer, capsys):
    model = rounded("llama")
    lm.to_huggingface(model, folder / "cat", tokenizer=folder / "tok.json")
    path = folder / "cat.html"
    assert main(["export", str(folder / "cat"), "--page", str(path), "--dtype", "int8", "--course", "../{}/"]) == 0
    assert f"{path.stat().st_size / 1e6:.2f} MB" in capsys.readouterr().out
    browser.open(path)
    assert browser.run("document.title") == "cat"
    assert browser.run("document.querySelector('.says a').getAttribute('href')") == "../2-byte-pair-encoding/"
    text = "the token, <|endoftext|> and Größe"
    assert browser.run(f"page.promptIds({json.dumps(text)})") == tokenizer.encode(text, allowed_special="all")
    assert browser.run("page.promptIds('')") == [tokenizer.eot_token]


def test_prompts_of_sentencepiece_are_those_of_lm(browser, folder, tmp_path):
    """They begin with <s>, and with the space that SentencePiece puts in front."""
    tokenizer = load_tokenizer(llama2c_files.tokenizer_file(tmp_path))
    model = models.make(dtype=torch.float32, **{**SIZE, "vocab_size": tokenizer.n_vocab})
    browser.open(to_page(model, tmp_path / "model.html", tokenizer=tmp_path / "tokenizer.json"))
    for text in ("the hello", " and the", "Größe\n", ""):
        assert browser.run(f"page.promptIds({json.dumps(text)})") == prompt_ids(tokenizer, text)


def test_what_a_page_cannot_hold_is_refused(folder):
    class Other(lm.Transformer):
        pass

    with pytest.raises(ValueError, match="Other"):
        to_page(Other(rounded("llama").config), folder / "x.html", tokenizer=folder / "tok.json")
    with pytest.raises(ValueError, match="fp32"):
        to_page(rounded("llama"), folder / "x.html", tokenizer=folder / "tok.json", dtype="fp32")
    large = rounded("llama")
    large.blocks[0].ffn.down.weight.data[0, 0] = 1e6
    with pytest.raises(ValueError, match=r"blocks\.0\.ffn\.down\.weight"):
        to_page(large, folder / "x.html", tokenizer=folder / "tok.json")
    with pytest.raises(FileNotFoundError):
        to_page(large, folder / "x.html")
    assert not (folder / "x.html").exists()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(browser, folder, width):
    open_page(browser, folder, rounded("llama"), course="../{}/")
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.run(f"(one('prompt').value = 'the model{'x' * 200}', page.restart(), page.write(30))")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth") is True
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_keyboard_writes_and_walks(browser, folder):
    open_page(browser, folder, rounded("llama"))
    browser.run("one('prompt').focus(), one('count').value = 5, one('temperature').value = 0, 0")
    browser.call("Input.insertText", text="token by token")
    for _ in range(2):
        browser.press("Tab")
    assert browser.run("document.activeElement.id") == "next"
    browser.run("document.activeElement.click(), new Promise(resume => setTimeout(resume, 50))")
    ids = browser.run("page.sequence.ids")
    assert len(ids) == browser.run("page.prompt") + 1
    browser.run("one('tokens').focus(), 0")
    browser.press("Home")
    browser.press("ArrowRight")
    assert browser.run("page.chosen") == 1
    assert browser.run("one('spoken').textContent").startswith("Token 2")
    browser.press("End")
    assert browser.run("page.chosen") == len(ids) - 1


def test_views_show_what_the_model_computed(browser, folder):
    """Of a token in the middle: candidates, attention, each layer's predictions, norms, the parts of a block."""
    model = rounded("llama")
    open_page(browser, folder, model)
    prompt = list(range(40, 60))
    browser.run(f"(page.sequence.start({prompt}), page.prompt = 20, page.choose(12), 0)")
    ids, config = torch.tensor([prompt]), model.config
    with torch.inference_mode():
        before = model(ids)[0, 11].softmax(-1)
        x, rope = model.embedding(ids), rope_at(config, slice(0, 20), model.embedding.weight)
        streams = [x]
        for block in model.blocks:
            q, k, _ = block.attention.project(block.attention_norm(x), None)
            x = x + block.attention(block.attention_norm(x), rope)
            streams += [x, x := x + block.ffn(block.ffn_norm(x))]
        lens = [model.logits(model.final_norm(stream[0, 12])).softmax(-1) for stream in streams[::2]]
        q, k = (apply_rotary_emb(heads, rope)[0] for heads in (q, k))  # of the last block
        attention = (q[12] * k[:13]).sum(-1).div(config.head_width**0.5).softmax(0)  # (position, head)
    rows = browser.run("[...document.querySelectorAll('#candidates tbody tr')].map(row => row.innerText.split('\\t'))")
    top = before.topk(10)
    assert [int(row[1]) for row in rows[:10]] == top.indices.tolist()
    assert int(browser.run("document.querySelector('#candidates .chosen td:nth-child(2)').innerText")) == prompt[12]
    weights = torch.tensor(browser.run("Array.from(page.model.attentionWeights(1, 2, 12))"))
    torch.testing.assert_close(weights, attention[:, 2], rtol=1e-3, atol=1e-5)
    firsts = browser.run(
        "[...document.querySelectorAll('#lens tbody tr td:nth-child(2) .token')].map(x => x.innerText)"
    )
    assert firsts == [browser.run(f"page.name({int(row.argmax())})") for row in lens]
    norms = browser.run("[...document.querySelectorAll('#norms tbody td:nth-child(2)')].map(x => Number(x.innerText))")
    assert norms == pytest.approx([float(stream[0, 12].norm()) for stream in streams], abs=0.02)
    before_steps = browser.run("Array.from(page.sequence.logits)")
    browser.run("one('step-layer').value = 1, page.drawStep(0), 0")
    steps = int(str(browser.run("one('step-where').textContent")).split()[-1])
    for number in range(steps):
        shown = torch.tensor(
            [float(x) for x in str(browser.run("document.querySelector('.vector').innerText")).split()]
        )
        if number == 0:
            torch.testing.assert_close(shown, streams[2][0, 12], rtol=0, atol=6e-4)
        browser.run("one('step-on').click(), 0")
    torch.testing.assert_close(shown, streams[4][0, 12], rtol=0, atol=6e-4)
    assert browser.run("Array.from(page.sequence.logits)") == before_steps


ROLES = ("user", "assistant")


def talks():
    """Conversations with what templates trim, escape and look for."""
    generator = random.Random(5)
    words = [
        "",
        "hi",
        " 1\n",
        "<think>a</think> b",
        "</think>",
        "\n\nx",
        "'\"",
        "<|im_end|>",
        "[INST]",
        "é\t",
        "{{ x }}",
        "\\",
    ]
    for turns in range(1, 7):
        for n in range(6):
            texts = [generator.choice(words) + generator.choice(words) for _ in range(turns)]
            talk = [{"role": ROLES[i % 2], "content": text} for i, text in enumerate(texts)]
            yield ([{"role": "system", "content": generator.choice(words)}] if n % 2 else []) + talk


@pytest.mark.parametrize("family", [*FAMILIES, "default", "default, marks"])
def test_conversations_are_written_by_the_models_own_template(browser, folder, family):
    """36 conversations: the text and the ids of the prompt are those of lm's ChatTemplate, or both refuse."""
    source, names, special = (
        None,
        {},
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"][: 1 if family == "default" else 3],
    )
    if family in FAMILIES:
        source, special, names, _ = FAMILIES[family]
    tokenizer = bpe.train([TEXT], 300, special_tokens=special)
    template = default_template(tokenizer) if source is None else ChatTemplate(tokenizer, source, (0,), (), names)
    text = ModelText(tokenizer, TextConfig())
    text.__dict__["template"] = template  # as a model's files would have it
    path = folder / "chat.html"
    path.write_text(chat_page_of(rounded("llama"), text, dtype="fp16", title=family))
    browser.open(path)
    prompts = 0
    for talk in talks():
        messages = read_messages(talk)
        try:
            expected = [template.render(messages), template.prompt(messages)]
        except ValueError:
            expected = None
        result = browser.run(
            f"(() => {{ try {{ const talked = {json.dumps(talk)}; return [talk.render(talked), talk.prompt(talked)]; }}"
            " catch { return null; } })()"
        )
        assert result == expected, talk
        prompts += expected is not None
    assert prompts > 10


def test_templates_that_mark_answers_are_rendered_as_by_jinja(browser, folder):
    tokenizer = bpe.train([TEXT], 300, special_tokens=["<|endoftext|>"])
    text = ModelText(tokenizer, TextConfig())
    text.__dict__["template"] = default_template(tokenizer)
    path = folder / "chat.html"
    path.write_text(chat_page_of(rounded("llama"), text, dtype="fp16", title="marked"))
    browser.open(path)
    for name, (source, _) in MARKED.items():
        template, rendered = ChatTemplate(tokenizer, source, (0,), (), {}), 0
        browser.run(f"talk.template = new jinja.Template({json.dumps(source)}), 0")
        for talk in talks():
            try:
                expected = template.render(read_messages(talk))
            except ValueError:
                expected = None
            result = browser.run(
                f"(() => {{ try {{ return talk.render({json.dumps(talk)}); }} catch {{ return null; }} }})()"
            )
            assert result == expected, (name, talk)
            rendered += expected is not None
        assert rendered > 10, name


def test_a_chat_answers_as_generate_does(browser, folder, tmp_path):
    model = rounded("llama")
    lm.to_huggingface(model, folder / "talker", tokenizer=folder / "tok.json")
    command = ["chat", str(folder / "talker"), "--page", str(tmp_path / "chat.html"), "--temperature", "0"]
    assert main([*command, "--max-new-tokens", "40", "--system", "be brief"]) == 0
    assert main([*command, "--top-k", "3"]) == 2
    browser.open(tmp_path / "chat.html")
    template = model_text(folder / "talker").template
    messages = [Message("system", "be brief"), Message("user", "hello there")]
    ids = lm.generate(
        model, template.prompt(messages), max_new_tokens=40, temperature=0, stop_tokens=template.stop_tokens
    )
    decoder = StreamDecoder(template.tokenizer, template.stop)
    expected = "".join(map(decoder.feed, ids)) + decoder.finish()
    browser.run("at('text').focus(), 0")
    browser.call("Input.insertText", text="hello there")
    browser.press("Enter")
    browser.run("(async () => { while (asking) await new Promise(resume => setTimeout(resume, 20)); })()")
    assert browser.run("messages.map(({role}) => role)") == ["system", "user", "assistant"]
    assert browser.run("messages[2].content") == expected
    assert browser.run("document.querySelector('.assistant').textContent") == expected
    for width in (390, 1280):
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth") is True
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_characters_over_several_tokens_are_read_and_copied(browser, folder):
    """Each stands whole in the token that completes it, also where bytes that are no character stand between."""
    open_page(browser, folder, rounded("llama"))
    text = "שלום 語 😀 é\ntext\t…"
    assert browser.run(f"(page.restart(), one('prompt').value = {json.dumps(text)}, page.begin(), page.draw(), 0)") == 0
    assert browser.run("one('tokens').children.length") > len(text)
    assert browser.run("one('tokens').textContent") == text
    # ids of the bytes E8 AA (two of the three of a character), then a whole text, then FF
    ids = [
        int(browser.run(f"page.encoder.ids[page.encoder.symbolOf.get('\\x{byte:02x}')]"))
        for byte in (0xE8, 0xAA, 0x61, 0xFF)
    ]
    browser.run(f"(page.restart(), page.sequence.start({ids}), page.prompt = 4, page.draw(), 0)")
    assert browser.run("one('tokens').textContent") == "a"
    shown = browser.run("[...one('tokens').querySelectorAll('.bpe-x')].map(chip => chip.dataset.x)")
    assert shown == ["E8", "AA", "FF"]


def test_one_text_is_written_at_a_time_and_stays_in_sight(browser, folder):
    open_page(browser, folder, rounded("llama"))
    written = browser.run("""(async () => {
      one("prompt").value = "the model";
      page.about.stop = [];
      page.restart();
      const first = page.write(100000);  // until the next line, which comes at the first pause for drawing
      page.restart();
      await Promise.all([first, page.write(700)]);
      return page.sequence.ids.length - page.prompt;
    })()""")
    assert written == 700
    assert browser.run("(box => box.scrollHeight - box.scrollTop - box.clientHeight < 40)(one('tokens'))") is True
    assert browser.run("one('tokens').scrollTop") > 0
    assert browser.run("[page.running, one('go').textContent]") == [None, "Continue"]


def test_a_long_prompt_is_read_in_pieces_and_goes_on_after_a_stop(browser, folder):
    """Also where the context is full and its younger half is read again; the ids are those of one without a stop."""
    open_page(browser, folder, rounded("llama"))
    ids = browser.run("""(async () => {
      page.about.stop = [];
      one("temperature").value = 0;
      one("prompt").value = "the model and ".repeat(20);
      page.restart();
      const compute = page.sequence.compute, read = [];
      page.sequence.compute = function (id) {
        compute.call(this, id);
        for (const begun = performance.now(); performance.now() - begun < 5; );
      };
      for (let stops = 0; page.sequence.read < 260 && stops < 500; stops++) {
        const writing = page.write(1);
        await new Promise((resume) => setTimeout(resume));
        read.push(one("measure").textContent);
        page.running = null;
        await writing;
      }
      page.sequence.compute = compute;
      await page.write(5);
      return [page.sequence.ids, page.prompt, read];
    })()""")
    text, prompt, messages = ids
    assert prompt > 100
    assert any(message.startswith("reading: ") for message in messages)
    expected = lm.generate(rounded("llama"), text[:prompt], max_new_tokens=len(text) - prompt, temperature=0)
    assert text[prompt:] == expected


def test_the_page_opens_with_a_text_of_the_models_own(browser, folder, tmp_path):
    """And with a sentence on its training, where it was trained by a run."""
    open_page(browser, folder, rounded("llama"))
    assert browser.run("page.sequence.ids.length > page.prompt && !one('views').hidden") is True
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").write_text("[train]\nsteps = 2\n")
    (run / "metrics.jsonl").write_text('{"step": 2, "tokens": 4096, "loss": 2.0, "val_bits_per_byte": 1.25}\n')
    assert origin(run) == "Its training: 2 steps, 4,096 tokens, 1.250 held-out bits per byte."
    assert origin(None) == origin(tmp_path) == ""


def test_squares_have_the_weights_of_every_head(browser, folder):
    """A pixel's opacity is the square root of what token i takes from j; a click on a square chooses its head."""
    model = rounded("grouped, windowed")
    open_page(browser, folder, model)
    browser.run("(page.sequence.start([...Array(30).keys()]), page.prompt = 30, page.choose(29), 0)")
    alpha = """(id, x, y) => one(id).getContext("2d").getImageData(x, y, 1, 1).data[3]"""
    weight = """(layer, head, row, column) =>
      page.model.attentionWeights(layer, head, row)[column - page.model.firstSeen(row)]"""
    for layer, head, row, column in ((0, 0, 6, 6), (1, 3, 29, 15), (0, 2, 20, 12)):
        x, y = head * 25 + column - 6, layer * 25 + row - 6
        expected = 255 * browser.run(f"Math.sqrt(({weight})({layer}, {head}, {row}, {column}))")
        assert abs(browser.run(f"({alpha})('glance', {x}, {y})") - expected) <= 2
    assert browser.run(f"({alpha})('glance', 4, 2)") == 0, "no token takes from a later one"
    browser.run("""(() => {
      const { left, top, width, height } = one("glance").getBoundingClientRect();
      one("glance").dispatchEvent(
        new MouseEvent("click", { clientX: left + 0.6 * width, clientY: top + 0.2 * height, bubbles: true }));
    })()""")
    assert browser.run("[one('attention-layer').value, one('attention-head').value]") == ["0", "2"]
    assert browser.run("one('square').ariaLabel") == "Attention among the last 30 tokens: layer 1, head 3"


def test_the_address_holds_the_text_and_numbers_are_checked(browser, folder):
    open_page(browser, folder, rounded("llama"))
    for address, text in (("#100%", "100%"), ("#Tom%20went", "Tom went")):
        browser.run(f"(location.hash = {json.dumps(address)}, page.open())")
        assert browser.run("[one('prompt').value, page.prompt > 0]") == [text, True]
    browser.run("one('clear').click(), one('prompt').value = '', one('prompt').focus(), 0")
    browser.call("Input.insertText", text="50% é")
    assert browser.run("decodeURIComponent(location.hash)") == "#50% é"
    for value, is_valid in (("0.75", True), ("-1", False), ("0", True), ("", True)):
        browser.run(f"one('temperature').value = {json.dumps(value)}, page.restart(), one('next').click(), 0")
        assert browser.run("one('controls').checkValidity()") is is_valid
        assert (browser.run("page.sequence.ids.length") > 0) is is_valid


def test_a_special_token_can_be_read_where_it_is_shaded(browser, folder, tokenizer):
    """Its letters have the colour of ink there, and not that of paper, which they have on ink."""
    open_page(browser, folder, rounded("llama"))
    special = tokenizer.special_tokens["<|endoftext|>"]
    browser.run(f"(page.restart(), page.sequence.start([{special}, 70, 71]), page.prompt = 3, page.choose(2), 0)")
    colours = (
        "['#tokens', '#attention'].map(box => getComputedStyle(document.querySelector(box + ' .bpe-special')).color)"
    )
    on_ink, shaded = browser.run(colours)
    assert on_ink != shaded == browser.run("getComputedStyle(one('attention')).color")


def test_int8_makes_the_page_smaller_where_the_head_is_the_embedding(folder):
    model = models.make(dtype=torch.float32, **{**SIZE, "vocab_size": 300, "num_layers": 1, "tied_embeddings": True})
    sizes = {
        dtype: len(to_page(model, folder / "model.html", tokenizer=folder / "tok.json", dtype=dtype).read_bytes())
        for dtype in ("fp16", "int8")
    }
    assert sizes["int8"] < sizes["fp16"]


def test_pages_send_forms_nowhere_and_stay_where_they_are(folder):
    page = to_page(rounded("llama"), folder / "model.html", tokenizer=folder / "tok.json").read_text("utf-8")
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
        assert rule in page
    assert page.count("disabled>") == 3, "buttons wait until the model is unpacked"


def test_a_conversation_can_be_changed_and_is_kept_at_a_reload(browser, folder, tmp_path):
    lm.to_huggingface(rounded("llama"), folder / "talker", tokenizer=folder / "tok.json")
    page = tmp_path / "chat.html"
    command = ["chat", str(folder / "talker"), "--page", str(page), "--temperature", "0", "--max-new-tokens", "12"]
    assert main(command) == 0
    browser.open(page)
    done = "(async () => { while (asking) await new Promise(resume => setTimeout(resume, 20)); })()"

    def say(text):
        browser.run(f"at('text').value = {json.dumps(text)}, at('form').requestSubmit(), 0")
        browser.run(done)

    def press(kind, name):
        browser.run(f"[...document.querySelectorAll('.{kind} button[data-name=\"{name}\"]')].at(-1).click(), 0")
        browser.run(done)

    for text in ("hello", "and more"):
        say(text)
    whole = browser.run("messages")
    assert [message["role"] for message in whole] == ["user", "assistant"] * 2
    press("assistant", "Once more")
    assert browser.run("messages") == whole, "at temperature 0 the answer is the same"
    browser.open(page)
    assert browser.run("messages") == whole
    assert browser.run("[...at('log').children].map(line => line.textContent)") == [m["content"] for m in whole]
    press("user", "Edit")
    assert browser.run("[messages.length, at('log').children.length, at('text').value]") == [2, 2, "and more"]
    too_long = "word " * 400
    say(too_long)
    assert browser.run("[messages.length, at('text').value]") == [2, too_long], "what failed is in the box again"
    assert "too long" in browser.run("at('log').lastChild.textContent")
    browser.run("at('temperature').value = '-3', 0")
    say("refused")
    assert browser.run("messages.length") == 2
    browser.run("at('reset').click(), 0")
    browser.open(page)
    assert browser.run("messages") == []
