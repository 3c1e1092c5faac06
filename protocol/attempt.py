"""What both sides know of one attempt: roster, manifest, opening, and the context they fix (protocol §4.2, §4.3)."""

import itertools
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Annotated, TypeAlias

from protocol.causes import Cause
from protocol.codec import Nested, Struct
from protocol.errors import PeerFault
from protocol.graph import Graph
from protocol.keys import canonical
from protocol.messages import (
    EMPTY_CHAIN,
    NOTHING_REVEALED,
    Cards,
    Certificate,
    Erased,
    Erasure,
    Link,
    Lost,
    Manifest,
    Opening,
    Past,
    Roster,
    Survivor,
    Terms,
    UploadHeader,
    cohort_id,
    extend_chain,
)
from protocol.packing import Buffer, is_packed
from protocol.parameters import HONEST_MIN, Quorum
from protocol.ring import Ring
from protocol.sizing import Assumptions, Sizes, size
from protocol.tags import Tag, hash_fields

SUITE = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"
ALL_CARDS_MAX = 200
"""Members of a cohort up to which everybody is sent all cards."""

Closing: TypeAlias = Certificate | Erasure | Lost
"""What closes an attempt for everybody."""

LOSS_MAX = 374
"""γ = 250 ‰ and twice this stay below the whole: with more lost there are no survivors to certify."""


def colluders_assumed(roster: Roster) -> int:
    """`a` unless somebody says otherwise: a quarter of the roster, however few of it the coordinator lets in."""
    return len(roster.members) // 4


def group_floor(manifest: Manifest) -> int:
    """Compute g = a + h_min: the fewest members that a sum, or a group of the ledger, may hide among."""
    return manifest.colluders + manifest.honest_min


def cohort_sizes(
    roster: Roster, members: Sequence[str], *, colluders: int, honest_min: int, loss: int
) -> Sizes:
    """What follows from who came and what is assumed: quorum, graph and committee (protocol §5).

    Args:
        roster: says who is nominated to decrypt.
        members: ids of those who came.
        colluders: a.
        honest_min: h_min.
        loss: members in a thousand who may vanish, at most `LOSS_MAX`.

    Raises:
        PeerFault: cohort-too-small.
    """
    return size(
        len(members),
        len(roster.decryptors) or None,
        Assumptions(delta=loss),
        present=len({*members}.intersection(roster.decryptors)) if roster.decryptors else None,
        colluders=colluders,
        honest_min=honest_min,
        roster=len(roster.members),
    )


def check_manifest(roster: Roster, manifest: Manifest) -> Quorum:
    """Check everything in a manifest that follows from the roster, in this order (protocol §4.2).

    1. it is for this roster, its cohort id follows from roster and counter (wrong-cohort), and its members are the
       roster's (unknown-member);
    2. quorum, threshold, graph and decryptors are what the rules compute (weak-parameters), and there are enough
       members (cohort-too-small).
    """
    if manifest.roster_hash != roster.hash or manifest.cohort != cohort_id(roster.hash, manifest.counter):
        raise PeerFault(
            Cause.WRONG_COHORT, "the manifest is not of this roster, or its cohort id does not follow"
        )
    for member in manifest.members:
        roster.key_of(member)
    if manifest.honest_min < HONEST_MIN or manifest.loss > LOSS_MAX:
        raise PeerFault(
            Cause.WEAK_PARAMETERS,
            f"h_min is {manifest.honest_min}, at least {HONEST_MIN}; loss is {manifest.loss}, at most {LOSS_MAX}",
        )
    sizes = cohort_sizes(
        roster,
        manifest.members,
        colluders=manifest.colluders,
        honest_min=manifest.honest_min,
        loss=manifest.loss,
    )
    quorum = sizes.quorum
    stated = (
        manifest.decryptor_colluders,
        manifest.survivors_min,
        manifest.threshold,
        manifest.degree,
        manifest.window_dropped_max,
    )
    computed = (
        quorum.decryptor_colluders,
        quorum.survivors_min,
        quorum.threshold,
        sizes.degree,
        sizes.window_dropped_max,
    )
    if stated != computed:
        raise PeerFault(Cause.WEAK_PARAMETERS, f"the manifest states {stated}, the rules give {computed}")
    if manifest.decryptors != sizes.decryptors(manifest.members, roster.decryptors, manifest.beacon):
        raise PeerFault(Cause.WEAK_PARAMETERS, "the manifest names other decryptors than the rules give")
    return quorum


