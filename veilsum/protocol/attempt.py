"""The public state of one attempt: roster, study, manifest, opening and their context (wire: Cohorts, wire: Openings)."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Digest, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.keys import canonical_public, hash_mlkem_key
from veilsum.protocol.merkle import verify_path
from veilsum.protocol.messages import (
    COMMITMENT_BYTES,
    NO_CONTEXT,
    NOTHING_REVEALED,
    Cards,
    Certificate,
    Erased,
    Erasure,
    Link,
    Lost,
    Manifest,
    Opening,
    Receipt,
    Refusal,
    Reveal,
    RevealSummary,
    Roster,
    Study,
    Survivor,
    Survivors,
    Terms,
    UploadHeader,
    Vote,
    cohort_id,
)
from veilsum.protocol.packing import Buffer
from veilsum.protocol.ring import Ring
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.sizing import Quorum, Sizes, size_cohort
from veilsum.protocol.study import COUNT_STEP, Content, Question, read_content, study_fault
from veilsum.protocol.tags import Tag, hash_fields

CIPHER_SUITE = b"x25519_mlkem768-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"
ALL_CARDS_MAX = 200
"""Largest cohort in which every member receives all cards."""

Closing: TypeAlias = Certificate | Erasure | Lost
"""The documents that close an attempt."""


def cohort_sizes(roster: Roster, question: Question, members: Sequence[str], *, repeats: bool) -> Sizes:
    """Compute the quorum, graph and committee of a cohort (analysis: Sizes).

    `members` are those that enrolled. With `repeats` the run takes exactly the survivors of an earlier attempt.
    """
    if not repeats and len(members) < question.members_min:
        raise PeerFault(
            Cause.COHORT_TOO_SMALL, f"{len(members)} members; the study needs at least {question.members_min}"
        )
    sizes = size_cohort(
        len(members),
        len(roster.decryptors) or None,
        present=len({*members}.intersection(roster.decryptors)) if roster.decryptors else None,
        colluders=question.a,
        honest_min=question.h_min,
        loss=question.loss,
        roster=len(members) if repeats else len(roster.members),
    )
    if repeats:
        return replace(sizes, quorum=replace(sizes.quorum, survivors_min=len(members)))
    if (counted := count_members_min(question, sizes.quorum)) > len(members):
        raise PeerFault(
            Cause.COHORT_TOO_SMALL,
            f"{len(members)} members; a count of this study needs at least {counted} in a roster of {len(roster.members)}",
        )
    return sizes


def count_members_min(question: Question, quorum: Quorum) -> int:
    """Return the minimum number of survivors of a count; 0 for a study that counts none (wire: Uploads)."""
    if question.withhold is None:
        return 0
    return max(quorum.survivors_min + question.withhold.margin, question.class_floor)


def check_study(roster: Roster, study: Study) -> Content:
    """Run the study checks that need neither a clock nor a member's memory (STUDY-1 to STUDY-4).

    Raises:
        PeerFault: wrong-federation, bad-signature, or study-refused.
    """
    if study.federation != roster.federation:
        raise PeerFault(
            Cause.WRONG_FEDERATION, "the study is for another federation than the roster", ["admin"]
        )
    study.verify(roster.study_key, "admin")
    content = read_content(study.content)
    if study.hash in roster.revoked:
        raise study_fault(f"the roster revokes this version of study {content.notes.name}")
    return content


def check_manifest(
    roster: Roster, study: Study, manifest: Manifest, repeated: Sequence[Survivor] | None = None
) -> Quorum:
    """Check a manifest without its cards, in the order of CARDS-1 to CARDS-8.

    `repeated` is the certified set of the attempt that `manifest.repeats` names; None if unknown or absent.
    """
    content = read_content(study.content)
    question = content.question
    cohort = cohort_id(roster.hash, manifest.counter, study.hash, manifest.period, manifest.repeats)
    if (manifest.roster_hash, manifest.study, manifest.cohort) != (roster.hash, study.hash, cohort):
        raise PeerFault(
            Cause.WRONG_COHORT,
            "the manifest is not of this roster and study, or its cohort id does not follow",
        )
    repeats = manifest.repeats != NO_CONTEXT
    content.check_period(manifest.period, repeats=repeats)
    for member in manifest.members:
        roster.key_of(member)
    if repeats and question.noise is not None:
        raise PeerFault(Cause.TERMS_REFUSED, "a noisy run is never repeated", ["coordinator"])
    if repeats and repeated is not None and manifest.members != tuple(each.member for each in repeated):
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "the cohort's members are not those of the repeated attempt",
            ["coordinator"],
        )
    # `a` covers members_max, so any accepted roster. More members only raise n_min.
    if not repeats and (listed := len(roster.members)) > question.members_max:
        raise PeerFault(
            Cause.WEAK_PARAMETERS,
            f"the roster has {listed} members; the study allows {question.members_max}",
            ["admin"],
        )
    sizes = cohort_sizes(roster, question, manifest.members, repeats=repeats)
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
    if manifest.decryptors != sizes.choose_decryptors(manifest.members, roster.decryptors, manifest.beacon):
        raise PeerFault(Cause.WEAK_PARAMETERS, "the manifest names other decryptors than the rules give")
    return quorum


def read_quorum(manifest: Manifest, question: Question) -> Quorum:
    """Read the quorum of a checked manifest and its study's question."""
    return Quorum(
        len(manifest.members),
        len(manifest.decryptors),
        question.a,
        manifest.decryptor_colluders,
        question.h_min,
        manifest.survivors_min,
        manifest.threshold,
    )


