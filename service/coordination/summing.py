"""A round's sum in ranges, one for each chunk of an upload: added up as uploads arrive, and unmasked once the set is certified.

A process adds each chunk that it receives to a running sum in memory, which is a cache. Chunks that it lacks, after a restart or because
another process received them, are added from storage, and those of members that are not certified are subtracted.

A range is stored as a blob with the masked sum so far, and a row that names the blob and the members in it. To add more, a process writes
another blob and then replaces the row, unless it has changed since it was read. So any process can continue where another stopped, and a
late one changes nothing. Memory is one sum and one chunk for any number of members.

Storage is not trusted: each chunk is checked against the digest that its member announced, each range against its own. A damaged range
is rebuilt from the chunks, which are kept until the round ends.
"""

import hashlib
import json
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, delete, select, update

from service.coordination.journal import LIVE_SQL
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.tables import rounds, sums
from service.telemetry.logs import describe_error, log
from service.telemetry.metrics import DAMAGED_COUNT
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.packing import Buffer, PackingError, add_packed
from veilsum.protocol.ring import Words
from veilsum.protocol.shelf import Announced

Pieces = Iterable[tuple[int, npt.NDArray[np.int64]]]
"""Pieces of a sum, each with the place of its first element."""
STORED_UPLOADS_MIN = 16
"""How many uploads must wait in storage before a range is read and written for them."""


def chunk_name(round_id: str, member: str, index: int) -> str:
    """Return the name under which a chunk is stored."""
    return f"uploads/{round_id}/{member}/{index}"


class DamagedChunkError(Exception):
    """A stored chunk is lost, or not as its member announced it."""

    def __init__(self, member: str, index: int) -> None:
        super().__init__(f"chunk {index} of {member} is damaged in storage")
        self.member, self.index = member, index


class DamagedRangeError(Exception):
    """A stored range is lost or damaged."""

    def __init__(self, part: int, kept: "Kept") -> None:
        super().__init__(f"range {part} of a sum is damaged in storage")
        self.part, self.kept = part, kept


def note_damage(what: Literal["chunk", "range"], round_id: str, **where: str | int) -> None:
    """Log and count it."""
    DAMAGED_COUNT.labels(what).inc()
    log.error("storage damaged", what=what, round=round_id, **where)


def read_chunk(blobs: Blobs, round_id: str, member: str, index: int, digest: bytes) -> bytes:
    """Read a stored chunk. Raises DamagedChunkError unless it has this SHA-256."""
    try:
        chunk = blobs.get(chunk_name(round_id, member, index))
    except FileNotFoundError as error:
        raise DamagedChunkError(member, index) from error
    if hashlib.sha256(chunk).digest() != digest:
        raise DamagedChunkError(member, index)
    return chunk


class Memory:
    """Memory that all rounds of a coordinator share.

    Args:
        size: bytes.
    """

    def __init__(self, size: int) -> None:
        self._free, self._lock = size, threading.Lock()

    def take_bytes(self, size: int) -> bool:
        """Reserve `size` bytes. Returns False if they are not free."""
        with self._lock:
            taken = size <= self._free
            self._free -= size if taken else 0
            return taken

    def give_back(self, size: int) -> None:
        with self._lock:
            self._free += size


