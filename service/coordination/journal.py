"""A live round's events in storage, numbered without gaps, and what other processes have stored of them.

Announcements are stored as blobs, which rows name: those of 200 members take 400 MB, which a database would keep in its file and its
write-ahead log. Shares in the clear stay in rows, which are overwritten when they are deleted.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, func, insert, select, update

from service.coordination.events import Event, read_message
from service.coordination.standing import (
    Position,
    RoundEnd,
    Stall,
    Standing,
    read_closing,
    read_view,
    replay_events,
)
from service.http.problems import not_found
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.tables import events, links, lost_contexts, rounds, sums
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Certificate, Message, Survivor, Upload, parse_message
from veilsum.protocol.rest import round_name
from veilsum.study.progress import read_outcome

EVENTS_PER_READ = 16
"""How many events are read from storage at a time: an announcement may have megabytes."""
EVENTS_FOLDER = "events"
"""The folder of the rounds' announcements."""
BLOB_EVENT_KIND = "aside"
"""The kind of a row that holds the SHA-256 of a message stored as a blob."""
LIVE_SQL = (
    select(rounds.c.final.is_(None)).where(rounds.c.id == bindparam("round")).with_for_update(read=True)
)
"""Whether a round is live: its end waits for the transaction that asks."""


REWIND_EVENT_KIND = "rewind"
"""The kind of an event that makes void all events from the one whose number it holds, up to itself."""
NO_REWIND = 1 << 62
"""Above every number of an event."""


class DamagedEventError(Exception):
    """A stored event is lost or damaged.

    Attributes:
        digest: the SHA-256 of an announcement; empty for another event.
    """

    def __init__(self, digest: bytes = b"") -> None:
        super().__init__("a stored event is damaged")
        self.digest = digest


class DeletedRoundError(PeerFault):
    """Another process has deleted a live round: it could not read it, and the admin closed its context (`Federations.put_lost`); not-found."""

    def __init__(self) -> None:
        super().__init__(Cause.NOT_FOUND, not_found("round").detail)


async def read_survivors(database: Database, context: bytes) -> tuple[Survivor, ...]:
    """Read the certified set of an ended attempt. Raises PeerFault(not-found)."""
    row = await database.read_row(select(rounds.c.closing).where(rounds.c.id == round_name(context)))
    closing = None if row is None or row.closing is None else parse_message(row.closing)
    if not isinstance(closing, Certificate) or closing.context != context:
        raise not_found("certified attempt")
    return closing.survivors


async def read_counts(database: Database, contexts: Iterable[bytes]) -> dict[bytes, CountOutcome]:
    """Read what finished counts found, by context; those without sums, or with damaged rows, are missing."""
    names = {round_name(context): context for context in contexts}
    query = select(rounds.c.id, rounds.c.final, rounds.c.closing)
    query = query.where(rounds.c.id.in_(names), rounds.c.final.is_not(None))
    outcomes = dict[bytes, CountOutcome]()
    for row in await database.read_rows(query):
        with database.quarantine.skip_errors(f"round {row.id}"):
            read_closing(row.closing)  # a step that rests on it needs its survivors
            if (found := read_outcome(read_view(row.id, row.final))) is not None:
                outcomes[names[row.id]] = found
    return outcomes


def select_round_count(federation: str) -> Select[int]:
    """Return the query for how many rounds a federation has opened."""
    return select(func.count()).select_from(rounds).where(rounds.c.federation == federation)


