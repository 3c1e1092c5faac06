"""Mutation testing of the protocol, the calibration, the coordinator's doors and sums, and the SDK: `make mutation`.

Draws mutants of each suite's modules by seed. For each, it runs the tests that reach its line, fastest first, until one fails. Every
mutant runs in a fork of a process that has loaded pytest and the libraries, but none of our modules. The fork imports the
mutated module in place of the true one, so every name imported from it is the mutant's. A hang counts as killed. Exit
status 1 below the floor.

mutmut 3 skips decorated functions and class bodies, which contain this code's properties and wire limits;
cosmic-ray starts an interpreter for each mutant, and doesn't select tests by line.
"""

# ruff: noqa: T201 - a command prints

import ast
import contextlib
import functools
import importlib
import json
import math
import os
import resource
import signal
import sys
import tempfile
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from random import Random
from time import monotonic, process_time, sleep
from types import CodeType
from typing import Any

import pytest
from coverage import CoverageData
from hypothesis import settings

from assurance.mutation.mutants import Mutant, apply, mutants_of
from assurance.reports import arguments, report

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Suite:
    """Modules and packages that are mutated, and the paths of the tests that must notice."""

    mutated: tuple[str, ...]
    tests: tuple[str, ...]


SUITES = {
    "protocol": Suite(
        ("veilsum/protocol",),
        (
            *("tests/protocol", "tests/study/test_study.py"),
            *("assurance/attacks", "assurance/reference", "assurance/vectors"),
        ),
    ),
    "calibration": Suite(
        ("veilsum/calibration",),
        (
            *("tests/calibration", "tests/study/test_answers.py", "tests/study/test_judging.py"),
            *("assurance/reference/test_judging.py", "assurance/reference/test_records.py"),
            "assurance/vectors/test_vectors.py",
        ),
    ),
    "coordinator": Suite(
        (
            "service/access",
            *(f"service/coordination/{name}.py" for name in ("summing", "journal", "liveness", "scheduler")),
        ),
        (
            *("tests/service/access", "tests/service/test_states.py"),
            *("tests/service/pages/test_kept.py", "tests/service/routes/test_rounds.py"),
            *(
                f"tests/service/coordination/test_{name}.py"
                for name in (
                    "summing",
                    "sums",
                    "journal",
                    "damage",
                    "liveness",
                    "scheduler",
                    "leases",
                    "memory",
                    "restart",
                    "races",
                    "replicas",
                    "rosters",
                )
            ),
        ),
    ),
    "client_sdk": Suite(
        ("client_sdk",),
        (
            *("tests/client_sdk", "assurance/vectors/test_vectors.py"),
            *("assurance/reference/test_records.py", "assurance/attacks/test_refusals_store_nothing.py"),
        ),
    ),
}
PRELOADED = (
    "numpy",
    "hypothesis",
    "pydantic",
    "fastapi",
    "sqlalchemy",
    "uvicorn",
    "httpx",
    "cryptography.hazmat.primitives.ciphers.aead",
    "pytest_asyncio",
    "_pytest.python",
)
QUIET = (
    "-q",
    "--no-cov",
    "--hypothesis-profile=mutation",
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
    *(
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ),  # hypothesis is loaded before pytest could rewrite it
)
TESTS_S = 15.0
"""Limit of the tests run for one mutant, in seconds of processor time that they take unmutated."""
HUNG, BROKEN = "timeout", 70
CACHE = type(functools.cache(math.sqrt))
ASLEEP = 10
"""Wall-clock limit of a mutant in multiples of its processor time limit, for mutants that hang without working."""


class Timing:
    """Record each test's processor time, which doesn't depend on the machine's load, and let no test find another's caches."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        clear_caches()
        begun = process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = process_time() - begun


def clear_caches() -> None:
    """Empty our modules' function caches, or only the first test would be seen to reach a cached function's lines."""
    roots = tuple({path.partition("/")[0] for suite in SUITES.values() for path in suite.mutated})
    for name, module in list(sys.modules.items()):
        if name.startswith(roots):
            for value in list(vars(module).values()):
                if isinstance(value, CACHE):
                    value.cache_clear()


class Chosen:
    """Run the named tests in their order, and no others."""

    def __init__(self, tests: list[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self._place), key=lambda i: self._place[i.nodeid])


class Injected(SourceFileLoader):
    """Load a module from other code than its file's."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return self._code


class Finder:
    """Find one module as its mutant."""

    def __init__(self, mutant: Mutant, tree: ast.Module) -> None:
        self._name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._file = str(ROOT / mutant.path)
        self._code = compile(tree, self._file, "exec")

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._name:
            return None
        return spec_from_loader(
            name, Injected(name, self._file, self._code), is_package=self._file.endswith("__init__.py")
        )


