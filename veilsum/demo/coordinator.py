"""Start the coordinator as a process, as its operator would."""

import http.client
import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from veilsum.demo.processes import Children, DemoError
from veilsum.protocol.rest import HEALTH

HOST = "127.0.0.1"
START_S = 60.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Address:
    """The coordinator's address, and its operator's token."""

    port: int
    token: str

    @property
    def url(self) -> str:
        """The address on the loopback interface, for operator and members."""
        return f"http://{HOST}:{self.port}"


def start_coordinator(children: Children, folder: Path) -> Address:
    """Start a coordinator on a free port and wait until it answers.

    Raises:
        ChildFailed: it ended, with the end of its log.
        DemoError: it does not answer.
    """
    folder.mkdir(mode=0o700)
    # This process talks to it too, without a proxy.
    os.environ.update({name: surroundings()[name] for name in ("NO_PROXY", "no_proxy")})
    address = Address(free_port(), secrets.token_urlsafe(32))
    options = ["--host", HOST, "--port", str(address.port), "--timeout-graceful-shutdown", "2"]
    children.start(
        "the coordinator",
        [sys.executable, "-m", "uvicorn", "service.app:app", *options],
        log=folder / "log",
        environment=surroundings(VEILSUM_DATA_DIR=str(folder / "data"), VEILSUM_OPERATOR_TOKEN=address.token),
        folder=folder,
        lasting=True,
    )
    children.during(lambda: wait_until_healthy(address.port, START_S))
    return address


def surroundings(**additional: str) -> dict[str, str]:
    """A child's environment: ours without veilsum's own settings, on one thread, to this machine without a proxy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    unproxied = ",".join(filter(None, (kept.get("NO_PROXY", kept.get("no_proxy", "")), HOST)))
    return {**kept, **threads, "NO_PROXY": unproxied, "no_proxy": unproxied, **additional}


def wait_until_healthy(port: int, patience_s: float) -> None:
    """Poll the health page until it answers.

    Raises:
        DemoError: no answer for `patience_s` seconds.
    """
    until = time.monotonic() + patience_s
    while not _healthy(port):
        if time.monotonic() > until:
            raise DemoError(f"no answer from http://{HOST}:{port}{HEALTH} in {patience_s:.0f} s")
        time.sleep(_POLL_S)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", HEALTH)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
