"""What one honest member has stored: a phase for each cohort, and one history for all of them."""

from dataclasses import dataclass, field, replace

from assurance.machines.cast import Mutable
from veilsum.protocol.member import Closed, History, MemberPhase, Opened, Ready, load_phase
from veilsum.protocol.member.attempting import Attempting


@dataclass(frozen=True)
class Stored:
    """A phase; and, to know what must be gone, every key the member ever held by sequence number, and every share."""

    phase: MemberPhase
    keys: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    shares: frozenset[bytes] = frozenset()


class Disk(Mutable):
    """Keys and places only move forward; what belongs to a round that is over is gone from the stored bytes.

    Attributes:
        member: whose it is.
        stored: by cohort that the member is in.
        searched: how often secrets were looked for in the bytes.
        roster: number of the newest roster that it has seen.
    """

    def __init__(self, member: str) -> None:
        self.member, self.searched, self.roster = member, 0, 0
        self.stored: dict[int, Stored] = {}
        self.history = History()

    def enrol(self, cohort: int, phase: MemberPhase) -> None:
        """Begin another cohort, knowing what the member knows."""
        phase = phase.knowing(self.history)
        self.stored[cohort] = _storing(Stored(phase), phase)
        self.roster = max(self.roster, ready_of(phase).roster.number)

    def phase(self, cohort: int) -> MemberPhase:
        """What is stored."""
        return self.stored[cohort].phase

    def hold(self, cohort: int, phase: MemberPhase) -> None:
        """Store a phase, and what it has learned for the member's other cohorts."""
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
                    self.stored[other] = replace(held, phase=held.phase.knowing(self.history))

    def restart(self, cohort: int) -> MemberPhase:
        """Load what is stored: it is the same."""
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
    """The keys inside a phase."""
    ready = phase if isinstance(phase, Ready) else phase.ready  # type: ignore[attr-defined]  # all others hold one
    assert isinstance(ready, Ready)
    return ready


def shares_of(phase: MemberPhase) -> tuple[bytes, ...]:
    """The shares of everybody's secrets that a phase holds."""
    if isinstance(phase, Attempting):
        own = (bytes(phase.own_shares),) if phase.own_shares else ()
        return (*own, *(bytes(dealt.shares) for dealt in phase.held()))
    return tuple(bytes(dealt.shares) for dealt in phase.held) if isinstance(phase, Closed) else ()
