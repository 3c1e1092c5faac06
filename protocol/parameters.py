"""The numbers a cohort lives by, computed from its size and never announced (protocol §5)."""

from dataclasses import dataclass

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.messages.cohort import Manifest

HONEST_MIN = 3


@dataclass(frozen=True)
class Quorum:
    """Who must be there for a sum, for n members of whom L are decryptors.

    Attributes:
        members: n.
        decryptors: L.
        colluders: a, members who may collude with the coordinator.
        decryptor_colluders: a_D, decryptors among those.
        honest_min: h_min, honest members a sum must hide among; at least 3.
        survivors_min: n_min = max(a + h_min, ⌊(n+a)/2⌋ + 1): two certified sets of a cohort share an honest member.
        threshold: t = ⌊(L+a_D)/2⌋ + 1, of shares and of signatures: 2t > L + a_D, so that no two outcomes of
            one context can both be certified, nor both secrets of one member recovered.
    """

    members: int
    decryptors: int
    colluders: int
    decryptor_colluders: int
    honest_min: int
    survivors_min: int
    threshold: int

    @classmethod
    def derive(
        cls, members: int, decryptors: int, *, colluders: int | None = None, honest_min: int = HONEST_MIN
    ) -> "Quorum":
        """Compute the quorum; `colluders` defaults to ⌊n/4⌋, right where the cohort is the roster.

        Raises:
            Misuse: h_min < 3, a < 0, or more decryptors than members.
            PeerFault: cohort-too-small where n < 3, L < 2, n_min > n or t > L, with the numbers: who comes is not
                this side's doing.
        """
        a = members // 4 if colluders is None else colluders
        if members < 3:
            raise PeerFault(Cause.COHORT_TOO_SMALL, f"{members} members: a sum needs 3 at least")
        if a < 0 or honest_min < HONEST_MIN or decryptors > members:
            raise Misuse(f"no quorum for n={members}, L={decryptors}, a={a}, h_min={honest_min}")
        a_d = min(a, decryptors)
        survivors_min = max(a + honest_min, (members + a) // 2 + 1)
        threshold = (decryptors + a_d) // 2 + 1
        if survivors_min > members or threshold > decryptors or decryptors < 2:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"with n={members} members, L={decryptors} decryptors and a={a} colluders a sum needs "
                f"n_min={survivors_min} survivors and t={threshold} decryptors: enrol more members or assume fewer colluders",
            )
        return cls(members, decryptors, a, a_d, honest_min, survivors_min, threshold)

    @classmethod
    def of(cls, manifest: Manifest) -> "Quorum":
        """The quorum of a manifest that was checked."""
        return cls.derive(
            len(manifest.cards),
            len(manifest.decryptors),
            colluders=manifest.colluders,
            honest_min=manifest.honest_min,
        )

    @property
    def members_may_miss(self) -> int:
        """How many members an attempt survives without."""
        return self.members - self.survivors_min

    @property
    def decryptors_may_miss(self) -> int:
        """How many decryptors an attempt survives without."""
        return self.decryptors - self.threshold

    def caution(self) -> str | None:
        """What the operator should know about a very small cohort, or None."""
        if self.colluders == 0:
            return (
                f"with {self.members} members no collusion is tolerated: one member who colludes with the "
                "coordinator exposes the sum of the others"
            )
        if self.members_may_miss == 0:
            return f"with {self.members} members nobody may miss: one lost member ends the attempt"
        return None
