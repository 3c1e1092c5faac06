"""The real process, `uvicorn service.app:app`, stopped by SIGTERM and otherwise."""

import asyncio
import json
import signal
import time
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import pytest

from service.app import on_stop_signal
from service.telemetry import logs
from tests.support.party import Party
from tests.support.serving import TOKEN, Process
from veilsum.protocol.errors import Misuse


@pytest.fixture(autouse=True)
def chunks() -> None:
    """Use the process's chunk length."""


@pytest.mark.slow
async def test_a_stop_signal_answers_polls_and_ends_a_process_whose_log_tells_no_secret(
    tmp_path: Path,
) -> None:
    """`assurance/kill` kills it instead."""
    party, server = Party(tuple(f"m-{index}" for index in range(4))), Process(tmp_path / "data")
    played: Any = server
    try:
        await server.start()
        round_id = await party.begun(played)
        assert (await party.play(played, round_id))["state"] == "done"
        await party.check_result(played, round_id)
        version = (await server.view(round_id))["version"]
        path, waits = f"/v1/rounds/{round_id}", {"after": version, "wait_s": 30}
        waiting = asyncio.create_task(server.client.get(path, params=waits))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert (await waiting).json()["version"] == version
        assert time.monotonic() - started < 25
        await asyncio.to_thread(server.process.wait, 120)
        assert server.process.returncode in {0, -signal.SIGTERM}
    finally:
        await server.close()
    text = (tmp_path / "log").read_text()
    assert TOKEN not in text
    assert "Traceback" not in text


def test_an_app_is_made_when_a_server_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(logs.ENDPOINTS[0], "http://127.0.0.1:4318")
    spec = find_spec("service.app")
    assert spec is not None
    assert spec.loader is not None
    fresh: Any = module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(logs, "_TRACING_MODULES", ("opentelemetry.no_such",))
        spec.loader.exec_module(fresh)  # who asks for no app needs nothing for one
        with pytest.raises(Misuse, match="otel"):
            _ = fresh.app
    monkeypatch.delenv(logs.ENDPOINTS[0])
    assert fresh.app is fresh.app
    assert fresh.app.title == "veilsum coordinator"
    with pytest.raises(AttributeError, match="no attribute 'another'"):
        _ = fresh.another


@pytest.mark.slow
async def test_a_start_that_fails_is_logged_without_values(tmp_path: Path) -> None:
    server = Process(tmp_path / "data", {"VEILSUM_MAX_WAIT_S": "canary-71"})
    with pytest.raises(AssertionError):
        await server.start()
    await server.close()
    text = (tmp_path / "log").read_text()
    [failed] = [json.loads(line) for line in text.splitlines() if '"start failed"' in line]
    assert failed["error"] == "Misuse"
    assert failed["why"].startswith("VEILSUM_MAX_WAIT_S: ")
    assert "Traceback" not in text
    assert "canary-71" not in text


async def test_the_signal_is_heard_beside_the_servers_own_handler() -> None:
    heard: list[str] = []
    stopped = asyncio.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("server"))
    try:
        with on_stop_signal(stopped.set):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(stopped.wait(), 120)
        assert heard == ["server"]
        signal.raise_signal(signal.SIGTERM)
        assert heard == ["server", "server"]
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_outside_the_main_thread_signals_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not this process's own handlers: a shell has what it runs in the background ignore SIGINT.
    handlers: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: lambda *_: None}
    installed: list[int] = []

    def enter() -> None:
        with on_stop_signal(lambda: None):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(signal, "getsignal", handlers.__getitem__)
        patch.setattr(signal, "signal", lambda number, _: installed.append(number))
        await asyncio.to_thread(enter)
        assert installed == []
        with on_stop_signal(lambda: None):
            assert installed == [signal.SIGINT]  # the default of SIGTERM ends the process on the spot
