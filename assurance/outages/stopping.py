"""A replica that stands still by SIGSTOP in the middle of a work it holds the lease for, once, whichever of several comes there first.

Ranges are short, leases too, and all replicas go by one clock that a file sets ahead, so that much is there to race for.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import uvicorn

from service import app, catalogue, coordinator, scheduler, summing
from service.journal import Journal
from service.settings import Settings
from service.storage import dialects
from service.storage.objects import ObjectBlobs
from service.summing import Summing
from tests.support.serving import Clock
from veilsum.protocol import round_spec

LEASE_S = 1.5
IDLE_S = 3.0
CHUNK_ELEMENTS = RANGE_ELEMENTS = 8
BATCH = 2


class FileClock(Clock):
    """The real time, set ahead by a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def __call__(self) -> float:
        return super().__call__() + (float(self._file.read_text()) if self._file.exists() else 0.0)


class Points:
    """Notes each point that is passed, and stops this process at one of them if no other has been stopped yet.

    Args:
        folder: holds `stopped`, the stopped process's id, once there is one, and a log for each process.
        stop: the label of the point; "" for none.
    """

    def __init__(self, folder: Path, stop: str) -> None:
        self._folder, self._stop = folder, stop

    def passed(self, when: str, label: str) -> None:
        with (self._folder / f"points-{os.getpid()}").open("a") as file:
            file.write(f"{when} {label}\n")
        if (when, label) != ("before", self._stop):
            return
        try:
            with (self._folder / "stopped").open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGSTOP)

    def around(self, form: type[Any], name: str, labelled: Callable[..., str]) -> None:
        """A point before and one after each call of a coroutine method."""
        true: Callable[..., Awaitable[Any]] = getattr(form, name)

        @wraps(true)
        async def call(*values: Any) -> Any:
            label = labelled(*values)
            self.passed("before", label)
            try:
                return await true(*values)
            finally:
                self.passed("after", label)

        setattr(form, name, call)

    def around_put(self) -> None:
        """A point before and one after each blob that is stored."""
        true = ObjectBlobs.put

        def put(store: ObjectBlobs, name: str, data: bytes) -> None:
            label = f"put {name.partition('/')[0]}"
            self.passed("before", label)
            try:
                true(store, name, data)
            finally:
                self.passed("after", label)

        setattr(ObjectBlobs, true.__name__, put)


def serve(values: dict[str, Any], environment: dict[str, str], port: int, folder: Path, stop: str) -> None:
    """Serve until killed."""
    log = os.open(folder / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.environ.update(environment)
    points = Points(folder, stop)
    points.around(Journal, "append", lambda _, events: f"append {events[-1].kind}")
    points.around(Summing, "_exchange", lambda *values: f"keep {'sum' if values[3].done else 'masked'}")
    points.around_put()
    for module, name, value in (
        (round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS),
        (summing, "RANGE_ELEMENTS", RANGE_ELEMENTS),
        (summing, "BATCH", BATCH),
        (scheduler, "LOOK_S", 0.2),
        (catalogue, "LOOK_S", 0.5),
        (dialects, "IDLE_S", IDLE_S),
        (app, "Coordinator", partial(coordinator.Coordinator, lease_s=LEASE_S)),
    ):
        setattr(module, name, value)
    made = app.create_app(Settings(**values), FileClock(folder / "ahead_s"))
    uvicorn.run(made, host="127.0.0.1", port=port, log_level="critical")
