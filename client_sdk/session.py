"""What every flow of one member works with."""

from dataclasses import dataclass
from pathlib import Path

from client_sdk.api import Coordinator
from client_sdk.effects import Flow, Pause
from client_sdk.errors import Misuse, PeerFault, StateError
from client_sdk.files import ANEW
from client_sdk.policy import Policy
from client_sdk.progress import Reporter
from client_sdk.result import Result
from client_sdk.store import Store
from client_sdk.surroundings import Surroundings
from protocol.causes import Cause
from protocol.identity import SigningKey
from protocol.member import Closed, MemberPhase, Ready
from protocol.member.attempting import Attempting
from protocol.messages import Message, Roster
from protocol.rest import RoundView

POLL_MIN_S = 1.0
"""Between two polls that bring no news."""

ENDINGS = frozenset({"done", "failed", "voided", "erased", "lost"})
"""The states of a round that has ended; "erasing" waits for reports."""


@dataclass(frozen=True, repr=False)
class Session:
    """One member's key, state, limits and way to the coordinator.

    Attributes:
        given: the roster that the caller passed; None to ask the coordinator each time.
        lanes: chunks in flight.
        transcripts: fetch a round's transcript however large its cohort is.
    """

    member: str
    key: SigningKey
    store: Store
    policy: Policy
    coordinator: Coordinator
    report: Reporter
    surroundings: Surroundings
    given: Roster | None
    lanes: int
    transcripts: bool

    def roster(self) -> Flow[Roster]:
        """The roster in force, checked against the pinned admin key and the versions seen.

        Raises:
            PeerFault: wrong-federation, bad-signature or roster-rollback.
        """
        roster = self.given
        if roster is None:
            roster = yield from self.coordinator.roster(self.policy.federation)
        self.policy.check_roster(roster)
        self.store.see_roster(roster)
        return roster

    def hold(self, cohort: bytes, before: MemberPhase, phase: MemberPhase, round_id: str) -> None:
        """Store a phase, and first what it has learned since the one before it."""
        if (learned := ready_of(phase).history) != (since := ready_of(before).history):
            self.store.remember(learned, since)
        self.store.hold(cohort, phase, round_id)

    def unhurried(self, since_s: float) -> Flow[None]:
        """Pause where a long poll came back at once and without news: not every proxy lets one wait."""
        if self.surroundings.monotonic_s() - since_s < POLL_MIN_S:
            yield Pause(POLL_MIN_S)

    def verified(self, folder: Path) -> Result:
        """Load a result that was verified before it was saved: where it does not hold any more, that is nobody else's fault.

        Raises:
            StateError: one of its files is damaged, or was changed since.
            PeerFault: wrong-federation where another admin's key is pinned now.
        """
        try:
            result = Result.load(folder)
            result.verify(self.policy.federation)
        except PeerFault as fault:
            if fault.cause is Cause.WRONG_FEDERATION:
                raise
            raise StateError(
                f"{folder} does not hold the result any more that this member verified ({fault.detail}): {ANEW}"
            ) from fault
        return result

    def check_current(self, roster: Roster) -> None:
        """Refuse to begin anything under an older roster than one already seen (roster-rollback; protocol §4.3, clause 8)."""
        seen = self.store.roster()
        if seen is not None and roster.version_number < seen.version_number:
            raise PeerFault(
                Cause.ROSTER_ROLLBACK,
                f"this cohort was formed under roster version {roster.version_number}, version "
                f"{seen.version_number} is in force: enrol in a new cohort",
            )

    def round(self, round_id: str, after: int | None = None) -> Flow[RoundView]:
        """A round as the coordinator shows it, with `after` once it has changed; a view is a guide, never a proof.

        Raises:
            PeerFault: another round, or an end that is none (malformed); another federation's (wrong-federation).
        """
        return self._checked((yield from self.coordinator.round(round_id, after)), round_id)

    def answer(self, round_id: str, reply: Message) -> Flow[RoundView]:
        """Answer what was asked; the round as it is then, or as it went on without the answer (Raises as `round`)."""
        try:
            return self._checked((yield from self.coordinator.answer(round_id, reply)), round_id)
        except PeerFault as fault:
            if fault.cause is not Cause.WRONG_PHASE:
                raise
        return (yield from self.round(round_id))

    def _checked(self, view: RoundView, round_id: str) -> RoundView:
        """A view that is one of the round; raises as `round`."""
        if view.round != round_id:
            raise PeerFault(
                Cause.MALFORMED, f"asked for round {round_id}, shown {view.round}", ["coordinator"]
            )
        if view.ended != (view.state in ENDINGS):
            raise PeerFault(
                Cause.MALFORMED, f"round {round_id} is {view.state}, and ended: {view.ended}", ["coordinator"]
            )
        if view.federation != self.policy.federation.hex():
            raise PeerFault(Cause.WRONG_FEDERATION, f"round {round_id} belongs to {view.federation}")
        return view


def ready_of(phase: MemberPhase) -> Ready:
    """The keys and history inside a phase; Misuse before the manifest."""
    if isinstance(phase, Ready):
        return phase
    if isinstance(phase, Attempting | Closed):
        return phase.ready
    raise Misuse("an enrolling member has no cohort yet")