async def begin_round(database: Database, attempt: Attempt, now_s: float, before: int) -> bool:
    """Store a round, if its federation has had exactly `before` rounds and all have ended. Returns whether it did.

    Raises:
        PeerFault: conflict if the admin has closed its context.
    """
    federation = attempt.roster.federation.hex()
    row = {
        "id": round_name(attempt.context),
        "federation": federation,
        "cohort": attempt.manifest.cohort.hex(),
        "sequence": attempt.opening.sequence,
        "attempt": attempt.opening.attempt,
        "opening": attempt.opening.to_bytes(),
        "opened_s": now_s,
    }
    closed = select(lost_contexts.c.context).where(
        lost_contexts.c.federation == federation, lost_contexts.c.context == attempt.context.hex()
    )

    def begin(connection: Connection) -> None:
        database.lock_alone(connection, lost_contexts.name)
        if connection.execute(closed).first() is not None:
            raise PeerFault(
                Cause.CONFLICT,
                "the admin has closed this attempt's context: try again, and the round gets another one",
            )
        # From here on no other can be opened; one may have been, and have ended, until now.
        if (
            not database.add_row(connection, rounds, row)
            or connection.execute(select_round_count(federation)).scalar_one() != before + 1
        ):
            raise _OvertakenError
        database.announce_change(connection, federation)

    with suppress(_OvertakenError):
        await database.write(begin)
        return True
    return False


class _OvertakenError(Exception):
    """Another process was first, so nothing was stored."""


@dataclass(frozen=True)
class Appended:
    """It is stored, after everything that this process has applied."""


@dataclass(frozen=True)
class Behind:
    """Other processes were first, so nothing was stored: catch up, and decide again."""


@dataclass(frozen=True)
class Unknown:
    """Storage confirmed nothing: it may be stored, or not. Catch up before anything else is decided."""

    error: Exception


@dataclass(frozen=True)
class Stalled:
    """The next event can't be read or applied (`Standing.stall`): nothing is stored before it can, or the round is rewound."""


Outcome = Appended | Behind | Unknown | Stalled
APPENDED_OUTCOME, BEHIND_OUTCOME, STALLED_OUTCOME = Appended(), Behind(), Stalled()