@dataclass(frozen=True)
class Running:
    """A range's running sum in this process.

    Attributes:
        total: the masked sum.
        digests: SHA-256 of each chunk in it, by member.
    """

    total: Words
    digests: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Kept:
    """The row of a range.

    Attributes:
        blob: its last part of a name; empty where nothing is kept yet.
        members: those with chunks in it.
        done: it is the range of the sum itself, unmasked.
    """

    blob: str = ""
    members: tuple[str, ...] = ()
    done: bool = False

    @classmethod
    def from_row(cls, row: Any) -> "Kept":
        """Read a row. Its blob's checksum covers it, so that a damaged one is found with the numbers."""
        members: tuple[str, ...] = ()
        with suppress(ValueError, TypeError):
            members = tuple(json.loads(row.members))
        return cls(row.blob, members, row.done)

    def has_range(self, content: Buffer) -> bool:
        """Whether its blob holds the range of this row as it was stored."""
        held = memoryview(content)
        return self.compute_checksum(held[32:]) == held[:32]

    def compute_checksum(self, numbers: Buffer) -> bytes:
        """Return the checksum before the range's numbers in its blob. It covers the row, so that no other range's numbers pass."""
        digest = hashlib.sha256(json.dumps([self.blob, self.members, self.done]).encode())
        digest.update(numbers)
        return digest.digest()


