"""Shared by benchmarks: a coordinator in its own process, and that process's resource use."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOKEN = "a benchmark's own token"


@dataclass(frozen=True)
class Served:
    """A running coordinator.

    Attributes:
        url: its address, on this machine.
        pid: its process id.
        settings: environment variables for its operator.
    """

    url: str
    pid: int
    settings: dict[str, str]

    @property
    def resident_bytes(self) -> int:
        """Current resident memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_s(self) -> float:
        """User and system processor seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def coordinator(folder: Path, module: str = "veilsum") -> Iterator[Served]:
    """Run `python -m MODULE serve` on a folder until the block ends, logging to `folder/log`. Raises SystemExit if it doesn't start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"VEILSUM_DATA_DIR": str(folder / "data"), "VEILSUM_OPERATOR_TOKEN": TOKEN}
    values["MALLOC_ARENA_MAX"] = "2"  # as the files in `deploy` do
    command = [sys.executable, "-m", module, "serve", "--port", str(port), "--json"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **values}, stdout=log, stderr=log)
        try:
            _until_it_answers(port)
            yield Served(f"http://127.0.0.1:{port}", process.pid, values)
        finally:
            process.terminate()
            process.wait(30)


def _until_it_answers(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the coordinator does not start")
