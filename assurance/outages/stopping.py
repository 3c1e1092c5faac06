"""A replica that is stopped by SIGSTOP in work for which it holds the lease. It happens once, to the first replica that gets there.

Ranges and leases are short, and all replicas use one clock that a file sets ahead, so that there is much to race for.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from assurance.kill.points import label_change
from service import app
from service.coordination import changes, coordinator, scheduler, summing
from service.coordination.cohorts import Cohort
from service.coordination.journal import Journal
from service.coordination.summing import Summing
from service.settings import Settings
from service.storage import dialects
from service.storage.objects import ObjectBlobs
from tests.support.replicas import Points
from tests.support.serving import Clock
from veilsum.protocol import round_spec

LEASE_S = 1.5
COMMAND_TIMEOUT_S = 3.0
CHUNK_ELEMENTS = 8
STORED_UPLOADS_MIN = 2


class FileClock(Clock):
    """The real time plus an offset from a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def __call__(self) -> float:
        return super().__call__() + (float(self._file.read_text()) if self._file.exists() else 0.0)


def stopping(folder: Path, stop: str) -> Callable[[str], None]:
    """Stop this process at a point, unless another was stopped before, which the file `stopped` records."""

    def at(label: str) -> None:
        if label == f"before {stop}":
            with suppress(FileExistsError):
                (folder / "stopped").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGSTOP)

    return at


def serve(values: dict[str, Any], environment: dict[str, str], port: int, log: Path, stop: str) -> None:
    """Serve until killed."""
    folder = log.parent
    said = os.open(folder / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(said, descriptor)
    os.environ.update(environment)
    points = Points(log, stopping(folder, stop))
    points.watch(Journal, "append_events", lambda _, events: [f"append {events[-1].kind}"])
    points.watch(Summing, "_exchange_row", lambda *values: [f"keep {'sum' if values[3].done else 'masked'}"])
    points.watch(Cohort, "_store_change", label_change)
    points.watch(ObjectBlobs, "put", lambda _, name, __: [f"put {name.partition('/')[0]}"])
    for module, name, value in (
        (round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS),
        (summing, "STORED_UPLOADS_MIN", STORED_UPLOADS_MIN),
        (scheduler, "CLOCK_POLL_S", 0.2),
        (changes, "CHANGES_POLL_S", 0.5),
        (dialects, "COMMAND_TIMEOUT_S", COMMAND_TIMEOUT_S),
        (app, "Coordinator", partial(coordinator.Coordinator, lease_s=LEASE_S)),
    ):
        setattr(module, name, value)
    made = app.create_app(Settings(**values), FileClock(folder / "ahead_s"))
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="critical")
