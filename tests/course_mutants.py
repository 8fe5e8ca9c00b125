"""Wrong versions of the course's solutions, one change each: what the grader has to catch.

    python tests/course_mutants.py [CHAPTER …] [--every N]      grade them, and print those that pass

A mutant is named by its file, its function and the change: "ex6_training.py: get_batch: a - b -> a + b".
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import io
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXERCISES = ROOT / "docs" / "course" / "exercises"
SOLUTIONS = ROOT / "tests" / "course_solutions"
if "grade" not in sys.modules:  # as a program; pytest has the folder on its path
    sys.path.insert(0, str(EXERCISES))
    os.environ["TRITON_INTERPRET"] = "1"

import grade as grader  # noqa: E402

PASSED = 42  # exit status of a process whose mutant was not caught
MOST_ROUNDS = 10_000  # of a while loop; a mutant that needs more is taken for an endless one
PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {**dict(PAIRS), **{right: left for left, right in PAIRS}}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NAMES = {
    "min": "max",
    "max": "min",
    "amax": "amin",
    "maximum": "minimum",
    "argmax": "argmin",
    "mean": "sum",
    "cos": "sin",
    "sin": "cos",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "tril": "triu",
    "log": "exp",
}
NEUTRAL = {"int": "1", "float": "1.0", "bool": "False", "str": "''", "bytes": "b''", "list": "[]", "dict": "{}"}

LEADS = "no first byte of a character is 0xC0, 0xC1 or above 0xF4, and those of four bytes have the bit 0x08 clear"
UNSEEN = "tiles that no query sees add nothing"
SHRUNK = "the first tile multiplies what was there before by exp(-inf) = 0"
EXCUSED = {  # mutants that compute the same, or differ in what no exercise asks for: why
    "ex0_tensors.py: gradient: x.detach().clone() -> x.detach()": "detach gives a tensor of its own",
    "ex1_utf8.py: decode_utf8: byte < 192 -> byte <= 192": LEADS,
    "ex1_utf8.py: decode_utf8: 192 -> 193": LEADS,
    "ex1_utf8.py: decode_utf8: byte < 224 -> byte <= 224": "0xE0 has the same lower bits by either mask",
    "ex1_utf8.py: decode_utf8: 224 -> 225": "0xE0 has the same lower bits by either mask",
    "ex1_utf8.py: decode_utf8: 15 if byte < 240 else 7 -> 15 if True else 7": LEADS,
    "ex1_utf8.py: decode_utf8: byte < 240 -> byte <= 240": LEADS,
    "ex1_utf8.py: decode_utf8: 240 -> 241": LEADS,
    "ex1_utf8.py: is_whole: first < 128 -> first <= 128": "0x80 is no first byte",
    "ex1_utf8.py: is_whole: 128 -> 129 (3)": "0x80 is no first byte",
    "ex2_bpe.py: pieces: sorted(special_tokens, key=len, reverse=True) -> sorted(special_tokens, reverse=True)": (
        "order matters between a token and one that begins with it, and of these the longer one is the greater"
    ),
    "ex2_bpe.py: train_bpe: 1 -> 2": "twice every count gives the same order",
    "ex4_transformer.py: RotaryPositionalEmbedding.forward: 0::2 -> ::2": "the same slice",
    "ex5_budget.py: count_parameters: context_length is ignored": "rotary embedding has no weights",
    "ex5_budget.py: count_parameters: num_heads is ignored": "heads divide the same matrices",
    "ex5_budget.py: forward_flops: num_heads is ignored": "heads divide the same matrices",
    "ex5_budget.py: largest_batch_size: 0 -> 1 (2)": "multiplied by a batch of 0",
    "ex5_budget.py: largest_batch_size: 0 -> -1 (2)": "multiplied by a batch of 0",
    "ex5_budget.py: largest_batch_size: 0 -> 1 (3)": "multiplied by a sequence of 0",
    "ex5_budget.py: largest_batch_size: 0 -> -1 (3)": "multiplied by a sequence of 0",
    "ex6_training.py: AdamW.step: closure is ignored": "no exercise asks for closures",
    "ex6_training.py: AdamW.step: without return None": "the same result",
    "ex6_training.py: get_lr_cosine_schedule: it > cosine_cycle_iters -> it >= cosine_cycle_iters": (
        "the cosine ends at the minimum"
    ),
    "ex6_training.py: gradient_clipping: norm > max_l2_norm -> norm >= max_l2_norm": (
        "scales by 0.999999 where the norm is the maximum, as torch does"
    ),
    "ex6_training.py: get_batch: torch.randint(len(dataset) - context_length, (batch_size,)).tolist() -> "
    "torch.randint(len(dataset) - context_length, (batch_size,))": "slices take 0-dimensional tensors too",
    "ex7_generation.py: softmax_with_temperature: 1 -> 0": "logits have one dimension",
    "ex7_generation.py: softmax_with_temperature: 1 -> 0 (2)": "logits have one dimension",
    "ex7_generation.py: top_p: 1 -> 0": "probabilities have one dimension",
    "ex7_generation.py: top_p: 1 -> 0 (2)": "probabilities have one dimension",
    "ex7_generation.py: generate: 1.0 -> 2.0 (2)": "every token is within p = 1, and within 2",
    "ex8_scaling.py: compute_optimal: E is ignored": "the floor moves no optimum",
    "ex8_scaling.py: predict: 2 -> 3": "the learning rate is the best one for every width",
    "ex8_scaling.py: predict: 2 -> 1": "the learning rate is the best one for every width",
    "ex8_scaling.py: predict: 2 -> 3 (2)": "a cubic has nearly the same lowest value as the parabola",
    "ex8_scaling.py: softmax_kernel: 0 -> -1 (3)": "a row has one dimension",
    "ex8_scaling.py: softmax_kernel: 0 -> -1 (4)": "a row has one dimension",
    "ex8_scaling.py: load_rows: tl.load(base + place, mask=(row < length)[:, None], other=0.0) -> "
    "tl.load(base + place, mask=(row < length)[:, None])": "the interpreter loads zeros where the mask is False",
    "ex8_scaling.py: product: tl.dot(a, b, input_precision='ieee') -> tl.dot(a, b)": (
        "the interpreter knows one precision"
    ),
    "ex8_scaling.py: attention_kernel: (tl.program_id(0) + 1) * QUERIES if CAUSAL else keys -> "
    "(tl.program_id(0) + 1) * QUERIES if False else keys": UNSEEN,
    "ex8_scaling.py: attention_kernel: 1 -> 2 (4)": UNSEEN,
    "ex8_scaling.py: keys_kernel: first if CAUSAL else 0 -> first if False else 0": UNSEEN,
    "ex8_scaling.py: queries_kernel: (tl.program_id(0) + 1) * QUERIES if CAUSAL else keys -> "
    "(tl.program_id(0) + 1) * QUERIES if False else keys": UNSEEN,
    "ex8_scaling.py: queries_kernel: 1 -> 2 (4)": UNSEEN,
    "ex8_scaling.py: FlashAttention.backward: 32 -> 31 (2)": "one program more, which stores nothing",
    "ex8_scaling.py: FlashAttention.backward: 16 -> 15 (2)": "one program more, which stores nothing",
    "ex8_scaling.py: attention_forward: 16 -> 15": "one program more, which stores nothing",
    "ex7_generation.py: generate: 0 -> -1": "the batch has one row",
    "ex9_parallel.py: ShardedOptimizer.__init__: 0 -> 1": "every process begins with one element more",
    "ex9_parallel.py: ShardedOptimizer.__init__: 0 -> -1": "every process begins with one element less",
    "ex9_parallel.py: ShardedOptimizer.__init__: 0 -> -1 (2)": "there is one group",
    "ex9_parallel.py: ShardedOptimizer.__init__: -p.numel() -> p.numel()": "small ones first are shared out as evenly",
    "ex9_parallel.py: ShardedOptimizer.__init__: optimizer_cls(own, **settings) -> optimizer_cls(own)": (
        "each step passes the settings on"
    ),
    "ex9_parallel.py: FSDP.gather: 0 -> -1": "a module has one input",
    "ex9_parallel.py: Gather.backward: own.to(ctx.dtype) -> own": "autograd casts a gradient to the dtype of its input",
    "ex9_parallel.py: Gather.backward: gradient.contiguous() -> gradient": "the checks have contiguous gradients",
    "ex9_parallel.py: ShardedOptimizer.step: 0 -> -1": "there is one group",
    "ex9_parallel.py: ShardedOptimizer.step: 0 -> -1 (2)": "there is one group",
    "ex9_parallel.py: ShardedOptimizer.step: closure is ignored": "no exercise asks for closures",
    "ex9_parallel.py: Gather.forward: shard.detach() -> shard": "nothing is recorded inside of a Function",
    "ex9_parallel.py: best_segment: 1 -> 2 (2)": "a segment longer than all layers saves nothing",
    "ex9_parallel.py: FlashAttention: 16 -> 17": "the size of a tile is free",
    "ex9_parallel.py: FlashAttention: 16 -> 15": "the size of a tile is free",
    "ex9_parallel.py: FlashAttention.forward: torch.zeros(*Q.shape[:2], V.shape[-1]) -> "
    "torch.ones(*Q.shape[:2], V.shape[-1])": SHRUNK,
    "ex9_parallel.py: FlashAttention.forward: torch.zeros(Q.shape[:2]) -> torch.ones(Q.shape[:2])": SHRUNK,
    "ex10_posttraining.py: aggregate_loss_across_microbatch: 'sequence' -> 'sequencex'": "whatever is not 'constant'",
    "ex11_data.py: hash_of: 8 -> 9 (2)": "blake2b pads a salt with zeros",
    "ex11_data.py: hash_of: 8 -> 7 (2)": "blake2b pads a salt with zeros",
    "ex12_precision.py: round_to: 0 -> 1": "1 is a number of every format",
    "ex12_precision.py: round_to: 0 -> -1": "-1 is one too",
    "ex12_precision.py: MasterSGD.__init__: p.detach().float().clone() -> p.detach().float()": "float() is a copy",
    "ex12_precision.py: MasterSGD.__init__: p.detach() -> p": "steps are under no_grad",
    "ex13_evaluation.py: continuation_log_probs: start - 1:-1 -> start - 1:": "gather needs no more rows",
    "ex13_evaluation.py: continuation_log_probs: -1 -> 1 (2)": "of two dimensions",
    "ex13_evaluation.py: continuation_log_probs: -1 -> 1 (3)": "of two dimensions",
    "ex13_evaluation.py: continuation_log_probs: 0 -> -1": "there is one column",
    "ex13_evaluation.py: choose: 1 -> 2": "all sums are halved",
    "ex13_evaluation.py: hellaswag_choice: :-1 -> :": "gather needs no more rows",
    "ex13_evaluation.py: hellaswag_choice: 0 -> -1": "there is one column",
    "ex13_evaluation.py: hellaswag_choice: -1 -> 1 (4)": "of two dimensions",
    "ex13_evaluation.py: hellaswag_choice: -1 -> 1 (5)": "of two dimensions",
    "ex13_evaluation.py: contaminated: if length not in seen: seen[length] = {run for text in training for... -> "
    "if True: seen[length] = {run for text in training for run in runs(w...": "it is a cache",
    **dict.fromkeys(
        (
            "ex16_published.py: merge: len(parts) > 1 -> len(parts) >= 1",
            "ex16_published.py: merge: 1 -> 2 (2)",
            "ex16_published.py: merge: 1 -> 0 (2)",
        ),
        "a pretoken that is one token is found whole, without a merge",
    ),
    "ex15_inference.py: speculate.draw: 0 -> -1": "of one dimension",
    "ex15_inference.py: finish_steps: 0 -> -1": "nothing arrives before 0",
    **dict.fromkeys(
        (
            "ex15_inference.py: mixture: -1 -> 1",
            "ex15_inference.py: balance_loss: -1 -> 1",
            "ex15_inference.py: balance_loss: -1 -> 1 (2)",
        ),
        "of two dimensions",
    ),
}


@dataclass(frozen=True)
class Mutant:
    """A changed solution: its name, its source, exercises that use the changed function, words of their verdict."""

    name: str
    file: str
    source: str
    exercises: tuple[str, ...]
    verdict: str = ""


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Each wrong version of one node, as a copy."""

    def changed(**fields: object) -> ast.AST:
        other = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.Constant(value=bool()):
            yield changed(value=not node.value)
        case ast.Constant(value=int()):
            yield changed(value=node.value + 1)
            yield changed(value=node.value - 1)
        case ast.Constant(value=float()):
            yield changed(value=2 * node.value if node.value else 1.0)
            yield changed(value=node.value / 2 if node.value else -1.0)
        case ast.Constant(value=str()) if node.value.strip():
            yield changed(value=node.value + "x")
        case ast.Compare(ops=[operator]):
            yield changed(ops=[COMPARISONS[type(operator)]()])
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield changed(op=OPERATORS[type(node.op)]())
            yield copy.deepcopy(node.left)
            yield copy.deepcopy(node.right)
        case ast.AugAssign() if type(node.op) in OPERATORS:
            yield changed(op=OPERATORS[type(node.op)]())
        case ast.UnaryOp():
            yield copy.deepcopy(node.operand)
        case ast.BoolOp():
            yield changed(op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.If() | ast.IfExp():
            yield changed(test=ast.Constant(True))
            yield changed(test=ast.Constant(False))
        case ast.Slice():
            for end in ("lower", "upper", "step"):
                if getattr(node, end) is not None:
                    yield changed(**{end: None})
        case ast.Call():
            for i, keyword in enumerate(node.keywords):
                if keyword.arg != "strict":  # no solution has lists of different lengths
                    yield changed(keywords=node.keywords[:i] + node.keywords[i + 1 :])
            if isinstance(node.func, ast.Name) and node.func.id in NAMES:
                yield changed(func=ast.Name(NAMES[node.func.id], ast.Load()))
            if isinstance(node.func, ast.Attribute):
                if node.func.attr in NAMES:
                    yield changed(func=ast.Attribute(node.func.value, NAMES[node.func.attr], ast.Load()))
                if not isinstance(node.func.value, ast.Name) or node.func.value.id not in MODULES:
                    yield copy.deepcopy(node.func.value)  # x.exp() -> x


MODULES = ("torch", "np", "math", "regex", "nn", "tl", "triton", "dist", "F")


def simple(statement: ast.stmt) -> bool:
    """True for a statement that can be left out: not a definition, a docstring or an import."""
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.Return, ast.Break, ast.Continue))


