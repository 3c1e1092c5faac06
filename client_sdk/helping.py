"""A mask helper's part, for as long as it runs: cards, openings, receipts, votes, sums, attempt after attempt.

    serve ──▶ an attempt under way? ──▶ until it ends for this helper
                 ▲                          │ sums into the spool, seeds erased, sent
                 └── roster, ends missed, the next card ◀──┘

Each phase is on disk before any message that it speaks leaves, so the flow may end at any effect: the next one on the same
folder sends the same bytes again. What the coordinator asks wrongly is refused and reported, and ends nothing: a helper is
always there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from client_sdk.effects import Flow, Pause, compute
from client_sdk.errors import PeerFault, UnexpectedAnswer
from client_sdk.progress import Progress, Step
from client_sdk.session import POLL_MIN_S, Session
from client_sdk.spool import Spool
from client_sdk.upload import send_missing
from protocol.causes import Cause
from protocol.helpers.attempt import clients_of
from protocol.helpers.helper import Enrolled, HelperPhase, Standing, SumChunk, Summing
from protocol.helpers.helper.attempting import Attempting
from protocol.helpers.messages import (
    HelperCertificate,
    HelperLost,
    HelperOpening,
    HelperSums,
    parse_shown,
)
from protocol.messages import Message
from protocol.rest import HelpersView, round_name

PAUSE_S = 10.0
"""After an answer of the coordinator that breaks a rule."""

_FATAL = frozenset(
    {
        Cause.WRONG_FEDERATION,
        Cause.BAD_SIGNATURE,
        Cause.ROSTER_ROLLBACK,
        Cause.NOT_A_DECRYPTOR,
        Cause.WEAK_PARAMETERS,
    }
)
"""What only the admin can mend, where it is the roster that is refused."""


class NoRoster(PeerFault):
    """The roster shown is another's, an older one, or does not name this helper: nothing else ends a helper."""


def serve(session: Session, attempts: int | None = None) -> Flow[int]:
    """Serve a federation's rounds with helpers.

    Args:
        session: the helper.
        attempts: return once so many more have ended for this helper; None for ever.

    Returns:
        How many attempts have ended, all in all.

    Raises:
        PeerFault: the roster is not the admin's, or does not name this helper; other faults are reported, and asked again.
        ClientError: state damaged, or coordinator unreachable.
    """
    roster = yield from session.roster()
    phase = session.store.helper()
    if phase is None:
        phase = Standing.start(session.member, session.policy.federation, roster)
        session.store.hold_helper(phase)
    duty = Duty(session, phase)
    until = None if attempts is None else duty.ended + attempts
    while until is None or duty.ended < until or isinstance(duty.phase, Summing):
        try:
            yield from duty.step()
        except NoRoster:
            raise
        except (PeerFault, UnexpectedAnswer) as fault:
            session.report(
                Progress(Step.WAITING, detail=f"the coordinator is wrong, and asked again: {fault}")
            )
            yield Pause(PAUSE_S)
    yield from duty.resend()
    return duty.ended


