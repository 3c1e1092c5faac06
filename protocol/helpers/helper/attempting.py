"""What the phases inside an attempt share: how it may end for a helper (helpers H7, H9)."""

from collections.abc import Callable
from functools import cached_property
from typing import Annotated

from protocol.causes import Cause
from protocol.codec import Fixed, Nested, Struct
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.helper.base import HelperPhase, Step
from protocol.helpers.helper.standing import Standing
from protocol.helpers.messages import (
    SEEDS_BYTES,
    HelperCertificate,
    HelperLost,
    HelperOpening,
    HelperVoidRequest,
    HelperVote,
)
from protocol.identity import SigningKey
from protocol.messages.base import Message
from protocol.messages.outcome import Survivor, void_hash


class Held(Struct):
    """One client's three seeds, with the upload that they belong to."""

    survivor: Annotated[Survivor, Nested(Survivor)]
    seeds: Annotated[bytes, Fixed(SEEDS_BYTES, secret=True)]

    @property
    def member(self) -> str:
        """The client."""
        return self.survivor.member


class Attempting(HelperPhase):
    """A phase that has one context, and leaves it by its end alone."""

    standing: Annotated[Standing, Nested(Standing)]
    opening: Annotated[HelperOpening, Nested(HelperOpening)]

    @cached_property
    def attempt(self) -> HelperAttempt:
        """The attempt that is open."""
        return HelperAttempt(self.standing.roster, self.opening)

    def holding(self) -> tuple[Held, ...]:
        """The seeds that this helper holds."""
        return ()

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """A request for VOID, and both ways in which the attempt may end."""
        return {
            HelperOpening: self._again,
            HelperVoidRequest: self._void,
            HelperCertificate: self._certificate,
            HelperLost: self._lost,
        }

    def _again(self, opening: HelperOpening, _key: SigningKey, _now_s: float) -> Step:
        # One opening for each card, ever: another one for it has another context.
        if opening != self.opening:
            raise PeerFault(
                Cause.WRONG_SEQUENCE, "another attempt is open, and nothing has ended it", ["coordinator"]
            )
        return self, self.outbox()

    def _void(self, request: HelperVoidRequest, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        return self.vote(void_hash(request.context, request.reason), request.reason, key)

    def vote(self, outcome: bytes, reason: str, key: SigningKey) -> Step:
        """Sign the one outcome of this context; the seeds stay, a certificate may still ask for them."""
        from protocol.helpers.helper.voted import Voted  # noqa: PLC0415 - the phases form a cycle

        member = self.standing.member
        signed = HelperVote.make(key, context=self.attempt.context, member=member, outcome=outcome)
        return Voted(self.standing, self.opening, self.holding(), reason, signed), (signed,)

    def _certificate(self, certificate: HelperCertificate, _key: SigningKey, _now_s: float) -> Step:
        from protocol.helpers.helper.summing import Summing  # noqa: PLC0415 - the phases form a cycle

        self.attempt.check_certificate(certificate)
        standing = self.standing.after(certificate.ended)
        held = {entry.survivor: entry.seeds for entry in self.holding()}
        if certificate.void or not held.keys() >= set(certificate.survivors):
            return standing, ()
        seeds = tuple(held[survivor] for survivor in certificate.survivors)
        return Summing(standing, self.opening, certificate.outcome, seeds), ()

    def _lost(self, lost: HelperLost, _key: SigningKey, _now_s: float) -> Step:
        """Close the attempt on the admin's word, in this order.

        1. it is for this attempt (wrong-context), and the admin's (bad-signature);
        2. it tells the family of the terms and g of the manifest, and the set that this helper signed, if it signed one (chain-broken).
        """
        self.attempt.check_context(lost.context, "admin")
        lost.verify(self.standing.roster.federation, "admin")
        told = (lost.family, lost.floor) == (self.attempt.family, self.attempt.manifest.floor)
        if not told or not self.is_told(lost):
            raise PeerFault(
                Cause.CHAIN_BROKEN, "the attempt is closed without the set that this helper signed", ["admin"]
            )
        return self.standing.after(lost.ended), ()

    def is_told(self, lost: HelperLost) -> bool:
        """Whether the set that this helper signed, if any, stands in the admin's."""
        del lost
        return True
