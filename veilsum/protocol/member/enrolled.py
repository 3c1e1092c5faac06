"""M0: a member has sent its card, pairs with the others, and forgets its private keys (wire: Cohorts).

    Enrolled ──cards──▶ Paired ──ciphertexts──▶ Ready
        └──── too late ────┴──▶ Lapsed

Only Ready holds the keys of its pairs, and it holds no private key. Lapsed holds neither.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Self

from veilsum.protocol.attempt import check_cards, check_manifest, check_mlkem_keys
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U8, U64, Bytes, Id, Many, MlkemSeed, Secret, SecretBytes, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import (
    MLKEM_SEED_BYTES,
    AgreementKey,
    DecapsulationKey,
    Encapsulate,
    PairKey,
    PairSecret,
    check_order,
    encapsulate,
    hash_ciphertext,
    hash_mlkem_key,
)
from veilsum.protocol.member.base import MemberPhase, Step
from veilsum.protocol.member.history import History
from veilsum.protocol.member.ready import Ready
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Ciphertexts,
    Enrolment,
    KeyCard,
    Manifest,
    Message,
    Pairing,
    Roster,
    Study,
    cohort_id,
)
from veilsum.protocol.messages.base import MAX_MEMBERS
from veilsum.protocol.pairing import MAX_MANIFESTS, check_ciphertexts, lapse_s, peers_of, recipients_of
from veilsum.protocol.study import read_content
from veilsum.protocol.tags import Tag


class PrivateKeys(Struct):
    """The private keys of one card. They are never stored with the keys that are derived from them."""

    x25519: Secret
    mlkem_seed: MlkemSeed


class EnrolmentPhase(MemberPhase):
    """A member with a card and without the keys of its pairs.

    Attributes:
        card: as sent.
    """

    member: Id
    roster: Roster
    study: Study
    card: KeyCard
    history: History

    def with_history(self, history: History) -> Self:
        return replace(self, history=history)

    def check_shown(self, cards: Cards) -> Manifest:
        """Check cards in the order of CARDS-1 to CARDS-15, and return their manifest.

        Raises:
            PeerFault: a rule refuses them.
        """
        manifest = cards.manifest
        if manifest.cohort != self.card.cohort:
            raise PeerFault(Cause.WRONG_COHORT, "the manifest is for another cohort than this member's card")
        finished = self.history.finished_of(manifest.repeats)
        # A member that was not in the repeated attempt has no records for its run.
        repeated = () if finished is None else finished.survivors
        check_manifest(self.roster, self.study, manifest, repeated)
        check_cards(self.roster, cards)
        # Otherwise a coordinator could send one victim different cards and unmask it without any colluder.
        if cards.by_member.get(self.member) != self.card:
            raise PeerFault(
                Cause.MANIFEST_MISMATCH, "the manifest does not hold this member's card as it was sent"
            )
        for peer in peers_of(manifest, self.member):
            if peer not in cards.by_member:
                raise PeerFault(Cause.MANIFEST_MISMATCH, f"the card of {peer} is not shown", ["coordinator"])
        check_mlkem_keys(cards, recipients_of(manifest, self.member))
        return manifest


class Lapsed(EnrolmentPhase, kind=9):
    """Holds no keys: they were erased by the clock before the cohort was formed."""

    handlers: ClassVar = {}


class Pairable(EnrolmentPhase):
    """Holds the private keys of its card.

    Attributes:
        keys: of the card.
        lapses_s: when they are erased, Unix time in seconds.
    """

    keys: PrivateKeys
    lapses_s: U64

    @property
    def expiry_s(self) -> float:
        return self.lapses_s

    def erase_expired(self, now_s: float) -> MemberPhase:
        if now_s < self.lapses_s:
            return self
        return Lapsed(self.member, self.roster, self.study, self.card, self.history)

    def _check_in_time(self, now_s: float) -> None:
        if now_s >= self.lapses_s:
            raise PeerFault(
                Cause.WRONG_PHASE, "the cohort was not formed in time, and this member's keys are erased"
            )

    def pair(
        self, cards: Cards, key: SigningKey, now_s: float, encapsulate: Encapsulate = encapsulate
    ) -> Step:
        """Check the cards, and encapsulate to everyone that this member encapsulates to.

        Args:
            cards: as shown.
            key: the member's identity.
            now_s: Unix time in seconds.
            encapsulate: source of the fresh secrets.

        Raises:
            PeerFault: the cards are refused (CARDS-1 to CARDS-17), or the keys have lapsed (wrong-phase).
        """
        self._check_in_time(now_s)
        return self._pair_afresh(cards, key, encapsulate, 1)

    def _pair_afresh(self, cards: Cards, key: SigningKey, encapsulate: Encapsulate, number: int) -> Step:
        manifest = self.check_shown(cards)
        made = [encapsulate(shown.mlkem_key, shown.member) for shown in cards.shown if shown.mlkem_key]
        for peer in peers_of(manifest, self.member):
            check_order(cards.by_member[peer].x25519_key, peer)
        pairing = Pairing.make_signed(
            key,
            manifest=manifest.hash,
            member=self.member,
            ciphertexts=tuple(each.ciphertext for each in made),
        )
        paired = Paired(
            self.member,
            self.roster,
            self.study,
            self.card,
            self.history,
            self.keys,
            self.lapses_s,
            number,
            manifest,
            tuple(cards.by_member.values()),
            SecretBytes(b"".join(each.secret for each in made)),
            pairing,
        )
        return paired, (pairing,)


class Enrolled(Pairable, kind=1):
    """Has sent its card, and waits for the others'."""

    @classmethod
    def begin_enrolment(
        cls,
        member: str,
        roster: Roster,
        study: Study,
        key: SigningKey,
        *,
        counter: int,
        period: str,
        serial: int,
        now_s: float,
        repeats: bytes = NO_CONTEXT,
        history: History = History(),  # noqa: B008 - a frozen value
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> Step:
        """Draw the keys for a cohort and send the card, which expires with the study.

        Args:
            member: this member's id.
            roster: as accepted.
            study: as accepted.
            key: the member's identity.
            counter: the cohort's counter.
            period: the records that the run sums.
            serial: how many cards this key has ever signed, with this one.
            now_s: Unix time in seconds.
            repeats: context of the attempt that the run repeats.
            history: the member's history from earlier cohorts of the federation.
            random_bytes: source of keys and nonce.

        Raises:
            PeerFault: unknown-member if the roster lists another key for this id.
        """
        if roster.key_of(member) != key.public:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"the roster lists another key for {member}", [member])
        keys = PrivateKeys(SecretBytes(random_bytes(32)), SecretBytes(random_bytes(MLKEM_SEED_BYTES)))
        content = read_content(study.content)
        windows, mlkem_key = content.question.windows, DecapsulationKey(keys.mlkem_seed).public
        card = KeyCard.make_signed(
            key,
            cohort=cohort_id(roster.hash, counter, study.hash, period, repeats),
            member=member,
            x25519_key=AgreementKey(keys.x25519).public,
            mlkem_key_hash=hash_mlkem_key(mlkem_key),
            nonce=random_bytes(32),
            expires_s=content.notes.expires,
            serial=serial,
        )
        lapses_s = int(now_s) + lapse_s(windows)
        enrolled = cls(member, roster, study, card, history, keys, lapses_s)
        return enrolled, enrolled.messages_to_resend()

    @property
    def enrolment(self) -> Enrolment:
        """The card as it is sent, with the ML-KEM key."""
        return Enrolment(self.card, DecapsulationKey(self.keys.mlkem_seed).public)

    def messages_to_resend(self) -> tuple[Message, ...]:
        return (self.enrolment,)

    handlers: ClassVar = {Cards: Pairable.pair}