def check_cards(roster: Roster, cards: Cards) -> None:
    """Check the cards shown, in this order (protocol §4.2).

    3. each is of the manifest's cohort (wrong-cohort), signed by the roster's key for that member (bad-signature), and
       bound by the manifest's root (manifest-mismatch);
    4. no X25519 key stands twice, however it is encoded (duplicate).

    Low-order keys show when the pair secrets are made.
    """
    for card in cards.by_member.values():
        if card.cohort != cards.manifest.cohort:
            raise PeerFault(
                Cause.WRONG_COHORT, f"the card of {card.member} is for another cohort", ["coordinator"]
            )
        card.verify(roster.key_of(card.member), card.member)
    cards.check_bound()
    keys = [canonical(key) for card in cards.by_member.values() for key in (card.mask_key, card.box_key)]
    if len(set(keys)) != len(keys):
        raise PeerFault(Cause.DUPLICATE, "an X25519 key stands twice in the cohort")


class Attempt(Struct):
    """One secure sum under fixed terms. Everything else about it follows from these three messages."""

    roster: Annotated[Roster, Nested(Roster)]
    manifest: Annotated[Manifest, Nested(Manifest)]
    opening: Annotated[Opening, Nested(Opening)]

    @cached_property
    def context(self) -> bytes:
        """ctx: salts every derivation and stands in every signature and box of the attempt."""
        terms = self.opening.terms
        return hash_fields(
            Tag.CONTEXT,
            SUITE,
            self.roster.federation,
            self.roster.hash,
            self.manifest.cohort,
            self.manifest.hash,
            self.opening.sequence.to_bytes(8, "little"),
            self.opening.attempt.to_bytes(1, "little"),
            extend_chain(EMPTY_CHAIN, self.opening.links),
            terms.hash,
            terms.layout_hash,
            self.opening.exceptions_hash,
        )

    @cached_property
    def quorum(self) -> Quorum:
        """The numbers of the cohort."""
        return Quorum.of(self.manifest)

    @property
    def members(self) -> tuple[str, ...]:
        """Ids in cohort order."""
        return self.manifest.members

    @property
    def decryptors(self) -> tuple[str, ...]:
        """Ids in cohort order; a decryptor's place + 1 is its Shamir x."""
        return self.manifest.decryptors

    @cached_property
    def decryptor_place(self) -> dict[str, int]:
        """Each decryptor's index among them."""
        return {member: place for place, member in enumerate(self.decryptors)}

    @property
    def terms(self) -> Terms:
        """The opening's."""
        return self.opening.terms

    @property
    def ring(self) -> Ring:
        """The ring of the terms."""
        return Ring(self.terms.ring_bits)

    @property
    def chunks(self) -> int:
        """Chunks in a vector."""
        return -(-self.terms.elements // self.terms.chunk_elements)

    def chunk_elements(self, index: int) -> int:
        """Elements of chunk `index`: all alike but for a shorter last."""
        terms = self.terms
        return min(terms.chunk_elements, terms.elements - index * terms.chunk_elements)

    def is_chunk(self, index: int, packed: Buffer) -> bool:
        """Whether chunk `index` may be these bytes: as many as it has, no bit set after its last element."""
        return is_packed(packed, self.terms.ring_bits, self.chunk_elements(index))

    def check_chunk(self, owner: str, index: int, digest: bytes, packed: Buffer, signed: bytes) -> None:
        """Refuse bytes that are not chunk `index` of what its owner signed, before they are stored (protocol §4.4).

        Args:
            owner: whose vector it is.
            index: which chunk of a vector.
            digest: SHA-256 of `packed`.
            packed: the bytes.
            signed: the digest that the owner signed.

        Raises:
            PeerFault: chunk-mismatch.
        """
        if digest != signed or not self.is_chunk(index, packed):
            expected = self.ring.packed_bytes(self.chunk_elements(index))
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"chunk {index} has {len(packed)} bytes of {expected}, not the digest that was signed, or bits after its last "
                "element",
                [owner],
            )

    @cached_property
    def graph(self) -> Graph:
        """Who shares a mask with whom."""
        return self.manifest.graph

    @property
    def neighbour_count(self) -> int:
        """k: each member deals 1 + k secrets, b_u and one r_uv a neighbour."""
        return self.manifest.degree

    def neighbours(self, member: str) -> tuple[str, ...]:
        """N(u) in order."""
        return self.graph.neighbours(member)

    def secret_index(self, member: str, neighbour: str) -> int:
        """Where r_uv stands among the member's secrets: b_u is 0, then N(u) in order."""
        return self.graph.secret_index(member, neighbour)

    def link(self, past: Past) -> Link:
        """The chain's link for this attempt, closed like this."""
        sequence, attempt = self.opening.place
        family, floor = self.opening.terms.family.value, group_floor(self.manifest)
        return Link(self.manifest.cohort, sequence, attempt, family, floor, self.context, past.closing)

    def check_context(self, context: bytes, sender: str) -> None:
        """Refuse a message that is bound to another round or attempt."""
        if context != self.context:
            raise PeerFault(Cause.WRONG_CONTEXT, f"{sender}'s message is bound to another context", [sender])

    def check_decryptor(self, member: str) -> None:
        """Refuse somebody who holds no shares."""
        if member not in self.decryptor_place:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{member} is not a decryptor of this cohort", [member])

    def check_header(self, header: UploadHeader) -> None:
        """Refuse an upload header of another context, of a stranger, or with a wrong signature."""
        self.check_context(header.context, header.member)
        if header.member not in self.manifest.place:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{header.member} is not in the cohort", [header.member])
        header.verify(self.roster.key_of(header.member))

    def check_certificate(self, certificate: Certificate) -> None:
        """Accept only t valid votes of different decryptors on the outcome that the certificate spells out."""
        self.check_context(certificate.context, "coordinator")
        outcome = certificate.outcome
        if any(vote.outcome != outcome for vote in certificate.votes):
            raise PeerFault(Cause.CERTIFICATE_INVALID, "a vote in the certificate is for another outcome")
        for vote in certificate.votes:
            self.check_context(vote.context, vote.member)
            self.check_decryptor(vote.member)
            vote.verify(self.roster.key_of(vote.member), vote.member)
        if len({vote.member for vote in certificate.votes}) < self.quorum.threshold:
            raise PeerFault(
                Cause.CERTIFICATE_INVALID,
                f"{len(certificate.votes)} votes, the threshold is {self.quorum.threshold}",
            )
        if not certificate.void:
            self.check_survivors(certificate.survivors)

    def check_survivors(self, survivors: tuple[Survivor, ...]) -> None:
        """Refuse fewer survivors than n_min, strangers, disorder and repeats."""
        names = [survivor.member for survivor in survivors]
        if any(a >= b for a, b in itertools.pairwise(names)) or not self.manifest.place.keys() >= set(names):
            raise PeerFault(Cause.SURVIVORS_INVALID, "survivors are not members of the cohort in order")
        # Not the Shamir threshold: a sum of t < n_min members would hide too few honest ones (protocol §5).
        if len(names) < self.quorum.survivors_min:
            raise PeerFault(
                Cause.SURVIVORS_TOO_FEW, f"{len(names)} survivors, n_min is {self.quorum.survivors_min}"
            )

    def check_windows(self, survivors: Collection[str]) -> None:
        """On a sparse graph, refuse survivors that leave too many lost members next to each other (protocol §4.6, clause 2)."""
        lost = [member for member in self.members if member not in survivors]
        if found := self.graph.window_excess(lost, self.manifest.window_dropped_max):
            raise PeerFault(
                Cause.WINDOW_EXCEEDED,
                f"{len(found)} lost members in one window, D_max is {self.manifest.window_dropped_max}",
                found,
            )

    def check_closing(self, document: Closing) -> None:
        """Accept only what closes this attempt: a certificate, an Erasure, or the admin's Lost."""
        if isinstance(document, Certificate):
            self.check_certificate(document)
        elif isinstance(document, Erasure):
            self.check_erasure(document)
        else:
            self.check_lost(document)

    def check_erased(self, report: Erased) -> None:
        """Refuse a report that is not a decryptor's of this attempt."""
        self.check_context(report.context, report.member)
        self.check_decryptor(report.member)
        report.verify(self.roster.key_of(report.member), report.member)

    def check_erasure(self, erasure: Erasure) -> None:
        """Accept only enough reports of different decryptors that revealed nothing (protocol §4.9)."""
        self.check_context(erasure.context, "coordinator")
        # They ascend by member, so no decryptor stands there twice.
        for report in erasure.reports:
            try:
                self.check_erased(report)
            except PeerFault as fault:
                raise PeerFault(Cause.ERASURE_INVALID, fault.detail) from fault
            if report.revealed != NOTHING_REVEALED:
                raise PeerFault(Cause.ERASURE_INVALID, f"{report.member} reports that it revealed")
        if len(erasure.reports) < self.quorum.erasures_min:
            raise PeerFault(
                Cause.ERASURE_INVALID,
                f"{len(erasure.reports)} reports, {self.quorum.erasures_min} are needed",
            )

    def check_lost(self, lost: Lost) -> None:
        """Accept only the admin's word for this context; whether the latest end has passed, a clock tells."""
        self.check_context(lost.context, "admin")
        lost.verify(self.roster.federation, "admin")
