"""A live round's events: their meaning, the states they lead to, and their storage, numbered without gaps.

Phase and transcript are folds of the events. A refused message does not change the phase. If it proves that its sender cheated, that
proof is an event too, once for each cause and party, so that proofs can't fill the disk.

Announcements are stored as blobs, which rows name: those of 200 members take 400 MB, which a database would keep in its file and its
write-ahead log. Shares in the clear stay in rows, which are overwritten when they are deleted.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from service.http.problems import not_found
from service.storage import audit
from service.storage.blobs import Blobs, in_blob_thread
from service.storage.database import Database
from service.storage.faults import check_named, sealed, unsealed
from service.storage.tables import events, links, rounds, sums
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting, CoordinatorPhase, Freezing, Recovered, Revealing
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import (
    Certificate,
    Erased,
    Lost,
    Message,
    Receipt,
    Refusal,
    Reveal,
    Survivor,
    Upload,
    Vote,
    parse,
)
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView, round_name
from veilsum.protocol.tags import PROTOCOL_VERSION
from veilsum.protocol.transcript import Accusation, Transcript

AT_ONCE = 16
"""How many events are read from storage at a time: an announcement may have megabytes."""
FOLDER = "events"
"""The folder of the rounds' announcements."""
ASIDE = "aside"
"""The kind of a row that holds the SHA-256 of a message stored as a blob."""
ANSWERS = (Receipt, Vote, Refusal, Reveal, Erased)
"""Messages that answer a request."""
_KINDS = frozenset(form.kind for form in (Upload, *ANSWERS, Lost))


def read_message(body: bytes) -> Message:
    """Parse a message to the coordinator.

    Raises:
        PeerFault: as `parse`; unknown-message for a kind that only a coordinator sends, which may be as long as a roster.
    """
    if len(body) > 1 and body[0] == PROTOCOL_VERSION and body[1] not in _KINDS:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {body[1]} is not a message to a coordinator")
    return parse(body)