def check_cards(roster: Roster, cards: Cards) -> None:
    """Check the received cards, in the order of CARDS-9 to CARDS-12."""
    for card in cards.by_member.values():
        if card.cohort != cards.manifest.cohort:
            raise PeerFault(
                Cause.WRONG_COHORT, f"the card of {card.member} is for another cohort", ["coordinator"]
            )
        card.verify(roster.key_of(card.member), card.member)
    cards.check_bound()
    for name, keys in (
        ("X25519", [canonical_public(card.x25519_key) for card in cards.by_member.values()]),
        ("ML-KEM", [card.mlkem_key_hash for card in cards.by_member.values()]),
    ):
        if len(set(keys)) != len(keys):
            raise PeerFault(Cause.DUPLICATE, f"an {name} key appears twice in the cohort")


def check_mlkem_keys(cards: Cards, wanted: Collection[str]) -> None:
    """Require the ML-KEM keys of `wanted` members and no others, each with the hash on its card (CARDS-15)."""
    for shown in cards.shown:
        has_key = bool(shown.mlkem_key)
        right = not has_key or hash_mlkem_key(shown.mlkem_key) == shown.card.mlkem_key_hash
        if has_key != (shown.member in wanted) or not right:
            raise PeerFault(
                Cause.MANIFEST_MISMATCH,
                f"the ML-KEM key of {shown.member} is not the one on its card, is missing, or is not needed",
                ["coordinator"],
            )


