"""What rounds leave in storage once they need it no more, and what processes that died or came late have left of them."""

from collections.abc import Awaitable, Callable

from sqlalchemy import Connection, select, update

from service.coordination import journal
from service.coordination.rounds import Round
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.tables import rounds
from veilsum.protocol.coordinator import Erasing

FOLDERS = ("uploads", "sums", journal.EVENTS_FOLDER, "results")
"""The folders in which each round has its own; the last is kept of a finished round."""


def delete_folders(blobs: Blobs, round_id: str) -> None:
    """Delete everything that a round that is not known any more has stored."""
    for folder in FOLDERS:
        blobs.delete(f"{folder}/{round_id}")


class Garbage:
    """Deletes it.

    Args:
        wake: called when there may be something to delete.

    Attributes:
        rounds: those that may have left something, by id.
    """

    def __init__(self, database: Database, blobs: Blobs, wake: Callable[[], None]) -> None:
        self._database, self._blobs, self._wake = database, blobs, wake
        self.rounds = dict[str, Round]()

    def add_round(self, round_: Round) -> None:
        """Clear up after this round once it has ended, or is erasing, so that no sum is possible."""
        self.rounds.setdefault(round_.id, round_)  # a live round knows when its last chunk is written
        self._wake()

    def due_rounds(self) -> list[Round]:
        """Return the rounds that can be cleared up after now."""
        return [
            each
            for each in self.rounds.values()
            if not each.writing and (each.end is not None or isinstance(each.position.phase, Erasing))
        ]

    async def clear_round(self, round_: Round, now_s: float) -> None:
        """Delete what a round no longer needs. Needs no lock, because nothing is written there any more."""
        end, own = round_.end, rounds.c.id == round_.id
        await in_blob_thread(self._delete_files, round_)
        if not await self._database.read_value(select(rounds.c.cleared).where(own)):
            await self._database.erase_deleted()
            cleared = update(rounds).where(own, ~rounds.c.cleared).values(cleared=end is not None)
            deed = audit.Deed(now_s, audit.COORDINATOR_ACTOR, "uploads deleted", f"round_id={round_.id}")

            def store(connection: Connection) -> None:
                if connection.execute(cleared).rowcount:  # else another process cleared up
                    audit.append_deeds(connection, self._database, [deed])

            # Last: until this is committed, a process that finds the round does all of it again.
            await self._database.write(store)
        if round_.end is end:  # an erasing round may have ended meanwhile
            del self.rounds[round_.id]

    def _delete_files(self, round_: Round) -> None:
        ended = round_.end is not None
        for folder in ("uploads", "sums", *((journal.EVENTS_FOLDER,) if ended else ())):
            self._blobs.delete(f"{folder}/{round_.id}")
        if ended:
            round_.documents.clear_leftovers()

    async def sweep_storage(self, load: Callable[[str], Awaitable[Round]]) -> None:
        """Remove unfinished writes, and find ended rounds that have left something; `load` finds a round by its id.

        Nothing refers to what they left: an ended round takes neither events nor ranges.
        """
        await in_blob_thread(self._blobs.clear_up)
        lying = {each: set(await in_blob_thread(self._blobs.list_names, each)) for each in FOLDERS}
        ended = select(rounds.c.id, rounds.c.state, rounds.c.cleared).where(rounds.c.state.is_not(None))
        for name, state, cleared in await self._database.read_rows(ended):
            folders = FOLDERS[:-1] if state == "done" else FOLDERS
            if not cleared or any(name in lying[folder] for folder in folders):
                with self._database.quarantine.skip_errors(f"round {name}"):
                    self.add_round(await load(name))
