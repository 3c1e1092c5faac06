"""Several coordinator processes at one address: clients don't notice a killed one, and none outlives its parent."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from client_sdk.operator import Operator
from tests.support.cli import TOKEN
from tests.support.processes import children, until
from tests.support.servers import CREDENTIALS, Servers, bucket_served, lacking
from veilsum.system import processes

ROOT = Path(__file__).parents[2]


def noting(folder: Path, tell: Callable[[], None]) -> None:
    (folder / str(os.getpid())).touch()
    tell()
    time.sleep(600)


@pytest.fixture
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_handler")
def test_who_dies_is_replaced_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "WORKER_RESTART_S", 0.0)
    seen: list[int] = []

    def breaks_in() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        seen.extend(children(os.getpid()))
        os.kill(seen[0], signal.SIGKILL)
        until(lambda: len(list(tmp_path.iterdir())) == 3)
        seen.extend(children(os.getpid()))
        os.kill(os.getpid(), signal.SIGTERM)

    told: list[str] = []
    breaking = threading.Thread(target=breaks_in, daemon=True)

    def started() -> None:
        told.append("started")
        breaking.start()

    assert processes.keep_workers(2, partial(noting, tmp_path), started)
    breaking.join()
    assert told == ["started"]
    assert {path.name for path in tmp_path.iterdir()} == set(map(str, seen))
    assert children(os.getpid()) == []


@pytest.mark.usefixtures("_handler")
def test_a_second_signal_leaves_nobody_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = SpawnProcess.terminate

    def impatient(process: SpawnProcess) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        true(process)

    monkeypatch.setattr(SpawnProcess, "terminate", impatient)
    assert processes.keep_workers(2, partial(noting, tmp_path), lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert children(os.getpid()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


@pytest.fixture
async def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with bucket_served() as bucket:
        stores = Servers(bucket)
        try:
            settings = await stores.settings(tmp_path)
        except (OSError, asyncpg.PostgresError) as error:
            lacking(f"no PostgreSQL: {error}")
        yield {f"VEILSUM_{name.upper()}": value for name, value in settings.items()}
        await stores.drop()


@pytest.mark.slow
def test_an_address_outlives_its_processes_and_they_not_the_parent(
    shared: dict[str, str], tmp_path: Path
) -> None:
    words = [sys.executable, "-P", "-m", "veilsum", "serve", "--port", "0", "--processes", "2", "--json"]
    environment = {**os.environ, **shared, "VEILSUM_OPERATOR_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            text = b""
            while not text.endswith(b"}\n"):
                text += parent.stdout.readline()
            url = json.loads(text)["url"]
            until(lambda: len(children(parent.pid)) == 2)
            first, second = children(parent.pid)
            os.kill(first, signal.SIGKILL)
            with Operator(url, TOKEN) as operator:
                assert operator.coordinator().public_key == json.loads(text)["public_key"]
            until(lambda: len(set(children(parent.pid)) - {first}) == 2)
            parent.kill()
            parent.wait(120)
            until(lambda: not Path(f"/proc/{second}").exists())
        finally:
            parent.kill()