@dataclass(frozen=True)
class Event:
    """A stored event of a round.

    Attributes:
        message: from a member or the admin, parsed; None for events of another kind than "message".
    """

    at_s: float
    kind: str
    body: bytes = b""
    message: Message | None = None

    def __repr__(self) -> str:
        return f"<Event {self.kind} {len(self.body)} B>"

    def apply(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        """Return the phase after this event. Raises PeerFault if the rules forbid it."""
        if self.message is not None:
            return phase.receive(self.message, self.at_s)
        if self.kind in {"chunk", "damaged"}:
            return self._apply_to_chunk(phase)
        if self.kind == "expire":
            return phase.expire(self.at_s)
        if self.kind == "extend":
            return phase.extend(float(self.body))
        if self.kind == "refused":
            return phase
        if self.kind == "cancel":
            return phase.cancel(self.at_s, self.body.decode())
        raise Misuse(f"this release knows no event of the kind '{self.kind}': run the newer one")

    def _apply_to_chunk(self, phase: CoordinatorPhase) -> CoordinatorPhase:
        member, index = json.loads(self.body)
        if self.kind == "damaged":
            return phase.chunk_damaged(member, index)
        assert isinstance(phase, Collecting)  # no other takes chunks
        return phase.chunk_stored(member, index, self.at_s)

    def note(self, transcript: Transcript, before: CoordinatorPhase, after: CoordinatorPhase) -> Transcript:
        """Return the transcript with this event, which led from one phase to the next."""
        if self.message is not None:
            return transcript.received(self.message, before, after)
        if self.kind == "refused":
            cause, parties, entry = json.loads(self.body)
            return transcript.accusing(Accusation(Cause(cause), tuple(parties), bytes.fromhex(entry)))
        return transcript.moved(before, after)

    def refused(self, transcript: Transcript, fault: PeerFault) -> "Event | None":
        """Return what is stored of this refused event; None if it proves nothing new to others."""
        if self.message is None:
            return None
        found = Accusation.of(self.message, fault)
        if found is None or transcript.accusing(found) is transcript:
            return None
        body = json.dumps([found.cause.value, found.parties, found.entry.hex()])
        return Event(self.at_s, "refused", body.encode())


_LIVE = select(rounds.c.final.is_(None)).where(rounds.c.id == bindparam("round")).with_for_update(read=True)
Decision = Callable[[CoordinatorPhase | None], Event | None]
"""Chooses the event that follows a phase, if any. Raises PeerFault if none can."""


@dataclass(frozen=True)
class Transition:
    """An event, and the state that it leads to."""

    event: Event
    after: CoordinatorPhase
    noted: Transcript


def replayed(phase: CoordinatorPhase, noted: Transcript, unseen: Sequence[Event]) -> list[Transition]:
    """Replay stored events. Each was accepted before."""
    steps = list[Transition]()
    for event in unseen:
        after = event.apply(phase)
        noted = event.note(noted, phase, after)
        steps.append(Transition(event, after, noted))
        phase = after
    return steps


def folded(
    phase: CoordinatorPhase, noted: Transcript, decisions: Sequence[Decision]
) -> tuple[list[Exception | None], list[Transition]]:
    """Fold decisions into events, up to one that ends the phase. Returns them, and for each decision None or why it was refused."""
    faults, steps = list[Exception | None](), list[Transition]()
    for decide in decisions:
        event, after, fault = _decided(decide, phase, noted)
        faults.append(fault)
        if event is None:
            continue
        noted = event.note(noted, phase, after)
        steps.append(Transition(event, after, noted))
        if after.name != phase.name:
            break
        phase = after
    return faults, steps


def refusals(decisions: Sequence[Decision], over: PeerFault) -> list[Exception | None]:
    """Return the outcome of decisions after the end, which no event follows."""
    faults = list[Exception | None]()
    for decide in decisions:
        try:
            faults.append(None if decide(None) is None else over)
        except PeerFault as fault:
            faults.append(fault)
        except Exception as error:  # noqa: BLE001 - as in `_decided`
            faults.append(error)
    return faults


def _decided(
    decide: Decision, phase: CoordinatorPhase, noted: Transcript
) -> tuple[Event | None, CoordinatorPhase, Exception | None]:
    """Return the event to store, if any, the phase after it, and why the decision was refused, if it was."""
    event = None
    try:
        event = decide(phase)
        after = phase if event is None else event.apply(phase)
    except PeerFault as fault:
        return event.refused(noted, fault) if event is not None else None, phase, fault
    except Exception as error:  # noqa: BLE001 - a defect that one message finds is not for the others to suffer
        return None, phase, error
    return (None if after is phase else event), after, None


def asks_anew(before: CoordinatorPhase, after: CoordinatorPhase) -> bool:
    """Whether the second phase, which follows the first, asks any member something new.

    That is another phase, a chunk once more, one more dealer that is to be left out, or a decryptor that has its boxes now and may sign.
    Rebuilt seeds ask nothing new: members that reveal have the certificate, and are told of the round's end.
    """
    if isinstance(before, Revealing) and isinstance(after, Recovered):
        return False
    if isinstance(before, Collecting) and isinstance(after, Collecting):
        return after.whole_count < before.whole_count
    return before.name != after.name or _asked_for(before) != _asked_for(after)


def _asked_for(phase: CoordinatorPhase) -> tuple[int, tuple[str, ...]]:
    """Return what changes the members' requests besides the phase."""
    late = len(phase.receipts) if isinstance(phase, Freezing | Revealing) else 0
    return late, phase.evicted if isinstance(phase, Revealing) else ()


class DamagedEventError(Exception):
    """A stored announcement is lost or damaged."""


@dataclass(frozen=True)
class RoundEnd:
    """A round's end, as its row stores it."""

    final: RoundView
    closing: Closing
    record: ResultRecord | None

    @classmethod
    def read(cls, row: Row[Any]) -> "RoundEnd":
        """Read the row of an ended round. Raises any error if it is damaged."""
        record = ResultRecord.model_validate_json(unsealed(row.record)) if row.record else None
        return cls(read_view(row.id, row.final), read_closing(row.closing), record)

    def columns(self) -> dict[str, Any]:
        """The columns that `read` needs."""
        return {
            "final": sealed(self.final.model_dump_json()),
            "closing": self.closing.to_bytes(),
            "record": sealed(self.record.model_dump_json()) if self.record else None,
            "state": self.final.state,
        }


def read_closing(body: bytes) -> Closing:
    """Parse what closed an attempt. Raises PeerFault if it is damaged."""
    closing = parse(body)
    if not isinstance(closing, Closing):
        raise PeerFault(Cause.STORAGE_DAMAGED, "the row holds another message")
    return closing


def read_view(round_id: str, final: str) -> RoundView:
    """Read an ended round's view. Raises any error if it is damaged."""
    view = RoundView.model_validate_json(unsealed(final))
    check_named(round_id, view.round)
    return view


async def read_survivors(database: Database, context: bytes) -> tuple[Survivor, ...]:
    """Read the certified set of an ended attempt. Raises PeerFault(not-found)."""
    row = await database.row(select(rounds.c.closing).where(rounds.c.id == round_name(context)))
    closing = None if row is None or row.closing is None else parse(row.closing)
    if not isinstance(closing, Certificate) or closing.context != context:
        raise not_found("certified attempt")
    return closing.survivors


async def count_rounds(database: Database, federation: str) -> int:
    """Count the rounds that a federation has opened."""
    count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)
    return int(await database.value(count))


