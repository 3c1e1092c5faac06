"""False messages of a coordinator, sometimes with colluders' keys, to an honest member."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from assurance.attacks.base import ENROLMENT, LOW_ORDER, Attack, Chapter, Forger, patched
from tests.support.forging import mlkem_key_above_q, unsigned
from tests.support.pairing import ciphertext_of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.keys import DecapsulationKey, hash_mlkem_key
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Ciphertexts,
    Deliveries,
    Disclosure,
    Enrolment,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    KeyCard,
    Lost,
    Opening,
    Pairing,
    Shown,
    Survivor,
    SurvivorSet,
    UploadHeader,
    VoidRequest,
    Vote,
    cards_tree,
    cohort_id,
    pairing_digest,
    survivors_hash,
)

# fmt: off
# The table is easier to read with one row to a line.
OTHER = b"\x66" * 32
VICTIM = "member-0"
CARDS = "other cards or roster for one victim"
REPLAY = "replay across attempts, rounds, cohorts, federations"
LOW = "t, a, n_min too low"
TERMS = "terms changed mid-cohort"
MODEL = "different model per member"
SHARES = "wrong, short, non-canonical shares"
FRAMING = "a dealer framing a decryptor and the reverse"
KEM = "ML-KEM keys exchanged, malformed or used twice"
EXCHANGED = "ciphertexts exchanged, withheld or replayed"
MANIFESTS = "another manifest while members pair, or after"
DOWNGRADE = "downgrade to keys without ML-KEM"


def in_context(made: Any) -> Any:
    """Move a message to the context of the attempt in which it is shown."""
    return lambda m, _: replace(made, context=m.context)


LATE_S = 1_086_400.0
"""The latest end of a recorded attempt."""
LAPSED_S = 1_004_800.0
"""When the private keys of a recorded round's cards are erased: an hour to enrol, and four times five minutes to answer."""


def bound(cards: Cards, shown: list[KeyCard], others: Mapping[int, bytes] = MappingProxyType({})) -> Cards:
    """Return these cards under a root that binds them. ML-KEM keys are as they were, but for `others` by their place."""
    keys = [others.get(place, each.mlkem_key) for place, each in enumerate(cards.shown)]
    return Cards(
        replace(cards.manifest, cards_root=cards_tree(shown).root),
        tuple(Shown(card, key, ()) for card, key in zip(shown, keys, strict=True)),
    )


def recarded(cards: Cards, forger: Forger, member: str, mlkem_key: bytes | None = None, **keys: Any) -> Cards:
    """Replace a colluder's card by another, validly signed and bound; an ML-KEM key beside it, by one whose hash the card holds."""
    shown = [card.card for card in cards.shown]
    place = cards.manifest.member_places[member]
    others = {}
    if mlkem_key is not None:
        others, keys = {place: mlkem_key}, {"mlkem_key_hash": hash_mlkem_key(mlkem_key), **keys}
    shown[place] = forger.again(shown[place], member, **keys)
    return bound(cards, shown, others)


def enrolled(forger: Forger, **changes: Any) -> Enrolling:
    """Return the round's cards as the coordinator has them, with changes in member-5's, which signed that card, too."""
    enrolling = Enrolling(forger.federation.roster, forger.federation.study, 0, "period-0")
    sent = [forger.said(Enrolment, f"member-{place}") for place in range(6)]
    if changes:
        sent[5] = replace(sent[5], card=forger.again(sent[5].card, "member-5", **changes))
    return enrolling.with_enrolments(sent)


def shrunk(forger: Forger, gone: str, **changes: Any) -> Cards:
    """Form a valid cohort without this member, and show its cards to the victim, or to the first member."""
    left = enrolled(forger, **changes)
    left = left.of_members([member for member in left.cards if member != gone])
    return left.cards_for(left.make_manifest(), VICTIM if gone != VICTIM else "member-1")


def keyed(point: str) -> Any:
    """Return a colluder's card with this X25519 key."""
    return lambda m, f: recarded(m, f, "member-5", x25519_key=bytes.fromhex(point))


def beside(member: str, mlkem_key: Any) -> Any:
    """Show another ML-KEM key beside a member's card, made from the cards."""

    def make(cards: Cards, _: Forger) -> Cards:
        place = cards.manifest.member_places[member]
        shown = replace(cards.shown[place], mlkem_key=mlkem_key(cards))
        return replace(cards, shown=(*cards.shown[:place], shown, *cards.shown[place + 1 :]))

    return make


def stated(**numbers: Any) -> Any:
    """Change numbers in the manifest."""
    return lambda m, _: replace(m, manifest=replace(m.manifest, **numbers))


def elsewhere(counter: int, period: str, repeats: bytes) -> Any:
    """Return the manifest of another cohort with the same roster and study."""

    def make(cards: Cards, forger: Forger) -> Cards:
        federation = forger.federation
        cohort = cohort_id(federation.roster.hash, counter, federation.study.hash, period, repeats)
        return replace(cards, manifest=replace(cards.manifest, cohort=cohort, counter=counter, period=period, repeats=repeats))

    return make