class Journal:
    """One round's events. No lock is held during computations: a process that was not first catches up.

    Args:
        database: holds the rows.
        blobs: holds the announcements.
        round_id: of the round.
        standing: the first one.

    Attributes:
        standing: where the events lead that this process has applied; how the round ended, once it knows.
        last: the outcome of the last commit; `Appended` once this process has caught up.
    """

    def __init__(self, database: Database, blobs: Blobs, round_id: str, standing: Standing) -> None:
        self._database, self._blobs, self._round = database, blobs, round_id
        self._row = select(rounds).where(rounds.c.id == round_id)
        self._first = standing
        self.standing: Position = standing
        self.last: Outcome = APPENDED_OUTCOME

    async def append_events(self, following: Sequence[Event], *, after: Standing) -> Outcome:
        """Store the events that lead from `standing` to `after`, all or none."""
        # Each is numbered by what was applied, so that one whose commit was not confirmed is never overwritten or skipped.
        rows: list[dict[str, Any]] = [
            {
                "round": self._round,
                "number": number,
                "at_s": event.at_s,
                "kind": event.kind,
                "body": event.body,
            }
            for number, event in enumerate(following, after.seen - len(following))
        ]
        large = [row for row in rows if row["kind"] == "message" and row["body"][1] == Upload.kind]
        await asyncio.gather(*(in_blob_thread(self._put_aside, row) for row in large))

        def store(connection: Connection) -> None:
            # Ending the round waits for this transaction and then sees its events; or this one sees the end.
            live = connection.scalar(LIVE_SQL, {"round": self._round})
            if not live or len(self._database.add_all(connection, events, rows)) < len(rows):
                raise _OvertakenError
            self._database.announce_change(connection, self._round)

        self.last = BEHIND_OUTCOME  # if this is cancelled
        try:
            await self._database.write(store)
        except _OvertakenError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised to those who wait for this commit
            self.last = Unknown(error)
        else:
            self.standing, self.last = after, APPENDED_OUTCOME
        return self.last

    def _put_aside(self, row: dict[str, Any]) -> None:
        digest = hashlib.sha256(row["body"]).digest()
        self._blobs.put(self._blob_name(digest), row["body"])
        row["kind"], row["body"] = BLOB_EVENT_KIND, digest

    def _blob_name(self, digest: bytes) -> str:
        return f"{EVENTS_FOLDER}/{self._round}/{digest.hex()}"

    async def end_round(self, end: RoundEnd, link: bytes, deed: audit.Deed) -> Outcome:
        """End the round by the events that lead to `standing`, and delete them.

        Args:
            end: what its row will hold.
            link: of the federation's chain.
            deed: for the audit log.
        """
        assert isinstance(self.standing, Standing)
        seen = self.standing.seen
        own = update(rounds).where(rounds.c.id == self._round)

        def store(connection: Connection) -> bool:
            row = connection.execute(self._row.with_for_update()).one_or_none()
            if row is None or row.final is not None or self._next_number(connection) != seen:
                return False
            connection.execute(own.values(end.to_columns()))
            _append_link(connection, row.federation, link)
            for table in (events, sums):
                connection.execute(delete(table).where(table.c.round == self._round))
            audit.append_deeds(connection, self._database, [deed])
            self._database.announce_change(connection, self._round)
            self._database.announce_change(connection, row.federation)
            return True

        self.last = BEHIND_OUTCOME  # if this is cancelled
        try:
            if await self._database.write(store):
                self.standing, self.last = end, APPENDED_OUTCOME
        except Exception as error:  # noqa: BLE001 - as above
            self.last = Unknown(error)
        return self.last

    async def is_behind(self) -> bool:
        """Whether another process has stored further events, or has deleted the round."""
        if not self._database.shared or not isinstance(self.standing, Standing):
            return False
        following = select(events.c.number)
        following = following.where(events.c.round == self._round, events.c.number == self.standing.seen)
        query = select(rounds.c.final.is_(None), following.exists()).where(rounds.c.id == self._round)
        row = await self._database.read_row(query)
        return bool(row != (True, False))  # None without a row

    async def catch_up(self) -> Outcome:
        """Apply what is stored beyond `standing`, up to an event that can't be read or applied. Raises DeletedRoundError."""
        self.last = BEHIND_OUTCOME
        while isinstance(now := self.standing, Standing):
            begin, number = await self._find_rewind(now.seen)
            if begin < now.seen:
                self.standing = self._first
                continue
            if begin == now.seen:
                self.standing = replace(now, seen=number + 1, asked=number + 2, stall=None)
                continue
            most = min(begin - now.seen, 1 if now.stall else EVENTS_PER_READ)
            end, unseen, unread = await self.read_unseen(now.seen, most)
            if end is not None:
                self.standing = end
                break
            now = replace(now, stall=None) if now.stall else now
            after, unapplied = await asyncio.to_thread(replay_events, now, unseen)
            self.standing = after
            if error := unapplied or unread:
                self._stall_after(after, error)
                return self.last
            if len(unseen) < most:
                break
        self.last = APPENDED_OUTCOME
        return self.last

    def _stall_after(self, standing: Standing, error: Exception) -> None:
        self._database.quarantine.note_damage(f"round {self._round}", error)
        digest = error.digest if isinstance(error, DamagedEventError) else b""
        self.standing = replace(standing, stall=Stall.at_event(standing.seen, digest))
        self.last = STALLED_OUTCOME

    async def _find_rewind(self, seen: int) -> tuple[int, int]:
        """Return the numbers of the next event that is void, and of the last one that is void with it; `NO_REWIND` without any."""
        query = select(events.c.number, events.c.body).where(
            events.c.round == self._round, events.c.kind == REWIND_EVENT_KIND, events.c.number >= seen
        )
        valid = list[tuple[int, int]]()
        for number, body in await self._database.read_rows(query.order_by(events.c.number)):
            if not body.isdigit():
                continue  # damaged: the round stalls at it
            begin = int(body)
            valid = [each for each in valid if each[1] < begin]  # the others are void too
            valid.append((begin, number))
        return valid[0] if valid else (NO_REWIND, NO_REWIND)

    async def rewind(self, now_s: float) -> Outcome:
        """Make every event void from the one on at which the round stalls, so that it goes on from there."""
        standing = self.standing
        assert isinstance(standing, Standing)
        row = {
            "round": self._round,
            "at_s": now_s,
            "kind": REWIND_EVENT_KIND,
            "body": str(standing.seen).encode(),
        }

        def store(connection: Connection) -> None:
            if connection.scalar(LIVE_SQL, {"round": self._round}):
                number = self._next_number(connection)
                if self._database.add_row(connection, events, {**row, "number": number}):
                    self._database.announce_change(connection, self._round)

        self.last = BEHIND_OUTCOME
        await self._database.write(store)
        return await self.catch_up()

    def _next_number(self, connection: Connection) -> int:
        number = select(func.coalesce(func.max(events.c.number) + 1, 0))
        return int(connection.execute(number.where(events.c.round == self._round)).scalar_one())

    def restore_announcement(self, message: Message) -> None:
        """Store an announcement again, if the round stalls at it."""
        stall = self.standing.stall if isinstance(self.standing, Standing) else None
        if stall is None or not isinstance(message, Upload):
            return
        body = message.to_bytes()
        if hashlib.sha256(body).digest() == stall.digest:
            self._blobs.put(self._blob_name(stall.digest), body)

    async def read_unseen(
        self, seen: int, most: int = EVENTS_PER_READ
    ) -> tuple[RoundEnd | None, list[Event], Exception | None]:
        """Return the round's end, or else None, up to `most` events after the first `seen`, and why the one after them can't be read.

        Raises:
            DeletedRoundError: there is no such round any more.
        """
        following = (
            select(events.c.number, events.c.at_s, events.c.kind, events.c.body)
            .where(events.c.round == self._round, events.c.number >= seen)
            .order_by(events.c.number)
            .limit(most)
        )
        stored, row = await self._database.read(
            lambda connection: (
                connection.execute(following).all(),
                connection.execute(self._row).one_or_none(),
            )
        )
        if (end := _read_end(row)) is not None:
            return end, [], None
        found, error = await in_blob_thread(self._make_events, seen, stored)
        if error is not None:
            # Another process may have ended it meanwhile, and deleted what it was made of.
            end = _read_end(await self._database.read_row(self._row))
            if end is not None:
                return end, [], None
        return None, found, error

    def _make_events(self, seen: int, stored: Sequence[Any]) -> tuple[list[Event], Exception | None]:
        found = list[Event]()
        for number, at_s, kind, body in stored:
            if number != seen + len(found):
                return found, DamagedEventError()
            try:
                found.append(self._make_event(at_s, kind, body))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - a damaged event fails anywhere
                return found, error
        return found, None

    def _make_event(self, at_s: float, kind: str, body: bytes) -> Event:
        if kind == BLOB_EVENT_KIND:
            kind, body = "message", self._read_announcement(body)
        return Event(at_s, kind, body, read_message(body) if kind == "message" else None)

    def _read_announcement(self, digest: bytes) -> bytes:
        with suppress(FileNotFoundError):
            body = self._blobs.get(self._blob_name(digest))
            if hashlib.sha256(body).digest() == digest:
                return body
        raise DamagedEventError(digest)


def _read_end(row: Row[Any] | None) -> RoundEnd | None:
    """Read how a round ended from its row; None while it is live. Raises DeletedRoundError without a row."""
    if row is None:
        raise DeletedRoundError
    return None if row.final is None else RoundEnd.from_row(row)


def _append_link(connection: Connection, federation: str, link: bytes) -> None:
    """Append to a federation's chain. Only one of its rounds is live, so this is the only writer."""
    count = select(func.count()).select_from(links).where(links.c.federation == federation)
    position = connection.execute(count).scalar_one()
    connection.execute(insert(links).values(federation=federation, position=position, body=link))