def forked(action: Callable[[], int], output: str = os.devnull) -> int:
    """Run `action` in a child with its own process group, and its output in a file; return the child's process id."""
    child = os.fork()
    if child:
        return child
    status = BROKEN
    try:
        os.setpgid(0, 0)
        words = os.open(output, os.O_RDWR | os.O_CREAT)
        for stream in (0, 1, 2):
            os.dup2(words, stream)
        status = action()
    except BaseException:  # noqa: BLE001 - the process ends here in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def modules_of(suite: Suite, named: Sequence[str]) -> list[Path]:
    """Return the suite's modules, or those of these names."""
    roots = [ROOT / each for each in suite.mutated]
    found = [path for root in roots for path in (root.rglob("*.py") if root.is_dir() else (root,))]
    return sorted(path for path in found if not named or path.stem in named)


def baseline(folder: Path, suite: Suite) -> tuple[dict[str, float], CoverageData]:
    """Run a suite's tests once, unmutated; return seconds by test, and which tests reach each line."""
    include = "\n  ".join(str(path) for path in modules_of(suite, ()))
    (folder / "coveragerc").write_text(f"[run]\ninclude =\n  {include}\n")
    os.environ["COVERAGE_FILE"] = str(folder / "coverage")

    def run() -> int:
        timing = Timing()
        arguments = [one for one in QUIET if one != "--no-cov"]
        arguments += ["--cov", f"--cov-config={folder / 'coveragerc'}"]
        arguments += ["--cov-context=test", "--cov-report="]
        status = pytest.main([*arguments, *suite.tests], plugins=[timing])
        (folder / "seconds.json").write_text(json.dumps(timing.seconds))
        return int(status)

    _, status = os.waitpid(forked(run, str(folder / "words")), 0)
    if status:
        words = (folder / "words").read_text("utf-8")
        raise SystemExit(f"{words[-4000:]}\nthe tests do not pass as they are: mend that first")
    data = CoverageData(str(folder / "coverage"))
    data.read()
    return json.loads((folder / "seconds.json").read_text()), data


def tests_for(mutant: Mutant, seconds: dict[str, float], data: CoverageData) -> list[str]:
    """Return the tests that reach the mutant's line: the module's own first, then the fastest.

    A line that runs on import counts as reached by the module's own tests and all that reach the module.
    """
    reached, own = data.contexts_by_lineno(str(ROOT / mutant.path)), own_tests(mutant)
    contexts = [context for context in reached.get(mutant.line, ()) if context]
    names = {context.rpartition("|")[0] for context in contexts} & seconds.keys()
    if not names:
        contexts = [context for line in reached.values() for context in line if context]
        names = {context.rpartition("|")[0] for context in contexts} & seconds.keys()
        names |= {name for name in seconds if name.startswith(own)}
    ordered = sorted(names, key=lambda name: (not name.startswith(own), seconds[name], name))
    spent, chosen = 0.0, list[str]()
    for name in ordered:
        spent += seconds[name]
        if chosen and spent > TESTS_S:
            break
        chosen.append(name)
    return chosen


def tried(mutant: Mutant, tests: list[str], tree: ast.Module | None = None) -> int:
    """In a child: run the tests with the mutant in place, the module's own file first; return pytest's status."""
    sys.meta_path.insert(0, Finder(mutant, tree or apply(ROOT, mutant)))
    sys.dont_write_bytecode = True
    own = [test for test in tests if test.startswith(own_tests(mutant))]
    for some in (own, tests[len(own) :]):
        files = dict.fromkeys(test.partition("::")[0] for test in some)
        try:
            status = int(pytest.main(["-x", *QUIET, *files], plugins=[Chosen(some)])) if some else 0
        except BaseException:  # noqa: BLE001 - the mutant ended pytest itself
            return int(pytest.ExitCode.INTERNAL_ERROR)
        if status:
            break
    return status


def own_tests(mutant: Mutant) -> tuple[str, str]:
    """Return what the names of the tests that mirror the mutant's module begin with: `test_MODULE.py`, `test_MODULE_….py`."""
    path = Path(mutant.path.removeprefix("veilsum/"))
    mirror = str("tests" / path.with_name(f"test_{path.stem}"))
    return f"{mirror}.py", f"{mirror}_"