class Attempt(Struct):
    """One secure sum under fixed terms, derived entirely from these four messages."""

    roster: Roster
    study: Study
    manifest: Manifest
    opening: Opening

    @cached_property
    def context(self) -> bytes:
        """ctx, which salts every derivation and binds every signature and box of the attempt."""
        return hash_fields(
            Tag.CONTEXT,
            CIPHER_SUITE,
            self.roster.federation,
            self.roster.hash,
            self.manifest.cohort,
            self.manifest.hash,
            self.opening.sequence.to_bytes(8, "little"),
            self.opening.attempt.to_bytes(1, "little"),
            self.opening.chain_head,
            self.opening.terms.hash,
        )

    @property
    def content(self) -> Content:
        return read_content(self.study.content)

    @property
    def question(self) -> Question:
        return self.content.question

    @cached_property
    def spec(self) -> RoundSpec:
        """The round, decoded from study, manifest and terms. Raises PeerFault(terms-refused)."""
        return RoundSpec.of(self.content, self.manifest, self.terms)

    @cached_property
    def quorum(self) -> Quorum:
        return read_quorum(self.manifest, self.question)

    @property
    def survivors_min(self) -> int:
        """The minimum number of survivors: n_min; for a count n_min and the margin, or the class floor if larger (wire: Uploads)."""
        if self.spec.step == COUNT_STEP:
            return count_members_min(self.question, self.quorum)
        return self.quorum.survivors_min

    @property
    def repeats(self) -> bool:
        """Whether the run repeats the records of an earlier attempt."""
        return self.manifest.repeats != NO_CONTEXT

    @property
    def members(self) -> tuple[str, ...]:
        return self.manifest.members

    @property
    def decryptors(self) -> tuple[str, ...]:
        """Decryptor ids in cohort order; a decryptor's index + 1 is its Shamir x."""
        return self.manifest.decryptors

    @cached_property
    def decryptor_place(self) -> dict[str, int]:
        return {member: place for place, member in enumerate(self.decryptors)}

    @property
    def terms(self) -> Terms:
        return self.opening.terms

    @property
    def ring(self) -> Ring:
        return Ring(self.spec.ring_bits)

    @property
    def chunk_count(self) -> int:
        """Number of chunks in a vector."""
        return -(-self.spec.elements // self.spec.chunk_elements)

    def chunk_elements(self, index: int) -> int:
        """Number of elements in chunk `index`; the last chunk may be shorter."""
        spec = self.spec
        return min(spec.chunk_elements, spec.elements - index * spec.chunk_elements)

    def is_chunk(self, index: int, packed: Buffer) -> bool:
        return len(packed) == self.ring.packed_bytes(self.chunk_elements(index))

    def neighbours_of(self, member: str) -> tuple[str, ...]:
        """The member's neighbours N(u), in the order of ids."""
        return self.manifest.graph.neighbours_of(member)

    def has_signed_commitments(self, header: UploadHeader, commitments: bytes, path: Sequence[bytes]) -> bool:
        """Whether these are the joined commitments to the 1 + k secrets of the header's member (wire: Uploads)."""
        return len(commitments) == COMMITMENT_BYTES * (1 + self.manifest.degree) and verify_path(
            header.commitment_root, commitments, 0, 1 + len(self.decryptors), path
        )

    def has_signed_row(self, header: UploadHeader, decryptor: str, row: bytes, path: Sequence[bytes]) -> bool:
        """Whether this is the header's row of commitments to the decryptor's shares (wire: Uploads)."""
        place = self.decryptor_place[decryptor]
        return verify_path(header.commitment_root, row, 1 + place, 1 + len(self.decryptors), path)

    def make_link(self, closing: Closing) -> Link:
        """The chain's link for this attempt and its closing document."""
        sequence, attempt = self.opening.sequence_and_attempt
        return Link(
            cohort=self.manifest.cohort,
            sequence=sequence,
            attempt=attempt,
            question=self.question.digest,
            period=self.manifest.period,
            step=self.terms.step,
            repeats=self.manifest.repeats,
            context=self.context,
            reason=closing.reason,
            survivors=closing.survivors_hash,
        )

    def check_context(self, context: bytes, sender: str) -> None:
        """Refuse a message bound to another round or attempt."""
        if context != self.context:
            raise PeerFault(Cause.WRONG_CONTEXT, f"{sender}'s message is bound to another context", [sender])

    def check_decryptor(self, member: str) -> None:
        if member not in self.decryptor_place:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{member} is not a decryptor of this cohort", [member])

    def check_from_decryptor(
        self, message: Receipt | Vote | Refusal | Reveal | RevealSummary | Erased
    ) -> None:
        """Refuse a message of another context, of a member that is not a decryptor, or with a bad signature."""
        self.check_context(message.context, message.member)
        self.check_decryptor(message.member)
        message.verify(self.roster.key_of(message.member), message.member)

    def check_header(self, header: UploadHeader) -> None:
        """Refuse an upload header with another context, an unknown member or a bad signature."""
        self.check_context(header.context, header.member)
        if header.member not in self.manifest.member_places:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{header.member} is not in the cohort", [header.member])
        header.verify(self.roster.key_of(header.member))

    def check_certificate(self, certificate: Certificate) -> None:
        """Require t valid votes of distinct decryptors on the certificate's outcome."""
        self.check_context(certificate.context, "coordinator")
        outcome = certificate.outcome
        if any(vote.outcome != outcome for vote in certificate.votes):
            raise PeerFault(Cause.CERTIFICATE_INVALID, "a vote in the certificate is for another outcome")
        for vote in certificate.votes:
            self.check_from_decryptor(vote)
        if len({vote.member for vote in certificate.votes}) < self.quorum.threshold:
            raise PeerFault(
                Cause.CERTIFICATE_INVALID,
                f"{count_noun(len(certificate.votes), 'vote')}, the threshold is {self.quorum.threshold}",
            )
        if not certificate.is_void:
            self.check_survivors(certificate.survivors)

    def check_survivors(self, survivors: tuple[Survivor, ...]) -> None:
        """Refuse too few, unknown, unordered or repeated survivors."""
        names = [survivor.member for survivor in survivors]
        if any(a >= b for a, b in itertools.pairwise(names)) or not self.manifest.member_places.keys() >= set(
            names
        ):
            raise PeerFault(Cause.SURVIVORS_INVALID, "survivors are not members of the cohort in order")
        # Not the Shamir threshold: a sum of t < n_min members would hide too few honest ones (analysis: Sizes).
        if len(names) < self.survivors_min:
            raise PeerFault(
                Cause.SURVIVORS_TOO_FEW, f"{len(names)} survivors, {self.survivors_min} are needed"
            )

    def check_windows(self, survivors: Collection[str]) -> None:
        """Refuse a survivor set with too many dropouts in one window of a sparse graph (FREEZE-4)."""
        lost = [member for member in self.members if member not in survivors]
        if found := self.manifest.graph.window_excess(lost, self.manifest.window_dropped_max):
            raise PeerFault(
                Cause.WINDOW_EXCEEDED,
                f"{len(found)} lost members in one window, D_max is {self.manifest.window_dropped_max}",
                found,
            )

    def check_closing(self, document: Closing) -> None:
        """Verify a closing document: a certificate, an Erasure, or the admin's Lost."""
        if isinstance(document, Certificate):
            self.check_certificate(document)
        elif isinstance(document, Erasure):
            self.check_erasure(document)
        else:
            self.check_lost(document)

    def check_erasure(self, erasure: Erasure) -> None:
        """Require enough reports of distinct decryptors that revealed nothing (END-2)."""
        self.check_context(erasure.context, "coordinator")
        # Reports ascend by member, so no decryptor appears twice.
        for report in erasure.reports:
            try:
                self.check_from_decryptor(report)
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
        """Verify the admin's Lost for this context. The caller checks that the latest end has passed."""
        self.check_context(lost.context, "admin")
        lost.verify(self.roster.federation, "admin")


class Finished(Struct):
    """A certified attempt, reduced to the data that a repeating run needs."""

    context: Digest
    study: Study
    terms: Terms
    survivors: Survivors

    @property
    def question(self) -> Question:
        return read_content(self.study.content).question