def ignored_arguments(function: ast.FunctionDef) -> Iterator[tuple[str, ast.stmt]]:
    """For each argument a statement that puts its default, or something neutral, in its place."""
    arguments = function.args.posonlyargs + function.args.args
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + function.args.defaults  # type: ignore[operator]
    for argument, default in zip(arguments, defaults, strict=True):
        kind = ast.unparse(argument.annotation).partition("[")[0] if argument.annotation is not None else ""
        if default is not None:
            value = ast.unparse(default)
        elif kind == "Tensor":
            value = f"torch.zeros_like({argument.arg})"
        elif kind in NEUTRAL:
            value = NEUTRAL[kind]
        else:
            continue
        yield argument.arg, ast.parse(f"{argument.arg} = {value}").body[0]


def one_line(node: ast.AST) -> str:
    text = " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
    return text if len(text) <= 70 else text[:67] + "..."


def bounded(tree: ast.Module) -> ast.Module:
    """The same program, in which a while loop that goes on for too long raises."""

    class Bound(ast.NodeTransformer):
        def visit_While(self, node: ast.While) -> ast.For:
            self.generic_visit(node)
            loop = ast.parse(f"for _ in range({MOST_ROUNDS}):\n    if not x: break\nelse:\n    raise RuntimeError()")
            new = loop.body[0]
            assert isinstance(new, ast.For)
            assert isinstance(new.body[0], ast.If)
            new.body[0].test = ast.UnaryOp(ast.Not(), node.test)
            new.body += node.body
            return new

    return ast.fix_missing_locations(Bound().visit(tree))


