"""What all sides know of one attempt of this mode: roster and opening, and the context they fix (helpers H4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from protocol.causes import Cause
from protocol.chunked import Chunked
from protocol.errors import PeerFault
from protocol.helpers.messages import (
    HELPERS,
    THRESHOLD,
    HelperCard,
    HelperCertificate,
    HelperCounted,
    HelperHeader,
    HelperManifest,
    HelperOpening,
    HelperVote,
    root_outcome,
    set_outcome,
)
from protocol.keys import canonical, check_order
from protocol.ledger import Opened
from protocol.merkle import verify
from protocol.messages.opening import NO_INDICATOR, Family, Terms
from protocol.messages.outcome import Survivor
from protocol.messages.roster import Roster, cohort_id
from protocol.parameters import HONEST_MIN
from protocol.tags import Tag, hash_fields

SUITE = b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-replicated_4"
MODE = b"helpers"


def clients_of(roster: Roster) -> frozenset[str]:
    """Everybody who may upload: members who are no helpers."""
    return frozenset(entry.member for entry in roster.members).difference(roster.helpers)


def check_card(roster: Roster, card: HelperCard, cohort: bytes, now_s: float) -> None:
    """Accept a card of this cohort (wrong-cohort), of a helper the roster names (not-a-decryptor), signed by it
    (bad-signature), in its time (card-expired), and not of low order (low-order-point).
    """  # noqa: D205 - one sentence
    helper = card.member
    if card.cohort != cohort:
        raise PeerFault(Cause.WRONG_COHORT, f"the card of {helper} is for another attempt", [helper])
    if helper not in roster.helpers:
        raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{helper} is no helper of the roster", [helper])
    card.verify(roster.key_of(helper), helper)
    if now_s >= card.expires_s:
        raise PeerFault(Cause.CARD_EXPIRED, f"the card of {helper} has expired", [helper])
    check_order(card.box_key, helper)


def check_votes(roster: Roster, context: bytes, outcome: bytes, votes: tuple[HelperVote, ...]) -> None:
    """Accept only three valid votes of different helpers on this outcome (certificate-invalid)."""
    for vote in votes:
        helper = vote.member
        if vote.context != context or vote.outcome != outcome:
            raise PeerFault(Cause.CERTIFICATE_INVALID, f"{helper}'s vote is for another outcome")
        if helper not in roster.helpers:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{helper} is no helper of the roster", [helper])
        vote.verify(roster.key_of(helper), helper)
    # The codec has refused a helper that stands twice.
    if len(votes) < THRESHOLD:
        raise PeerFault(Cause.CERTIFICATE_INVALID, f"{len(votes)} votes, the threshold is {THRESHOLD}")


@dataclass(frozen=True, repr=False)
class HelperAttempt(Chunked):
    """One secure sum with helpers under fixed terms. Everything else about it follows from these two messages."""

    roster: Roster
    opening: HelperOpening

    @property
    def manifest(self) -> HelperManifest:
        """Cards and numbers."""
        return self.opening.manifest

    @cached_property
    def context(self) -> bytes:
        """ctx: salts every derivation and stands in every signature and box of the attempt."""
        terms = self.opening.terms
        return hash_fields(
            Tag.HELPER_CONTEXT,
            SUITE,
            MODE,
            self.roster.federation,
            self.roster.hash,
            self.manifest.cohort,
            self.manifest.hash,
            self.opening.chain,
            terms.hash,
            terms.layout_hash,
        )

    @cached_property
    def clients(self) -> frozenset[str]:
        """Ids that may upload."""
        return clients_of(self.roster)

    @cached_property
    def present(self) -> tuple[str, ...]:
        """Helpers with a card, in order; a box stands where its helper's card does."""
        return tuple(card.member for card in self.manifest.cards)

    @property
    def family(self) -> Family:
        """Which sums this one's can be combined with."""
        return self.opening.terms.family

    @property
    def terms(self) -> Terms:
        """The opening's."""
        return self.opening.terms

    def opens(self, survivors: tuple[Survivor, ...]) -> Opened:
        """What a sum over these survivors opens."""
        return Opened(self.context, self.family, self.manifest.floor, survivors)

    def outcome(self, survivors: tuple[Survivor, ...]) -> bytes:
        """What a helper signs for a sum over these survivors."""
        return set_outcome(self.context, self.family, self.manifest.floor, survivors)

    @property
    def helper_keys(self) -> bytes:
        """The four helpers' public keys, 32 bytes each, in the roster's order: who keeps the ledger (helpers H9)."""
        return b"".join(map(self.roster.key_of, self.roster.helpers))

    def seeds_of(self, helper: str) -> tuple[int, ...]:
        """Which seeds s_j a helper is dealt: all but the one under its own place in the roster."""
        return tuple(j for j, other in enumerate(self.roster.helpers) if other != helper)

    def check(self, now_s: float) -> None:
        """Check everything in an opening that follows from the roster, in this order (helpers H4).

        1. the roster names four helpers (weak-parameters);
        2. the manifest is of this roster, and its cohort follows from roster and counter (wrong-cohort);
        3. the roster's coordinator signed the opening (bad-signature);
        4. every card passes `check_card`; there are three at least (cohort-too-small), no key stands twice, however
           it is encoded (duplicate);
        5. n is the roster's, a at least a quarter of it, h_min ≥ 3, n_min ≥ a + h_min (weak-parameters), and no more
           than n (cohort-too-small);
        6. the terms' end has not passed (terms-expired); the extractor is on the admin's list, n clients with as many
           records as the cap allows stay within the headroom, no noise is named, under which the group rule would lapse,
           and neither roster nor terms ask for an indicator round: this mode has neither (terms-refused).
        """
        roster, manifest, terms = self.roster, self.manifest, self.opening.terms
        if len(roster.helpers) != HELPERS:
            raise PeerFault(
                Cause.WEAK_PARAMETERS,
                f"the roster names {len(roster.helpers)} helpers, not {HELPERS}",
                ["admin"],
            )
        if manifest.roster_hash != roster.hash or manifest.cohort != cohort_id(roster.hash, manifest.counter):
            raise PeerFault(
                Cause.WRONG_COHORT, "the manifest is not of this roster, or its cohort does not follow"
            )
        self.opening.verify(roster.coordinator, "coordinator")
        for card in manifest.cards:
            check_card(roster, card, manifest.cohort, now_s)
        if len(manifest.cards) < THRESHOLD:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL, f"{len(manifest.cards)} helpers: no sum without {THRESHOLD}"
            )
        if len({canonical(card.box_key) for card in manifest.cards}) != len(manifest.cards):
            raise PeerFault(Cause.DUPLICATE, "two helpers' cards have one key", self.present)
        self._check_numbers()
        if now_s >= terms.latest_end_s:
            raise PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end has passed")
        for holds, what in (
            (terms.extractor in roster.extractors, "the extractor is not on the admin's list"),
            (
                manifest.clients * manifest.cap <= terms.records_max,
                f"{manifest.clients} clients of {manifest.cap} records, the terms allow for {terms.records_max}",
            ),
            (not terms.noise, "no noise can be added in a round with helpers"),
            (
                terms.indicator == NO_INDICATOR and self.family != Family.INDICATOR and not roster.withhold,
                "no indicator round can be held with helpers",
            ),
        ):
            if not holds:
                raise PeerFault(Cause.TERMS_REFUSED, what, ["coordinator"])

    def _check_numbers(self) -> None:
        manifest, expected = self.manifest, len(self.clients)
        if (
            manifest.clients != expected
            or manifest.colluders < expected // 4
            or manifest.honest_min < HONEST_MIN
            or manifest.survivors_min < manifest.floor
        ):
            raise PeerFault(
                Cause.WEAK_PARAMETERS,
                f"n={manifest.clients}, a={manifest.colluders}, h_min={manifest.honest_min}, "
                f"n_min={manifest.survivors_min}: the roster has {expected} clients, so a is {expected // 4} at least, "
                f"h_min {HONEST_MIN}, and n_min their sum",
                ["coordinator"],
            )
        if manifest.survivors_min > expected:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"the roster has {expected} clients, n_min is {manifest.survivors_min}",
            )

    def check_context(self, context: bytes, sender: str) -> None:
        """Refuse a message that is bound to another attempt."""
        if context != self.context:
            raise PeerFault(Cause.WRONG_CONTEXT, f"{sender}'s message is bound to another context", [sender])

    def check_helper(self, member: str, context: bytes) -> None:
        """Refuse a message of another context, or of somebody who has no card in this attempt."""
        self.check_context(context, member)
        if member not in self.present:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"{member} has no card in this attempt", [member])

    def check_header(self, header: HelperHeader) -> None:
        """Refuse an upload header of another context, of a stranger or helper, or with a wrong signature."""
        self.check_context(header.context, header.member)
        if header.member not in self.clients:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, f"{header.member} is no client of the roster", [header.member]
            )
        header.verify(self.roster.key_of(header.member))

    def check_survivors(self, survivors: Iterable[Survivor]) -> None:
        """Refuse fewer survivors than n_min, and strangers; the codec has refused disorder and repeats."""
        names = {survivor.member for survivor in survivors}
        if not names <= self.clients:
            strangers = sorted(names - self.clients)
            raise PeerFault(Cause.SURVIVORS_INVALID, "survivors that are no clients of the roster", strangers)
        if len(names) < self.manifest.survivors_min:
            raise PeerFault(
                Cause.SURVIVORS_TOO_FEW, f"{len(names)} survivors, n_min is {self.manifest.survivors_min}"
            )

    def check_certificate(self, certificate: HelperCertificate) -> None:
        """Accept only three votes on the outcome that the certificate spells out, of this attempt, family and floor."""
        self.check_context(certificate.context, "coordinator")
        if (certificate.family, certificate.floor) != (self.family, self.manifest.floor):
            stated = f"a certificate of {certificate.family} sums of g = {certificate.floor}"
            raise PeerFault(Cause.CERTIFICATE_INVALID, stated)
        check_votes(self.roster, self.context, certificate.outcome, certificate.votes)
        if not certificate.void:
            self.check_survivors(certificate.survivors)

    def check_counted(self, counted: HelperCounted, own: Survivor) -> None:
        """Whether this very upload stands in a certified set of n_min or more (result-mismatch); see `check_votes`."""
        self.check_context(counted.context, "coordinator")
        if (
            counted.survivor != own
            or counted.count < self.manifest.survivors_min
            or not verify(counted.root, own.encode_fields(), counted.place, counted.count, counted.path)
        ):
            raise PeerFault(
                Cause.RESULT_MISMATCH,
                f"{own.member}'s upload does not stand in the set shown",
                ["coordinator"],
            )
        outcome = root_outcome(self.context, self.family, self.manifest.floor, counted.root)
        check_votes(self.roster, self.context, outcome, counted.votes)
