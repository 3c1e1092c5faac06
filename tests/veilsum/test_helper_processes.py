"""A round of real processes: a coordinator, four helpers of which one is killed and one stays dead, and clients."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.operator import Operator
from tests.veilsum.cli import CLASSES, DIM, EXTRACTOR, TOKEN, records

CLIENTS = tuple(f"c{index}" for index in range(6))
HELPERS = tuple(f"h{index}" for index in range(4))
PATIENCE_S = 240.0


class Processes:
    """Commands as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
        self.environment = {**kept, "VEILSUM_OPERATOR_TOKEN": TOKEN}
        self.url = ""
        self.ending = ExitStack()

    def start(self, *words: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "veilsum", *map(str, words), "--json"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.ending.callback(self.end, process)
        return process

    @staticmethod
    def end(process: "subprocess.Popen[str]") -> None:
        if process.poll() is None:
            process.kill()
        process.communicate()

    def json(self, *words: object) -> dict[str, Any]:
        out, err = self.start(*words).communicate(timeout=PATIENCE_S)
        values: dict[str, Any] = json.loads(out)
        assert "error" not in values, (words, values, err)
        return values

    def serve(self, port: int = 0) -> "subprocess.Popen[str]":
        process = self.start("serve", "--port", port, "--data-dir", self.folder / "data")
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        self.url = json.loads(text)["url"]
        return process


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    with made.ending:
        yield made


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.1)


@pytest.mark.skipif("VEILSUM_SLOW" not in os.environ, reason="thirty processes: set VEILSUM_SLOW=1")
def test_a_round_of_processes_that_die(processes: Processes, tmp_path: Path) -> None:
    coordinator = processes.serve()
    port = processes.url.rsplit(":", 1)[1]
    admin = processes.json("federation", "new", tmp_path / "admin")["federation"]
    making = {
        m: processes.start("identity", "new", tmp_path / m, "--member", m) for m in (*CLIENTS, *HELPERS)
    }
    words: list[object] = []
    for member, process in making.items():
        shown = json.loads(process.communicate(timeout=PATIENCE_S)[0])
        words += ["--member", f"{member}={shown['public_key']}"]
    for name in HELPERS:
        words += ["--helper", name]
    draft, at = tmp_path / "roster.json", ("--url", processes.url)
    processes.json(
        "federation", "roster", draft, *words, "--extractor", EXTRACTOR, "--publish-rare-classes", *at
    )
    processes.json("federation", "sign", draft, "--folder", tmp_path / "admin", "--publish", *at)

    def helper(name: str) -> "subprocess.Popen[str]":
        return processes.start("helper", "run", tmp_path / name, "--admin-key", admin, "--attempts", 1, *at)

    helping = {name: helper(name) for name in HELPERS}
    with Operator(processes.url) as client:
        until(lambda: len(client.helpers(admin).cards) == 4)
        terms = ("--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR, "--answer-s", 60)
        opening = ("round", "open", admin, "--mode", "helpers", "--records-cap", 100)
        round_id = processes.json(*opening, *terms, *at)["round"]
        rng = np.random.default_rng(1)

        def speak(name: str) -> "subprocess.Popen[str]":
            features, labels = records(rng, 40)
            np.savez(tmp_path / f"{name}.npz", features=features, labels=labels)
            said = ("--round", round_id, "--admin-key", admin, "--features", tmp_path / f"{name}.npz")
            return processes.start("speak", tmp_path / name, *said, *at)

        for name in CLIENTS[:3]:
            assert json.loads(speak(name).communicate(timeout=PATIENCE_S)[0])["acknowledged"] is True
        # kill -9: one helper for good, another one and the coordinator to come back.
        for killed in (helping["h0"], helping["h1"], coordinator):
            killed.send_signal(signal.SIGKILL)
            killed.wait(PATIENCE_S)
        processes.serve(int(port))
        helping["h0"] = helper("h0")
        assert set(client.round(round_id).uploaded) == set(CLIENTS[:3])
        for process in [speak(name) for name in CLIENTS[3:]]:
            assert json.loads(process.communicate(timeout=PATIENCE_S)[0])["acknowledged"] is True
        until(lambda: client.round(round_id).ended)
        view = client.round(round_id)
    assert (view.state, view.survivors) == ("done", CLIENTS)
    for name in ("h0", "h2", "h3"):
        out, err = helping[name].communicate(timeout=PATIENCE_S)
        assert json.loads(out)["attempts_ended"] == 1, err
    seen = processes.json(
        "speak", tmp_path / "c0", "--round", round_id, "--admin-key", admin, "--outcome", *at
    )
    assert (seen["counted"], seen["survivors"], seen["mode"]) == (True, 6, "helpers")
