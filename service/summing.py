"""A round's sum by ranges of chunks: each is added up as uploads come in, kept, and unmasked once the set is certified.

What is kept of a range is a blob with the masked sum so far, and a row that names it and whose chunks are in it. Whoever adds more writes
another blob, and then the row, on the condition that it still is the one that was read: so any process can go on where another
stopped, and one that comes late changes nothing. Memory is one range and one chunk, whatever the number of members.
"""

import asyncio
import json
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sqlalchemy import select, update

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import Recovered
from protocol.errors import PeerFault
from protocol.packing import PackingError, add_packed
from protocol.ring import Words
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.tables import rounds, sums

Pieces = Iterable[tuple[int, npt.NDArray[np.int64]]]
"""Of a sum, each with its first element's place."""
T = TypeVar("T", bound=np.generic)
RANGE_ELEMENTS = 1 << 18
"""Of one range, unless one chunk alone is longer."""
BATCH = 16
"""Uploads that are waited for before a range is read and written for them."""


def chunk_name(round_id: str, member: str, index: int) -> str:
    """Where a chunk is stored."""
    return f"uploads/{round_id}/{member}/{index}"


@dataclass(frozen=True)
class Kept:
    """The row of a range.

    Attributes:
        blob: its last part of a name; empty where nothing is kept yet.
        members: whose chunks are in it.
        done: it is the range of the sum itself, unmasked.
    """

    blob: str = ""
    members: tuple[str, ...] = ()
    done: bool = False