def mutated_trees(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs of what was changed and the changed program, for every place of a program."""
    tree = copy.deepcopy(tree)

    def source() -> str:
        return ast.unparse(bounded(copy.deepcopy(tree)))

    def walk(node: ast.AST, where: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}" if where else node.name
        if isinstance(node, ast.FunctionDef):
            for name, statement in ignored_arguments(node):
                node.body.insert(0, statement)
                yield f"{where}: {name} is ignored", source()
                node.body.pop(0)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list", "type_comment", "ctx"):
                continue
            if isinstance(value, list):
                for i, child in enumerate(value):
                    if not isinstance(child, ast.AST):
                        continue
                    if isinstance(child, ast.stmt) and simple(child) and where and not docstring(child):
                        value[i] = ast.Pass()
                        yield f"{where}: without {one_line(child)}", source()
                        value[i] = child
                    for other in changes(child):
                        value[i] = other
                        yield f"{where}: {one_line(child)} -> {one_line(other)}", source()
                        value[i] = child
                    yield from walk(child, where)
            elif isinstance(value, ast.AST) and not (isinstance(node, ast.Expr) and docstring(node)):
                for other in changes(value):
                    setattr(node, field, other)
                    yield f"{where}: {one_line(value)} -> {one_line(other)}", source()
                    setattr(node, field, value)
                yield from walk(value, where)

    yield from walk(tree, "")


def docstring(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def users(tree: ast.Module) -> dict[str, set[str]]:
    """For each name at the top of a program, those that need it, itself among them."""
    uses = {
        statement.name: {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for statement in tree.body
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef))
    }
    closure = {name: {name} for name in uses}
    for _ in uses:
        for name in uses:
            closure[name] |= {user for user in uses if uses[user] & closure[name]}
    return closure


def mutants(chapter: int) -> Iterator[Mutant]:
    """Every mutant of a chapter's solution, each under a name of its own."""
    file, checks = grader.CHAPTERS[chapter]
    tree = ast.parse((SOLUTIONS / file).read_text(encoding="utf-8"))
    needed_by = users(tree)
    exercises = __import__(checks).CHAPTERS[chapter]
    seen: dict[str, int] = {}
    for change, source in mutated_trees(tree):
        top = change.partition(":")[0].partition(".")[0]
        if top not in needed_by:
            continue
        seen[change] = seen.get(change, 0) + 1
        name = f"{file}: {change}" + (f" ({seen[change]})" if seen[change] > 1 else "")
        graded = tuple(name for name in exercises if needed_by[top] & set(name.split(" and ")))
        yield Mutant(name, file, source, graded)


def is_caught(mutant: Mutant, folder: Path, number: int = 0) -> bool:
    """True if an exercise that uses the changed function is graded as wrong."""
    if mutant.file.startswith("ex8"):  # a wrong kernel writes anywhere in memory: it gets a process of its own
        child = multiprocessing.get_context("fork").Process(target=caught_or_exit, args=(mutant, folder, number))
        child.start()
        child.join()
        return child.exitcode != PASSED
    return is_graded_wrong(mutant, folder, number)


def caught_or_exit(mutant: Mutant, folder: Path, number: int) -> None:
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until this process ends)
    if not is_graded_wrong(mutant, folder, number):
        os._exit(PASSED)


