"""Stored state of one honest member: a phase for each cohort, and one history for all cohorts."""

from dataclasses import dataclass, field, replace

from assurance.machines.cast import Mutable
from veilsum.protocol.member import (
    Closed,
    Enrolled,
    EnrolmentPhase,
    History,
    MemberPhase,
    Opened,
    Paired,
    Ready,
    load_phase,
)
from veilsum.protocol.member.attempting import Attempting


@dataclass(frozen=True)
class Stored:
    """A phase, and the secrets that the member ever held, to check that they are deleted.

    Attributes:
        keys: of pairs, by sequence number.
        shares: of all attempts.
        private: of the card.
        encapsulated: under any manifest.
    """

    phase: MemberPhase
    keys: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    shares: frozenset[bytes] = frozenset()
    private: frozenset[bytes] = frozenset()
    encapsulated: frozenset[bytes] = frozenset()


class Disk(Mutable):
    """A member's storage. Keys and places only move forward, and secrets of finished rounds are gone from the stored bytes.

    Attributes:
        member: its id.
        stored: by cohort of the member.
        searched: how often the bytes were searched for secrets.
        roster: number of the newest roster that the member has seen.
    """

    def __init__(self, member: str) -> None:
        self.member, self.searched, self.roster = member, 0, 0
        self.stored: dict[int, Stored] = {}
        self.history = History()

    def enrol(self, cohort: int, phase: MemberPhase) -> None:
        """Enter another cohort, with the member's history."""
        assert isinstance(phase, Enrolled)
        phase = phase.with_history(self.history)
        self.stored[cohort] = _storing(Stored(phase), phase)
        self.roster = max(self.roster, phase.roster.number)

    def phase(self, cohort: int) -> MemberPhase:
        """Return the stored phase."""
        return self.stored[cohort].phase

    def hold(self, cohort: int, phase: MemberPhase) -> None:
        """Store a phase, and share what it learned with the member's other cohorts."""
        known = self.stored[cohort]
        if phase is known.phase:
            return
        if isinstance(phase, EnrolmentPhase):
            assert isinstance(known.phase, EnrolmentPhase), f"{self.member} went back"
        else:
            self._check_place(known, ready_of(phase))
            ready = ready_of(phase)
            if ready.sequence not in known.keys or isinstance(phase, Opened | Ready):
                over = [
                    key for sequence, keys in known.keys.items() if sequence < ready.sequence for key in keys
                ]
                self._check_gone(
                    phase, over + list(known.shares if isinstance(phase, Opened | Ready) else ())
                )
        if isinstance(known.phase, EnrolmentPhase):
            private = () if isinstance(phase, Enrolled | Paired) else known.private
            self._check_gone(phase, [*private, *known.encapsulated])
        self.stored[cohort] = _storing(known, phase)
        if history_of(phase) != self.history:
            self.history = history_of(phase)
            for other, held in self.stored.items():
                if other != cohort:
                    self.stored[other] = replace(held, phase=held.phase.with_history(self.history))

    def _check_place(self, known: Stored, ready: Ready) -> None:
        if isinstance(known.phase, EnrolmentPhase):
            return
        before = ready_of(known.phase)
        assert ready.manifest == before.manifest, f"{self.member} took another manifest"
        assert (ready.sequence, ready.attempt) >= (before.sequence, before.attempt), (
            f"{self.member} went back"
        )

    def restart(self, cohort: int) -> MemberPhase:
        """Load the stored phase, which must be unchanged."""
        before = self.phase(cohort)
        loaded = load_phase(before.to_bytes())
        assert loaded == before, f"{self.member} is restored to another phase"
        self.stored[cohort] = replace(self.stored[cohort], phase=loaded)
        return loaded

    def _check_gone(self, phase: MemberPhase, secrets: list[bytes]) -> None:
        data = phase.to_bytes()
        self.searched += bool(secrets)
        assert not any(secret in data for secret in secrets), (
            f"{self.member} stores a key or share of a round that is over"
        )


def _storing(known: Stored, phase: MemberPhase) -> Stored:
    if isinstance(phase, Enrolled | Paired):
        private = {bytes(phase.keys.x25519), bytes(phase.keys.mlkem_seed)}
        made = _encapsulated(phase) if isinstance(phase, Paired) else set()
        return replace(
            known, phase=phase, private=known.private | private, encapsulated=known.encapsulated | made
        )
    if isinstance(phase, EnrolmentPhase):
        return replace(known, phase=phase)
    ready = ready_of(phase)
    keys = tuple(bytes(pair.key) for pair in (*ready.masks, *ready.boxes))
    shares = known.shares.union(shares_of(phase))
    return replace(known, phase=phase, keys={**known.keys, ready.sequence: keys}, shares=shares)


def _encapsulated(phase: Paired) -> set[bytes]:
    return {bytes(phase.secrets[at : at + 32]) for at in range(0, len(phase.secrets), 32)}


def history_of(phase: MemberPhase) -> History:
    """Return what a phase knows of the federation's attempts."""
    return phase.history if isinstance(phase, EnrolmentPhase) else ready_of(phase).history


def ready_of(phase: MemberPhase) -> Ready:
    """Return the keys inside a phase."""
    ready = phase if isinstance(phase, Ready) else phase.ready  # type: ignore[attr-defined]  # all others hold one
    assert isinstance(ready, Ready)
    return ready


def shares_of(phase: MemberPhase) -> tuple[bytes, ...]:
    """Return all shares that a phase holds."""
    if isinstance(phase, Attempting):
        own = (bytes(phase.own_shares),) if phase.own_shares else ()
        return (*own, *(bytes(dealt.shares) for dealt in phase.vouched_shares()))
    return tuple(bytes(dealt.shares) for dealt in phase.vouched_shares) if isinstance(phase, Closed) else ()
