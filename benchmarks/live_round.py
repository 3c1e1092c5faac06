"""A round of member processes compared with Flower's own deployment of SecAgg+, both with real processes over 127.0.0.1, in one run.

Ours: `veilsum serve`, a `veilsum member join` for each member and what `veilsum operator run` does, from the members' start to ten verified
heads, so process starts and enrolment count. Flower: a SuperLink and a SuperNode for each member, and one round of SecAgg+ over as many
numbers, timed at the server once all nodes are connected, so process starts don't count. Both run compiled modules, as pip installs them.

    .venv/bin/python -m benchmarks.live_round --flower benchmarks/peers/.venv/bin
"""

import argparse
import compileall
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.founding import found, question_of, random_records
from benchmarks.serving import TOKEN, coordinator
from client_sdk import Result
from client_sdk.operator import Operator
from veilsum.cli.running import Following
from veilsum.protocol.study import Question, as_tuples

DIM, CLASSES, PERIOD = 1280, 100, "period-0"
AT_MOST = 0.10
"""Limit of our time, as a share of Flower's."""
PATIENCE_S = 600.0
ROOT = Path(__file__).parents[1]
LIVE = ROOT / "benchmarks/peers/live"


@contextlib.contextmanager
def process(
    command: Sequence[str | Path], log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process until the block ends; its output goes to `log`."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("ab") as out:
        running = subprocess.Popen(command, env={**inherited, **environment}, stdout=out, stderr=out)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


def ours(members: int, folder: Path) -> float:
    """Return the seconds from the members' start to the last verified head. Raises SystemExit if a member has none."""
    ids = [f"m-{index:03}" for index in range(members)]
    with ExitStack() as ending:
        served = ending.enter_context(coordinator(folder))
        operator = ending.enter_context(Operator(served.url, TOKEN, patience_s=PATIENCE_S))
        founded = found(operator, folder, ids, question_of(members, DIM, CLASSES))
        for number, member in enumerate(ids):
            records = random_records(founded.question, number)
            np.savez(folder / f"{member}.npz", features=records.features, labels=records.labels)
        published = next(each for each in operator.studies(founded.federation) if each.study == founded.study)
        begun_s = time.perf_counter()
        joined = [
            ending.enter_context(
                process(
                    [
                        *(
                            sys.executable,
                            "-m",
                            "veilsum",
                            "member",
                            "join",
                            folder / member,
                            folder / f"{member}.npz",
                        ),
                        *(
                            "--url",
                            served.url,
                            "--admin-key",
                            founded.federation,
                            "--approve",
                            published.approval,
                        ),
                        "--once",
                    ],
                    folder / f"{member}.log",
                )
            )
            for member in ids
        ]
        view = Following(operator, lambda _: None).run_study(founded.federation, published, PERIOD)
        if view.state != "done" or len(view.survivors) != members:
            raise SystemExit(f"the round is {view.state}, with {len(view.survivors)} members")
        if any(each.wait(PATIENCE_S) for each in joined):
            raise SystemExit(f"a member failed: see {folder}/*.log")
        seconds = time.perf_counter() - begun_s
    for member in ids:
        [result] = (folder / member / "results").glob(f"*/{PERIOD}")
        Result.load(result).verify(founded.federation)
    return seconds


def flower(members: int, numbers: int, programs: Path, folder: Path) -> float:
    """Return the seconds of one round at Flower's server. Raises SystemExit if it doesn't end."""
    app, home = folder / "app", folder / "home"
    shutil.copytree(LIVE, app)
    home.mkdir()
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:9480"\ninsecure = true\n'
    )
    values = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "LIVE_FOLDER": str(folder),
    }
    with ExitStack() as ending:
        link = [
            "flower-superlink",
            "--insecure",
            "--port",
            "9480",
            "--disable-runtime-dependency-installation",
        ]
        ending.enter_context(process(link, folder / "link.log", **values))
        time.sleep(6)  # for the start, which does not count
        for number in range(members):
            node = [
                "flower-supernode",
                "--insecure",
                "--superlink",
                "127.0.0.1:9480",
                "--port",
                str(9500 + number),
            ]
            ending.enter_context(process(node, folder / f"node-{number}.log", **values))
        config = f"members={members} numbers={numbers} threshold={members * 6 // 10}"
        run = ["flwr", "run", str(app), "here", "--run-config", config]
        subprocess.run(run, env={**os.environ, **values}, check=True, stdout=subprocess.DEVNULL)
        done, until_s = folder / "seconds.json", time.monotonic() + PATIENCE_S
        while not done.exists():
            if time.monotonic() > until_s:
                raise SystemExit(f"Flower's round did not end: see {folder}/*.log")
            time.sleep(0.5)
    return float(json.loads(done.read_text()))


def measured(members: int, turns: int, programs: Path | None) -> dict[str, Any]:
    """Measure both in alternation; return the ratio of their medians."""
    mine, theirs = list[float](), list[float]()
    for package in ("client_sdk", "veilsum"):
        compileall.compile_dir(ROOT / package, quiet=2)
    numbers = Question.model_validate(as_tuples(question_of(members, DIM, CLASSES))).elements
    for _ in range(turns):
        with tempfile.TemporaryDirectory(prefix="veilsum-live-") as folder:
            mine.append(ours(members, Path(folder)))
        if programs is not None:
            with tempfile.TemporaryDirectory(prefix="veilsum-live-") as folder:
                theirs.append(flower(members, numbers, programs.absolute(), Path(folder)))
    found: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "members": members,
        "numbers": numbers,
        "ours_s": [round(each, 2) for each in mine],
        "flower_s": [round(each, 2) for each in theirs],
    }
    if theirs:
        ratio = statistics.median(mine) / statistics.median(theirs)
        found |= {"ratio": round(ratio, 3), "at_most": AT_MOST, "kept": ratio <= AT_MOST}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--flower", type=Path, help="the folder of Flower's programs; without it, ours alone")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    text = json.dumps(measured(chosen.members, chosen.turns, chosen.flower), indent=2)
    print(text)
    if chosen.output:
        chosen.output.parent.mkdir(exist_ok=True)
        chosen.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