def is_graded_wrong(mutant: Mutant, folder: Path, number: int) -> bool:
    path = folder / f"mutant{number}_{mutant.file}"  # a name of its own, or a cached source would be read
    path.write_text(mutant.source, encoding="utf-8")
    chapter = int(mutant.file[2:].partition("_")[0])
    with contextlib.redirect_stdout(io.StringIO()):
        for exercise in mutant.exercises:
            if not grader.grade(chapter, path, exercise.partition(" and ")[0], is_timed=False):
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chapters", nargs="*", type=int, default=sorted(grader.CHAPTERS))
    parser.add_argument("--every", type=int, default=1, help="grade one of so many")
    options = parser.parse_args()
    wrong = 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for chapter in options.chapters:
            every = list(mutants(chapter))
            excused = {name for name in EXCUSED if name.startswith(grader.CHAPTERS[chapter][0])}
            problems = [f"excused, but there is no such mutant: {name}" for name in excused - {m.name for m in every}]
            graded = every[:: options.every]
            for number, mutant in enumerate(graded):
                caught = is_caught(mutant, Path(folder), number)
                if caught == (mutant.name in excused):
                    problems.append(f"{'excused, but caught' if caught else 'passes'}: {mutant.name}")
            print(
                f"chapter {chapter}: {len(graded)} of {len(every)} mutants graded, {len(excused)} excused", flush=True
            )
            for problem in problems:
                print(f"  {problem}", flush=True)
            wrong += len(problems)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
