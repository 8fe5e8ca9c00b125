"""`lm chat`: what is said in the terminal, with a model that was taught what to answer or not at all."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest
import tomli_w
from models import random_model
from talks import tokenizer

from lm.commands.cli import main
from lm.config import to_table
from lm.generation import decoder
from lm.generation.decoder import Decoder
from lm.generation.kv_cache import Prefixes
from lm.generation.scheduler import Scheduler
from lm.training import checkpoint

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A run with random weights, and its tokenizer: of bytes, with the marks of a conversation."""
    folder = tmp_path_factory.mktemp("chat")
    tokenizer().save(folder / "tokenizer.json")
    model = random_model(259, 128, 1, 32, 2, 32)
    checkpoint.save(folder / "checkpoints", 0, model, None, {})
    (folder / "config.toml").write_text(tomli_w.dumps({"model": to_table(model.config)}))
    return folder


@pytest.fixture
def talk(run_of, monkeypatch, capsys):
    """Says lines to a model; what it prints, and the prompts that it read."""

    def go(*lines, arguments=()):
        prompts, add = [], Scheduler.add

        def noted(batch, ids, **more):
            prompts.append(bytes(i if i < 256 else 0 for i in ids).decode())
            return add(batch, ids, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Scheduler, "add", noted)
            patch.setattr(sys, "stdin", io.StringIO("".join(line + "\n" for line in lines)))
            status = main(["chat", str(run_of), "--seed", "1", "--max-new-tokens", "12", *arguments])
        assert status == 0
        return capsys.readouterr().out, prompts

    return go


def test_the_conversation_so_far_is_read_until_it_is_reset(talk):
    out, prompts = talk("hello", "more", "/reset", "anew")
    assert "(the conversation begins anew)" in out
    assert prompts[0] == "\0\0user\nhello\0\n\0assistant\n"
    assert prompts[1].startswith(prompts[0])
    assert prompts[1].endswith("\0\n\0user\nmore\0\n\0assistant\n")
    assert prompts[2] == "\0\0user\nanew\0\n\0assistant\n"
    answer = prompts[1][len(prompts[0]) : prompts[1].index("\0\n\0user\nmore")]
    assert out.startswith(answer + "\n")
    assert talk("hello", "more", "/reset", "anew") == (out, prompts)


def test_the_oldest_turns_go_when_the_context_is_full_and_the_system_stays(talk):
    out, prompts = talk(*(f"line {n} {'x' * 9}" for n in range(4)), arguments=["--system", "brief"])
    assert "(the context is full: the 2 oldest messages left out)" in out
    assert all(prompt.startswith("\0\0system\nbrief\0\n\0user\nline") for prompt in prompts)
    assert "line 0" not in prompts[-1]
    assert "line 3" in prompts[-1]
    assert all(len(prompt) <= 128 - 12 for prompt in prompts)


def test_an_answer_may_be_as_long_as_the_context_for_half_of_which_room_is_kept(talk):
    _, prompts = talk("hello", "more", "x" * 30, arguments=["--max-new-tokens", "1000"])
    assert len(prompts) == 3
    assert all(len(prompt) <= 64 for prompt in prompts)


def test_a_message_too_long_is_said_and_the_next_is_answered(talk):
    out, prompts = talk("x" * 200, "hi", "/what")
    assert "(the last message alone makes" in out
    assert len(prompts) == 1
    assert "/reset begins anew" in out


def test_ctrl_c_stops_an_answer_and_not_the_conversation(talk, monkeypatch):
    step, count = Scheduler.step, []

    def interrupted(batch, seconds):
        count.append(1)
        if len(count) == 4:
            raise KeyboardInterrupt
        return step(batch)

    monkeypatch.setattr(Scheduler, "step", interrupted)
    out, prompts = talk("hello", "more")
    assert "(stopped)" in out.splitlines()[0] or " (stopped)" in out
    assert len(prompts) == 2
    assert prompts[1].endswith("user\nmore\0\n\0assistant\n")


def test_mistakes_are_one_sentence(run_of, tmp_path, capsys):
    assert main(["chat", str(tmp_path)]) == 2
    assert main(["chat", str(run_of), "--temperature", "-1"]) == 2
    assert main(["chat", str(run_of), "--system", "x" * 500]) == 2
    assert main(["chat", str(run_of), "--max-new-tokens", "0"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("lm: ") for line in lines)


def test_serve_without_its_extra_says_what_to_install(run_of, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(run_of)]) == 2
    assert "lm serve needs the package 'uvicorn': pip install 'groundup-lm[serve]'" in capsys.readouterr().err


def test_a_turn_reads_what_is_new_and_says_what_it_would_have_said(run_of, talk, monkeypatch):
    """Chunks of a conversation that are in the cache are not read again; the answers are those of a new cache."""
    reads, read = [], Decoder.read

    def counted(self, row, ids, **more):
        reads.append((self.cache.lengths[row], len(ids)))
        return read(self, row, ids, **more)

    monkeypatch.setattr(Decoder, "read", counted)
    monkeypatch.setattr(decoder, "CHUNK_SIZE", {"cpu": 64})
    messages = ("hello, you", "and more of it, and then some", "still", "/reset", "hello")
    arguments = ["--temperature", "0", "--max-new-tokens", "2"]  # so that answers, whatever they are, hardly count
    out, prompts = talk(*messages, arguments=arguments)
    sizes = [len(prompt.encode()) for prompt in prompts]
    assert sizes[0] < 64 < sizes[1] < sizes[2] < 128, sizes
    assert reads == [(0, sizes[0]), (0, 64), (64, sizes[1] - 64), (64, sizes[2] - 64), (0, sizes[3])]
    monkeypatch.setattr(Prefixes, "take", lambda prefixes, row, ids, before: before)
    assert talk(*messages, arguments=arguments) == (out, prompts)
    assert len(reads) == 5 + 6
