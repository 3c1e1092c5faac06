"""Pairing: after the manifest, until every member has sent its ciphertexts (wire: Cohorts)."""

from dataclasses import dataclass, field, replace

from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator.enrolling import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.messages import NO_CONTEXT, Manifest, Pairing
from veilsum.protocol.pairing import MAX_MANIFESTS, check_pairing


@dataclass(frozen=True)
class PairingWindow:
    """The window in which the members of one manifest pair.

    Attributes:
        enrolling: the cards of the manifest's members, and perhaps others.
        number: of the manifest among those of the cohort, from 1.
        signatures: of the pairings received, by member. The driver keeps the ciphertexts (`split_pairing`).
    """

    enrolling: Enrolling
    manifest: Manifest
    number: int = 1
    signatures: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def begin(cls, enrolling: Enrolling) -> "PairingWindow":
        """Make the first manifest, of all cards. Raises PeerFault(cohort-too-small) if there are too few."""
        return cls(enrolling, enrolling.make_manifest())

    @property
    def is_complete(self) -> bool:
        """Whether every member has paired."""
        return len(self.signatures) == len(self.manifest.members)

    @property
    def missing_members(self) -> tuple[str, ...]:
        return tuple(member for member in self.manifest.members if member not in self.signatures)

    def receive(self, pairing: Pairing) -> "PairingWindow":
        """Admit a pairing of this manifest after PAIR-1 to PAIR-5; the same again changes nothing.

        Raises:
            PeerFault: as `check_pairing`; pairing-conflict for another one of the same member.
        """
        check_pairing(self.enrolling.roster, self.manifest, pairing)
        return self.admit_checked(pairing)

    def admit_checked(self, pairing: Pairing) -> "PairingWindow":
        """Admit a pairing that `check_pairing` has passed, as `receive` does."""
        member = pairing.member
        known = self.signatures.get(member)
        if known is None:
            return self.with_signatures({member: pairing.signature})
        if known != pairing.signature:
            raise PeerFault(
                Cause.PAIRING_CONFLICT, f"{member} sent another pairing for this manifest before", [member]
            )
        return self

    def with_signatures(self, signatures: dict[str, bytes]) -> "PairingWindow":
        """Add pairings that have already been checked."""
        return replace(self, signatures=self.signatures | signatures)

    def leave_out_missing(self) -> "PairingWindow":
        """Make the next manifest, without the members that have not paired.

        Raises:
            PeerFault: cohort-too-small if too few are left, if this was the last manifest, or in a cohort with `repeats`.
        """
        if self.enrolling.repeats != NO_CONTEXT:
            raise self._too_small_fault("a repeated run needs every member")
        if self.number >= MAX_MANIFESTS:
            raise self._too_small_fault(f"{MAX_MANIFESTS} manifests were tried")
        left = self.enrolling.of_members(self.signatures)
        try:
            return PairingWindow(left, left.make_manifest(), self.number + 1)
        except PeerFault as fault:
            raise self._too_small_fault(fault.detail) from fault

    def _too_small_fault(self, why: str) -> PeerFault:
        missing = self.missing_members
        said = f"{count_noun(len(missing), 'member')} enrolled and did not pair in time, and {why}"
        return PeerFault(Cause.COHORT_TOO_SMALL, said, missing)
