"""M3: with the certificate shown, decryptors reveal shares and the seeds are rebuilt (protocol §4.7)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.coordinator.base import CoordinatorPhase, Setting, added, cancelled
from protocol.coordinator.ended import Lost, Recovered
from protocol.errors import PeerFault
from protocol.keys import Pair
from protocol.messages import (
    COMMITMENT_BYTES,
    SHARE_BYTES,
    Certificate,
    Message,
    Receipt,
    Refusal,
    Reveal,
    Upload,
    Vote,
    edge_commitment,
    self_commitment,
    share_commitments,
)
from protocol.shamir import ShareError, recover_secrets


@dataclass(frozen=True)
class Due:
    """One secret that the certified set needs: the dealer's b_u (index 0) or its r_uw."""

    dealer: str
    index: int
    lost: str | None

    def commitment(self, attempt: Attempt, seed: bytes) -> bytes:
        """What the dealer must have committed to if `seed` is its secret."""
        if self.lost is None:
            return self_commitment(attempt.context, self.dealer, seed)
        pair = Pair.of(self.dealer, self.lost)
        return edge_commitment(attempt.context, pair.low, pair.high, seed)


def due_secrets(attempt: Attempt, survivors: tuple[str, ...]) -> tuple[Due, ...]:
    """The secrets in the order in which a reveal carries their shares."""
    inside = set(survivors)
    return tuple(
        due
        for dealer in survivors
        for due in (
            Due(dealer, 0, None),
            *(
                Due(dealer, 1 + place, other)
                for place, other in enumerate(attempt.neighbours(dealer))
                if other not in inside
            ),
        )
    )


@dataclass(frozen=True, repr=False)
class Revealing(CoordinatorPhase):
    """Waits for a threshold of reveals.

    Attributes:
        certificate: the certified survivors.
        uploads: their announcements, whose commitments every share is checked against.
        holders: decryptors who hold shares.
        due: what is to be rebuilt.
        reveals: by decryptor, in order of arrival.
    """

    name: ClassVar[str] = "revealing"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Vote, Refusal)
    certificate: Certificate
    uploads: dict[str, Upload]
    holders: tuple[str, ...]
    due: tuple[Due, ...]
    reveals: dict[str, Reveal] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        setting: Setting,
        now_s: float,
        certificate: Certificate,
        uploads: dict[str, Upload],
        holders: tuple[str, ...],
    ) -> "Revealing":
        """Show the certificate."""
        due = due_secrets(setting.attempt, tuple(s.member for s in certificate.survivors))
        return cls(setting, now_s + setting.windows.reveal_s, certificate, uploads, holders, due)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Reveals."""
        return {Reveal: self._reveal}

    def waiting_for(self) -> tuple[str, ...]:
        """Decryptors who hold shares and have not revealed them."""
        return tuple(member for member in self.holders if member not in self.reveals)

    def request_for(self, member: str) -> Message | None:
        """The certificate: to a decryptor the question, to everybody else the news."""
        return None if member in self.reveals else self.certificate

    def _reveal(self, reveal: Reveal, _now_s: float) -> CoordinatorPhase:
        """Take a reveal, in this order.

        1. its sender is a decryptor that signs it, in this context and for this certificate;
        2. it has one share for each secret due (reveal-misshapen);
        3. each share is the one its dealer committed to: a bad one names the decryptor (share-invalid).
        """
        member, attempt = reveal.member, self.attempt
        self.check_sender(member, reveal.context)
        reveal.verify(attempt.roster.key_of(member), member)
        if reveal.outcome != self.certificate.outcome or len(reveal.shares) != SHARE_BYTES * len(self.due):
            raise PeerFault(
                Cause.REVEAL_MISSHAPEN, f"{member}'s reveal does not fit the certificate", [member]
            )
        place = attempt.decryptors.index(member)
        start = 0
        for dealer, of_dealer in groupby(self.due, key=attrgetter("dealer")):
            indices = [due.index for due in of_dealer]
            stop = start + SHARE_BYTES * len(indices)
            row = self.uploads[dealer].share_rows[place]
            committed = [row[i * COMMITMENT_BYTES : (i + 1) * COMMITMENT_BYTES] for i in indices]
            shares = reveal.shares[start:stop]
            if share_commitments(attempt.context, dealer, member, indices, shares) != b"".join(committed):
                raise PeerFault(Cause.SHARE_INVALID, f"{member}'s share of {dealer}'s secret", [member])
            start = stop
        reveals = added(self.reveals, member, reveal, Cause.CONFLICT)
        if reveals is None:
            return self
        phase = replace(self, reveals=reveals)
        return phase if len(reveals) < attempt.quorum.threshold else phase.recover()

    def recover(self) -> CoordinatorPhase:
        """Rebuild every secret due and hold it against its dealer's commitment."""
        attempt = self.attempt
        positions = [attempt.decryptors.index(member) for member in self.reveals]
        shares = [reveal.shares for reveal in self.reveals.values()]
        try:
            seeds = [SecretBytes(seed) for seed in recover_secrets(positions, shares)]
        except ShareError:
            # Every share is its dealer's own, so some dealer dealt what is no secret; find whose.
            return Lost(self.setting, None, self._inconsistent(positions, shares))
        for due, seed in zip(self.due, seeds, strict=True):
            if due.commitment(attempt, seed) != self.uploads[due.dealer].secret_commitments[due.index]:
                return Lost(self.setting, None, PeerFault(Cause.DEALER_INCONSISTENT, parties=(due.dealer,)))
        return Recovered(
            self.setting,
            None,
            self.certificate,
            {due.dealer: seed for due, seed in zip(self.due, seeds, strict=True) if due.lost is None},
            {
                (due.dealer, due.lost): seed
                for due, seed in zip(self.due, seeds, strict=True)
                if due.lost is not None
            },
        )

    def _inconsistent(self, positions: list[int], shares: list[bytes]) -> PeerFault:
        names = [survivor.member for survivor in self.certificate.survivors]
        width = SHARE_BYTES * (len(self.due) // len(names))  # as many secrets of each dealer are due

        # By halves: secret by secret, a single dealer would keep a coordinator of 1,000 members busy for hours.
        def false_among(first: int, last: int) -> list[str]:
            some = slice(first * width, last * width)
            try:
                recover_secrets(positions, [share[some] for share in shares])
            except ShareError:
                middle = (first + last) // 2
                if middle == first:
                    return [names[first]]
                return false_among(first, middle) + false_among(middle, last)
            return []

        return PeerFault(Cause.DEALER_INCONSISTENT, parties=false_among(0, len(names)))

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Too few reveals came: with a certificate signed, VOID cannot be had either."""
        del now_s
        few = f"{len(self.reveals)} reveals, the threshold is {self.attempt.quorum.threshold}"
        return Lost(self.setting, None, PeerFault(Cause.QUORUM_LOST, few, self.waiting_for()))

    def cancel(self, now_s: float, reason: str = "") -> CoordinatorPhase:
        """Give the sum up; what is certified stays opened in everybody's ledger."""
        del now_s
        return Lost(self.setting, None, cancelled(reason))