class Summing:
    """One round's.

    Attributes:
        unmasked: ranges of the sum that are known to be done.
    """

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        round_id: str,
        attempt: Attempt,
    ) -> None:
        self._database, self._blobs, self._round, self._attempt = database, blobs, round_id, attempt
        self._chunks_each = max(1, RANGE_ELEMENTS // attempt.spec.chunk_elements)
        self.parts = range(-(-attempt.chunks // self._chunks_each))
        self.unmasked: set[int] = set()
        self._added: dict[int, int] = {}

    def missing(self, part: int, uploads: int) -> int:
        """How many more than so many whole uploads make it worth to add them to a range, as far as is known here."""
        return self._added.get(part, 0) + BATCH - uploads

    async def add(self, part: int, uploaded: Sequence[str]) -> None:
        """Add the chunks of those whose upload is whole and that are not in yet."""
        kept = await self._kept(part)
        if kept is None or kept.done:
            return
        new = sorted(set(uploaded) - set(kept.members))
        if len(new) < BATCH:
            return
        total = await asyncio.to_thread(self._masked, part, kept, (*kept.members, *new))
        await self._replace(part, kept, Kept(members=(*kept.members, *new)), total)

    async def unmask(self, part: int, recovered: Recovered) -> None:
        """Make the range that of the sum: exactly the certified members, without their masks.

        Raises:
            PeerFault: chunk-mismatch, where a stored chunk is not packed as it should be.
        """
        kept = await self._kept(part)
        if kept is not None and not kept.done:
            total = await asyncio.to_thread(self._unmasked, part, kept, recovered)
            await self._replace(part, kept, Kept(members=recovered.summed, done=True), total)

    async def pieces(self) -> Pieces | None:
        """The sum, range by range from storage, each with the place of its first element.

        None while ranges are missing, or once the round has ended.
        """
        ranges = [await self._kept(part) for part in self.parts]
        done = [kept for kept in ranges if kept is not None and kept.done]
        return self._read_ranges(done) if len(done) == len(ranges) else None

    def forget(self) -> None:
        """Remove every range, of a round that has ended."""
        self._blobs.delete(f"sums/{self._round}")

    # Arithmetic

    def _masked(self, part: int, kept: Kept, members: Iterable[str]) -> Words:
        """The range's masked sum over `members`, from the one that is kept."""
        ring, wanted, had = self._attempt.ring, set(members), set(kept.members)
        total = np.zeros(self._elements(part), ring.dtype)
        if kept.blob:
            total += np.frombuffer(self._blobs.get(self._name(kept.blob)), ring.dtype.newbyteorder("<"))
        self._add(part, total, wanted - had)
        np.negative(total, out=total)
        self._add(part, total, had - wanted)  # taken off: the certificate leaves them out
        np.negative(total, out=total)
        return total

    def _add(self, part: int, total: Words, members: Collection[str]) -> None:
        for member in sorted(members):
            for index, words in self._pieces(part, total):
                try:
                    add_packed(words, self._chunk(member, index), self._attempt.ring.bits)
                except PackingError as error:
                    raise PeerFault(
                        Cause.CHUNK_MISMATCH, f"{member}'s chunk {index}: {error}", [member]
                    ) from error

    def _unmasked(self, part: int, kept: Kept, recovered: Recovered) -> npt.NDArray[np.int64]:
        masked = self._masked(part, kept, recovered.summed)
        total = np.empty(masked.size, np.int64)
        # Ranges are unmasked side by side, and a stream of masks serves one thread.
        unmasking = recovered.unmasking()
        ranges = zip(self._pieces(part, masked), self._pieces(part, total), strict=True)
        for (index, words), (_, lifted) in ranges:
            lifted[:] = unmasking.unmask(index, words)
        return total

    def _read_ranges(self, ranges: Sequence[Kept]) -> Pieces:
        start = 0
        for kept in ranges:
            words = np.frombuffer(self._blobs.get(self._name(kept.blob)), "<i8")
            yield start, words
            start += words.size

    def _elements(self, part: int) -> int:
        return sum(self._attempt.chunk_elements(index) for index in self._chunks(part))

    def _chunks(self, part: int) -> range:
        return range(part * self._chunks_each, min((part + 1) * self._chunks_each, self._attempt.chunks))

    def _pieces(self, part: int, total: npt.NDArray[T]) -> Iterable[tuple[int, npt.NDArray[T]]]:
        """Views of a range's chunks, each with its index."""
        start = 0
        for index in self._chunks(part):
            elements = self._attempt.chunk_elements(index)
            yield index, total[start : start + elements]
            start += elements

    # Storage

    def _chunk(self, member: str, index: int) -> bytes:
        return self._blobs.get(chunk_name(self._round, member, index))

    def _name(self, blob: str) -> str:
        return f"sums/{self._round}/{blob}"

    async def _kept(self, part: int) -> Kept | None:
        """What is kept of a range; None once the round has ended."""
        # In one statement: the end deletes the rows, and then a range looks as if nobody had begun it.
        query = (
            select(rounds.c.final.is_(None).label("live"), sums.c.blob, sums.c.members, sums.c.done)
            .join_from(rounds, sums, (sums.c.round == rounds.c.id) & (sums.c.part == part), isouter=True)
            .where(rounds.c.id == self._round)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one()
        if not row.live:
            return None
        begun = row.blob is not None
        return self._note(part, Kept(row.blob, tuple(json.loads(row.members)), row.done) if begun else Kept())

    def _note(self, part: int, kept: Kept) -> Kept:
        self._added[part] = len(kept.members)
        if kept.done:
            self.unmasked.add(part)
        return kept

    async def _replace(self, part: int, before: Kept, after: Kept, total: npt.NDArray[np.generic]) -> None:
        """Keep the next blob of a range in place of the one that was read; not where somebody else has, or the round has ended."""
        after = replace(after, blob=f"{part}-{secrets.token_hex(8)}")
        little = total.astype(total.dtype.newbyteorder("<"), copy=False)
        await asyncio.to_thread(self._blobs.put, self._name(after.blob), little.tobytes())
        replaced = await self._exchange(part, before, after)
        if obsolete := before.blob if replaced else after.blob:
            await asyncio.to_thread(self._blobs.delete, self._name(obsolete))
        if replaced:
            self._note(part, after)

    async def _exchange(self, part: int, before: Kept, after: Kept) -> bool:
        values = {"blob": after.blob, "members": json.dumps(after.members), "done": after.done}
        async with self._database.transaction() as connection:
            live = (
                select(rounds.c.final.is_(None)).where(rounds.c.id == self._round).with_for_update(read=True)
            )
            if not (await connection.execute(live)).scalar_one():
                return False
            if not before.blob:
                return await self._database.add(
                    connection, sums, {"round": self._round, "part": part, **values}
                )
            changed = await connection.execute(
                update(sums)
                .where(sums.c.round == self._round, sums.c.part == part, sums.c.blob == before.blob)
                .values(values)
            )
            return bool(changed.rowcount)
