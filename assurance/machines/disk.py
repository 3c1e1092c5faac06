"""Stored state of one honest member: a phase for each cohort, and one history for all cohorts."""

from dataclasses import dataclass, field, replace

from assurance.machines.cast import Mutable
from veilsum.protocol.member import Closed, History, MemberPhase, Opened, Ready, load_phase
from veilsum.protocol.member.attempting import Attempting


@dataclass(frozen=True)
class Stored:
    """A phase, with all keys by sequence number and all shares that the member ever held, to check that they are deleted."""

    phase: MemberPhase
    keys: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    shares: frozenset[bytes] = frozenset()


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
        phase = phase.with_history(self.history)
        self.stored[cohort] = _storing(Stored(phase), phase)
        self.roster = max(self.roster, ready_of(phase).roster.number)

    def phase(self, cohort: int) -> MemberPhase:
        """Return the stored phase."""
        return self.stored[cohort].phase

    def hold(self, cohort: int, phase: MemberPhase) -> None:
        """Store a phase, and share what it learned with the member's other cohorts."""
        known = self.stored[cohort]
        if phase is known.phase:
            return
        ready = ready_of(phase)
        before = ready_of(known.phase)
        assert (ready.sequence, ready.attempt) >= (before.sequence, before.attempt), (
            f"{self.member} went back"
        )
        if ready.sequence not in known.keys or isinstance(phase, Opened | Ready):
            over = [key for sequence, keys in known.keys.items() if sequence < ready.sequence for key in keys]
            self._check_gone(phase, over + list(known.shares if isinstance(phase, Opened | Ready) else ()))
        self.stored[cohort] = _storing(known, phase)
        if ready.history != self.history:
            self.history = ready.history
            for other, held in self.stored.items():
                if other != cohort:
                    self.stored[other] = replace(held, phase=held.phase.with_history(self.history))

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
    ready = ready_of(phase)
    keys = tuple(bytes(pair.key) for pair in (*ready.masks, *ready.boxes))
    return Stored(phase, {**known.keys, ready.sequence: keys}, known.shares.union(shares_of(phase)))


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