class Paired(Pairable, kind=8):
    """Has encapsulated to its share of the pairs, and waits for the others' ciphertexts.

    Attributes:
        number: of the manifest, among those that this member paired under, from 1.
        cards: that it was shown.
        secrets: encapsulated, 32 bytes each, joined in the order of `recipients_of`.
        pairing: as sent.
    """

    number: U8
    manifest: Manifest
    cards: Annotated[tuple[KeyCard, ...], Many(KeyCard, MAX_MEMBERS, ascending=True)]
    secrets: Annotated[bytes, Bytes(32 * MAX_MEMBERS, secret=True)]
    pairing: Pairing

    def messages_to_resend(self) -> tuple[Message, ...]:
        return (self.pairing,)

    def pair(
        self, cards: Cards, key: SigningKey, now_s: float, encapsulate: Encapsulate = encapsulate
    ) -> Step:
        """Pair afresh under a manifest of fewer members; answer the same manifest with the same pairing.

        Raises:
            PeerFault: as `Pairable.pair`; manifest-mismatch if it is not of some of the former members with their cards unchanged,
                or one too many.
        """
        self._check_in_time(now_s)
        following = cards.manifest
        if following == self.manifest:
            return self, (self.pairing,)
        known = {card.member: card for card in self.cards}
        if (
            self.number >= MAX_MANIFESTS
            or not {*following.members} < {*self.manifest.members}
            or any(known.get(shown.member, shown.card) != shown.card for shown in cards.shown)
        ):
            raise PeerFault(
                Cause.MANIFEST_MISMATCH,
                f"another manifest than the one that this member paired under: it must be of fewer members, with their cards as "
                f"before, and one of at most {MAX_MANIFESTS}",
                ["coordinator"],
            )
        return self._pair_afresh(cards, key, encapsulate, self.number + 1)

    def _on_ciphertexts(self, ciphertexts: Ciphertexts, _key: SigningKey, now_s: float) -> Step:
        """Check the ciphertexts, and replace the private keys by the keys of all pairs."""
        self._check_in_time(now_s)
        check_ciphertexts(self.roster, self.manifest, self.member, ciphertexts)
        secrets = self._agree_with_all(ciphertexts)
        manifest = self.manifest
        boxed = manifest.members if self.member in manifest.decryptor_set else manifest.decryptors

        def derive_keys(tag: Tag, peers: tuple[str, ...]) -> tuple[PairKey, ...]:
            roots = [secrets[peer].derive_root(tag, manifest.cohort, manifest.hash) for peer in peers]
            return tuple(map(PairKey, peers, roots))

        ready = Ready(
            self.member,
            self.roster,
            self.study,
            manifest,
            min(card.expires_s for card in self.cards),
            0,
            0,
            derive_keys(Tag.PAIR_MASK, manifest.graph.neighbours_of(self.member)),
            derive_keys(Tag.PAIR_BOX, tuple(peer for peer in boxed if peer != self.member)),
            self.history,
        )
        return ready, ()

    def _agree_with_all(self, ciphertexts: Ciphertexts) -> dict[str, PairSecret]:
        """Agree with everyone that this member shares keys with; its own cards' keys are of no low order (`pair`)."""
        x25519, mlkem = AgreementKey(self.keys.x25519), DecapsulationKey(self.keys.mlkem_seed)
        cards = {card.member: card for card in self.cards}
        secrets = [SecretBytes(self.secrets[at : at + 32]) for at in range(0, len(self.secrets), 32)]
        sent = zip(recipients_of(self.manifest, self.member), secrets, self.pairing.ciphertexts, strict=True)
        agreed = {
            peer: PairSecret(
                self.member,
                peer,
                x25519.agree_secret(cards[peer].x25519_key, peer),
                secret,
                cards[peer].mlkem_key_hash,
                hash_ciphertext(ciphertext),
            )
            for peer, secret, ciphertext in sent
        }
        for shown in ciphertexts.shown:
            agreed[shown.member] = PairSecret(
                shown.member,
                self.member,
                x25519.agree_secret(cards[shown.member].x25519_key, shown.member),
                mlkem.decapsulate(shown.ciphertext),
                self.card.mlkem_key_hash,
                hash_ciphertext(shown.ciphertext),
            )
        return agreed

    handlers: ClassVar = {Cards: pair, Ciphertexts: _on_ciphertexts}
