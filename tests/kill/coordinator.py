"""A coordinator process that dies by SIGKILL at one labelled point: just before or just after a durable write.

The points are put around the two storage interfaces here; the product knows nothing of them.
"""

import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from service.app import create_app
from service.settings import Settings
from service.storage.blobs import FileBlobs
from service.storage.dialects import Postgres, Sqlite
from service.storage.objects import ObjectBlobs


class Points:
    """Counts the points that are passed, and dies at one of them.

    Args:
        log: a line for each point, so that a run that dies nowhere lists them.
        die_at: the number of the last point; None for none.
    """

    def __init__(self, log: Path, die_at: int | None) -> None:
        self._log, self._die_at, self._passed, self._lock = log, die_at, 0, threading.Lock()

    def passed(self, label: str) -> None:
        with self._lock:
            with self._log.open("a") as file:
                file.write(f"{label}\n")
            if self._passed == self._die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self._passed += 1

    def around(self, form: type[Any], name: str) -> None:
        """A point before and one after a call of a blob store."""
        true: Callable[..., None] = getattr(form, name)

        def call(store: Any, blob: str, *data: bytes) -> None:
            label = f"{name} {blob.partition('/')[0]}"
            self.passed(f"before {label}")
            true(store, blob, *data)
            self.passed(f"after {label}")

        setattr(form, name, call)

    def around_commits(self, form: type[Any]) -> None:
        """A point before each commit, and one after it."""
        true = form.transaction

        @asynccontextmanager
        async def transaction(database: Any, *at_least_s: float) -> AsyncIterator[Any]:
            async with true(database, *at_least_s) as connection:
                yield connection
                self.passed("before commit")
            self.passed("after commit")

        form.transaction = transaction


def serve(
    values: dict[str, Any], environment: dict[str, str], port: int, log: Path, die_at: int | None
) -> None:
    """Serve until killed, and say nothing."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    os.environ.update(environment)
    points = Points(log, die_at)
    for form in (FileBlobs, ObjectBlobs):
        for name in ("put", "delete"):
            points.around(form, name)
    for database in (Sqlite, Postgres):
        points.around_commits(database)
    app = create_app(Settings(**values))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical")
