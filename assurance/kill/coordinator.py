"""A coordinator process that dies by SIGKILL at labelled points: just before or after durable writes, and within the writing of a file.

In rounds whose members have certain names, bits flip in stored chunks and sums. The points are inserted here, around the two storage
interfaces and the journal; the product knows nothing about them.
"""

import os
import random
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import alembic.command  # noqa: F401 - imported once, before processes are forked
import uvicorn
import uvicorn.lifespan.on
import uvicorn.loops.auto
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto

from assurance.kill.points import label_change
from service.app import create_app
from service.coordination import rounds, summing
from service.coordination.cohorts import Cohort
from service.coordination.events import Event
from service.coordination.journal import Journal
from service.settings import Settings
from service.storage.blobs import Blobs, FileBlobs
from service.storage.database import Database
from service.storage.dialects import Postgres, Sqlite
from service.storage.objects import ObjectBlobs
from tests.support.replicas import Points
from veilsum.protocol import round_spec
from veilsum.protocol.messages import parse_message

create_app()  # fills caches before the fork

CHUNK_ELEMENTS = 8
"""Elements of a chunk, so that small vectors have several chunks."""
LIKELY = 0.8
"""Chance of dying at a due point."""
ROTTEN = "rot-"
"""Prefix of member names in rounds with flipped bits."""
ROT = 0.2
"""Chance that a bit flips in a blob of such a round after it was stored."""
DAMAGE = "damage"
"""A file next to the log of points, with a line for each flip, and for each blob that was found damaged."""


@dataclass(frozen=True)
class Fate:
    """Where a process dies by itself.

    Attributes:
        spared: labels at which it doesn't die; None for all.
        seed: of the coin tossed at each other label.
    """

    spared: frozenset[str] | None = None
    seed: int = 0


def dying(fate: Fate) -> Callable[[str], None]:
    """Toss a coin at each due point, and die accordingly."""
    coin, lock = random.Random(fate.seed), threading.Lock()

    def at(label: str) -> None:
        with lock:
            if fate.spared is not None and label not in fate.spared and coin.random() < LIKELY:
                os.kill(os.getpid(), signal.SIGKILL)

    return at


def watch_commits(points: Points, form: type[Any]) -> None:
    """Pass a point before and after each commit, named after the caller."""
    true = form.write

    async def write(database: Any, work: Callable[[Any], Any]) -> Any:
        asking = work.func if isinstance(work, partial) else work
        name = asking.__qualname__.partition(".<locals>")[0]
        label = f"commit of {asking.__module__.removeprefix('service.')}.{name}"

        def passing(connection: Any) -> Any:
            found = work(connection)
            points.passed(f"before {label}")
            return found

        found = await true(database, passing)
        points.passed(f"after {label}")
        return found

    form.write = write


class Rot:
    """Flip bits in stored chunks and sums of the rounds chosen for it.

    Args:
        damage: gets a line for each flip and each detection. Several processes may share it.
    """

    def __init__(self, damage: Path) -> None:
        self._damage = os.open(damage, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str) -> None:
        os.write(self._damage, f"{what}\n".encode())

    def after_each(self, form: type[Blobs], call: str) -> None:
        true = getattr(form, call)

        def put(blobs: Blobs, name: str, data: bytes) -> None:
            true(blobs, name, data)
            folder, round_id = name.split("/")[:2]
            if folder in {"uploads", "sums"} and random.random() < ROT and self._suffers(blobs, round_id):
                flipped = bytearray(data)
                flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
                self.note(f"flipped in {folder}")
                blobs._put(name, bytes(flipped))

        setattr(form, call, put)

    def _suffers(self, blobs: Blobs, round_id: str) -> bool:
        return any(member.startswith(ROTTEN) for member in blobs.list_names(f"uploads/{round_id}"))

    def note_finds(self) -> None:
        true = summing.note_damage

        def note(what: Any, round_id: str, **where: str | int) -> None:
            self.note(f"found in a {what}")
            true(what, round_id, **where)

        for module in (summing, rounds):
            module.note_damage = note  # type: ignore[attr-defined]


def _kinds(following: Iterable[Event]) -> list[str]:
    """Return labels of what the journal is about to store."""
    return sorted({f"append of {_kind(event)}" for event in following})


def _kind(event: Event) -> str:
    return type(parse_message(event.body)).__name__ if event.kind == "message" else event.kind


def serve(values: dict[str, Any], environment: dict[str, str], port: int, log: Path, fate: Fate) -> None:
    """Serve without output, until killed."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(silence, descriptor)
    os.environ.update(environment)
    round_spec.CHUNK_ELEMENTS = CHUNK_ELEMENTS
    summing.STORED_UPLOADS_MIN = 2
    points, rot = Points(log, dying(fate)), Rot(log.with_name(DAMAGE))
    rot.note_finds()
    for form in (FileBlobs, ObjectBlobs):
        rot.after_each(form, "put")
        for name in ("put", "delete"):
            points.watch(
                form, name, lambda _, blob, *data, name=name: [f"{name} of {blob.partition('/')[0]}"]
            )
    points.watch(
        Path, "replace", lambda _, path: [f"rename in {path.parent.name if 'key' in path.name else 'blobs'}"]
    )
    points.watch(Journal, "append_events", lambda _, following: _kinds(following))
    points.watch(Cohort, "_store_change", label_change)
    points.watch(Database, "_migrate_alone", lambda *_: ["migration"])
    for database in (Sqlite, Postgres):
        points.watch(database, "erase_deleted", lambda *_: ["forgetting"])
        watch_commits(points, database)
    app = create_app(Settings(**values))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical")
