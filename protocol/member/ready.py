"""Between rounds: the pair secrets stand, and the next opening is checked against the history."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U8, U64, Digest, Fixed, Id, Many, Nested, SecretBytes
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import PairKeys
from protocol.member.base import MemberPhase, PhaseKind, Step
from protocol.messages import EMPTY_CHAIN, Link, Manifest, Message, Opening, Roster, extend_chain
from protocol.messages.base import MAX_MEMBERS


class Ready(MemberPhase):
    """Holds one pair of keys a neighbour, for one sequence number; the keys of earlier ones are gone.

    Attributes:
        sequence: the round that `pairs` are for.
        attempt: the least attempt of that round which may still be opened.
        chain_head: fold of all links seen; `chain_length` counts them.
        uploaded: contexts this member uploaded to whose links it has not seen.
        closed: links of attempts whose certificates it has seen since, as the history must hold them.
    """

    kind: ClassVar[int] = PhaseKind.READY

    member: Id
    roster: Annotated[Roster, Nested(Roster)]
    manifest: Annotated[Manifest, Nested(Manifest)]
    sequence: U64
    attempt: U8
    pairs: Annotated[tuple[PairKeys, ...], Many(Nested(PairKeys), MAX_MEMBERS)]
    chain_head: Digest
    chain_length: U64
    uploaded: Annotated[tuple[bytes, ...], Many(Fixed(32), 1 << 16)]
    closed: Annotated[tuple[Link, ...], Many(Nested(Link), 1 << 16)] = ()

    def advanced(
        self,
        sequence: int,
        attempt: int,
        uploaded: tuple[bytes, ...] = (),
        closed: tuple[Link, ...] = (),
    ) -> "Ready":
        """The same member with its keys ratcheted to `sequence`, ready for `attempt` of it at the least."""
        pairs = self.pairs
        for step in range(self.sequence + 1, sequence + 1):
            pairs = tuple(pair.ratcheted(self.manifest.cohort, step) for pair in pairs)
        return replace(
            self,
            sequence=sequence,
            attempt=attempt,
            pairs=pairs,
            uploaded=self.uploaded + uploaded,
            closed=self.closed + closed,
        )

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """An opening, and nothing else."""
        return {Opening: self._opening}

    def _opening(self, opening: Opening, _key: SigningKey, now_s: float) -> Step:
        """Check an opening in this order, and only then move any key (protocol §4.3).

        1. it is for this cohort (wrong-cohort) and signed by the roster's coordinator (bad-signature);
        2. no card of the cohort has expired (card-expired), nor have the terms (terms-expired);
        3. sequence and attempt are not behind this member (wrong-sequence);
        4. the links begin with the history this member knows, leave out no attempt it uploaded to, end those that
           it saw certified as they ended, and account for every earlier attempt of the cohort (chain-broken);
        5. the extractor is on the admin's list, and the members' caps add up to no more records than the headroom
           was proved for (terms-refused).
        """
        if opening.cohort != self.manifest.cohort:
            raise PeerFault(Cause.WRONG_COHORT, "the opening is for another cohort")
        opening.verify(self.roster.coordinator, "coordinator")
        if now_s >= min(card.expires_s for card in self.manifest.cards):
            raise PeerFault(
                Cause.CARD_EXPIRED,
                "a key card of this cohort has expired: enrol in a new cohort",
                [card.member for card in self.manifest.cards if now_s >= card.expires_s],
            )
        if now_s >= opening.terms.latest_end_s:
            raise PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end has passed")
        if opening.place < (self.sequence, self.attempt):
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"round {opening.sequence}.{opening.attempt} is behind {self.sequence}.{self.attempt}",
            )
        self._check_history(opening)
        if opening.terms.extractor not in self.roster.extractors:
            raise PeerFault(Cause.TERMS_REFUSED, "the extractor is not on the admin's list", ["coordinator"])
        records = sum(self.manifest.caps)
        if records > opening.terms.records_max:
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"members may hold {records} records, the terms allow for {opening.terms.records_max}",
                ["coordinator"],
            )
        known = replace(
            self.advanced(*opening.place),
            chain_head=extend_chain(EMPTY_CHAIN, opening.links),
            chain_length=len(opening.links),
            uploaded=(),
            closed=(),
        )
        from protocol.member.opened import Opened  # noqa: PLC0415 - the phases form a cycle

        return Opened(known, opening, (), SecretBytes()), ()

    def _check_history(self, opening: Opening) -> None:
        links = opening.links
        if (
            len(links) < self.chain_length
            or extend_chain(EMPTY_CHAIN, links[: self.chain_length]) != self.chain_head
        ):
            raise PeerFault(
                Cause.CHAIN_BROKEN, "the history does not begin with the rounds this member knows"
            )
        if not set(self.uploaded) <= {link.context for link in links}:
            raise PeerFault(Cause.CHAIN_BROKEN, "the history omits an attempt that this member uploaded to")
        if not set(self.closed) <= set(links):
            raise PeerFault(
                Cause.CHAIN_BROKEN, "the history ends an attempt otherwise than this member saw certified"
            )
        places = [(link.sequence, link.attempt) for link in links if link.cohort == self.manifest.cohort]
        places.append(opening.place)
        if places[0] != (0, 0) or any(
            after not in {(before[0], before[1] + 1), (before[0] + 1, 0)}
            for before, after in pairwise(places)
        ):
            raise PeerFault(Cause.CHAIN_BROKEN, "the history skips an attempt of this cohort")
