"""What both sides know of one attempt: roster, manifest, opening, and the context they fix (protocol §4.3)."""

import itertools
from functools import cached_property
from typing import Annotated

from protocol.causes import Cause
from protocol.codec import Nested, Struct
from protocol.errors import PeerFault
from protocol.keys import canonical
from protocol.messages.cohort import Manifest
from protocol.messages.opening import EMPTY_CHAIN, Link, Opening, extend_chain
from protocol.messages.outcome import Certificate, Survivor
from protocol.messages.roster import Roster, cohort_id
from protocol.messages.upload import UploadHeader
from protocol.parameters import HONEST_MIN, Quorum
from protocol.ring import Ring
from protocol.tags import Tag, hash_fields

SUITE = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"
MODE = b"complete"


def decryptors_of(roster: Roster, members: tuple[str, ...]) -> tuple[str, ...]:
    """D: those members that the roster nominates, or all where it nominates none."""
    return tuple(m for m in members if m in roster.decryptors) if roster.decryptors else members


def colluders_assumed(roster: Roster) -> int:
    """`a` unless somebody says otherwise: a quarter of the roster, however few of it the coordinator lets in."""
    return len(roster.members) // 4


def check_manifest(roster: Roster, manifest: Manifest) -> Quorum:
    """Check everything in a manifest that follows from roster and cards, in this order.

    1. it is for this roster, and its cohort id follows from roster and counter (wrong-cohort);
    2. every card is of this cohort and signed by the roster's key for that member (bad-signature);
    3. no X25519 key stands twice, however it is encoded (duplicate);
    4. the decryptors are the roster's, or everyone where it names none (weak-parameters);
    5. quorum and threshold are what n, L and a give (weak-parameters), and there are enough members
       (cohort-too-small).

    Low-order keys show when the pair secrets are made.
    """
    if manifest.roster_hash != roster.hash or manifest.cohort != cohort_id(roster.hash, manifest.counter):
        raise PeerFault(
            Cause.WRONG_COHORT, "the manifest is not of this roster, or its cohort id does not follow"
        )
    for card in manifest.cards:
        if card.cohort != manifest.cohort:
            raise PeerFault(
                Cause.WRONG_COHORT, f"the card of {card.member} is for another cohort", [card.member]
            )
        card.verify(roster.key_of(card.member), card.member)
    keys = [canonical(key) for card in manifest.cards for key in (card.mask_key, card.box_key)]
    if len(set(keys)) != len(keys):
        raise PeerFault(Cause.DUPLICATE, "an X25519 key stands twice in the manifest")
    if manifest.honest_min < HONEST_MIN:
        raise PeerFault(Cause.WEAK_PARAMETERS, f"h_min is {manifest.honest_min}, at least {HONEST_MIN}")
    decryptors = decryptors_of(roster, manifest.members)
    quorum = Quorum.derive(
        len(manifest.cards), len(decryptors), colluders=manifest.colluders, honest_min=manifest.honest_min
    )
    stated = (
        manifest.decryptors,
        manifest.decryptor_colluders,
        manifest.survivors_min,
        manifest.threshold,
        manifest.degree,
        manifest.window_dropped_max,
    )
    computed = (
        decryptors,
        quorum.decryptor_colluders,
        quorum.survivors_min,
        quorum.threshold,
        quorum.members - 1,
        0,
    )
    if stated != computed:
        raise PeerFault(
            Cause.WEAK_PARAMETERS, f"the manifest states {stated[1:]}, the rules give {computed[1:]}"
        )
    return quorum


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
            MODE,
            self.roster.federation,
            self.roster.hash,
            self.manifest.cohort,
            self.manifest.hash,
            self.opening.sequence.to_bytes(8, "little"),
            self.opening.attempt.to_bytes(1, "little"),
            extend_chain(EMPTY_CHAIN, self.opening.links),
            terms.hash,
            terms.layout_hash,
        )

    @cached_property
    def quorum(self) -> Quorum:
        """The numbers of the cohort."""
        return Quorum.of(self.manifest)

    @cached_property
    def members(self) -> tuple[str, ...]:
        """Ids in cohort order."""
        return self.manifest.members

    @property
    def decryptors(self) -> tuple[str, ...]:
        """Ids in cohort order; a decryptor's place + 1 is its Shamir x."""
        return self.manifest.decryptors

    @property
    def ring(self) -> Ring:
        """The ring of the terms."""
        return Ring(self.opening.terms.ring_bits)

    @property
    def chunks(self) -> int:
        """Chunks in a vector."""
        return -(-self.opening.terms.elements // self.opening.terms.chunk_elements)

    def chunk_elements(self, index: int) -> int:
        """Elements of chunk `index`: all alike but for a shorter last."""
        terms = self.opening.terms
        return min(terms.chunk_elements, terms.elements - index * terms.chunk_elements)

    @property
    def neighbour_count(self) -> int:
        """k: each member deals 1 + k secrets, b_u and one r_uv a neighbour."""
        return len(self.members) - 1

    def secret_index(self, member: str, neighbour: str) -> int:
        """Where r_uv stands among the member's secrets: b_u is 0, then N(u) in order."""
        mine, other = self._place[member], self._place[neighbour]
        return 1 + other if other < mine else other

    @cached_property
    def _place(self) -> dict[str, int]:
        return {member: place for place, member in enumerate(self.members)}

    def neighbours(self, member: str) -> tuple[str, ...]:
        """N(u) in order: on the complete graph everybody else."""
        return tuple(other for other in self.members if other != member)

    def link(self, outcome: bytes) -> Link:
        """The chain's link for this attempt, ended by an outcome of this hash."""
        sequence, attempt = self.opening.place
        return Link(self.manifest.cohort, sequence, attempt, self.context, outcome)

    def check_context(self, context: bytes, sender: str) -> None:
        """Refuse a message that is bound to another round or attempt."""
        if context != self.context:
            raise PeerFault(Cause.WRONG_CONTEXT, f"{sender}'s message is bound to another context", [sender])

    def check_decryptor(self, member: str) -> None:
        """Refuse somebody who holds no shares."""
        if member not in self.decryptors:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{member} is not a decryptor of this cohort", [member])

    def check_header(self, header: UploadHeader) -> None:
        """Refuse an upload header of another context, of a stranger, or with a wrong signature."""
        self.check_context(header.context, header.member)
        if header.member not in self.members:
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
        if any(a >= b for a, b in itertools.pairwise(names)) or not set(names) <= set(self.members):
            raise PeerFault(Cause.SURVIVORS_INVALID, "survivors are not members of the cohort in order")
        # Not the Shamir threshold: a sum of t < n_min members would hide too few honest ones (protocol §5).
        if len(names) < self.quorum.survivors_min:
            raise PeerFault(
                Cause.SURVIVORS_TOO_FEW, f"{len(names)} survivors, n_min is {self.quorum.survivors_min}"
            )
