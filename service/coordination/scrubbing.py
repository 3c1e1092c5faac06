"""Compare stored blobs with their digests: for `veilsum operator db check`, for backups, and slowly beside everything else."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import select

from service.coordination import combining
from service.coordination.canaries import CANARIES_FOLDER, pack_blob
from service.coordination.documents import Documents
from service.coordination.journal import BLOB_EVENT_KIND, EVENTS_FOLDER
from service.coordination.shown_heads import HEADS_FOLDER, heads_blob
from service.coordination.standing import RoundEnd
from service.coordination.summing import Kept, chunk_name
from service.storage.blobs import Blobs, DamagedBlobError, in_blob_thread
from service.storage.database import Database
from service.storage.tables import events, rounds, sums
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Upload

SCRUB_BYTES_PER_S = 4 << 20
"""How fast a process reads what is stored only to compare it."""
ROUNDS_AT_ONCE = 50
Pause = Callable[[int], Awaitable[None]]
"""Called after each blob with its length."""


async def find_damaged_blobs(
    database: Database, blobs: Blobs, coordinator: bytes, pause: Pause
) -> AsyncIterator[str]:
    """Yield the names of blobs that are lost or not as they were stored. Rounds with damaged rows are left out."""
    async for name in _list_unsound(database, blobs, coordinator, pause):
        blobs.note_damage(name)
        yield name


async def _list_unsound(
    database: Database, blobs: Blobs, coordinator: bytes, pause: Pause
) -> AsyncIterator[str]:
    after = 0
    query = select(rounds).order_by(rounds.c.number).limit(ROUNDS_AT_ONCE)
    while rows := await database.read_rows(query.where(rounds.c.number > after)):
        after = rows[-1].number
        for row in rows:
            checks = (
                _list_ended(blobs, row) if row.final is not None else await _list_live(database, blobs, row)
            )
            async for name in _run_checks(blobs, checks, pause):
                if row.final is None and not await _is_live(database, row.id):
                    break  # it has ended meanwhile, and its blobs were deleted
                yield name
    for checks in (_list_combined(blobs, coordinator), _list_packs(blobs), _list_heads(blobs)):
        async for name in _run_checks(blobs, checks, pause):
            yield name


@dataclass(frozen=True)
class Check:
    """How one blob is checked.

    Attributes:
        expected: its SHA-256, or whether its content is sound; None if neither is known.
        needed: whether it must be there.
    """

    name: str
    expected: str | Callable[[bytes], bool] | None
    needed: bool = True


async def _run_checks(blobs: Blobs, checks: Iterator[Check], pause: Pause) -> AsyncIterator[str]:
    while (check := await in_blob_thread(next, checks, None)) is not None:
        size, sound = await in_blob_thread(_run_check, blobs, check)
        if not sound:
            yield check.name
        await pause(size)


def _run_check(blobs: Blobs, check: Check) -> tuple[int, bool]:
    """Return a blob's length, and whether it is sound."""
    try:
        if isinstance(check.expected, str):
            return blobs.check_digest(check.name, check.expected), True
        content = blobs.get(check.name)
        return len(content), check.expected is None or check.expected(content)
    except FileNotFoundError:
        return 0, not check.needed
    except (DamagedBlobError, Misuse):  # or its name is damaged
        return 0, False


def _list_ended(blobs: Blobs, row: Any) -> Iterator[Check]:
    with suppress(Exception):  # a damaged row has its own name
        end = RoundEnd.from_row(row)
        for name, digest in Documents(blobs, row.id, end.view, end.record, end.digests).list_blobs():
            yield Check(name, digest)


async def _is_live(database: Database, round_id: str) -> bool:
    query = select(rounds.c.id).where(rounds.c.id == round_id, rounds.c.final.is_(None))
    return await database.read_row(query) is not None


async def _list_live(database: Database, blobs: Blobs, row: Any) -> Iterator[Check]:
    own = select(events.c.kind, events.c.body).where(events.c.round == row.id)
    stored = own.where(events.c.kind.in_((BLOB_EVENT_KIND, "chunk"))).order_by(events.c.number)
    ranges = select(sums).where(sums.c.round == row.id)
    return _list_uploads(blobs, row.id, await database.read_rows(stored), await database.read_rows(ranges))


def _list_uploads(
    blobs: Blobs, round_id: str, stored: Sequence[Any], ranges: Sequence[Any]
) -> Iterator[Check]:
    """Announcements must be there; chunks and ranges are deleted once no sum needs them."""
    digests = dict[str, tuple[bytes, ...]]()
    for kind, body in stored:
        if kind == BLOB_EVENT_KIND:
            name = f"{EVENTS_FOLDER}/{round_id}/{body.hex()}"
            yield Check(name, body.hex())
            with suppress(FileNotFoundError, PeerFault):
                upload = Upload.from_bytes(blobs.get(name))
                digests[upload.header.member] = upload.chunk_digests
        else:
            with suppress(ValueError, TypeError, KeyError, IndexError):
                member, index = json.loads(body)
                yield Check(chunk_name(round_id, member, index), digests[member][index].hex(), needed=False)
    for kept in map(Kept.from_row, ranges):
        yield Check(f"sums/{round_id}/{kept.blob}", kept.has_range, needed=False)


def _list_combined(blobs: Blobs, coordinator: bytes) -> Iterator[Check]:
    for name in blobs.list_names(combining.COMBINED_FOLDER):
        yield Check(combining.record_blob(name), partial(combining.is_record, coordinator), needed=False)
        with suppress(PeerFault):
            for blob, digest in combining.list_blobs(combining.stored_record(name, blobs, coordinator)):
                yield Check(blob, digest)


def _list_packs(blobs: Blobs) -> Iterator[Check]:
    for federation in blobs.list_names(CANARIES_FOLDER):
        for pack in blobs.list_names(f"{CANARIES_FOLDER}/{federation}"):
            yield Check(pack_blob(federation, pack), pack, needed=False)


def _list_heads(blobs: Blobs) -> Iterator[Check]:
    for cohort in blobs.list_names(HEADS_FOLDER):
        for heads in blobs.list_names(f"{HEADS_FOLDER}/{cohort}"):
            yield Check(heads_blob(cohort, heads), heads, needed=False)
