"""The exercises of the course: a solution passes, a skeleton and each of the usual mistakes fail with words that
help."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import assignment
import grade as grader
import grading
import interpreter  # type: ignore[import-not-found]  # before whatever imports triton
import pytest

pytest.importorskip("bpe", reason="the exercises compare with bpe")

ROOT = Path(__file__).parent.parent
EXERCISES = ROOT / "docs" / "course" / "exercises"
SOLUTIONS = ROOT / "tests" / "course_solutions"
NAMES = sorted(path.name for path in EXERCISES.glob("ex*.py"))


def needs_interpreter(name: str) -> None:
    """Skip where Triton was imported before its interpreter was asked for."""
    if name.startswith("ex8") and interpreter.LATE:
        pytest.skip("triton was imported without its interpreter")


def chapter_of(name: str) -> int:
    """The number in a file's name."""
    return int(name[2:].partition("_")[0])


def grade(path: Path, capsys: pytest.CaptureFixture[str], only: str = "") -> tuple[bool, list[str]]:
    """True if everything in a file is right, and the lines that grading it prints."""
    needs_interpreter(path.name)
    capsys.readouterr()
    right = grader.grade(chapter_of(path.name), path, only)
    return right, capsys.readouterr().out.splitlines()


def test_every_chapter_has_its_files() -> None:
    assert sorted(name for name, _ in grader.CHAPTERS.values()) == NAMES
    assert sorted(path.name for path in SOLUTIONS.glob("ex*.py")) == NAMES


