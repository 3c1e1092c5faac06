"""The numbers of a cohort: members, survivors, colluders, decryptors, threshold (protocol §5)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages.cohort import Manifest

if TYPE_CHECKING:
    from veilsum.protocol.study import Question

HONEST_MIN = 3


def colluding_nominees(nominees: int, colluders: int) -> int:
    """Compute a_D for nominated decryptors: min(a, ⌊(L−1)/3⌋), so that L ≥ 3·a_D + 1 and a_D can't stall the rest.

    Args:
        nominees: number that the roster names, enrolled or not: otherwise leaving out cards would lower a_D.
        colluders: a.

    Raises:
        Misuse: no nominees, or a < 0.
    """
    if nominees < 1 or colluders < 0:
        raise Misuse(f"no a_D for {nominees} nominees and a={colluders}")
    return min(colluders, (nominees - 1) // 3)


@dataclass(frozen=True)
class Quorum:
    """The quorum of a sum for n members, L of them decryptors.

    Attributes:
        members: n.
        decryptors: L.
        colluders: a, members that may collude with the coordinator.
        decryptor_colluders: a_D, colluding decryptors: min(a, L), unless the decryptors were nominated or drawn.
        honest_min: h_min, minimum honest members in a sum; at least 3.
        survivors_min: n_min = max(a + h_min, ⌊(N+a)/2⌋ + 1), N members in the roster: two certified sets of a roster share
            an honest member, which refuses a history that leaves out either.
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
        cls,
        members: int,
        decryptors: int,
        *,
        colluders: int | None = None,
        decryptor_colluders: int | None = None,
        honest_min: int = HONEST_MIN,
        roster: int | None = None,
    ) -> "Quorum":
        """Compute the quorum.

        `colluders` defaults to ⌊n/4⌋, correct if the cohort is the roster; `decryptor_colluders` defaults to min(a, L), correct
        for any decryptors; `roster` is N and defaults to n.

        Raises:
            Misuse: h_min < 3, a < 0, a_D outside 0 … min(a, L), or more decryptors than members.
            PeerFault: cohort-too-small if n < 3, L < 2, n_min > n or t > L, with the numbers.
        """
        a = members // 4 if colluders is None else colluders
        if members < 3:
            raise PeerFault(Cause.COHORT_TOO_SMALL, f"{members} members: a sum needs 3 at least")
        if a < 0 or honest_min < HONEST_MIN or decryptors > members:
            raise Misuse(f"no quorum for n={members}, L={decryptors}, a={a}, h_min={honest_min}")
        a_d = min(a, decryptors) if decryptor_colluders is None else decryptor_colluders
        if not 0 <= a_d <= min(a, decryptors):
            raise Misuse(f"no quorum for L={decryptors}, a={a}, a_D={a_d}")
        survivors_min = max(a + honest_min, ((members if roster is None else roster) + a) // 2 + 1)
        threshold = (decryptors + a_d) // 2 + 1
        if survivors_min > members or threshold > decryptors or decryptors < 2:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"with n={members} members, L={decryptors} decryptors and a={a} colluders a sum needs "
                f"n_min={survivors_min} survivors and t={threshold} decryptors: enrol more members or assume fewer colluders",
            )
        return cls(members, decryptors, a, a_d, honest_min, survivors_min, threshold)

    @classmethod
    def of(cls, manifest: Manifest, question: "Question") -> "Quorum":
        """Read the quorum of a checked manifest and its study's question."""
        return cls(
            len(manifest.members),
            len(manifest.decryptors),
            question.a,
            manifest.decryptor_colluders,
            question.h_min,
            manifest.survivors_min,
            manifest.threshold,
        )

    @property
    def erasures_min(self) -> int:
        """Compute q = L + a_D − t + 1, the reports of "revealed nothing" that make an attempt VOID (protocol §4.9).

        At most a_D of them lie, so at least L − t + 1 honest decryptors never revealed: at most t − 1 may have.
        """
        return self.decryptors + self.decryptor_colluders - self.threshold + 1

    @property
    def members_may_miss(self) -> int:
        """Member dropouts that an attempt tolerates."""
        return self.members - self.survivors_min

    @property
    def decryptors_may_miss(self) -> int:
        """Decryptor dropouts that an attempt tolerates."""
        return self.decryptors - self.threshold

    def caution(self) -> str | None:
        """A warning about a very small cohort or few decryptors; or None."""
        if self.colluders == 0:
            return (
                f"with {self.members} members no collusion is tolerated: one member that colludes with the "
                "coordinator exposes the sum of the others"
            )
        if self.decryptor_colluders < min(self.colluders, self.decryptors):
            return (
                f"{self.colluders} members may collude, but of the {self.decryptors} decryptors only {self.decryptor_colluders}: "
                "one more of these, with the coordinator, reads any member. Nominate more decryptors, or none; of a "
                "committee that was drawn the draw keeps more away"
            )
        if self.members_may_miss == 0:
            return f"with {self.members} members none may be missing: one dropout ends the attempt"
        return None
