"""The client in JavaScript meets every vector, and is one of four members in a run whose sum is exact."""

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load

from tests.support.cli import CLASSES, DIM, TOKEN, Cli, CliConsortium, records, threaded
from tests.support.servers import lacking
from tests.support.serving import Process

CLIENT = Path(__file__).parent / "node"
OLDEST = (20, 19)
STRANGER, ROWS, SCALE = "m3", 50, 2.0**30
PATIENCE_S = 180


@pytest.fixture(scope="module")
def node() -> str:
    """The command `node`, if it is new enough and the client's packages are installed."""
    found = shutil.which("node")
    if found is None:
        lacking("node is not on the PATH")
        raise AssertionError  # `lacking` raises
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        lacking(f"node is {version.strip()}; the client needs {'.'.join(map(str, OLDEST))} or later")
    if not (CLIENT / "node_modules").is_dir():
        lacking("the client's packages are not installed: make node-client")
    return found


def test_it_meets_every_vector_that_a_member_or_an_auditor_can_be_shown(node: str) -> None:
    command = [node, "--test", "--test-reporter", "tap", *sorted(map(str, CLIENT.glob("test/*.test.mjs")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    counts = {
        name: int(count)
        for name, count in re.findall(r"^# (pass|fail|skipped) (\d+)$", done.stdout, re.MULTILINE)
    }
    assert done.returncode == counts["fail"] == 0, done.stdout[-4000:]
    assert counts["pass"] > 1100
    skipped = {line.partition("# SKIP ")[2] for line in done.stdout.splitlines() if "# SKIP" in line}
    assert skipped == {
        "it attacks a coordinator",
        "it takes more than one message",
        "it cheats",
        "it takes part in runs over data alone",
    }


async def test_a_run_with_one_member_in_javascript_ends_in_the_exact_sum(node: str, tmp_path: Path) -> None:
    coordinator = Process(tmp_path / "data", {"VEILSUM_OPERATOR_TOKEN": TOKEN})
    await coordinator.start()
    try:
        await asyncio.to_thread(hold_run, node, tmp_path, f"http://127.0.0.1:{coordinator.port}")
    finally:
        await coordinator.close()


def call(node: str, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
    command = [node, str(CLIENT / "client.mjs"), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def hold_run(node: str, folder: Path, url: str) -> None:
    c = CliConsortium(Cli(folder, url), 4, withhold=True)
    made = call(
        node, "new", folder / "stranger", "--member", STRANGER, "--admin-key", c.admin, "--held-out", 0
    )
    key = json.loads(made.stdout)["public_key"]
    sign = ("admin", "roster", c.draft, "--folder", folder / "admin")
    c.cli.json(*c.cli.at(*sign, "--remove", STRANGER))
    c.cli.json(*c.cli.at(*sign, "--member", f"{STRANGER}={key}"))
    c.cli.operate("admin", "publish", c.roster)
    features, labels = records(np.random.default_rng(9), ROWS)
    data = {"features": features.tolist(), "labels": [f"class-{label}" for label in labels]}
    (folder / "stranger.json").write_text(json.dumps({**data, "ids": [f"exam-{row}" for row in range(ROWS)]}))

    words = (
        "join",
        folder / "stranger",
        folder / "stranger.json",
        "--url",
        url,
        "--approve",
        c.approval,
        "--once",
    )
    stranger = threaded(lambda: call(node, *words))
    run = c.run("--json")
    joins = [c.join(member, "--json") for member in c.members if member != STRANGER]
    count, total = (json.loads(line) for line in stranger.result(PATIENCE_S).stdout.splitlines())
    printed = [each.result(PATIENCE_S) for each in joins]
    record = run.result(PATIENCE_S).values
    assert all(each.code == 0 for each in printed), printed
    assert (count["step"], count["sums"]) == ("count", [4] * CLASSES)
    assert (total["step"], total["findings"], total["counted"]) == ("sum", [], list(c.members))
    assert (total["round"], total["head"]) == (record["round"], record["head"])
    assert total["rows"] == 3 * 40 + ROWS

    sums = [moments(features, labels)]
    for file in c.files[:3]:
        with np.load(file) as given:
            sums.append(moments(given["features"], given["labels"]))
    answer = httpx.get(
        f"{url}/v1/rounds/{record['round']}/result/sums",
        headers={"authorization": f"Bearer {TOKEN}"},
        trust_env=False,
    )
    summed = load(answer.content)["sum"] / SCALE
    assert np.abs(summed - np.sum(sums, axis=0)).max() < 2 * len(sums) / SCALE


def moments(features: Any, labels: Any) -> Any:
    """The sums of dense rows, with a constant (member: Exact vectors)."""
    z = features / np.linalg.norm(features, axis=1, keepdims=True)
    x = np.hstack([np.sqrt(0.9) * z, np.full((len(z), 1), np.sqrt(0.1))])
    hot = np.eye(CLASSES)[labels]
    return np.concatenate([(x.T @ x)[np.triu_indices(DIM + 1)], (x.T @ hot).ravel(), hot.sum(axis=0)])