def test_the_command_gives_a_status_and_one_exercise_if_asked(tmp_path: Path) -> None:
    path = SOLUTIONS / "ex1_utf8.py"
    command = [sys.executable, EXERCISES / "grade.py", "1", "--file"]
    done = subprocess.run([*command, path, "--only", "is_whole"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "✓ is_whole\n1 of 1 right\n", "")
    wrong = subprocess.run([*command, EXERCISES / "ex1_utf8.py"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 1
    missing = subprocess.run([*command, path, "--only", "encode"], capture_output=True, text=True, timeout=120)
    assert missing.returncode == 1
    assert "chapter 1 has no exercise encode" in missing.stderr


BROKEN = {
    "exit": ("import sys\nsys.exit(0)\n", "ends the program"),
    "exit inside": ("def encode_utf8(text):\n    exit()\n", "✗ encode_utf8: ends the program"),
    "endless import": ("while True:\n    pass\n", "not finished after 1 seconds"),
    "endless": ("def is_whole(data):\n    while True:\n        try:\n            while True: pass\n"
                "        except Exception: pass\n", "✗ is_whole: is not finished after 1 seconds"),
    "no Python": ("def", "✗ mine.py: SyntaxError"),
    "a package's name": ("def encode_utf8(text): return text.encode(), json\n", "name 'json' is not defined"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_ends_the_program_or_never_ends_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / ("json.py" if "json" in text else "mine.py")
    path.write_text(text, encoding="utf-8")
    assert not grader.grade(1, path, limit=1)
    assert message in capsys.readouterr().out


def test_the_command_stops_code_that_python_cannot_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsum(iter(int, 1))\n", encoding="utf-8")
    code = "import limits, runpy; limits.GRACE = 1; runpy.run_path('grade.py', None, '__main__')"
    command = [sys.executable, "-c", code, "1", "--limit", "1", "--file", path]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=EXERCISES, timeout=120)
    assert ran.returncode == 1
    assert "Timeout" in ran.stderr


def test_points_as_json_and_hidden_checks(tmp_path: Path) -> None:
    path, hidden = tmp_path / "mine.py", tmp_path / "hidden.py"
    path.write_text("print('noise')\ndef encode_utf8(text): return text.encode()\n", encoding="utf-8")
    hidden.write_text(
        "from grading import same\n"
        "def more(yours): same('encode_utf8(3)', yours('3'), b'4')\n"
        "CHAPTERS = {1: {'encode_utf8': more}}\n",
        encoding="utf-8",
    )
    command = [sys.executable, EXERCISES / "grade.py", "1", "--json", "--seed", "7", "--file", path]
    for extra, points in ((), 1), (("--hidden", hidden), 0):
        ran = subprocess.run([*command, *extra], capture_output=True, text=True, timeout=120)
        assert ran.returncode == 1
        report = json.loads(ran.stdout)
        assert (report["points"], report["max_points"], report["seed"]) == (points, 3, 7)
        assert [each["points"] for each in report["exercises"]] == [points, 0, 0]
        assert "There is no decode_utf8" in report["exercises"][1]["message"]


def test_gradescope_gets_points_for_what_was_handed_in(tmp_path: Path) -> None:
    (tmp_path / "ex1_utf8.py").write_text((SOLUTIONS / "ex1_utf8.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "ex5_budget.py").write_text("import os\nprint('[]', flush=True)\nos._exit(0)\n", encoding="utf-8")
    command = [sys.executable, EXERCISES / "gradescope.py", tmp_path, tmp_path / "results.json", "--chapters", "1", "3"]
    subprocess.run(command, check=True, timeout=120)
    tests = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
    assert [(test["score"], test["max_score"]) for test in tests[:3]] == [(1, 1)] * 3
    names = ["1. encode_utf8", "1. decode_utf8", "1. is_whole", "3. ex3_judge.py"]
    assert [test["name"] for test in tests[:4]] == names
    assert sum(test["score"] for test in tests[3:]) == 0
    assert sum(test["max_score"] for test in tests[3:]) == 3 + 5
    assert "ended by this file (status 0)" in tests[4]["output"]


@pytest.mark.parametrize("chapter", [1, 2, 6])
def test_a_notebook_of_nbgrader_gives_each_exercise_a_graded_cell(chapter: int) -> None:
    cells = assignment.notebook(chapter)["cells"]
    solution = (SOLUTIONS / grader.CHAPTERS[chapter][0]).read_text(encoding="utf-8")
    right: dict[str, object] = {}
    exec(compile(solution, "solution", "exec"), right)
    names: dict[str, object] = {"check": grader.check}
    points = 0
    for one in cells[2:]:
        text, marks = "".join(one["source"]), one["metadata"].get("nbgrader")
        if marks is None:
            exec(text, names)
            continue
        with pytest.raises(AssertionError, match="its body is not written yet"):
            exec(text, names)
        exec(text, {**names, **{name: value for name, value in right.items() if name in names}})
        points += marks["points"]
    assert points == sum(grader.POINTS.get(name, 1) for name in grader.checks_of(chapter))
    with pytest.raises(SystemExit, match="graded as a file"):
        assignment.notebook(9)


def test_a_pipe_without_check_marks(tmp_path: Path) -> None:
    command = [sys.executable, EXERCISES / "grade.py", "1", "--file", SOLUTIONS / "ex1_utf8.py"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    ran = subprocess.run(command, capture_output=True, encoding="cp1252", env=environment, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ok encode_utf8" in ran.stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_of_processes_can_import_the_file(tmp_path: Path, method: str) -> None:
    """As on macOS, Windows, and in Python 3.14; the pool is not closed, and the command ends nevertheless."""
    path = tmp_path / "my pool.py"
    path.write_text(
        "import multiprocessing\n"
        "def code(character): return character.encode()\n"
        "def encode_utf8(text):\n"
        "    global pool\n"
        "    pool = globals().get('pool') or multiprocessing.get_context('METHOD').Pool(1)\n"
        "    return b''.join(pool.map(code, text))\n".replace("METHOD", method),
        encoding="utf-8",
    )
    command = [sys.executable, EXERCISES / "grade.py", "1", "--only", "encode_utf8", "--json", "--file", path]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.soak  # test_a_solution_passes has other inputs each day
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in NAMES if chapter_of(name) not in (8, 9)])
def test_a_solution_passes_with_other_inputs(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grading.State, "seed", seed)
    assert grader.grade(chapter_of(name), SOLUTIONS / name, is_timed=False), capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, lines = grade(SOLUTIONS / name, capsys)
    assert right, lines
    assert all(line[0] in "✓ " for line in lines[:-1])


def test_the_file_is_graded_again_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def encode_utf8(text): return b''", encoding="utf-8")
    command = [sys.executable, "-u", EXERCISES / "grade.py", "1", "--only", "encode_utf8", "--watch", "--file", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout)
        assert "✗ encode_utf8" in next(line for line in lines if line[0] in "✓✗")
        for text, sign in (("def", "✗ mine.py: SyntaxError"), ("def encode_utf8(text): return text.encode()", "✓")):
            path.write_text(text, encoding="utf-8")
            os.utime(path, (0, len(text)))
            assert next(line for line in lines if line[0] in "✓✗").startswith(sign)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0


@pytest.mark.parametrize(
    ("chapters", "every"),
    [
        ([n for n in grader.CHAPTERS if n not in (8, 9)], 20),
        ([8, 9], 60),  # most of their mutants run in Triton's interpreter or start two processes
        pytest.param(list(grader.CHAPTERS), 1, marks=pytest.mark.soak),
    ],
    ids=["plain", "of kernels and of two processes", "all"],
)
def test_mutants_of_the_solutions_are_caught(chapters: list[int], every: int) -> None:
    """One of so many in each chapter; of chapter 8 where Triton is there."""
    numbers = [str(n) for n in chapters if n != 8 or importlib.util.find_spec("triton")]
    command = [sys.executable, ROOT / "tests/course_mutants.py", *numbers, "--every", str(every)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["wrong", "right"])
def test_solutions_of_students_are_judged_as_they_should_be(kind: str, every: int) -> None:
    """One of so many of each table: mistakes that no change of one token makes, and right ways that are not ours."""
    files = [name for name in NAMES if not name.startswith("ex8") or importlib.util.find_spec("triton")]
    command = [sys.executable, ROOT / "tests/course_mistakes.py", kind, *files, "--every", str(every)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_fails_and_says_what_is_missing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, lines = grade(EXERCISES / name, capsys)
    assert not right
    assert lines[-1].startswith("0 of ")
    for line in lines[:-1]:
        assert line.startswith("✗ ")
        assert "its body is not written yet" in line


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_says_what_every_exercise_is(name: str) -> None:
    text = (EXERCISES / name).read_text(encoding="utf-8")
    page = next((ROOT / "docs/course").glob(f"{chapter_of(name)}-*.md")).read_text(encoding="utf-8")
    module = __import__(grader.CHAPTERS[chapter_of(name)][1])
    for exercise in module.CHAPTERS[chapter_of(name)]:
        for part in exercise.split(" and "):
            assert re.search(rf"(?:def|class) {part}\b", text)
            assert re.search(rf"`{part}\b", page)


# of each file: the exercise, text of its solution, what a mistake has there instead, and words of the verdict
MISTAKES = {
    "ex1_utf8.py": [
        ("encode_utf8", "point < 0x800:", "point < 0x801:", "just below and just above a bound"),
        ("decode_utf8", "0x1F if byte", "0x0F if byte", "✗ decode_utf8: decode_utf8("),
        ("is_whole", "== size", ">= 1", "✗ is_whole: is_whole("),
    ],
    "ex2_bpe.py": [
        ("count_pairs", "counts[pair] += count", "counts[pair] += 1", "✗ count_pairs"),
        ("apply_merge", "            i += 2", "            i += 1", "never use a symbol twice"),
        ("train_bpe", "(counts[pair], pair)", "counts[pair]", "Of equally frequent pairs"),
        ("train_bpe", "[::2]", "", "its letters are no text"),
        ("Tokenizer", "min(pairs, key=self.ranks.__getitem__)", "pairs[0]", "stands first in the list"),
        ("Tokenizer", 'errors="replace"', 'errors="strict"', "raises UnicodeDecodeError"),
        ("train_bpe", "map(regex.escape, longest_first)", "longest_first", "escape them"),
        ("Tokenizer", "key=len, reverse=True", "key=len", "the longer one is looked for first"),
        ("Tokenizer", "special_tokens or []", 'special_tokens or ["<|endoftext|>"]', "ordinary text"),
        ("train_bpe", "if not counts:", "if False:", "raises ValueError"),
    ],
    "ex3_judge.py": [
        ("", "len(text.encode())", "len(text)", "Count bytes, not characters"),
        ("", "set(tokenizer.vocab) -", "set(range(256)) -", "✗ unused_tokens"),
        ("", "if not whole(token)", "if token[0] >= 0x80", "✗ parts_of_characters"),
        ("", "def parts_of_characters", "def parts", "There is no parts_of_characters in ex3"),
    ],
    "ex4_transformer.py": [
        ("softmax", "(x - x.amax(dim, keepdim=True)).exp()", "x.exp()", "take the largest off"),
        ("softmax", "x.amax(dim, keepdim=True)", "x.max()", "Take off the largest of each row"),
        ("Linear", "math.sqrt(2 / (in_", "100 * (1 / (in_", "The initial weight of Linear"),
        ("Linear", "nn.init.trunc_normal_(torch.empty(shape)", "(torch.zeros(shape)", "raises"),
        ("TransformerLM", "deviation=1.0", "deviation=0.02", "The initial token_embeddings"),
        ("TransformerLM", "self.ln_final(x))", "self.ln_final(x)).softmax(-1)", "behind the head"),
        ("TransformerLM", "self.ln_final(x)", "x", "ln_final, is missing"),
        ("softmax", ".sum(dim, keepdim=True)", ".sum()", "Sum over dim alone"),
        ("Linear", "empty(shape)", "empty(shape[::-1])", "has the shape ("),
        ("RMSNorm", " + self.eps)", ")", "eps is added to the mean"),
        ("RMSNorm", "wide = x.float()", "wide = x", "compute in float32"),
        ("RMSNorm", "self.weight = nn.Param", "self.gain = nn.Param", "has no weight 'weight'"),
        ("SwiGLU", "torch.sigmoid(gate) *", "", "The gate silu(w1 x)"),
        ("RotaryPositionalEmbedding", ", persistent=False", "", "a buffer with"),
        ("RotaryPositionalEmbedding", "0::2], x[..., 1::2]", "::2], x[..., ::2]", "neighbours"),
        ("scaled_dot_product_attention", "/ math.sqrt(Q.shape[-1])", "", "Divide by"),
        ("MultiHeadSelfAttention", ".tril()", "", "sees the future"),
        ("MultiHeadSelfAttention", "v = self.heads", "v = q + 0 * self.heads", "values are not"),
        ("TransformerLM", "return x + self.ffn", "return self.ffn", "both results are added"),
    ],
    "ex5_budget.py": [
        ("count_parameters", "norms = 2 *", "norms =", "norms 24"),
        ("forward_flops", "= 2 * 2 * context", "= 2 * context", "The parts are"),
        ("training_memory", "4 * 4 *", "3 * 4 *", "weights, gradients and both moments"),
        ("largest_batch_size", "max(0, (", "max(1, (", "not below 0"),
        ("training_days", "86_400", "3_600", "A day has"),
    ],
    "ex6_training.py": [
        ("cross_entropy", " - inputs.amax(-1, keepdim=True)", "", "log softmax(x) = x - log"),
        ("AdamW", "1 - beta2**t", "1 - beta2 ** (t + 1)", "Count t from 1"),
        ("AdamW", 'group["lr"] / (', 'self.defaults["lr"] / (', "take lr from its group"),
        ("AdamW", 'group["weight_decay"] * p', "0 * p", "does not decay the weights"),
        ("AdamW", '= group["betas"]', "= 0.9, 0.999", "as if betas had not been passed"),
        ("AdamW", '+ group["eps"]', "+ 1e-8", "as if eps had not been passed"),
        ("AdamW", '* group["weight_decay"]', "* 0.01", "and weight_decay too"),
        ("AdamW", "* p.grad * p.grad", "* p.grad**2 + 1e-6", "Count t from 1"),
        ("AdamW", '"m", 0.0) + (1 - beta1) * p.grad', '"m", p.grad)', "Count t from 1"),
        ("AdamW", "+ (1 - beta1) * p.grad", "+ (1 - beta1) * (p.grad + 0.01 * p)", "Count t from 1"),
        ("AdamW", "t = state", "p.grad += group['weight_decay'] * p; t = state", "changes p.grad"),
        ("AdamW", "v.sqrt() / math.sqrt(1 - beta2**t)", "v.sqrt()", "Count t from 1"),
        (
            "get_batch",
            "torch.randint(len(dataset) - context_length, (batch_size,))",
            "(torch.arange(batch_size) % (len(dataset) - context_length))",
            "begin at",
        ),
        (
            "get_batch",
            "torch.randint(len(dataset) - context_length, (batch_size,))",
            "torch.randint(len(dataset) - context_length, (1,)).expand(batch_size)",
            "draw one for each row",
        ),
        ("AdamW", "if p.grad is None:", "if False:", "raises TypeError"),
        ("get_lr_cosine_schedule", "0.5 * (1 +", "0.5 * (2 +", "the cosine goes from 0"),
        ("gradient_clipping", "if norm > max_l2_norm:", "if True:", "The norm is of all gradients"),
        ("get_batch", "len(dataset) - context_length,", "len(dataset) - 1 - context_length,", "begin at"),
        ("get_batch", "both[:, 1:]", "both[:, :-1]", "the inputs one further"),
        ("get_batch", ".astype(np.int64)", ".astype(np.int32)", "torch.int64"),
        ("save_checkpoint", "    optimizer.load_state_dict(", "    dict(", "belong to the checkpoint"),
    ],
    "ex7_generation.py": [
        ("softmax_with_temperature", "logits / temp", "logits * temp", "Divide before"),
        ("top_p", "before < p", "before + ordered <= p", "that crosses p is kept"),
        ("generate", "return text[len(ids) :]", "return text", "only new tokens"),
        ("generate", "if token == stop_token:", "if False:", "It ends before the stop token"),
        ("generate", "temperature), p)", "temperature), 1.0)", "top_p comes before drawing"),
        ("attention_with_cache", "/ math.sqrt(q.shape[-1])", "", "divide by"),
        ("encode_chat", '[special["<|im_start|>"]', "[0", "Special tokens come from"),
        ("encode_chat", 'special["<|im_end|>"]], answers', "0], False", "As text: "),
        ("encode_chat", "], answers)", "], True)", "Learned is the assistant's content"),
    ],
    "ex9_parallel.py": [
        ("all_reduce_bytes", "2 * size", "size", "Both halves"),
        (
            "average_gradients",
            "            p.grad /= dist.get_world_size()\n\n\ndef average",
            "\n\ndef average",
            "sum over processes",
        ),
        (
            "average_gradients_flat",
            "dist.all_reduce(flat)",
            "[dist.all_reduce(g) for g in flat.split(9)]",
            "into one tensor",
        ),
        ("DDP", "        same_weights(module)\n        for p", "        for p", "begin with the weights of 0"),
        ("DDP", "p.grad, async_op=True", "p.grad", "raises AttributeError"),
        ("ShardedOptimizer", "dist.broadcast(p.data, src=owner)", "pass", "the others have stepped"),
        ("ShardedOptimizer", "if owner == dist.get_rank()]", "]", "should keep about"),
        ("FSDP", "own.to(ctx.dtype) / size", "own.to(ctx.dtype)", "the mean over"),
        ("FSDP", "(nn.Linear, nn.Embedding)", "nn.Linear", "its share of each weight"),
        ("FlashAttention", "dO @ V[:, tile].transpose(1, 2) - D", "dO @ V[:, tile].transpose(1, 2)", "rowsum"),
        ("FlashAttention", "TILE = 16", "TILE = 1000", "a tensor of all scores"),
        ("best_segment", "math.ceil(layers / size)", "layers // size", "bytes"),
        ("run_blocks", "start + size])", "start + 1])", "run_blocks(4 blocks"),
    ],
    "ex10_posttraining.py": [
        ("tokenize_prompt_and_output", "mask[:, 1:]", "mask[:, :-1]", "belongs to the labels"),
        ("entropy", "(log_p.exp() * log_p)", "(logits.softmax(-1) * logits.softmax(-1).log())", "-inf"),
        ("masked_mean", "/ mask.sum(dim)", "/ mask.numel()", "number of ones"),
        ("sft_step", "    loss.backward()\n", "", "call backward()"),
        ("compute_group_normalized_rewards", "groups.std(1, ", "groups.std(1, correction=0, ", "by n,"),
        ("compute_policy_gradient_loss", "torch.minimum", "torch.maximum", "The larger of both"),
        ("dpo_loss", "chosen - reference_chosen", "chosen", "dpo_loss"),
        ("dpo_loss", "functional.logsigmoid(margin)", "functional.sigmoid(margin).log()", "use torch.nn"),
    ],
    "ex11_data.py": [
        ("extract_text", '"script", "style"', '"script", "pre"', "what stands in script and style"),
        ("mask_emails", "{2,}", "+", "two letters or more"),
        ("gopher_rules", "50 <= len(words)", "50 < len(words)", "A bound itself"),
        ("unique_lines", "== 1", ">= 1", "goes everywhere"),
        ("minhash", "range(count)", "range(1, count + 1)", "The seeds are"),
        ("near_duplicates", "[high] = low", "[j] = i", "joined by the third"),
    ],
    "ex12_precision.py": [
        ("round_to", "round(math", "int(math", "The step between numbers"),
        ("LossScaler", "loss.float() *", "loss *", "float16 ends at 65,504"),
    ],
    "ex8_scaling.py": [
        ("fit_power_law", "float(np.exp(log_a))", "float(log_a)", "The line gives log a"),
        ("isoflop_optimum", "-b / (2 * a)", "-b / a", "The lowest point"),
        ("compute_optimal", "alpha * A / (beta * B)", "A / B", "At the optimum"),
        ("softmax", 'other=float("-inf")', "other=0.0", "load -inf instead"),
        ("softmax", " - tl.max(numbers, 0)", "", "overflow"),
        ("predict", "return a * flops**b", "return a * runs.budgets[-1] ** b", "power laws"),
        ("predict", "min(runs.learning_rates", "max(runs.learning_rates", "of the lowest loss"),
        ("predict", "rate, budget) for", "rate, budget) + runs.loss(width, 0.03, budget) for", "raises Over"),
        ("attention_kernel", "total * shrink", "total", "both sums shrink"),
        (
            "attention_kernel",
            "visible(query, key, keys, CAUSAL), scores",
            "visible(query, key, keys, False), scores",
            "Hidden scores",
        ),
        ("attention_kernel", "largest + tl.log(total)", "tl.log(total)", "the largest score, and"),
        ("keys_kernel", "sum_k * scale", "sum_k", "The gradient of k"),
        ("queries_kernel", "tl.trans(tile_v)) - row_sums", "tl.trans(tile_v))", "row_sums"),
    ],
}


@pytest.mark.parametrize(
    ("name", "only", "right", "wrong", "message"), [(name, *case) for name, cases in MISTAKES.items() for case in cases]
)
def test_a_mistake_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, only: str, right: str, wrong: str, message: str
) -> None:
    solution = (SOLUTIONS / name).read_text(encoding="utf-8")
    assert right in solution
    path = tmp_path / name
    path.write_text(solution.replace(right, wrong), encoding="utf-8")
    needs_interpreter(name)
    passed = grader.grade(chapter_of(name), path, only, is_timed=False)
    assert not passed
    assert message in capsys.readouterr().out
