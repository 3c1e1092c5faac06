"""Start the coordinator as a process, as its operator would."""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from client_sdk.operator import Operator
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.processes import Children
from veilsum.cli.demo.screen import Screen
from veilsum.system.intervals import DEMO_START_S

LOCAL_HOST = "127.0.0.1"


@contextmanager
def running_coordinator(children: Children, folder: Folder) -> Iterator[tuple[Operator, str]]:
    """Start a coordinator on a free port; yield its operator's client, which waits for its first answer, and its address."""
    folder.coordinator.mkdir(mode=0o700)
    # This process talks to it too, without a proxy.
    os.environ.update({name: child_environment()[name] for name in ("NO_PROXY", "no_proxy")})
    port, token = free_port(), secrets.token_urlsafe(32)
    url = f"http://{LOCAL_HOST}:{port}"
    options = ["--host", LOCAL_HOST, "--port", str(port), "--timeout-graceful-shutdown", "2"]
    children.start_child(
        "the coordinator",
        "uvicorn",
        "service.app:app",
        *options,
        log=folder.logs / "coordinator",
        environment=child_environment(
            VEILSUM_DATA_DIR=str(folder.coordinator / "data"), VEILSUM_OPERATOR_TOKEN=token
        ),
        folder=folder.coordinator,
        lasting=True,
    )
    with Operator(url, token, patience_s=DEMO_START_S) as operator:
        yield operator, url


def await_coordinator(children: Children, operator: Operator, url: str, screen: Screen) -> None:
    """Wait until a coordinator answers. Raises DemoError if its process ends."""
    with screen.show_stage("Coordinator") as stage:
        children.call_watching(operator.coordinator)
        stage.outcome = f"answers at {url}"


def child_environment(**additional: str) -> dict[str, str]:
    """A child's environment: ours without veilsum's own settings, on one thread, to this machine without a proxy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    unproxied = ",".join(filter(None, (kept.get("NO_PROXY", kept.get("no_proxy", "")), LOCAL_HOST)))
    return {**kept, **threads, "NO_PROXY": unproxied, "no_proxy": unproxied, **additional}


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind((LOCAL_HOST, 0))
        port: int = probe.getsockname()[1]
    return port
