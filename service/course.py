"""A round's course: its accepted events, in order, are all there is; phase and transcript are their folds.

Every change runs through `_submit`: the next phase is computed, the event is committed, and only then
does the round move and anybody hear of it; where another process was first, its events are taken up and all is
decided again. What comes while one commit is under way goes into the next one, together. A restart replays the events. When a round ends, what is
left is its outcome and the signed transcript (protocol §4.8).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import structlog
from sqlalchemy import Row

from protocol.errors import PeerFault
from protocol.published import ResultRecord
from protocol.rest import Problem, RoundView, round_name
from protocol.transcript import Transcript
from service import audit
from service.batches import Batches
from service.journal import End, Event, Journal
from service.modes import AnyClosing, Mode, Phase
from service.problems import problem_of, wrong_phase
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.telemetry.logs import LOGGER
from service.telemetry.metrics import ROUNDS_ENDED
from service.views import Shown, Timeline, round_view
from service.watch import Watch

log = structlog.get_logger(LOGGER)


@dataclass(frozen=True)
class Outcome:
    """A finished sum: what is published, and the sum itself, which only the operator may read.

    Attributes:
        record: None for an indicator round.
        holders: of an indicator round, how many members hold each class.
    """

    record: ResultRecord | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    holders: tuple[int, ...] = ()


NOTHING = Outcome()
REPLAYED = 64
"""Stored events that are folded at once: each of them holds a transcript until all are taken up."""
Decision = Callable[[Phase | None], Event | None]
"""What somebody wants: the event that follows on a phase, if there is one; PeerFault where there can be none."""


@dataclass(frozen=True)
class Step:
    """An event, and where it leads."""

    event: Event
    after: Phase
    noted: Transcript | None


class Course:
    """One attempt of a round, live or ended, as its events have it.

    Attributes:
        mode: what the attempt is, and what its messages and phases mean.
        opened_s: Unix time in seconds.
        phase: None once the round has ended: it holds seeds.
        version: grows with every change.
        asked: the version since which nobody is asked anything new.
        final: the view that stays; None while the round is live.
        closing: the certificate or the admin's Lost, for members who still have to hear of the end.
        record: the signed result.
        noted: the transcript so far; None once it is kept, and where the mode keeps none.
        not_before_s: no deadline passes before this Unix time.
        littered: nothing can come of its chunks and ranges any more, and they may still lie in storage.
    """

    phase: Phase | None
    final: RoundView | None = None
    closing: AnyClosing | None = None
    record: ResultRecord | None = None
    not_before_s = 0.0

    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        wake: Callable[[], None],
        mode: Mode,
        opened_s: float,
        ended: Row[tuple[object, ...]] | None = None,
    ) -> None:
        self.id, self.mode, self.version = round_name(mode.attempt.context), mode, 1
        self.opened_s = opened_s
        self.noted = mode.noted
        self.asked = self.version
        self.watch = Watch(lambda: self.version, lambda: self.asked)
        self._database, self._blobs, self._wake = database, blobs, wake
        self._journal = Journal(database, self.id)
        self._lock = asyncio.Lock()
        self._batches = Batches(self._go_on)
        self.phase = mode.begin(opened_s) if ended is None else None
        self._timeline: Timeline = ((self.phase.name, opened_s),) if self.phase is not None else ()
        self._behind = False
        """Storage may hold events that this object has not taken up: what it holds decides."""
        self._ending = False
        """This object may have ended the round, whatever it was told of the commit."""
        self._shown: Shown | None = None
        self.littered = False
        if ended is not None:
            self.restore(ended, littered=False)

    # Coming back from storage

    async def resume(self, not_before_s: float) -> Self:
        """Take up where the stored events lead; deadlines that passed meanwhile wait a little for members."""
        self.not_before_s, self._behind = not_before_s, True
        await self._catch_up()
        return self

    def restore(self, row: Row[tuple[object, ...]], *, littered: bool) -> Self:
        """Take up how the round ended."""
        self.final = RoundView.model_validate_json(row.final)
        self.closing = self.mode.closing_from(row.closing)
        self.record = ResultRecord.model_validate_json(row.record) if row.record else None
        self.phase, self.version, self.littered = None, self.final.version, littered
        self.asked = self.version
        self.noted = self.mode.noted = None
        return self

    async def refresh(self) -> None:
        """Take up what other processes have stored."""
        if self.final is None and await self._journal.is_behind():
            async with self._lock:
                self._behind = True
                await self._catch_up()

    async def _catch_up(self) -> None:
        if self._behind and self.final is None:
            ended, unseen = await self._journal.unseen()
            for start in range(0, len(unseen), REPLAYED):
                for step in await asyncio.to_thread(self._replayed, unseen[start : start + REPLAYED]):
                    self._moved(step.after, step.noted, step.event.at_s)
            if ended is not None:
                # Whoever ended it clears up after it, or the hourly sweep where that one died.
                self.restore(ended, littered=self._ending)
            self._behind = False
            self._changed()

    def _replayed(self, unseen: Sequence[Event]) -> list[Step]:
        """Where stored events lead, each of which was accepted once."""
        phase, noted, steps = self.live, self.noted, list[Step]()
        for event in unseen:
            after = event.apply(phase, self.mode)
            noted = event.note(noted, phase, after)
            steps.append(Step(event, after, noted))
            phase = after
        return steps

    # What it is

    @property
    def live(self) -> Phase:
        """The phase of a round that has not ended; PeerFault(wrong-phase) otherwise."""
        return self._running(self.phase)

    def _running(self, phase: Phase | None) -> Phase:
        if phase is None:
            raise wrong_phase(f"the round is {self.view().state}")
        return phase

    @property
    def deadline_s(self) -> float | None:
        """When the phase's time is up, in Unix time."""
        return self._deadline_s(self.phase)

    def _deadline_s(self, phase: Phase | None) -> float | None:
        if phase is None or phase.deadline_s is None:
            return None
        return max(phase.deadline_s, self.not_before_s)

    def view(self) -> RoundView:
        """The round as it stands."""
        return self.shown.view

    @property
    def shown(self) -> Shown:
        """The view and its bytes, made once for each version."""
        version, shown = self.version, self._shown
        if shown is None or shown.version != version:
            fault = getattr(self.phase, "fault", None)
            view = self.final or self._view(None, problem_of(fault) if fault else None, self._timeline)
            shown = self._shown = Shown(version, view)
        return shown

    def _view(
        self,
        end: str | None,
        fault: Problem | None,
        timeline: Timeline,
        head: bytes | None = None,
        holders: tuple[int, ...] = (),
    ) -> RoundView:
        return round_view(
            self.id,
            self.mode,
            self.live,
            state=end or self.mode.state(self.live),
            ended=end is not None,
            version=self.version + (end is not None),
            deadline_s=None if end else self.deadline_s,
            fault=fault,
            timeline=timeline,
            transcript=head,
            holders=holders,
        )

    # Going on

    @property
    def _settled(self) -> PeerFault | None:
        """Why the phase ends the round without a sum to compute; None where it does not."""
        return self.mode.fault(self.phase) if self.phase is not None else None

    async def _finish(
        self, state: str, fault: Problem | None, now_s: float, outcome: Outcome = NOTHING
    ) -> None:
        async with self._lock:
            while self.final is None and not await self._finalise(state, fault, now_s, outcome):
                await self._catch_up()

    async def _submit(self, decide: Decision) -> None:
        """Decide, fold and append, together with what others want at the same time; PeerFault where the rules forbid it."""
        if (fault := await self._batches.put(decide)) is not None:
            raise fault

    async def _go_on(self, decisions: Sequence[Decision]) -> list[Exception | None]:
        """Why each is refused, or None; where another process was first, all that was not kept is decided again."""
        faults: list[Exception | None] = []
        async with self._lock:
            while len(faults) < len(decisions):
                await self._catch_up()
                found, steps = await asyncio.to_thread(self._folded, decisions[len(faults) :])
                if not steps or await self._keep(steps):
                    faults += found
        return faults

    def _folded(self, decisions: Sequence[Decision]) -> tuple[list[Exception | None], list[Step]]:
        """The next events, up to one that leads to another phase, and what came of as many decisions."""
        phase, noted = self.phase, self.noted
        faults, steps = list[Exception | None](), list[Step]()
        for decide in decisions:
            event, after, fault = self._decided(decide, phase, noted)
            faults.append(fault)
            if event is None or phase is None or after is None:
                continue
            noted = event.note(noted, phase, after)
            steps.append(Step(event, after, noted))
            if after.name != phase.name:
                break
            phase = after
        return faults, steps

    def _decided(
        self, decide: Decision, phase: Phase | None, noted: Transcript | None
    ) -> tuple[Event | None, Phase | None, Exception | None]:
        """An event to keep, if there is one; the phase after it; and why what was wanted is refused."""
        event = None
        try:
            event = decide(phase)
            after = phase if event is None else event.apply(self._running(phase), self.mode)
        except PeerFault as fault:
            return event.refused(noted, fault) if event is not None else None, phase, fault
        except Exception as error:  # noqa: BLE001 - a defect that one message finds is not for the others to suffer
            return None, phase, error
        return (None if after is phase else event), after, None

    async def _keep(self, steps: Sequence[Step]) -> bool:
        self._behind = True  # until storage has said that it holds the events, and nothing before them
        try:
            if not await self._journal.append([step.event for step in steps]):
                return False
            for step in steps:
                self._moved(step.after, step.noted, step.event.at_s)
            self._behind = False
            await self._settle(steps[-1].event.at_s)
            return True
        finally:
            self._changed()  # also where storage failed: the keeper looks again

    async def _settle(self, now_s: float) -> None:
        """End a round whose phase has no sum to compute."""
        if (fault := self._settled) is not None:
            await self._finalise(self.live.name, problem_of(fault), now_s)

    async def _finalise(
        self, state: str, fault: Problem | None, now_s: float, outcome: Outcome = NOTHING
    ) -> bool:
        """Keep the end; False where there are events to take up before."""
        closing = self.mode.closing_of(self.live)
        signed = await asyncio.to_thread(self.mode.signed, self.noted) if self.noted else None
        timeline, head = _extended(self._timeline, state, now_s), signed.head if signed else None
        final = self._view(state, fault, timeline, head, outcome.holders)

        def keep() -> None:
            # While the events stand from which a crash would have all of it made again.
            if signed is not None:
                self._blobs.put(self._transcript_name(signed.head.hex()), signed.to_json().encode())
            for name, data in outcome.documents.items():
                self._blobs.put(self._document_name(name, outcome.record), data)

        deed = self._deed(now_s, "round ended", state)
        end = End(final, closing.to_bytes(), outcome.record, self.mode.link(closing), deed)
        # Until storage has said that it holds the end, and nothing before it.
        self._behind = self._ending = True
        ended = await self._journal.end(end, keep)
        if ended is None:
            return False
        row, now = ended
        if now:
            ROUNDS_ENDED.labels(state).inc()
            cause = fault.cause if fault else None
            log.info("round ended", round=self.id, state=state, cause=cause, of=len(final.survivors))
        self.restore(row, littered=True)
        self._behind = False
        self._changed()
        return True

    # By what was signed: whoever stood still while it ended the round, and puts its own later, replaces nobody else's.

    def _transcript_name(self, head: str) -> str:
        return f"transcripts/{self.id}/{head[:16]}"

    def _document_name(self, name: str, record: ResultRecord | None) -> str:
        return f"results/{self.id}/{_mark(record)}{name}"

    def _clear_results(self) -> None:
        """Remove what others have put who did not come to end the round; all of it where it has no result."""
        assert self.final is not None
        if self.final.state != "done":
            self._blobs.delete(f"results/{self.id}")
        for folder, kept in (
            ("results", _mark(self.record)),
            ("transcripts", (self.final.transcript or "")[:16]),
        ):
            for name in self._blobs.names(f"{folder}/{self.id}"):
                if not name.startswith(kept):
                    self._blobs.delete(f"{folder}/{self.id}/{name}")

    def _deed(self, now_s: float, what: str, outcome: str = audit.DONE) -> audit.Deed:
        return audit.Deed(now_s, audit.COORDINATOR, what, f"round_id={self.id}", outcome)

    def _moved(self, after: Phase, noted: Transcript | None, at_s: float) -> None:
        anew = self.mode.asks_anew(self.live, after)
        self.phase, self.noted = after, noted
        self._journal.seen += 1
        self._timeline = _extended(self._timeline, after.name, at_s)
        self.littered = self.littered or self.mode.waits_for_admin(after)
        self.version += 1  # last: a thread may ask for the view, which is kept under its version
        self.asked = self.version if anew else self.asked

    def _changed(self) -> None:
        self.watch.notify()
        self._wake()


def _mark(record: ResultRecord | None) -> str:
    """Before the names of a record's documents; an indicator round has none, and its documents are whole numbers."""
    return f"{record.signature[:16]}-" if record is not None else ""


def _extended(timeline: Timeline, state: str, at_s: float) -> Timeline:
    return timeline if timeline[-1][0] == state else (*timeline, (state, at_s))
