"""The packages that a member installs: built twice, weighed, timed, listed, and tested from the wheel on each supported Python found here.

Each promise is measured and judged; if one fails, the exit status is 1. Times are processor seconds of a new
process, the smallest of several. On a busy machine they are more accurate than wall time, which is reported too.

    .venv/bin/python -m benchmarks.dist --output runs/dist.json
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.secure_sum import ROOT

INSTALLED_MB, IMPORT_S, HELP_S = 130, 0.4, 0.3
RUNS = 9
SUITE = ("tests/client_sdk", "assurance/vectors", "tests/calibration", "tests/protocol/member")
NOT_A_MEMBER_S = {
    "tests/client_sdk/test_member.py": "the coordinator plays along",
    "tests/calibration/test_ffc.py": "torch's tensors go in too",
    "tests/calibration/test_rows.py": "torch's tensors go in too",
    "tests/calibration/test_head.py": "torch's tensors go in too",
    "tests/calibration/privacy/oracle.py": "no test: it made the values that tests hold, by another library",
    "tests/calibration/privacy/test_plan.py": "the repository's own measurements are compared",
}
SUITE_NEEDS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-cov", "pytest-timeout", "scikit-learn")
NOT_INSTALLED = ("torch", "fastapi", "starlette", "sqlalchemy", "pyarrow", "matplotlib")


@dataclass(frozen=True)
class Promise:
    """A bound and its measured value."""

    name: str
    bound: float
    unit: str
    measured: float

    @property
    def kept(self) -> bool:
        return self.measured <= self.bound


@dataclass(frozen=True)
class Timing:
    """The smallest time of several new processes."""

    processor_s: float
    clock_s: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the packages go")
    parser.add_argument("--without-suite", action="store_true", help="only build, weigh and time")
    args = parser.parse_args()
    shutil.rmtree(args.dist, ignore_errors=True)
    epoch = commit_time()
    first = build(args.dist, epoch)
    with tempfile.TemporaryDirectory() as scratch:
        second = build(Path(scratch), epoch)
    [wheel] = args.dist.glob("*.whl")
    with environment(wheel) as python:
        installed = megabytes(site_packages(python))
        listed = bill_of_materials(python, args.dist / "veilsum.cdx.json", epoch)
        refuse_extras(python)
        imported = timed([python, "-c", "import client_sdk"])
        member = timed([python, "-c", "from client_sdk import Identity, Member, Policy, Records"])
        helped = timed([python.with_name("veilsum"), "--help"])
        suite = {} if args.without_suite else {f"3.{sys.version_info.minor}": member_suite(python)}
    for name, interpreter in () if args.without_suite else others():
        with environment(wheel, interpreter) as python:
            suite[name] = member_suite(python)
    promises = [
        Promise("the bare install", INSTALLED_MB, "MB", installed),
        Promise("import client_sdk", IMPORT_S, "s of processor", imported.processor_s),
        Promise("veilsum --help", HELP_S, "s of processor", helped.processor_s),
        Promise("files that two builds made differently", 0, "files", len(first.items() ^ second.items())),
    ]
    found = {
        "sha256": first,
        "source_date_epoch": epoch,
        "components": listed,
        "import client_sdk": asdict(imported),
        "from client_sdk import Member": asdict(member),
        "veilsum --help": asdict(helped),
        "suite_against_the_wheel": suite,
        "promises": [asdict(promise) | {"kept": promise.kept} for promise in promises],
    }
    args.output.write_text(json.dumps(found, indent=2) + "\n")
    for promise in promises:
        print(
            f"{'kept  ' if promise.kept else 'BROKEN'} {promise.name}: {promise.measured:g} of {promise.bound:g} {promise.unit}"
        )
    for name, said in suite.items():
        print(f"suite against the wheel, Python {name}: {said}")
    return 0 if all(promise.kept for promise in promises) else 1


def commit_time() -> int:
    """Return SOURCE_DATE_EPOCH if set, otherwise the commit's time, so that all builds of a commit agree."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT, text=True))


def build(into: Path, epoch: int) -> dict[str, str]:
    """Build an sdist, and the wheel from it; return their SHA-256 by name."""
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(ROOT)]
    subprocess.run(
        words,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(into.iterdir())}


def others() -> Iterator[tuple[str, str]]:
    """Yield the other supported Pythons that start here, by version."""
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    for name in promised:
        found = shutil.which(f"python{name}")
        if found is None or name == f"3.{sys.version_info.minor}":
            continue
        if subprocess.run([found, "--version"], check=False, capture_output=True).returncode == 0:
            yield name, found


@contextmanager
def environment(wheel: Path, interpreter: str = sys.executable) -> Iterator[Path]:
    """Yield the Python of a new environment with only the wheel and its dependencies, without pip."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
        python = Path(folder) / "bin" / "python"
        install(python, str(wheel))
        yield python


def install(python: Path, *what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "--constraint", str(ROOT / "constraints.txt"), *what], check=True)


def site_packages(python: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([python, "-c", code], text=True).strip())


def megabytes(folder: Path) -> float:
    """Return the size of all files, compiled modules included; 1 MB is 10⁶ bytes."""
    return round(sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6, 1)


def bill_of_materials(python: Path, output: Path, epoch: int) -> list[str]:
    """Write a CycloneDX list of the environment; return name==version of each package."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    listing = [str(tool), "environment", "--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
    subprocess.run(
        [*listing, "--output-reproducible", "--output-file", str(output), str(python)],
        check=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
    )
    components = json.loads(output.read_text())["components"]
    return sorted(f"{each['name']}=={each['version']}" for each in components)


def refuse_extras(python: Path) -> None:
    """Fail if the bare install contains packages that only extras should bring."""
    code = f"from importlib.util import find_spec; print([n for n in {NOT_INSTALLED} if find_spec(n)])"
    found = subprocess.check_output([python, "-c", code], text=True).strip()
    if found != "[]":
        raise SystemExit(f"the bare install brings {found}")


def timed(command: Sequence[str | Path]) -> Timing:
    """Return the smallest time of several new processes, after one that compiles."""
    spent: list[tuple[float, float]] = []
    for _ in range(RUNS + 1):
        before, began = os.times(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir())
        after = os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        spent.append((used, time.perf_counter() - began))
    processor, clock = zip(*spent[1:], strict=True)
    return Timing(round(min(processor), 3), round(min(clock), 3))


def member_suite(python: Path) -> str:
    """Run the member's tests against the wheel, without the checkout's packages; return pytest's last line."""
    install(python, *SUITE_NEEDS)
    with tempfile.TemporaryDirectory() as folder:
        alone = Path(folder)
        for tests in ("tests", "assurance"):
            shutil.copytree(ROOT / tests, alone / tests, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "docs", alone / "docs")  # tests compare pages with the code
        shutil.copy(ROOT / "pyproject.toml", alone)
        run = subprocess.run(
            [python, "-m", "pytest", *SUITE, *(f"--ignore={each}" for each in NOT_A_MEMBER_S)],
            cwd=alone,
            capture_output=True,
            text=True,
            check=False,
        )
        where = subprocess.check_output(
            [python, "-c", "import client_sdk; print(client_sdk.__file__)"], cwd=alone, text=True
        )
    if run.returncode or str(site_packages(python)) not in where:
        raise SystemExit(f"{run.stdout[-4000:]}\n{run.stderr[-2000:]}")
    return re.sub(r" in .*", "", run.stdout.strip().splitlines()[-1].strip("= "))


if __name__ == "__main__":
    sys.exit(main())
