"""The numbers a cohort lives by, computed from its size and never announced (protocol §5)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.messages.cohort import Manifest

if TYPE_CHECKING:
    from protocol.study import Question

HONEST_MIN = 3


def colluding_nominees(nominees: int, colluders: int) -> int:
    """a_D where the admin nominates: ⌊(L−1)/3⌋, so that L ≥ 3·a_D + 1 and that many can't stall the rest, at most a.

    Args:
        nominees: how many the roster names, whoever of them came: else leaving out cards would lower it.
        colluders: a.

    Raises:
        Misuse: nobody is nominated, or a < 0.
    """
    if nominees < 1 or colluders < 0:
        raise Misuse(f"no a_D for {nominees} nominees and a={colluders}")
    return min(colluders, (nominees - 1) // 3)


@dataclass(frozen=True)
class Quorum:
    """Who must be there for a sum, for n members of whom L are decryptors.

    Attributes:
        members: n.
        decryptors: L.
        colluders: a, members who may collude with the coordinator.
        decryptor_colluders: a_D, decryptors among those: min(a, L), unless the decryptors were nominated or drawn.
        honest_min: h_min, honest members a sum must hide among; at least 3.
        survivors_min: n_min = max(a + h_min, ⌊(N+a)/2⌋ + 1), N members in the roster: two certified sets of a roster share
            an honest member, who refuses a history that leaves out either.
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

        `colluders` defaults to ⌊n/4⌋, right where the cohort is the roster, and `decryptor_colluders` to min(a, L), right
        whoever the decryptors are; `roster` is N, by default the cohort is the roster.

        Raises:
            Misuse: h_min < 3, a < 0, a_D outside 0 … min(a, L), or more decryptors than members.
            PeerFault: cohort-too-small where n < 3, L < 2, n_min > n or t > L, with the numbers: who comes is not
                this side's doing.
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
        """The quorum of a manifest that was checked, under its study's question."""
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
        """Compute q = L + a_D − t + 1: the reports of decryptors that revealed nothing which make an attempt VOID (protocol §4.9).

        At most a_D of them lie, so at least L − t + 1 honest decryptors never revealed: at most t − 1 may have.
        """
        return self.decryptors + self.decryptor_colluders - self.threshold + 1

    @property
    def members_may_miss(self) -> int:
        """How many members an attempt survives without."""
        return self.members - self.survivors_min

    @property
    def decryptors_may_miss(self) -> int:
        """How many decryptors an attempt survives without."""
        return self.decryptors - self.threshold

    def caution(self) -> str | None:
        """What operator and members should know about a very small cohort, or one with few decryptors; or None."""
        if self.colluders == 0:
            return (
                f"with {self.members} members no collusion is tolerated: one member who colludes with the "
                "coordinator exposes the sum of the others"
            )
        if self.decryptor_colluders < min(self.colluders, self.decryptors):
            return (
                f"{self.colluders} members may collude, but of the {self.decryptors} decryptors only {self.decryptor_colluders}: "
                "one more of these, with the coordinator, reads any member. Nominate more decryptors, or none; of a "
                "committee that was drawn the draw keeps more away"
            )
        if self.members_may_miss == 0:
            return f"with {self.members} members nobody may miss: one lost member ends the attempt"
        return None