def cards() -> list[Attack]:
    add = (c := Chapter("coordinator", VICTIM, Cards, attempt=ENROLMENT)).add
    add("another card of a colluder that the root does not bind", "CARDS-11", CARDS, Cause.MANIFEST_MISMATCH,
        lambda m, f: replace(m, shown=(*m.shown[:5], Shown(f.again(m.shown[5].card, "member-5", nonce=OTHER), b"", ()))), "coordinator")
    add("a card of the victim's that it did not send", "CARDS-10", CARDS, Cause.BAD_SIGNATURE,
        lambda m, f: bound(m, [f.again(m.shown[0].card, "coordinator", nonce=OTHER), *(s.card for s in m.shown[1:])]), VICTIM)
    add("the victim's card from its stolen identity", "CARDS-13", CARDS, Cause.MANIFEST_MISMATCH,
        lambda m, f: recarded(m, f, VICTIM, nonce=OTHER))
    add("a card that another member signed", "CARDS-10", CARDS, Cause.BAD_SIGNATURE,
        lambda m, f: bound(m, [*(s.card for s in m.shown[:5]), f.again(m.shown[5].card, "member-1")]), "member-5")
    add("a card left out", "CARDS-11", CARDS, Cause.MANIFEST_MISMATCH, lambda m, _: replace(m, shown=m.shown[:-1]), "coordinator")
    add("no card at all", "CARDS-13", CARDS, Cause.MANIFEST_MISMATCH, lambda m, _: replace(m, shown=()))
    add("cards under another root", "CARDS-11", CARDS, Cause.MANIFEST_MISMATCH, stated(cards_root=OTHER), "coordinator")
    add("a card with a path where all are shown", "CARDS-11", CARDS, Cause.MANIFEST_MISMATCH,
        lambda m, _: replace(m, shown=(replace(m.shown[0], path=(OTHER,)), *m.shown[1:])), "coordinator")
    add("a manifest of another roster", "CARDS-1", CARDS, Cause.WRONG_COHORT, stated(roster_hash=OTHER))
    add("a manifest under another counter", "CARDS-1", REPLAY, Cause.WRONG_COHORT, stated(counter=1))
    add("a manifest of another study", "CARDS-1", "study abuse", Cause.WRONG_COHORT, stated(study=OTHER))
    add("a manifest of another period", "CARDS-1", "study abuse", Cause.WRONG_COHORT, stated(period="period-1"))
    add("a manifest that repeats an attempt", "CARDS-1", "repeat abuse", Cause.WRONG_COHORT, stated(repeats=OTHER))
    for name, counter, period, repeats in (("cohort", 1, "period-0", bytes(32)), ("period's cohort", 0, "period-1", bytes(32)), ("attempt's repetition", 0, "period-0", OTHER)):
        add(f"a manifest of another {name}", "CARDS-1", REPLAY, Cause.WRONG_COHORT, elsewhere(counter, period, repeats))
    add("a card of another cohort", "CARDS-9", REPLAY, Cause.WRONG_COHORT,
        lambda m, f: recarded(m, f, "member-5", cohort=OTHER), "coordinator")
    add("a member whom the roster does not list", "CARDS-3", "Sybil", Cause.UNKNOWN_MEMBER,
        lambda m, _: replace(m, manifest=replace(m.manifest, members=(*m.manifest.members, "sybil"))), "sybil")
    add("a cohort without the victim", "CARDS-13", "shrunk cohort", Cause.MANIFEST_MISMATCH, lambda _, f: shrunk(f, VICTIM))
    add("a cohort without an honest member, stated as if it were whole", "CARDS-8", "shrunk cohort", Cause.WEAK_PARAMETERS,
        lambda _, f: replace(shrunk(f, "member-1"), manifest=replace(shrunk(f, "member-1").manifest, survivors_min=3)))
    for name, numbers in (
        ("a threshold of shares below the rules'", {"threshold": 3}),
        ("a threshold of shares above the rules'", {"threshold": 6}),
        ("fewer survivors than the rules demand", {"survivors_min": 3}),
        ("fewer colluders assumed among decryptors", {"decryptor_colluders": 0}),
        ("fewer neighbours than the rules give", {"degree": 2}),
        ("windows that may lose more", {"window_dropped_max": 3}),
    ):
        add(name, "CARDS-8", LOW, Cause.WEAK_PARAMETERS, stated(**numbers))
    add("a committee the coordinator chose", "CARDS-8", "grinding", Cause.WEAK_PARAMETERS,
        stated(decryptors=("member-1", "member-2", "member-3", "member-4", "member-5")))
    add("decryptors of whom one is no member", "DECODE-5", "Sybil", Cause.MALFORMED,
        lambda m, _: patched(m, b"\x08member-5\x06\0\0\0", b"\x08member-9\x06\0\0\0"))
    add("a colluder's card with the victim's X25519 key", "CARDS-12", "low-order points", Cause.DUPLICATE,
        lambda m, f: recarded(m, f, "member-5", x25519_key=m.shown[0].card.x25519_key))
    add("the victim's X25519 key, encoded otherwise", "CARDS-12", "low-order points", Cause.DUPLICATE,
        lambda m, f: recarded(m, f, "member-5",
                              x25519_key=m.shown[0].card.x25519_key[:31] + bytes([m.shown[0].card.x25519_key[31] | 0x80])))
    for point in LOW_ORDER[:5]:
        add(f"an X25519 key of low order, {point[:8]}", "CARDS-17", "low-order points", Cause.LOW_ORDER_POINT, keyed(point), "member-5")
    add("members out of order", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, b"\x08member-0\x08member-1", b"\x08member-1\x08member-0"))
    add("a member twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, b"\x08member-0\x08member-1", b"\x08member-0\x08member-0"))
    return c.attacks


def mlkem_keys() -> list[Attack]:
    """ML-KEM keys beside cards. The victim encapsulates to member-1, member-2 and member-3; member-4 and member-5 do to it."""
    add = (c := Chapter("coordinator", VICTIM, Cards, attempt=ENROLMENT)).add

    def add_shown(name: str, make: Any) -> None:
        add(name, "CARDS-15", KEM, Cause.MANIFEST_MISMATCH, make, "coordinator")

    def key_of(cards: Cards, place: int) -> bytes:
        return cards.shown[place].mlkem_key

    add_shown("another ML-KEM key than the card holds the hash of", beside("member-3", lambda m: mlkem_key_of(OTHER)))
    add_shown("one member's ML-KEM key beside another's card", beside("member-1", lambda m: key_of(m, 2)))
    add_shown("two ML-KEM keys exchanged", lambda m, f: beside("member-2", lambda _: key_of(m, 1))(beside("member-1", lambda _: key_of(m, 2))(m, f), f))
    add_shown("an ML-KEM key cut short", beside("member-3", lambda m: key_of(m, 3)[:-1]))
    add_shown("an ML-KEM key left out", beside("member-3", lambda m: b""))
    add_shown("the ML-KEM key of a member that encapsulates to this one",
        lambda m, f: beside("member-4", lambda _: f.said(Enrolment, "member-4").mlkem_key)(m, f))
    add_shown("the member's own ML-KEM key", lambda m, f: beside(VICTIM, lambda _: f.said(Enrolment, VICTIM).mlkem_key)(m, f))
    add("no ML-KEM key at all, as if X25519 were enough", "CARDS-15", DOWNGRADE, Cause.MANIFEST_MISMATCH,
        lambda m, _: replace(m, shown=tuple(replace(each, mlkem_key=b"") for each in m.shown)), "coordinator")
    add("a second X25519 key where the hash of an ML-KEM key belongs", "CARDS-15", DOWNGRADE, Cause.MANIFEST_MISMATCH,
        lambda m, f: recarded(m, f, "member-3", mlkem_key_hash=m.shown[4].card.x25519_key), "coordinator")
    add("a colluder's ML-KEM key with a coefficient above q", "CARDS-16", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: recarded(m, f, "member-3", mlkem_key_above_q(key_of(m, 3))), "member-3")
    add("a colluder's ML-KEM key of all ones", "CARDS-16", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: recarded(m, f, "member-3", b"\xff" * 1184), "member-3")
    add("a colluder's ML-KEM key of 1,183 bytes", "CARDS-16", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: recarded(m, f, "member-3", key_of(m, 3)[:-1]), "member-3")
    add("an ML-KEM key of 1,185 bytes", "DECODE-4", "oversized anything", Cause.OVERSIZED, lambda m, _: lengthened(m, 3))
    add("a good ML-KEM key beside an X25519 key of low order", "CARDS-17", "low-order points", Cause.LOW_ORDER_POINT,
        lambda m, f: recarded(m, f, "member-3", x25519_key=bytes.fromhex(LOW_ORDER[3])), "member-3")
    add("an ML-KEM key above q beside an X25519 key of low order", "CARDS-16", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: recarded(m, f, "member-3", mlkem_key_above_q(key_of(m, 3)), x25519_key=bytes(32)), "member-3")
    add("an ML-KEM key above q, and another member's X25519 key of low order", "CARDS-16", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: recarded(recarded(m, f, "member-3", mlkem_key_above_q(key_of(m, 3))), f, "member-1", x25519_key=bytes(32)), "member-3")
    add("the hash of one ML-KEM key on two cards", "CARDS-12", KEM, Cause.DUPLICATE,
        lambda m, f: recarded(m, f, "member-3", key_of(m, 1)))
    add("the hash of the victim's ML-KEM key on a colluder's card", "CARDS-12", KEM, Cause.DUPLICATE,
        lambda m, f: recarded(m, f, "member-5", mlkem_key_hash=m.shown[0].card.mlkem_key_hash))
    return c.attacks


def mlkem_key_of(seed: bytes) -> bytes:
    """Return the ML-KEM key of a seed, given twice."""
    return DecapsulationKey(seed * 2).public


def lengthened(cards: Cards, place: int) -> bytes:
    """Make a member's ML-KEM key a byte longer than any is."""
    key = cards.shown[place].mlkem_key
    return patched(cards, (1184).to_bytes(4, "little") + key, (1185).to_bytes(4, "little") + key + b"\0")


def manifests() -> list[Attack]:
    """Other manifests, to a member that has paired, that is Ready, or whose keys have lapsed."""
    add = (c := Chapter("coordinator", VICTIM, Cards, attempt=ENROLMENT)).add
    paired: dict[str, Any] = {"after": True}
    ready: dict[str, Any] = {"form": Ciphertexts, "after": True}
    add("a colluder's card changed, once members have paired", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH,
        lambda m, f: recarded(m, f, "member-5", nonce=OTHER), "coordinator", **paired)
    add("fewer members, with a colluder's card changed", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH,
        lambda _, f: shrunk(f, "member-1", nonce=OTHER), "coordinator", **paired)
    add("fewer members, with a lower threshold", "CARDS-8", MANIFESTS, Cause.WEAK_PARAMETERS,
        lambda _, f: replace(shrunk(f, "member-1"), manifest=replace(shrunk(f, "member-1").manifest, threshold=3)), **paired)
    add("a manifest that leaves this member out", "CARDS-13", MANIFESTS, Cause.MANIFEST_MISMATCH, lambda _, f: shrunk(f, VICTIM), **paired)
    add("another roster's manifest, once members have paired", "CARDS-18", MANIFESTS, Cause.MANIFEST_MISMATCH,
        stated(roster_hash=OTHER), "coordinator", **paired)
    add("fewer members, once this member has its keys", "PHASE-2", MANIFESTS, Cause.WRONG_PHASE, lambda _, f: shrunk(f, "member-1"), **ready)
    add("the same cards, once this member has its keys", "PHASE-2", MANIFESTS, Cause.WRONG_PHASE,
        lambda _, f: f.said(Cards, "coordinator", VICTIM), **ready)
    add("cards after the keys have lapsed", "PHASE-2", "clock skew", Cause.WRONG_PHASE, lambda m, _: m, now_s=LAPSED_S)
    add("the same cards again, after the keys have lapsed", "PHASE-2", "clock skew", Cause.WRONG_PHASE, lambda m, _: m, now_s=LAPSED_S, **paired)
    add("fewer members, after the keys have lapsed", "PHASE-2", "clock skew", Cause.WRONG_PHASE,
        lambda _, f: shrunk(f, "member-1"), now_s=LAPSED_S, **paired)
    return c.attacks


def ciphertexts() -> list[Attack]:
    """Ciphertexts of member-4 and member-5, which encapsulate to the victim."""
    add = (c := Chapter("coordinator", VICTIM, Ciphertexts, attempt=ENROLMENT)).add

    def add_bad(name: str, make: Any) -> None:
        add(name, "CIPHER-3", EXCHANGED, Cause.BAD_SIGNATURE, make, "coordinator")

    def add_other(name: str, make: Any) -> None:
        add(name, "CIPHER-2", EXCHANGED, Cause.MANIFEST_MISMATCH, make, "coordinator")

    def first(**changes: Any) -> Any:
        return lambda m, _: replace(m, shown=(replace(m.shown[0], **changes), *m.shown[1:]))

    def exchanged(*names: str) -> Any:
        def make(m: Ciphertexts, _: Forger) -> Ciphertexts:
            one, two = m.shown
            given = ({name: getattr(each, name) for name in names} for each in (two, one))
            return replace(m, shown=tuple(replace(each, **other) for each, other in zip(m.shown, given, strict=True)))

        return make

    def of_pairing(sender: str, to: str) -> Any:
        """Return a sender's ciphertext for another member, with its path."""
        return lambda f: ciphertext_of(f.federation.manifest, f.said(Pairing, sender), to)

    def placed(made: Any, *, beside: bool = False) -> Any:
        """Show a ciphertext beside the honest ones, or in the place of the first."""
        return lambda m, f: replace(m, shown=tuple(sorted((made(f), *m.shown[not beside :]), key=lambda each: each.member)))

    add_bad("two senders' ciphertexts exchanged", exchanged("ciphertext"))
    add_bad("two senders' ciphertexts exchanged, with their paths and signatures", exchanged("ciphertext", "path", "signature"))
    add_bad("a ciphertext for another member, with its path", placed(of_pairing("member-4", "member-5")))
    add_bad("a ciphertext for another member under this member's path",
        lambda m, f: first(ciphertext=of_pairing("member-4", "member-5")(f).ciphertext)(m, f))
    add_bad("a ciphertext under the path of another place", lambda m, f: first(path=of_pairing("member-4", "member-5")(f).path)(m, f))
    add_bad("a ciphertext without its path", first(path=()))
    add_bad("a ciphertext with a longer path", lambda m, _: first(path=(*m.shown[0].path, OTHER))(m, _))
    add_bad("a changed ciphertext", first(ciphertext=bytes(1088)))
    add_bad("a ciphertext that the coordinator made and signed", lambda m, f: first(
        ciphertext=bytes(1088), path=(), signature=f.key("coordinator").sign(pairing_digest(m.manifest, "member-4", Tree([bytes(1088)]).root)))(m, f))
    add_bad("a signature of another member", exchanged("signature"))
    add_bad("a signature over the same ciphertexts for another manifest", lambda m, f: first(
        signature=f.again(f.said(Pairing, "member-4"), "member-4", manifest=OTHER).signature)(m, f))
    add_other("a ciphertext withheld", lambda m, _: replace(m, shown=m.shown[1:]))
    add_other("all ciphertexts withheld", lambda m, _: replace(m, shown=()))
    add_other("a ciphertext of a member that does not encapsulate to this one", placed(of_pairing("member-1", "member-2"), beside=True))
    add_other("a ciphertext of a member that does not encapsulate to this one, in another's place",
        placed(of_pairing("member-1", "member-2")))
    add_other("a ciphertext of this member's own", placed(of_pairing(VICTIM, "member-1"), beside=True))
    add_other("a ciphertext of a stranger", placed(lambda f: replace(of_pairing("member-5", VICTIM)(f), member="sybil"), beside=True))
    add("ciphertexts of another cohort", "CIPHER-1", REPLAY, Cause.MANIFEST_MISMATCH,
        lambda _, f: Forger("nominated", ENROLMENT).said(Ciphertexts, "coordinator", VICTIM), "coordinator")
    add("ciphertexts under another manifest's hash", "CIPHER-1", REPLAY, Cause.MANIFEST_MISMATCH, lambda m, _: replace(m, manifest=OTHER), "coordinator")
    add("ciphertexts before the cards", "PHASE-2", EXCHANGED, Cause.WRONG_PHASE, lambda _, f: f.said(Ciphertexts, "coordinator", VICTIM), form=Cards)
    add("ciphertexts once this member has its keys", "PHASE-2", EXCHANGED, Cause.WRONG_PHASE, lambda m, _: m, after=True)
    add("ciphertexts after the keys have lapsed", "PHASE-2", "clock skew", Cause.WRONG_PHASE, lambda m, _: m, now_s=LAPSED_S)
    add("an opening before the ciphertexts", "PHASE-2", MANIFESTS, Cause.WRONG_PHASE,
        lambda _, f: f.said(Opening, "coordinator", VICTIM, attempt=0))
    add("a ciphertext cut short", "DECODE-3", "truncated or extra chunk", Cause.TRUNCATED, lambda m, _: m.to_bytes()[:-200])
    add("senders out of order", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, m.shown[0].encode() + m.shown[1].encode(), m.shown[1].encode() + m.shown[0].encode()))
    add("a sender twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, m.shown[1].encode(), m.shown[0].encode()))
    return c.attacks


def openings() -> list[Attack]:
    add = (c := Chapter("coordinator", VICTIM, Opening, attempt=1)).add

    def signed(**changes: Any) -> Any:
        return lambda m, f: f.again(m, "coordinator", **changes)

    def terms(**changes: Any) -> Any:
        return lambda m, f: f.again(m, "coordinator", terms=replace(m.terms, **changes))

    def link(**changes: Any) -> Any:
        return lambda m, f: f.again(m, "coordinator", links=(replace(m.links[0], **changes),))

    add("an opening of another cohort", "OPEN-1", REPLAY, Cause.WRONG_COHORT, signed(cohort=OTHER), "coordinator")
    add("an opening that a colluder signed", "OPEN-2", TERMS, Cause.BAD_SIGNATURE, lambda m, f: f.again(m, "member-5"), "coordinator")
    add("terms changed after they were signed", "OPEN-2", TERMS, Cause.BAD_SIGNATURE,
        lambda m, _: replace(m, terms=replace(m.terms, latest_end_s=m.terms.latest_end_s + 1)), "coordinator")
    add("the first round's opening again", "OPEN-7", REPLAY, Cause.WRONG_SEQUENCE, lambda _, f: f.said(Opening, "coordinator", VICTIM, attempt=0))
    add("an attempt behind the member", "OPEN-7", "mask or box key reuse after a rollback", Cause.WRONG_SEQUENCE, signed(sequence=0, attempt=1))
    add("a ninth attempt", "DECODE-9", "two attempts, two sets", Cause.WRONG_SEQUENCE,
        lambda m, _: patched(m, b"\1\0\0\0\0\0\0\0\0", b"\1\0\0\0\0\0\0\0\x08"))
    add("a member's clock behind the end of its card", "OPEN-3", "clock skew", Cause.CARD_EXPIRED, terms(latest_end_s=12_000_000), now_s=11_000_000.0)
    add("a history without the round that the member knows", "OPEN-10", "overlapping rounds, three rounds", Cause.OUTCOME_MISSING, signed(links=()), "coordinator")
    changes: dict[str, Any]
    for name, changes in (("ends a round with another set", {"survivors": OTHER}), ("says VOID of a sum", {"reason": "cancelled", "survivors": bytes(32)}),
                          ("says that a sum was erased", {"reason": "erased", "survivors": bytes(32)}), ("names another context", {"context": OTHER})):
        add(f"a history that {name}", "OPEN-10", "overlapping rounds, three rounds", Cause.OUTCOME_MISSING, link(**changes), "coordinator")
    for name, changes in (("question", {"question": OTHER}), ("period", {"period": "period-9"}), ("step", {"step": "sum"}), ("repetition", {"repeats": OTHER}), ("cohort", {"cohort": OTHER})):
        add(f"a history that counts a round as of another {name}", "OPEN-10", REPLAY, Cause.OUTCOME_MISSING, link(**changes), "coordinator")
    add("a sequence skipped", "OPEN-13", "mask or box key reuse after a rollback", Cause.CHAIN_BROKEN, signed(sequence=2), "coordinator")
    add("an attempt skipped", "OPEN-13", "two attempts, two sets", Cause.CHAIN_BROKEN, signed(attempt=1), "coordinator")
    add("a round of this cohort twice in the history", "OPEN-12", "overlapping rounds, three rounds", Cause.CHAIN_BROKEN,
        lambda m, f: f.again(m, "coordinator", links=(m.links[0], m.links[0])), "coordinator")
    add("a latest end in 31 days", "OPEN-6", "clock skew", Cause.TERMS_REFUSED,
        lambda m, f: f.again(m, "coordinator", terms=replace(m.terms, latest_end_s=f.now_s + 31 * 86_400)), "coordinator")
    add("a step that the study does not have", "OPEN-15", TERMS, Cause.TERMS_REFUSED, terms(step="refinement-1"), "coordinator")
    add("a step without its material", "OPEN-15", MODEL, Cause.TERMS_REFUSED, terms(material=bytes(32)), "coordinator")
    add("the first step with material", "OPEN-15", MODEL, Cause.TERMS_REFUSED, terms(step="mean"), "coordinator")
    add("the second step before the first", "OPEN-18", TERMS, Cause.TERMS_REFUSED, terms(step="sum", material=OTHER), "coordinator", attempt=0)
    add("the first step again", "OPEN-19", "overlapping rounds, three rounds", Cause.ALREADY_SUMMED, terms(step="mean", material=bytes(32)), "coordinator")
    add("a count of a study that has none", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(count=OTHER), "coordinator")
    add("classes withheld without a count", "DECODE-10", "count abuse", Cause.TERMS_REFUSED, terms(withheld=(1,)))
    main = {"round": "count", "attempt": 2}
    add("a rare class that is not withheld", "OPEN-24", "count abuse", Cause.COUNT_MISMATCH, terms(withheld=(4,)), "coordinator", **main)
    add("rows beside no withheld class", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(withheld=()), "coordinator", **main)
    add("no rows where a class is withheld", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(rows=bytes(32)), "coordinator", **main)
    add("rows that nobody certified", "OPEN-17", "count abuse", Cause.TERMS_REFUSED, terms(rows=OTHER), "coordinator", **main)
    add("the rows again", "OPEN-19", "count abuse", Cause.ALREADY_SUMMED, terms(step="rows", rows=bytes(32)), "coordinator", **main)
    counted = {"round": "count", "attempt": 1}
    add("rows where no class is withheld", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(withheld=()), "coordinator", **counted)
    add("the sum before the rows", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(step="sum"), "coordinator", **counted)
    add("somebody named evicted whom the count round counted", "OPEN-24", "count abuse", Cause.COUNT_MISMATCH,
        terms(evicted=("member-0",)), "coordinator", **main)
    add("a class withheld that nobody counted", "OPEN-24", "count abuse", Cause.COUNT_MISMATCH, terms(withheld=(0, 1, 4)), "coordinator", **main)
    add("no count where the study withholds", "OPEN-16", "count abuse", Cause.TERMS_REFUSED, terms(count=bytes(32), rows=bytes(32), withheld=()), "coordinator", **main)
    add("a count that nobody certified", "OPEN-17", "count abuse", Cause.TERMS_REFUSED, terms(count=OTHER), "coordinator", **main)
    add("the count again", "OPEN-19", "count abuse", Cause.ALREADY_SUMMED, terms(step="count", count=bytes(32), rows=bytes(32), withheld=()), "coordinator", **main)
    add("a history whose beginning is another", "OPEN-9", "overlapping rounds, three rounds", Cause.CHAIN_BROKEN,
        lambda m, f: f.again(m, "coordinator", links=(replace(m.links[0], period="period-9"), *m.links[1:])), **main)
    add("a history that says erased of a VOID", "OPEN-11", "overlapping rounds, three rounds", Cause.CHAIN_BROKEN, link(reason="erased"), "coordinator", round="voided", to="member-1")
    add("another opening before the last one has ended", "PHASE-3", "two attempts, two sets", Cause.WRONG_SEQUENCE,
        signed(attempt=1), "coordinator", after=True)
    return c.attacks


def deliveries() -> list[Attack]:
    add = (c := Chapter("coordinator", "member-1", Deliveries)).add

    def first(**changes: Any) -> Any:
        return lambda m, _: replace(m, deliveries=(replace(m.deliveries[0], **changes), *m.deliveries[1:]))

    def header(**changes: Any) -> Any:
        return lambda m, _: first(header=replace(m.deliveries[0].header, **changes))(m, _)

    def swapped(m: Any, _: Forger) -> Any:
        one, two = m.deliveries[:2]
        return replace(m, deliveries=(replace(one, box=two.box, box_path=two.box_path), *m.deliveries[1:]))

    order = "share order chosen by the coordinator"
    add("boxes of another context", "BOX-1", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add("the first round's boxes again", "BOX-1", REPLAY, Cause.WRONG_CONTEXT,
        lambda _, f: f.said(Deliveries, "coordinator", "member-1", attempt=0), "coordinator", attempt=1)
    add("an upload of the first round among this one's", "BOX-3", REPLAY, Cause.WRONG_CONTEXT,
        lambda m, f: replace(m, deliveries=(f.said(Deliveries, "coordinator", "member-1", attempt=0).deliveries[0], *m.deliveries[1:])),
        VICTIM, attempt=1)
    add("boxes for a member that holds no shares", "BOX-2", "Sybil", Cause.NOT_A_DECRYPTOR,
        lambda _, f: f.said(Deliveries, "coordinator", "member-1"), "member-4", round="nominated", to="member-4", form=Certificate)
    add("a box of a stranger", "BOX-4", "Sybil", Cause.UNKNOWN_MEMBER, header(member="a-sybil"), "a-sybil")
    add("a box under a header that nobody signed", "BOX-5", "digest mismatch", Cause.BAD_SIGNATURE, header(salt=OTHER), VICTIM)
    add("a member's own box", "BOX-6", order, Cause.MALFORMED,
        lambda m, f: replace(m, deliveries=(m.deliveries[0], *f.said(Deliveries, "coordinator", VICTIM).deliveries[:1], *m.deliveries[1:])),
        "coordinator")
    add("the box for another decryptor", "BOX-7", order, Cause.CHUNK_MISMATCH,
        lambda m, f: replace(m, deliveries=(*m.deliveries[:1], f.said(Deliveries, "coordinator", VICTIM).deliveries[1], *m.deliveries[2:])),
        "coordinator")
    add("one dealer's box for another's", "BOX-7", order, Cause.CHUNK_MISMATCH, swapped, "coordinator")
    add("a box cut short", "BOX-7", SHARES, Cause.CHUNK_MISMATCH, lambda m, _: first(box=m.deliveries[0].box[:-1])(m, _), "coordinator")
    add("a row that the dealer did not sign", "BOX-7", FRAMING, Cause.CHUNK_MISMATCH,
        lambda m, _: first(row=bytes(len(m.deliveries[0].row)))(m, _), "coordinator")
    add("a box without its path", "BOX-7", "digest mismatch", Cause.CHUNK_MISMATCH, first(box_path=()), "coordinator")
    add("a row without its path", "BOX-7", "digest mismatch", Cause.CHUNK_MISMATCH, first(row_path=()), "coordinator")
    add("a dealer twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: m.to_bytes()[:38] + m.deliveries[0].encode() * 5)
    return c.attacks


def proposals() -> list[Attack]:
    add = (c := Chapter("coordinator", "member-1", Freeze)).add

    def headers(change: Any) -> Any:
        return lambda m, f: replace(m, headers=tuple(change(m.headers, f)))

    def forged(m: UploadHeader, f: Forger, who: str, **changes: Any) -> UploadHeader:
        return UploadHeader.make_signed(f.key(who), **{**unsigned(m), **changes})

    padded, split = "padded S", "split survivors"
    add("a proposal of another context", "VOTE-1", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add("a survivor that sent nothing, signed by a colluder", "FREEZE-11", padded, Cause.SURVIVORS_INVALID,
        headers(lambda h, f: [*h[:4], forged(h[4], f, "member-4", member="member-4"), h[4]]))
    add("a survivor whom nobody knows", "FREEZE-2", padded, Cause.SURVIVORS_INVALID,
        headers(lambda h, f: [*h, forged(h[0], f, "coordinator", member="sybil")]))
    add("a survivor twice", "FREEZE-2", padded, Cause.SURVIVORS_INVALID, headers(lambda h, _: [h[0], *h]))
    add("survivors out of order", "FREEZE-2", split, Cause.SURVIVORS_INVALID, headers(lambda h, _: h[::-1]))
    add("fewer survivors than n_min", "FREEZE-3", LOW, Cause.SURVIVORS_TOO_FEW, headers(lambda h, _: h[:3]))
    add("as many survivors as shares recover a secret, and fewer than n_min", "FREEZE-3", LOW, Cause.SURVIVORS_TOO_FEW,
        headers(lambda h, _: h[:3]), round="nominated")
    add("no survivor at all", "FREEZE-3", LOW, Cause.SURVIVORS_TOO_FEW, headers(lambda _h, _f: []))
    add("another upload of the decryptor's own", "FREEZE-10", split, Cause.OWN_UPLOAD_CHANGED,
        headers(lambda h, f: [h[0], forged(h[1], f, "member-1", chunk_root=OTHER), *h[2:]]))
    add("a second upload of a colluder, which this decryptor was not shown", "FREEZE-11", split, Cause.SURVIVORS_INVALID,
        headers(lambda h, f: [*h[:4], forged(h[4], f, "member-5", salt=OTHER)]))
    add("survivors before any box was shown", "PHASE-2", split, Cause.WRONG_PHASE,
        lambda _, f: f.said(Freeze, "coordinator", "member-1"), form=Deliveries)
    rests = {"round": "count", "attempt": 2}
    add("a set shown where the attempt rests on none", "FREEZE-5", "repeat abuse", Cause.MALFORMED,
        lambda m, _: replace(m, earlier=(SurvivorSet((Survivor("member-1", OTHER),)),)))
    add("the count's set left out", "FREEZE-5", "count abuse", Cause.MALFORMED, lambda m, _: replace(m, earlier=()), **rests)
    add("the count's set without a member", "FREEZE-7", "count abuse", Cause.COUNT_MISMATCH,
        lambda m, _: replace(m, earlier=(SurvivorSet(m.earlier[0].survivors[1:]), m.earlier[1])), **rests)
    add("the rows' set left out", "FREEZE-5", "count abuse", Cause.MALFORMED, lambda m, _: replace(m, earlier=m.earlier[:1]), **rests)
    add("the rows' set without a member", "FREEZE-7", "count abuse", Cause.COUNT_MISMATCH,
        lambda m, _: replace(m, earlier=(m.earlier[0], SurvivorSet(m.earlier[1].survivors[1:]))), **rests)
    add("this attempt's set as the count's", "FREEZE-7", "count abuse", Cause.COUNT_MISMATCH,
        lambda m, _: replace(m, earlier=(SurvivorSet(tuple(map(Survivor.from_header, m.headers))), m.earlier[1])), **rests)
    add("another set, after the vote", "VOTE-3", split, Cause.ALREADY_VOTED, headers(lambda h, _: h[1:]), after=True)
    add("VOID after a vote on survivors", "VOTE-3", "two attempts, two sets", Cause.ALREADY_VOTED,
        lambda m, _: VoidRequest(m.context, "cancelled"), after=True)
    add("a report that is asked for in another context", "ERASE-1", "erasure abuse", Cause.WRONG_CONTEXT,
        lambda _m, _f: ErasureRequest(OTHER), "coordinator", now_s=LATE_S)
    add("an erasure before the latest end", "ERASE-3", "erasure abuse", Cause.WRONG_PHASE,
        lambda m, _: ErasureRequest(m.context), "coordinator")
    add("an erasure of a member that holds no shares", "ERASE-2", "Sybil", Cause.NOT_A_DECRYPTOR,
        lambda m, _: ErasureRequest(m.context), "member-4", round="nominated", to="member-4", form=Certificate, now_s=LATE_S)
    add("VOID of another context", "VOTE-1", REPLAY, Cause.WRONG_CONTEXT, lambda _m, _f: VoidRequest(OTHER, "cancelled"), "coordinator")
    add("VOID for no reason", "DECODE-5", "two attempts, two sets", Cause.MALFORMED,
        lambda m, _: patched(VoidRequest(m.context, "nobody"), b"\x06nobody", b"\x04none"))
    add("VOID because it is lost", "DECODE-5", "LOST abuse", Cause.MALFORMED,
        lambda m, _: patched(VoidRequest(m.context, "nobody"), b"\x06nobody", b"\x04lost"))
    add("VOID of a member that holds no shares", "VOTE-2", "Sybil", Cause.NOT_A_DECRYPTOR,
        lambda m, _: VoidRequest(m.context, "cancelled"), "member-4", round="nominated", to="member-4", form=Certificate)
    add("survivors after VOID was signed", "VOTE-3", "two attempts, two sets", Cause.ALREADY_VOTED,
        lambda m, f: Freeze(m.context, (), ()), round="voided", form=VoidRequest, after=True)
    add("another reason for VOID after it was signed", "VOTE-3", "two attempts, two sets", Cause.ALREADY_VOTED,
        lambda m, _: VoidRequest(m.context, "cancelled"), round="voided", form=VoidRequest, after=True)
    for name, made in (("VOID", VoidRequest(OTHER, "cancelled")), ("survivors", Freeze(OTHER, (), ())), ("boxes", Deliveries(OTHER, ()))):
        add(f"{name} after the report", "PHASE-2", "erasure abuse", Cause.WRONG_PHASE,
            in_context(made), round="erased", to="member-2", form=ErasureRequest, after=True)
    add("survivors after the latest end", "PHASE-1", "clock skew", Cause.TERMS_EXPIRED, lambda m, _: m, now_s=LATE_S)
    return c.attacks


def certificates() -> list[Attack]:
    add = (c := Chapter("coordinator", "member-1", Certificate)).add

    def resigned(m: Certificate, f: Forger, survivors: Any, voters: tuple[str, ...]) -> Certificate:
        outcome = survivors_hash(m.context, tuple(survivors))
        votes = tuple(Vote.make_signed(f.key(v), context=m.context, member=v, outcome=outcome) for v in voters)
        return Certificate(m.context, tuple(survivors), "none", votes)

    everyone = tuple(f"member-{i}" for i in range(6))
    add("a certificate of another context", "CERT-1", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add("a vote too few", "CERT-3", LOW, Cause.CERTIFICATE_INVALID, lambda m, _: replace(m, votes=m.votes[1:]))
    add("a vote twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, m.votes[1].encode(), m.votes[0].encode()))
    add("a colluder's vote on another set", "CERT-2", "split survivors", Cause.CERTIFICATE_INVALID,
        lambda m, f: replace(m, votes=(*m.votes[:-1], f.again(m.votes[-1], m.votes[-1].member, outcome=OTHER))))
    add("a certificate with a vote that its decryptor did not sign", "ANSWER-3", "both secrets of one member", Cause.BAD_SIGNATURE,
        lambda m, f: replace(m, votes=(f.again(m.votes[0], "member-5"), *m.votes[1:])), VICTIM)
    add("a certificate with a vote that names another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT,
        lambda m, f: replace(m, votes=(replace(m.votes[0], context=OTHER), *m.votes[1:])), VICTIM)
    add("a certificate with a vote of a member that holds no shares", "ANSWER-2", "Sybil", Cause.NOT_A_DECRYPTOR,
        lambda m, f: replace(m, votes=tuple(sorted((*m.votes[1:], f.again(m.votes[0], "member-4", member="member-4")), key=lambda v: v.member))),
        "member-4", round="nominated")
    add("fewer survivors than n_min, signed by all", "CERT-5", "both secrets of one member", Cause.SURVIVORS_TOO_FEW,
        lambda m, f: resigned(m, f, m.survivors[:3], everyone))
    add("a stranger among the survivors, signed by all", "CERT-4", padded := "padded S", Cause.SURVIVORS_INVALID,
        lambda m, f: resigned(m, f, (*m.survivors, replace(m.survivors[0], member="sybil")), everyone))
    add("another upload of this member, signed by all", "CERT-6", padded, Cause.OWN_UPLOAD_CHANGED,
        lambda m, f: resigned(m, f, (m.survivors[0], replace(m.survivors[1], digest=OTHER), *m.survivors[2:]), everyone))
    add("survivors and a reason for VOID", "DECODE-5", "both secrets of one member", Cause.MALFORMED, lambda m, _: patched(m, b"\x04none", b"\x04nope"))
    add("a certificate of the first round in the second", "CERT-1", REPLAY, Cause.WRONG_CONTEXT,
        lambda _, f: f.said(Certificate, "coordinator", "member-1", attempt=0), "coordinator", attempt=1)
    add("disclosure of a round that is none of the count", "COUNT-1", "count abuse", Cause.WRONG_PHASE,
        lambda m, _: Disclosure(m.context, ()), after=True)
    add("another opening in the place of the certificate", "PHASE-3", REPLAY, Cause.WRONG_SEQUENCE,
        lambda _, f: f.again(f.said(Opening, "coordinator", "member-1"), "coordinator", sequence=1), "coordinator")
    return c.attacks


def evictions() -> list[Attack]:
    add = (c := Chapter("coordinator", VICTIM, Evictions, "evicted")).add

    def proof(change: Any) -> Any:
        return lambda m, f: replace(m, proofs=(change(m.proofs[0], f),))

    def holder(**changes: Any) -> Any:
        return proof(lambda p, _: replace(p, holders=(replace(p.holders[0], **changes), *p.holders[1:])))

    def add_false(name: str, rule: str, make: Any, survives: str = FRAMING) -> None:
        add(name, rule, survives, Cause.EVICTION_INVALID, make, "coordinator")

    add("evictions of another context", "EVICT-1", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add_false("an upload that its dealer did not sign", "EVICT-2", proof(lambda p, _: replace(p, header=replace(p.header, salt=OTHER))))
    add_false("an upload that the certificate does not name", "EVICT-2", proof(lambda p, f: replace(p, header=UploadHeader.make_signed(f.key("member-4"), **{**unsigned(p.header), "salt": OTHER}))))
    add_false("commitments that the dealer did not sign", "EVICT-3", proof(lambda p, _: replace(p, commitments=bytes(len(p.commitments)))))
    add_false("a secret that the dealer does not have", "EVICT-4", proof(lambda p, _: replace(p, index=5)))
    add_false("another secret than the one that is false", "EVICT-4", proof(lambda p, _: replace(p, index=1)))
    add_false("the true shares of a secret, as if it were false", "EVICT-6", proof(lambda p, f: replace(
        p, index=1, holders=tuple(replace(each, share=f.share_of(p.member, each.member, 1)) for each in p.holders))))
    add_false("a share that the dealer did not deal", "EVICT-4", holder(share=bytes(36)), SHARES)
    add_false("a holder's row that the dealer did not sign", "EVICT-4", holder(row=bytes(80)))
    add_false("a holder's row without its path", "EVICT-4", holder(path=()))
    add_false("a holder too few", "EVICT-5", proof(lambda p, _: replace(p, holders=p.holders[1:])), LOW)
    add_false("a holder who is none", "EVICT-4", holder(member="a-sybil"), "Sybil")
    add("a holder twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, m.proofs[0].holders[1].encode(), m.proofs[0].holders[0].encode()))
    add_false("a dealer let back in", "EVICT-7", lambda m, _: replace(m, proofs=()))
    c.attacks[-1] = replace(c.attacks[-1], after=True)  # type: ignore[call-arg]  # shown after the honest message
    return c.attacks


def losses() -> list[Attack]:
    add = (c := Chapter("coordinator", "member-2", Erasure, "erased")).add

    def reports(change: Any) -> Any:
        return lambda m, f: replace(m, reports=(change(m.reports[0], f), *m.reports[1:]))

    abuse = "erasure abuse"
    add("an Erasure of another context", "END-1", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add("an Erasure with a report too few", "END-2", abuse, Cause.ERASURE_INVALID, lambda m, _: replace(m, reports=m.reports[1:]))
    add("an Erasure with a report of a reveal", "END-2", abuse, Cause.ERASURE_INVALID,
        reports(lambda r, f: f.again(r, "member-2", revealed=OTHER)))
    add("an Erasure with a report that its decryptor did not sign", "END-2", abuse, Cause.ERASURE_INVALID,
        reports(lambda r, _: replace(r, signature=bytes(64))))
    add("an Erasure with a report of another context", "END-2", abuse, Cause.ERASURE_INVALID,
        reports(lambda r, f: f.again(r, "member-2", context=OTHER)))
    add("an Erasure with a report of a stranger", "END-2", abuse, Cause.ERASURE_INVALID,
        reports(lambda r, f: f.again(r, "member-2", member="a-sybil")))
    add("an Erasure with a report twice", "DECODE-5", "duplicate indices", Cause.MALFORMED,
        lambda m, _: patched(m, m.reports[1].encode(), m.reports[0].encode()))
    add = (d := Chapter("coordinator", "member-4", Lost, "lost")).add
    lost = "LOST abuse"
    add("LOST of another context", "END-1", lost, Cause.WRONG_CONTEXT, lambda m, f: f.again(m, "admin", context=OTHER), "coordinator")
    add("LOST that the coordinator signed", "END-3", lost, Cause.BAD_SIGNATURE, lambda m, f: f.again(m, "coordinator"), "admin")
    add("LOST before the latest end", "END-4", lost, Cause.WRONG_PHASE, lambda m, _: m, "admin", now_s=LATE_S - 1)
    return [*c.attacks, *d.attacks]


def disclosures() -> list[Attack]:
    add = (c := Chapter("coordinator", VICTIM, Disclosure, "count")).add

    def entry(**changes: Any) -> Any:
        return lambda m, _: replace(m, entries=(replace(m.entries[0], **changes), *m.entries[1:]))

    def add_false(name: str, rule: str, make: Any, survives: str = "count abuse") -> None:
        add(name, rule, survives, Cause.DISCLOSURE_INVALID, make, "coordinator")

    add("a disclosure of another context", "COUNT-2", REPLAY, Cause.WRONG_CONTEXT, lambda m, _: replace(m, context=OTHER), "coordinator")
    add_false("a survivor left out", "COUNT-3", lambda m, _: replace(m, entries=m.entries[1:]))
    add_false("another header", "COUNT-3", lambda m, _: entry(header=replace(m.entries[0].header, salt=OTHER))(m, _))
    add_false("commitments that lead nowhere", "COUNT-4", entry(commitments=bytes(64)))
    add_false("a seed left out", "COUNT-4", entry(seeds=()))
    add_false("another seed", "COUNT-4", lambda m, _: entry(seeds=(replace(m.entries[0].seeds[0], seed=OTHER),))(m, _))
    add_false("a seed too many", "COUNT-4", lambda m, _: entry(seeds=(*m.entries[0].seeds, replace(m.entries[0].seeds[0], index=1)))(m, _))
    add_false("a chunk of other bytes", "COUNT-5", lambda m, _: entry(chunks=(bytes(len(m.entries[0].chunks[0])),))(m, _), "digest mismatch")
    add_false("a disclosed chunk too many", "COUNT-5", lambda m, _: entry(chunks=m.entries[0].chunks * 2)(m, _), "truncated or extra chunk")
    add_false("a chunk left out", "COUNT-5", entry(chunks=()), "truncated or extra chunk")
    add_false("other digests", "COUNT-5", entry(chunk_digests=(OTHER,)), "digest mismatch")
    return c.attacks


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    groups = (cards, mlkem_keys, manifests, ciphertexts, openings, deliveries, proposals, certificates, evictions, losses, disclosures)
    return [each for group in groups for each in group()]