@dataclass
class Duty:
    """One helper at work.

    Attributes:
        phase: as it is stored.
    """

    session: Session
    phase: HelperPhase

    @property
    def standing(self) -> Standing:
        """What it knows of earlier attempts."""
        standing = getattr(self.phase, "standing", self.phase)
        assert isinstance(standing, Standing)
        return standing

    @property
    def ended(self) -> int:
        """Attempts that have ended for it."""
        return len(self.standing.history)

    def step(self) -> Flow[None]:
        """Go on with the attempt under way; else send the next card, and wait for an opening."""
        self._lapse()
        if isinstance(self.phase, Summing):
            yield from self._add_up()
        yield from self.resend()
        if isinstance(self.phase, Attempting):
            yield from self._attend(round_name(self.phase.attempt.context))
            return
        view = yield from self._enrol()
        if view.round is not None and isinstance(self.phase, Enrolled) and view.counter == self.ended:
            yield from self._attend(view.round)

    # Between attempts

    def _enrol(self) -> Flow[HelpersView]:
        """Hear of the ends that were missed, have a card in, and return when an attempt runs, or something else is to be done."""
        session = self.session
        yield from self._follow()
        view = yield from session.coordinator.helpers(session.policy.federation)
        while self.ended < view.counter:
            position = self.ended
            closing = yield from session.coordinator.helper_closing(session.policy.federation, position)
            self._receive(closing)
            if self.ended == position:
                raise PeerFault(
                    Cause.CHAIN_BROKEN,
                    f"the end shown for attempt {position} is an earlier one's",
                    ["coordinator"],
                )
            self._tell(f"attempt {position} has ended: {closing.ended.reason}")
        if view.counter == self.ended and view.round is None:
            view = yield from self._carded()
        if view.round is None or not isinstance(self.phase, Enrolled) or view.counter != self.ended:
            yield from self._changed(view)
        return view

    def _follow(self) -> Flow[None]:
        """Go on under the newest roster; what any other answer is refused for, by whatever name, is asked again."""
        try:
            roster = yield from self.session.roster()
            if roster.hash != self.standing.roster.hash:
                self._hold(self.standing.trust(roster))
        except PeerFault as fault:
            if fault.cause not in _FATAL:
                raise
            raise NoRoster(fault.cause, fault.detail, fault.parties) from fault

    def _carded(self) -> Flow[HelpersView]:
        session = self.session
        if isinstance(self.phase, Standing):
            expires_s = int(session.surroundings.now_s() + session.policy.card_lifetime_s)
            following, _ = self.phase.enrol(
                session.key, expires_s=expires_s, random_bytes=session.surroundings.random_bytes
            )
            self._hold(following)
        assert isinstance(self.phase, Enrolled)
        try:
            view = yield from session.coordinator.send_helper_card(session.policy.federation, self.phase.card)
        except PeerFault as fault:
            if fault.cause not in {Cause.WRONG_PHASE, Cause.WRONG_COHORT}:
                raise
            # An attempt has opened meanwhile, or the admin has signed another roster.
            return (yield from session.coordinator.helpers(session.policy.federation))
        self._tell(f"card for attempt {self.ended} is in", done=len(view.cards), total=len(view.helpers))
        return view

    def _changed(self, view: HelpersView) -> Flow[None]:
        asked_s = self.session.surroundings.monotonic_s()
        after = yield from self.session.coordinator.helpers(self.session.policy.federation, view.version)
        if after.version == view.version:
            yield from self.session.unhurried(asked_s)

    # In an attempt

    def _attend(self, round_id: str) -> Flow[None]:
        """Answer what is asked until the attempt has ended for this helper."""
        session, before = self.session, self.ended
        after: int | None = None
        last: Message | None = None
        while self.ended == before:
            self._lapse()
            asked_s, seen = session.surroundings.monotonic_s(), after
            roster = self.phase.attempt.roster if isinstance(self.phase, Attempting) else self.standing.roster
            read = partial(parse_shown, clients=len(clients_of(roster)))
            message, after = yield from session.coordinator.request(round_id, session.member, after, read)
            if message is not None and message != last:
                yield from self._answer(round_id, message)
            elif after == seen:
                yield from session.unhurried(asked_s)
            else:
                # A round changes with every chunk of every client: a helper need not look at each.
                yield Pause(POLL_MIN_S)
            last = message
            if isinstance(self.phase, Standing | Enrolled) and self.ended == before:
                view = yield from session.round(round_id)
                if view.ended:
                    return

    def _answer(self, round_id: str, message: Message) -> Flow[None]:
        try:
            if isinstance(self.phase, Enrolled) and not isinstance(
                message, HelperOpening | HelperCertificate | HelperLost
            ):
                # It comes late: its card was not sealed to by those who spoke before, but it can still help to end the attempt.
                self._receive((yield from self.session.coordinator.helper_opening(round_id)))
            replies = self._receive(message)
        except PeerFault as fault:
            self._tell(f"refused a {type(message).__name__}: {fault}")
            yield Pause(POLL_MIN_S)
            return
        if isinstance(self.phase, Summing):
            yield from self._add_up()
        for reply in replies:
            if not isinstance(reply, HelperSums):
                yield from self._send(round_id, reply)
        yield from self.resend()

    def _send(self, round_id: str, reply: Message) -> Flow[None]:
        try:
            yield from self.session.coordinator.answer(round_id, reply)
        except PeerFault as fault:
            # The phase ended while the answer was on its way, or the coordinator is wrong: its word ends nothing here.
            self._tell(f"a {type(reply).__name__} was not taken: {fault}")
        else:
            self._tell(f"sent a {type(reply).__name__}")

    # Sums

    def _add_up(self) -> Flow[None]:
        """Add up into the spool; then the seeds are erased, and only then anything is said."""
        assert isinstance(self.phase, Summing)
        phase, spool = self.phase, self._spool
        spool.begin()
        adding, chunks = phase.adding(), phase.attempt.chunks
        places = {seed: place for place, seed in enumerate(phase.attempt.seeds_of(self.session.member))}
        sums_of = iter(adding.chunks())
        total, done = chunks * len(places), 0
        while (yield from compute(partial(_next, sums_of, spool, places, chunks))):
            done += 1
            self.session.report(Progress(Step.MASKING, phase="summing", done=done, total=total))
        spool.seal()
        following, _ = phase.summed(adding.finish(self.session.key))
        self._hold(following)

    def resend(self) -> Flow[None]:
        """Announce the sums of the last attempt and send the chunks that are missing; then forget them."""
        if not (isinstance(self.phase, Standing) and self.phase.sums and self._spool.exists):
            return
        [sums] = self.phase.sums
        session, spool, round_id = self.session, self._spool, round_name(sums.context)
        digests = [digest for of_seed in sums.digests for digest in of_seed]
        try:
            view = yield from session.coordinator.announce_sums(round_id, sums)
            yield from send_missing(session, round_id, spool, digests, view)
        except PeerFault as fault:
            if fault.cause not in {Cause.WRONG_PHASE, Cause.NOT_FOUND}:
                self._tell(f"the sums were not taken: {fault}")
                return
            # Two others' sums were enough, or the round is over.
            self._tell(f"the sums are not needed any more: {fault}")
        else:
            self._tell("sent the sums")
        spool.clear()

    @property
    def _spool(self) -> Spool:
        return self.session.store.sums_spool()

    # State

    def _receive(self, message: Message) -> tuple[Message, ...]:
        following, replies = self.phase.receive(message, self.session.key, self.session.surroundings.now_s())
        self._hold(following)
        return replies

    def _hold(self, phase: HelperPhase) -> None:
        if phase is not self.phase:
            self.session.store.hold_helper(phase)
            self.phase = phase

    def _lapse(self) -> None:
        self._hold(self.phase.lapse(self.session.surroundings.now_s()))

    def _tell(self, detail: str, done: int = 0, total: int = 0) -> None:
        self.session.report(Progress(Step.ANSWERING, done=done, total=total, detail=detail))


def _next(sums: Iterator[SumChunk], spool: Spool, places: dict[int, int], chunks: int) -> bool:
    """Keep the next chunk of the sums; whether there was one."""
    chunk = next(sums, None)
    if chunk is not None:
        spool.write(places[chunk.seed] * chunks + chunk.index, chunk.packed)
    return chunk is not None