class Summing:
    """One round's sum.

    Attributes:
        unmasked: ranges of the sum that are known to be done.
    """

    def __init__(
        self, database: Database, blobs: Blobs, memory: Memory, round_id: str, attempt: Attempt
    ) -> None:
        self._database, self._blobs, self._memory = database, blobs, memory
        self._round, self._attempt = round_id, attempt
        self.parts = range(attempt.chunk_count)
        self.unmasked: set[int] = set()
        self._added: dict[int, frozenset[str]] = {}
        self._running: dict[int, Running] = {}
        self._lock, self._over = threading.Lock(), False

    def store_chunk(self, member: str, part: int, digest: bytes, chunk: bytes) -> None:
        """Store a chunk with this SHA-256, and add it. Blocks; idempotent."""
        self._blobs.put(chunk_name(self._round, member, part), chunk)
        self.take_chunk(member, part, digest, chunk)

    def take_chunk(self, member: str, part: int, digest: bytes, chunk: Buffer) -> None:
        """Add a chunk that was just stored and has this SHA-256, if memory has room. Blocks; idempotent."""
        with self._lock:
            running = self._running.get(part)
            if running is None:
                if self._over or not self._memory.take_bytes(self._range_bytes(part)):
                    return
                running = self._running[part] = Running(self._zero_range(part))
            if member not in running.digests:
                try:
                    add_packed(running.total, chunk, self._attempt.ring.bits)
                except PackingError:
                    return  # nothing was added; it is refused when the set is certified, by its member's name
                except Exception as error:  # noqa: BLE001 - part of it may have been added, and storage has all of it
                    self._pop_running(part)
                    log.warning("running sum dropped", round=self._round, part=part, **describe_error(error))
                    return
                running.digests[member] = digest

    def missing_uploads(self, part: int, uploads: int) -> int:
        """Return how many more complete uploads make it worthwhile to add from storage, as far as this process knows."""
        running = self._running.get(part)
        added = self._added.get(part, frozenset()).union(running.digests if running else ())
        return len(added) + STORED_UPLOADS_MIN - uploads

    async def add_stored(self, part: int, uploads: Mapping[str, Announced]) -> None:
        """Add the missing chunks of complete uploads, from storage.

        Raises:
            DamagedChunkError: a chunk must be sent again.
        """
        kept = await self._read_kept(part)
        if kept is None or kept.done or self.missing_uploads(part, len(uploads)) > 0:
            return
        total, members = await in_blob_thread(self._masked_sum, part, kept, uploads)
        await self._replace_blob(part, kept, Kept(members=members), total)

    async def unmask_range(self, part: int, recovered: Recovered) -> None:
        """Turn the range into that of the sum: exactly the certified members, without masks.

        Raises:
            DamagedChunkError: a summed chunk is damaged.
            PeerFault: chunk-mismatch if a stored chunk is packed wrongly.
        """
        kept = await self._read_kept(part)
        if kept is not None and not kept.done:
            total = await in_blob_thread(self._unmasked_sum, part, kept, recovered)
            await self._replace_blob(part, kept, Kept(members=recovered.summed_members, done=True), total)

    async def sum_pieces(self) -> Pieces | None:
        """Return the sum, range by range from storage, each with the place of its first element.

        None while ranges are missing, or once the round has ended. Iterating raises DamagedRangeError.
        """
        ranges = [await self._read_kept(part) for part in self.parts]
        done = [kept for kept in ranges if kept is not None and kept.done]
        return self._read_ranges(done) if len(done) == len(ranges) else None

    async def begin_again(self, damaged: DamagedRangeError) -> None:
        """Forget a damaged range of the sum, so that it is unmasked again."""
        note_damage("range", self._round, part=damaged.part)
        forgotten = delete(sums).where(*self._row_of(damaged.part, damaged.kept))
        await self._database.write(lambda connection: connection.execute(forgotten))
        await in_blob_thread(self._delete_blob, damaged.kept.blob)
        self.unmasked.discard(damaged.part)

    def discard_running(self) -> None:
        """Free the memory of a round that no longer needs its running sums."""
        with self._lock:
            self._over = True
            for part in tuple(self._running):
                self._pop_running(part)

    # Arithmetic

    def _masked_sum(
        self, part: int, kept: Kept, uploads: Mapping[str, Announced]
    ) -> tuple[Words, tuple[str, ...]]:
        """Return the range's masked sum over these uploads and the members already in it, and the ids of all these members."""
        announced = _digests_of(uploads, part)
        total, had = self._sum_so_far(part, kept, announced)
        new = {member: announced[member] for member in sorted(announced.keys() - had.keys())}
        self._add_chunks(part, total, new)
        return total, (*had, *new)

    def _unmasked_sum(self, part: int, kept: Kept, recovered: Recovered) -> npt.NDArray[np.int64]:
        announced = _digests_of(recovered.uploads, part)
        summed = {member: announced[member] for member in sorted(recovered.summed_members)}
        total, had = self._sum_so_far(part, kept, announced)
        uncertified = dict(sorted(had.items() - summed.items()))  # taken off: the certificate leaves them out
        try:
            np.negative(total, out=total)
            self._add_chunks(part, total, uncertified)
            np.negative(total, out=total)
        except DamagedChunkError:  # or not whole any more, since it was damaged
            total, had = self._zero_range(part), {}
        self._add_chunks(part, total, dict(sorted(summed.items() - had.items())))
        # Ranges are unmasked side by side, and a stream of masks serves one thread.
        return recovered.prepare_unmasking().unmask_chunk(part, total)

    def _sum_so_far(
        self, part: int, kept: Kept, announced: Mapping[str, bytes]
    ) -> tuple[Words, dict[str, bytes]]:
        """Return the masked sum so far, stored and running, and the digests of its chunks; zeros and none if it is damaged."""
        total, had = self._zero_range(part), dict[str, bytes]()
        if kept.blob:
            try:
                total += np.frombuffer(self._read_range(part, kept), total.dtype.newbyteorder("<"))
                had = {member: announced.get(member, b"") for member in kept.members}
            except DamagedRangeError:
                note_damage("range", self._round, part=part)
        with self._lock:
            running = self._pop_running(part)
        if running is not None and running.digests.keys().isdisjoint(had):
            total += running.total
            had |= running.digests
        return total, had

    def _pop_running(self, part: int) -> Running | None:
        """Take a running sum out of memory."""
        running = self._running.pop(part, None)
        if running is not None:
            self._memory.give_back(self._range_bytes(part))
        return running

    def _range_bytes(self, part: int) -> int:
        return self._attempt.chunk_elements(part) * self._attempt.ring.itemsize

    def _zero_range(self, part: int) -> Words:
        return np.zeros(self._attempt.chunk_elements(part), self._attempt.ring.dtype)

    def _add_chunks(self, part: int, total: Words, digests: Mapping[str, bytes]) -> None:
        """Add stored chunks, after checking each against its digest."""
        for member, digest in digests.items():
            chunk = read_chunk(self._blobs, self._round, member, part, digest)
            try:
                add_packed(total, chunk, self._attempt.ring.bits)
            except PackingError as error:
                raise PeerFault(
                    Cause.CHUNK_MISMATCH, f"{member}'s chunk {part}: {error}", [member]
                ) from error

    def _read_ranges(self, ranges: Sequence[Kept]) -> Pieces:
        start = 0
        for part, kept in enumerate(ranges):
            words = np.frombuffer(self._read_range(part, kept), "<i8")
            yield start, words
            start += words.size

    # Storage

    def _read_range(self, part: int, kept: Kept) -> memoryview:
        """Read a range's numbers. Raises DamagedRangeError if they or their row are lost or damaged."""
        try:
            blob = memoryview(self._blobs.get(self._blob_name(kept.blob)))
        except (FileNotFoundError, Misuse) as error:
            raise DamagedRangeError(part, kept) from error
        if not kept.has_range(blob):
            raise DamagedRangeError(part, kept)
        return blob[32:]

    def _delete_blob(self, blob: str) -> None:
        with suppress(Misuse):  # a damaged row may name nothing that can be stored
            self._blobs.delete(self._blob_name(blob))

    def _blob_name(self, blob: str) -> str:
        return f"sums/{self._round}/{blob}"

    async def _read_kept(self, part: int) -> Kept | None:
        """Return the row of a range; None once the round has ended."""
        # In one statement: the end deletes the rows, and then a range looks as if it had not been begun.
        query = (
            select(rounds.c.final.is_(None).label("live"), sums.c.blob, sums.c.members, sums.c.done)
            .join_from(rounds, sums, (sums.c.round == rounds.c.id) & (sums.c.part == part), isouter=True)
            .where(rounds.c.id == self._round)
        )
        row = await self._database.read_row(query)
        if row is None or not row.live:
            return None
        return self._note_kept(part, Kept() if row.blob is None else Kept.from_row(row))

    def _note_kept(self, part: int, kept: Kept) -> Kept:
        self._added[part] = frozenset(kept.members)
        if kept.done:
            self.unmasked.add(part)
        else:  # another process found it damaged
            self.unmasked.discard(part)
        return kept

    async def _replace_blob(
        self, part: int, before: Kept, after: Kept, total: npt.NDArray[np.generic]
    ) -> None:
        """Replace a range's blob, unless another process has or the round has ended."""
        after = replace(after, blob=f"{part}-{secrets.token_hex(8)}")
        numbers = total.astype(total.dtype.newbyteorder("<"), copy=False).tobytes()
        blob = after.compute_checksum(numbers) + numbers
        await in_blob_thread(self._blobs.put, self._blob_name(after.blob), blob)
        replaced = await self._exchange_row(part, before, after)
        if obsolete := before.blob if replaced else after.blob:
            await in_blob_thread(self._delete_blob, obsolete)
        if replaced:
            self._note_kept(part, after)

    async def _exchange_row(self, part: int, before: Kept, after: Kept) -> bool:
        values = {"blob": after.blob, "members": json.dumps(after.members), "done": after.done}

        def exchange(connection: Connection) -> bool:
            if not connection.scalar(LIVE_SQL, {"round": self._round}):
                return False
            if not before.blob:
                row = {"round": self._round, "part": part, **values}
                return self._database.add_row(connection, sums, row)
            changed = connection.execute(update(sums).where(*self._row_of(part, before)).values(values))
            return bool(changed.rowcount)

        return await self._database.write(exchange)

    def _row_of(self, part: int, kept: Kept) -> tuple[ColumnElement[bool], ...]:
        """The condition that a range's row is still the one that was read."""
        return sums.c.round == self._round, sums.c.part == part, sums.c.blob == kept.blob


def _digests_of(uploads: Mapping[str, Announced], part: int) -> dict[str, bytes]:
    """SHA-256 of the chunk that each member announced for a range."""
    return {member: upload.chunk_digest(part) for member, upload in uploads.items()}