async def begin_round(database: Database, attempt: Attempt, now_s: float, before: int) -> bool:
    """Store a round, if its federation has had exactly `before` rounds and all have ended. Returns whether it did."""
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
    count = select(func.count()).select_from(rounds).where(rounds.c.federation == federation)

    def begin(connection: Connection) -> None:
        # From here on no other can be opened; one may have been, and have ended, until now.
        if not database.add(connection, rounds, row) or connection.execute(count).scalar_one() != before + 1:
            raise _OvertakenError
        database.announce(connection, federation)

    with suppress(_OvertakenError):
        await database.write(begin)
        return True
    return False


class _OvertakenError(Exception):
    """Another process was first, so nothing was stored."""


class Journal:
    """One round's events. No lock is held during computations: a process that was not first is told so, and reads the new events.

    Args:
        database: holds the rows.
        blobs: holds the announcements.
        round_id: of the round.

    Attributes:
        seen: how many events this process has applied. The next event gets this number, so that one whose commit was not
            confirmed is never overwritten or skipped.
    """

    def __init__(self, database: Database, blobs: Blobs, round_id: str) -> None:
        self._database, self._blobs, self._round = database, blobs, round_id
        self._row = select(rounds).where(rounds.c.id == round_id)
        self.seen = 0

    async def append(self, following: Sequence[Event]) -> bool:
        """Store the next events, all or none. Returns False if another process was first: read `unseen`, and decide again.

        After an error, read `unseen` before the next call.
        """
        rows: list[dict[str, Any]] = [
            {
                "round": self._round,
                "number": number,
                "at_s": event.at_s,
                "kind": event.kind,
                "body": event.body,
            }
            for number, event in enumerate(following, self.seen)
        ]
        large = [row for row in rows if row["kind"] == "message" and row["body"][1] == Upload.kind]
        await asyncio.gather(*(in_blob_thread(self._put_aside, row) for row in large))

        def store(connection: Connection) -> None:
            # Ending the round waits for this transaction and then sees its events; or this one sees the end.
            live = connection.execute(_LIVE, {"round": self._round}).scalar_one()
            if not live or len(self._database.add_all(connection, events, rows)) < len(rows):
                raise _OvertakenError
            self._database.announce(connection, self._round)

        with suppress(_OvertakenError):
            await self._database.write(store)
            return True
        return False

    def _put_aside(self, row: dict[str, Any]) -> None:
        digest = hashlib.sha256(row["body"]).digest()
        self._blobs.put(self._name(digest), row["body"])
        row["kind"], row["body"] = ASIDE, digest

    def _name(self, digest: bytes) -> str:
        return f"{FOLDER}/{self._round}/{digest.hex()}"

    def _event(self, at_s: float, kind: str, body: bytes) -> Event:
        if kind == ASIDE:
            kind, body = "message", self._announcement(body)
        return Event(at_s, kind, body, read_message(body) if kind == "message" else None)

    def _announcement(self, digest: bytes) -> bytes:
        with suppress(FileNotFoundError):
            body = self._blobs.get(self._name(digest))
            if hashlib.sha256(body).digest() == digest:
                return body
        raise DamagedEventError(f"round {self._round} has lost the announcement {digest.hex()}")

    async def unseen(self) -> tuple[RoundEnd | None, list[Event]]:
        """Return the round's end, or else None and up to `AT_ONCE` events that this process has not applied.

        Raises:
            DamagedEventError: an announcement is lost or damaged.
        """
        following = (
            select(events.c.at_s, events.c.kind, events.c.body)
            .where(events.c.round == self._round, events.c.number >= self.seen)
            .order_by(events.c.number)
            .limit(AT_ONCE)
        )
        stored, row = await self._database.read(
            lambda connection: (connection.execute(following).all(), connection.execute(self._row).one())
        )
        if row.final is not None:
            return RoundEnd.read(row), []
        try:
            return None, await in_blob_thread(lambda: [self._event(*each) for each in stored])
        except DamagedEventError:
            # Another process may have ended it meanwhile, and deleted what it was made of.
            row = await self._database.row(self._row)
            if row.final is None:
                raise
            return RoundEnd.read(row), []

    def forget(self) -> None:
        """Delete the announcements of a round that has ended."""
        self._blobs.delete(f"{FOLDER}/{self._round}")

    async def is_behind(self) -> bool:
        """Whether another process has stored further events."""
        if not self._database.shared:
            return False
        following = select(events.c.number).where(events.c.round == self._round, events.c.number == self.seen)
        query = select(rounds.c.final.is_(None), following.exists()).where(rounds.c.id == self._round)
        [(live, more)] = await self._database.rows(query)
        return not live or bool(more)

    async def end(self, end: RoundEnd, link: bytes, deed: audit.Deed) -> RoundEnd | None:
        """End the round by the events seen so far, and delete them; None where there are more by now.

        Args:
            end: what its row will hold.
            link: of the federation's chain.
            deed: for the audit log.

        Returns:
            `end`, or the earlier end if the round had ended.
        """
        count = select(func.count()).select_from(events).where(events.c.round == self._round)
        own = update(rounds).where(rounds.c.id == self._round)

        def store(connection: Connection) -> RoundEnd | None:
            row = connection.execute(self._row.with_for_update()).one()
            if row.final is not None:
                return RoundEnd.read(row)
            if connection.execute(count).scalar_one() != self.seen:
                return None
            connection.execute(own.values(end.columns()))
            _append_link(connection, row.federation, link)
            for table in (events, sums):
                connection.execute(delete(table).where(table.c.round == self._round))
            audit.write(connection, self._database, [deed])
            self._database.announce(connection, self._round)
            self._database.announce(connection, row.federation)
            return end

        return await self._database.write(store)

    async def is_cleared(self) -> bool:
        """Whether `clear` was called since the round ended."""
        query = select(rounds.c.cleared).where(rounds.c.id == self._round)
        return bool(await self._database.value(query))

    async def clear(self, deed: audit.Deed, *, ended: bool) -> None:
        """Note that all uploads of a round were deleted; it had `ended` before, or was erasing."""
        own = update(rounds).where(rounds.c.id == self._round)

        def store(connection: Connection) -> None:
            connection.execute(own.values(cleared=ended))
            audit.write(connection, self._database, [deed])

        await self._database.write(store)


def _append_link(connection: Connection, federation: str, link: bytes) -> None:
    """Append to a federation's chain. Only one of its rounds is live, so this is the only writer."""
    count = select(func.count()).select_from(links).where(links.c.federation == federation)
    position = connection.execute(count).scalar_one()
    connection.execute(insert(links).values(federation=federation, position=position, body=link))
