import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from service.access.accepting import PooledServer
from service.access.connections import Connection
from service.settings import Settings
from tests.support.cli import TOKEN, Cli, CliConsortium, Outcome, run, streams
from veilsum.cli.console import print_values


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A coordinator that `veilsum serve` runs in a thread of this process."""
    ready, servers, ends = threading.Event(), list[Any](), list[Outcome]()
    data, config = tmp_path_factory.mktemp("coordinator") / "data", structlog.get_config()

    startup = PooledServer.startup

    async def start(server: PooledServer, sockets: Any = None) -> None:
        await startup(server, sockets)
        servers.append(server)

    def show(*given: Any) -> None:
        print_values(*given)
        ready.set()

    def serve() -> None:
        try:
            ends.append(run("serve", "--port", 0, "--data-dir", data, "--json"))
        finally:
            ready.set()

    with pytest.MonkeyPatch.context() as patch, streams():
        patch.setattr(PooledServer, "startup", start)
        patch.setattr("veilsum.cli.commands.serve.print_values", show)
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setenv("VEILSUM_OPERATOR_TOKEN", TOKEN)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert ready.wait(120)
    [server] = servers
    assert server.config.http is Connection
    assert server.pool.most == Settings.model_fields["connections"].default
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(120)
    structlog.configure(**config)
    [end] = ends
    assert end.code == 0
    assert end.values["url"] == f"http://127.0.0.1:{port}"
    assert TOKEN not in end.out + end.err


@pytest.fixture(scope="session")
def held(url: str, tmp_path_factory: pytest.TempPathFactory) -> CliConsortium:
    """Three members with a result; tests leave their folders unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("VEILSUM_")]:
            patch.delenv(name)
        patch.setattr(os, "fsync", lambda _descriptor: None)
        edits = {"publish = []": 'publish = ["pooled"]'}
        made = CliConsortium(Cli(tmp_path_factory.mktemp("held"), url), edits=edits)
        made.held()
    return made


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`veilsum` in its own folder, without outside settings."""
    for name in [name for name in os.environ if name.startswith("VEILSUM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path)


@pytest.fixture
def remote(cli: Cli, url: str) -> Cli:
    """`veilsum` with the address of a running coordinator."""
    cli.url = url
    return cli


@pytest.fixture
def consortium(remote: Cli) -> Callable[..., CliConsortium]:
    """Makes a federation with a published study."""

    def make(members: int = 3, **options: Any) -> CliConsortium:
        return CliConsortium(remote, members, **options)

    return make