def limited(cpu_s: float, action: Callable[[], int]) -> int:
    """In a child: run `action` with a limit of processor time, which doesn't depend on the machine's load."""
    most = math.ceil(cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    return action()


def end_of(status: int) -> str:
    """Return the mutant's end from a child's status. Raises SystemExit if the child itself failed."""
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return HUNG
    if code == BROKEN:
        raise SystemExit("a mutant could not be made or tried")
    # 5 (no tests found) is no kill; 2 and 4 mean that the module can't be imported
    return "survived" if code in {0, 5} else "killed"


def control(mutant: Mutant, tests: list[str]) -> None:
    """Check that the true module, loaded like a mutant, passes its tests."""
    tree = ast.parse((ROOT / mutant.path).read_text("utf-8"))
    _, status = os.waitpid(forked(partial(tried, mutant, tests, tree)), 0)
    if end_of(status) != "survived":
        raise SystemExit(f"{mutant.path} fails its tests unmutated")


def verdicts(
    work: list[tuple[Mutant, list[str]]], seconds: dict[str, float], workers: int
) -> dict[Mutant, str]:
    """Return each mutant's end: "killed", "timeout" or "survived"."""
    waiting, running, ends = list(reversed(work)), dict[int, tuple[Mutant, float]](), dict[Mutant, str]()
    while waiting or running:
        while waiting and len(running) < workers:
            mutant, tests = waiting.pop()
            if not tests:
                ends[mutant] = "survived"
                continue
            limit_s = 20 + 5 * sum(seconds[test] for test in tests)
            child = forked(partial(limited, limit_s, partial(tried, mutant, tests)))
            running[child] = (mutant, monotonic() + ASLEEP * limit_s)
        for child, (mutant, deadline_s) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if not done and monotonic() > deadline_s:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                ends[mutant] = HUNG
            elif done:
                ends[mutant] = end_of(status)
            else:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            del running[child]
            if len(ends) % 50 == 0:
                print(f"{len(ends)} of {len(work)}: {Counter(ends.values())}", flush=True)
        sleep(0.01)
    return ends


def equivalent() -> Callable[[Mutant], bool]:
    """Return a function that tells whether a mutant is listed as equivalent."""
    text = (Path(__file__).parent / "equivalent.toml").read_text("utf-8")
    listed = {
        (one["path"], one["before"], one.get("after"))
        for one in tomllib.loads(text)["mutant"]
        if one["reason"]
    }
    return lambda m: not {(m.path, m.before, m.after), (m.path, m.before, None)}.isdisjoint(listed)


def campaign(name: str, modules: Sequence[str], mutants: int, seed: int, workers: int) -> dict[str, Any]:
    """Try mutants of a suite, drawn by seed; return what became of them."""
    started, suite, same = monotonic(), SUITES[name], equivalent()
    found = [mutant for path in modules_of(suite, modules) for mutant in mutants_of(ROOT, path)]
    every = [mutant for mutant in found if not same(mutant)]
    drawn = Random(seed).sample(every, min(mutants, len(every)))
    with tempfile.TemporaryDirectory() as folder:
        seconds, data = baseline(Path(folder), suite)
        print(
            f"{name}: {len(seconds)} tests in {sum(seconds.values()):.0f} s; "
            f"{len(drawn)} of {len(every)} mutants",
            flush=True,
        )
        work = [(m, tests_for(m, seconds, data)) for m in drawn]
        control(*work[0])
        ends = verdicts(work, seconds, workers)
    by_module: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, end in ends.items():
        by_module[mutant.path][end] += 1
    counts = Counter(ends.values())
    survivors = sorted((m for m, end in ends.items() if end == "survived"), key=lambda m: (m.path, m.line))
    return {
        "mutants": len(ends),
        "of": len(every),
        "equivalent": len(found) - len(every),
        "score": round(1 - len(survivors) / len(ends), 4),
        "seconds": round(monotonic() - started, 1),
        **{end: counts[end] for end in ("killed", HUNG, "survived")},
        "by_module": {path: dict(ends_) for path, ends_ in sorted(by_module.items())},
        "by_operator": dict(Counter(f"{m.operator} {end}" for m, end in ends.items())),
        "survivors": [asdict(mutant) for mutant in survivors],
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--suite", choices=SUITES, action="append", help="all four if none is named")
    parser.add_argument("--mutants", type=int, default=150, help="of each suite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--floor", type=float, default=0.9, help="share of all that must be killed")
    parser.add_argument("--modules", nargs="*", default=[], help="only these, for example codec shamir")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    for name in PRELOADED:
        importlib.import_module(name)
    # the same examples every time, no failures from a busy machine's clock, nothing left on disk
    settings.register_profile("mutation", derandomize=True, deadline=None, database=None)
    suites = {
        name: campaign(name, chosen.modules, chosen.mutants, chosen.seed, chosen.workers)
        for name in chosen.suite or SUITES
    }
    mutants = sum(each["mutants"] for each in suites.values())
    score = 1 - sum(each["survived"] for each in suites.values()) / mutants
    summary = {"seed": chosen.seed, "mutants": mutants, "score": round(score, 4), "floor": chosen.floor}
    report({**summary, "suites": suites}, chosen.output, sound=score >= chosen.floor)


if __name__ == "__main__":
    main()
