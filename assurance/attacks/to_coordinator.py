"""False messages that an honest coordinator must refuse."""

from dataclasses import replace
from typing import Any

from assurance.attacks.base import ENROLMENT, LOW_ORDER, Attack, Chapter, Forger, patched
from tests.support.forging import mlkem_key_above_q, resign
from veilsum.protocol.causes import Cause
from veilsum.protocol.keys import hash_mlkem_key
from veilsum.protocol.messages import (
    Deliveries,
    Enrolment,
    Erased,
    Freeze,
    Lost,
    Opening,
    Pairing,
    Receipt,
    Refusal,
    Reveal,
    Upload,
    VoidRequest,
    Vote,
)
from veilsum.protocol.shamir import LIMB_PRIME

# fmt: off
# The table is easier to read with one row to a line.
OTHER = b"\x66" * 32
REPLAY = "replay across attempts, rounds, cohorts, federations"
SHARES = "wrong, short, non-canonical shares"
FRAMING = "a dealer framing a decryptor and the reverse"
EQUIVOCATING = "equivocating decryptor"
KEM = "ML-KEM keys exchanged, malformed or used twice"
EXCHANGED = "ciphertexts exchanged, withheld or replayed"
DOWNGRADE = "downgrade to keys without ML-KEM"


def cards() -> list[Attack]:
    """Cards of member-1, after member-0's."""
    add = (c := Chapter("member-1", "coordinator", Enrolment, attempt=ENROLMENT)).add

    def card(who: str = "member-1", **changes: Any) -> Any:
        return lambda m, f: replace(m, card=f.again(m.card, who, **changes))

    def keyed(change: Any) -> Any:
        """Send another ML-KEM key, whose hash the card holds."""
        return lambda m, f: hashed(change(m.mlkem_key))(m, f)

    def hashed(key: bytes, **changes: Any) -> Any:
        return lambda m, f: replace(card(mlkem_key_hash=hash_mlkem_key(key), **changes)(m, f), mlkem_key=key)

    def first(f: Forger) -> Enrolment:
        sent: Enrolment = f.said(Enrolment, "member-0")
        return sent

    points = "low-order points"
    add("a card for another cohort", "ENROL-1", REPLAY, Cause.WRONG_COHORT, card(cohort=OTHER), "member-1")
    add("a card of a stranger", "ENROL-2", "Sybil", Cause.UNKNOWN_MEMBER, card(member="sybil"), "sybil")
    add("a card that its member did not sign", "ENROL-3", "Sybil", Cause.BAD_SIGNATURE, card("member-2"), "member-1")
    add("a card that expires within the day", "ENROL-4", "clock skew", Cause.CARD_EXPIRED, card(expires_s=1_086_399), "member-1")
    add("a second card", "ENROL-5", "other cards or roster for one victim", Cause.CARD_CONFLICT, card(nonce=OTHER), "member-1", after=True)
    add("a second card, with the ML-KEM key of the first", "ENROL-5", KEM, Cause.CARD_CONFLICT, card(x25519_key=OTHER), "member-1", after=True)
    add("a card with another's X25519 key", "ENROL-8", points, Cause.DUPLICATE,
        lambda m, f: card(x25519_key=first(f).card.x25519_key)(m, f), "member-1")
    add("a card with another's X25519 key, encoded otherwise", "ENROL-8", points, Cause.DUPLICATE,
        lambda m, f: card(x25519_key=twin(first(f).card.x25519_key))(m, f), "member-1")
    for point in LOW_ORDER:
        add(f"a card with an X25519 key of low order, {point[:8]}", "ENROL-7", points, Cause.LOW_ORDER_POINT, card(x25519_key=bytes.fromhex(point)), "member-1")
    add("another ML-KEM key than the card that is sent holds the hash of", "ENROL-6", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: replace(m, mlkem_key=first(f).mlkem_key), "member-1")
    add("a card without the hash of its ML-KEM key", "ENROL-6", DOWNGRADE, Cause.MLKEM_KEY_INVALID, card(mlkem_key_hash=bytes(32)), "member-1")
    add("a card with a second X25519 key where the hash of an ML-KEM key belongs", "ENROL-6", DOWNGRADE, Cause.MLKEM_KEY_INVALID,
        lambda m, f: card(mlkem_key_hash=first(f).card.x25519_key)(m, f), "member-1")
    add("a card with an ML-KEM key above q", "ENROL-6", KEM, Cause.MLKEM_KEY_INVALID, keyed(mlkem_key_above_q), "member-1")
    add("a card with an ML-KEM key of all ones", "ENROL-6", KEM, Cause.MLKEM_KEY_INVALID, keyed(lambda _: b"\xff" * 1184), "member-1")
    add("a card with another's ML-KEM key", "ENROL-8", KEM, Cause.DUPLICATE, lambda m, f: hashed(first(f).mlkem_key)(m, f), "member-1")
    add("a card with another's ML-KEM key, above q, and an X25519 key of low order", "ENROL-6", KEM, Cause.MLKEM_KEY_INVALID,
        lambda m, f: hashed(mlkem_key_above_q(first(f).mlkem_key), x25519_key=bytes(32))(m, f), "member-1")
    add("a card with another's ML-KEM key and an X25519 key of low order", "ENROL-7", points, Cause.LOW_ORDER_POINT,
        lambda m, f: hashed(first(f).mlkem_key, x25519_key=bytes(32))(m, f), "member-1")
    return c.attacks


def pairings() -> list[Attack]:
    """Pairings of member-1, which encapsulates to member-2, member-3 and member-4."""
    add = (c := Chapter("member-1", "coordinator", Pairing, attempt=ENROLMENT)).add

    def pairing(who: str = "member-1", **changes: Any) -> Any:
        return lambda m, f: f.again(m, who, **changes)

    def sent(change: Any, who: str = "member-1") -> Any:
        return lambda m, f: f.again(m, who, ciphertexts=change(m.ciphertexts))

    def add_shape(name: str, make: Any) -> None:
        add(name, "PAIR-4", EXCHANGED, Cause.PAIRING_MISSHAPEN, make, "member-1")

    # The service ignores it: a member may pair again before it has seen the newest manifest.
    add("a pairing of another manifest", "PAIR-1", REPLAY, Cause.MANIFEST_MISMATCH, pairing(manifest=OTHER), "member-1")
    add("a pairing of another cohort", "PAIR-1", REPLAY, Cause.MANIFEST_MISMATCH,
        lambda _, f: Forger("nominated", ENROLMENT).said(Pairing, "member-1"), "member-1")
    add("a pairing of a stranger", "PAIR-2", "Sybil", Cause.UNKNOWN_MEMBER, pairing(member="sybil"), "sybil")
    add("a pairing that its member did not sign", "PAIR-3", "Sybil", Cause.BAD_SIGNATURE, pairing("member-2"), "member-1")
    add("a pairing under another's name", "PAIR-3", "Sybil", Cause.BAD_SIGNATURE, pairing(member="member-2"), "member-2")
    add("ciphertexts exchanged after they were signed", "PAIR-3", EXCHANGED, Cause.BAD_SIGNATURE,
        lambda m, _: replace(m, ciphertexts=m.ciphertexts[::-1]), "member-1")
    add_shape("a ciphertext too few", sent(lambda found: found[1:]))
    add_shape("a ciphertext too many", sent(lambda found: (*found, found[0])))
    add_shape("no ciphertext at all", sent(lambda _: ()))
    add_shape("ciphertexts for everyone", sent(lambda found: (found[0],) * 5))
    add("the ciphertexts of another member's pairing, which has fewer", "PAIR-4", EXCHANGED, Cause.PAIRING_MISSHAPEN,
        lambda m, f: f.again(m, "member-1", ciphertexts=f.said(Pairing, "member-5").ciphertexts), "member-1")
    add("a second pairing", "PAIR-5", EXCHANGED, Cause.PAIRING_CONFLICT, sent(lambda found: found[::-1]), "member-1", after=True)
    add("a second pairing, with too few ciphertexts", "PAIR-4", EXCHANGED, Cause.PAIRING_MISSHAPEN, sent(lambda found: found[1:]), "member-1", after=True)
    return c.attacks


def twin(key: bytes) -> bytes:
    """Return the same point with its top bit flipped, which X25519 ignores (RFC 7748 §5)."""
    return key[:31] + bytes([key[31] ^ 0x80])


def uploads() -> list[Attack]:
    """Uploads of member-1, in both rounds."""
    add = (c := Chapter("member-1", "coordinator", Upload)).add

    def remade(**changes: Any) -> Any:
        return lambda m, f: resign(f.federation, m, **changes)

    def unsigned(**changes: Any) -> Any:
        return lambda m, _: replace(m, **changes)

    def shaped(change: Any) -> Any:
        return lambda m, f: resign(f.federation, m, **change(m))

    def add_shape(name: str, make: Any, survives: str = "truncated or extra chunk") -> None:
        add(name, "UPLOAD-4", survives, Cause.UPLOAD_MISSHAPEN, make, "member-1")

    def add_unbound(name: str, make: Any) -> None:
        add(name, "UPLOAD-5", "digest mismatch", Cause.UPLOAD_MISSHAPEN, make, "member-1")

    add("an upload of another context", "UPLOAD-1", REPLAY, Cause.WRONG_CONTEXT, remade(context=OTHER), "member-1")
    add("the first round's upload again", "UPLOAD-1", REPLAY, Cause.WRONG_CONTEXT, lambda _, f: f.said(Upload, "member-1", attempt=0), "member-1", attempt=1)
    add("an upload that its member did not sign", "UPLOAD-3", "digest mismatch", Cause.BAD_SIGNATURE,
        lambda m, _: replace(m, header=replace(m.header, salt=OTHER)), "member-1")
    add("an upload under another's name", "UPLOAD-3", "Sybil", Cause.BAD_SIGNATURE,
        lambda m, _: replace(m, header=replace(m.header, member="member-2")), "member-2")
    add("an upload of a stranger", "UPLOAD-2", "Sybil", Cause.UNKNOWN_MEMBER, lambda m, _: replace(m, header=replace(m.header, member="sybil")), "sybil")
    add_shape("a chunk too few", lambda m, _: replace(m, chunk_digests=m.chunk_digests[:-1]))
    add_shape("a chunk too many", shaped(lambda m: {"chunk_digests": (*m.chunk_digests, OTHER)}))
    add_shape("a commitment too few", shaped(lambda m: {"secret_commitments": m.secret_commitments[:-1]}), SHARES)
    add_shape("a row too few", shaped(lambda m: {"share_rows": m.share_rows[:-1]}), SHARES)
    add_shape("a row cut short", shaped(lambda m: {"share_rows": (m.share_rows[0][:-1], *m.share_rows[1:])}), SHARES)
    add_shape("a box too few", shaped(lambda m: {"boxes": m.boxes[:-1]}), SHARES)
    add_shape("an upload's box cut short", shaped(lambda m: {"boxes": (m.boxes[0][:-1], *m.boxes[1:])}), SHARES)
    add_shape("a box with a share more", shaped(lambda m: {"boxes": (m.boxes[0] + bytes(36), *m.boxes[1:])}), SHARES)
    add_shape("a box for itself", shaped(lambda m: {"boxes": (m.boxes[0], m.boxes[0], *m.boxes[2:])}), SHARES)
    add_shape("boxes out of their decryptors' order", shaped(lambda m: {"boxes": (m.boxes[1], m.boxes[0], *m.boxes[2:])}), "share order chosen by the coordinator")
    add_unbound("digests that the root does not bind", lambda m, _: unsigned(chunk_digests=(OTHER,) * len(m.chunk_digests))(m, _))
    add_unbound("commitments that the root does not bind", lambda m, _: unsigned(secret_commitments=m.secret_commitments[::-1])(m, _))
    add_unbound("rows that the root does not bind", lambda m, _: unsigned(share_rows=m.share_rows[::-1])(m, _))
    add_unbound("boxes that the root does not bind", lambda m, _: unsigned(boxes=(bytes(232), *m.boxes[1:]))(m, _))
    add("a second upload", "UPLOAD-6", "two attempts, two sets", Cause.UPLOAD_CONFLICT, remade(salt=OTHER), "member-1", after=True)
    add("a second upload of other chunks", "UPLOAD-6", "overlapping rounds, three rounds", Cause.UPLOAD_CONFLICT, remade(chunk_digests=(OTHER,)), "member-1", after=True)
    add("an upload once the boxes are out", "PHASE-2", "partial upload counted", Cause.WRONG_PHASE,
        lambda _, f: resign(f.federation, f.said(Upload, "member-1"), salt=OTHER), form=Receipt)
    return c.attacks


def receipts() -> list[Attack]:
    """Receipts of member-1."""
    add = (c := Chapter("member-1", "coordinator", Receipt)).add

    def receipt(who: str = "member-1", **changes: Any) -> Any:
        return lambda m, f: f.again(m, who, **changes)

    add("a receipt of another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, receipt(context=OTHER), "member-1")
    add("a receipt that its decryptor did not sign", "ANSWER-3", "Sybil", Cause.BAD_SIGNATURE, receipt("member-2"), "member-1")
    add("a receipt of a member that holds no shares", "ANSWER-2", "Sybil", Cause.NOT_A_DECRYPTOR, receipt("member-4", member="member-4"), "member-4", round="nominated")
    add("a receipt that passes a dealer over", "ANSWER-7", FRAMING, Cause.MALFORMED, lambda m, f: f.again(m, "member-1", dealers=m.dealers[1:]), "member-1")
    add("a receipt that praises a dealer and complains of it", "ANSWER-7", FRAMING, Cause.MALFORMED,
        lambda m, f: f.again(m, "member-1", complaints=m.dealers[:1]), "member-1")
    add("a receipt for a dealer that sent nothing", "ANSWER-7", "partial upload counted", Cause.MALFORMED,
        lambda m, f: f.again(m, "member-1", dealers=tuple(sorted((*m.dealers, "member-4")))), "member-1")
    add("a receipt for its own box", "ANSWER-7", FRAMING, Cause.MALFORMED,
        lambda m, f: f.again(m, "member-1", dealers=tuple(sorted((*m.dealers, "member-1")))), "member-1")
    add("a complaint after a clean receipt", "ANSWER-5", FRAMING, Cause.CONFLICT,
        lambda m, f: f.again(m, "member-1", dealers=m.dealers[1:], complaints=m.dealers[:1]), "member-1", after=True)
    add("a dealer twice in a receipt", "DECODE-5", "duplicate indices", Cause.MALFORMED, lambda m, _: patched(m, b"\x08member-2", b"\x08member-0"))
    return c.attacks


def votes() -> list[Attack]:
    """Votes of member-1."""
    add = (c := Chapter("member-1", "coordinator", Vote)).add

    def vote(who: str = "member-1", **changes: Any) -> Any:
        return lambda m, f: f.again(m, who, **changes)

    add("a vote of another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, vote(context=OTHER), "member-1")
    add("the first round's vote again", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, lambda _, f: f.said(Vote, "member-1", attempt=0), "member-1", attempt=1)
    add("a vote that its decryptor did not sign", "ANSWER-3", EQUIVOCATING, Cause.BAD_SIGNATURE, vote("member-2"), "member-1")
    add("a vote of a member that holds no shares", "ANSWER-2", "Sybil", Cause.NOT_A_DECRYPTOR, vote("member-4", member="member-4"), "member-4", round="nominated")
    add("a vote on a set that nobody proposed", "ANSWER-6", "split survivors", Cause.SURVIVORS_INVALID, vote(outcome=OTHER), "member-1")
    add("a second vote, on another set", "ANSWER-4", EQUIVOCATING, Cause.ALREADY_VOTED, vote(outcome=OTHER), "member-1", after=True)
    add("a second vote, on VOID for another reason", "ANSWER-4", EQUIVOCATING, Cause.ALREADY_VOTED, vote(outcome=OTHER), "member-1", after=True, round="voided")
    add("a refusal that its decryptor did not sign", "ANSWER-3", "Sybil", Cause.BAD_SIGNATURE,
        lambda m, f: Refusal.make_signed(f.key("member-2"), context=m.context, member="member-1", cause="window-exceeded"), "member-1")
    add("a refusal of another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT,
        lambda m, f: Refusal.make_signed(f.key("member-1"), context=OTHER, member="member-1", cause="window-exceeded"), "member-1")
    add("shares before a certificate", "PHASE-2", "both secrets of one member", Cause.WRONG_PHASE, lambda _, f: f.said(Reveal, "member-1"))
    add("a report before the latest end", "PHASE-2", "erasure abuse", Cause.WRONG_PHASE,
        lambda m, f: Erased.make_signed(f.key("member-1"), context=m.context, member="member-1", revealed=bytes(32)))
    for form in (Opening, Deliveries, Freeze, VoidRequest):
        add(f"the coordinator's own {form.__name__}", "PHASE-2", REPLAY, Cause.WRONG_PHASE, its_own(form))
    return c.attacks


def its_own(form: Any) -> Any:
    """Return a message of the coordinator's own."""
    if form is VoidRequest:
        return lambda m, _: VoidRequest(m.context, "cancelled")
    return lambda _, f: f.said(form, "coordinator", "member-1")


def reveals() -> list[Attack]:
    """Reveals of member-1. Its first run has shares of member-0's secrets: b_u, then r_uw for member-4."""
    add = (c := Chapter("member-1", "coordinator", Reveal)).add

    def reveal(who: str = "member-1", **changes: Any) -> Any:
        return lambda m, f: f.again(m, who, **changes)

    def runs(change: Any) -> Any:
        return lambda m, f: f.again(m, "member-1", runs=change(m.runs))

    def first(change: Any) -> Any:
        return runs(lambda found: (change(found[0]), *found[1:]))

    def add_share(name: str, make: Any) -> None:
        add(name, "REVEAL-3", SHARES, Cause.SHARE_INVALID, make, "member-1")

    def add_shape(name: str, make: Any, rule: str = "REVEAL-2", survives: str = SHARES) -> None:
        add(name, rule, survives, Cause.REVEAL_MISSHAPEN, make, "member-1")

    add("a reveal of another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, reveal(context=OTHER), "member-1")
    add("a reveal that its decryptor did not sign", "ANSWER-3", FRAMING, Cause.BAD_SIGNATURE, reveal("member-2"), "member-1")
    add("a reveal of a member that holds no shares", "ANSWER-2", "Sybil", Cause.NOT_A_DECRYPTOR, reveal("member-4", member="member-4"), "member-4", round="nominated")
    add_shape("a reveal for another outcome", reveal(outcome=OTHER), "REVEAL-1", EQUIVOCATING)
    add_shape("a reveal that evicts an honest dealer", reveal(evicted=("member-0",)), "REVEAL-1", FRAMING)
    add_shape("a run too few", runs(lambda found: found[1:]))
    add_shape("a run too many", runs(lambda found: (*found, found[0])))
    add_shape("a run cut short", first(lambda run: run[:-1]))
    add_shape("a run with a share more", first(lambda run: run + bytes(36)))
    add_shape("no run at all", runs(lambda _: ()))
    add_share("another share of b_u", first(lambda run: bumped(run, 0)))
    add_share("another share of r_uw", first(lambda run: bumped(run, 36)))
    add_share("a share whose word is p", first(lambda run: LIMB_PRIME.to_bytes(4, "little") + run[4:]))
    add_share("a share whose word is above p", first(lambda run: b"\xff" * 4 + run[4:]))
    add_share("shares in another order", first(lambda run: run[36:] + run[:36]))
    add_share("runs in another order", runs(lambda found: found[::-1]))
    add_share("another decryptor's shares", lambda _, f: f.again(f.said(Reveal, "member-0"), "member-1", member="member-1"))
    add("a second reveal with other shares", "REVEAL-3", EQUIVOCATING, Cause.SHARE_INVALID, first(lambda run: bumped(run, 0)), "member-1", after=True)
    return c.attacks


def bumped(run: bytes, at: int) -> bytes:
    """Add one to a word of the run."""
    word = (int.from_bytes(run[at : at + 4], "little") + 1) % LIMB_PRIME
    return run[:at] + word.to_bytes(4, "little") + run[at + 4 :]


def reports() -> list[Attack]:
    """Erasure reports of member-2."""
    add = (c := Chapter("member-2", "coordinator", Erased, "erased")).add

    def report(who: str = "member-2", **changes: Any) -> Any:
        return lambda m, f: f.again(m, who, **changes)

    abuse = "erasure abuse"
    add("a report bound to another context", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, report(context=OTHER), "member-2")
    add("a report by somebody else", "ANSWER-3", abuse, Cause.BAD_SIGNATURE, report("member-3"), "member-2")
    add("a report of a member that nobody knows", "ANSWER-2", abuse, Cause.NOT_A_DECRYPTOR, report(member="sybil"), "sybil")
    add("a second report", "ANSWER-5", abuse, Cause.CONFLICT, report(revealed=OTHER), "member-2", after=True)
    add("an upload after the latest end", "PHASE-2", abuse, Cause.WRONG_PHASE, lambda _, f: f.said(Upload, "member-2"))
    add("LOST by the coordinator's own hand", "END-3", "LOST abuse", Cause.BAD_SIGNATURE,
        lambda m, f: Lost.make_signed(f.key("coordinator"), context=m.context), "admin")
    return c.attacks


def late() -> list[Attack]:
    """Votes and receipts after their phase: while shares are revealed, once there is a sum, and after VOID and an Erasure."""
    found = list[Attack]()
    for when, source, form, where in (
        ("while shares are revealed", "member-1", Reveal, {}),
        ("once the seeds are rebuilt", "member-3", Reveal, {"after": True}),
        ("while reports are awaited", "member-4", Erased, {"round": "erased"}),
        ("after an Erasure", "member-4", Erased, {"round": "erased", "after": True}),
    ):
        add = (c := Chapter(source, "coordinator", form)).add

        def said(kind: Any, who: str = source, by: str = source, **changes: Any) -> Any:
            return lambda _, f: f.again(f.said(kind, by), who, **changes)

        for kind in (Vote, Receipt):
            name = f"a {kind.__name__.lower()} of another"
            add(f"{name} context {when}", "ANSWER-1", REPLAY, Cause.WRONG_CONTEXT, said(kind, context=OTHER), source, **where)
            add(f"{name} signer {when}", "ANSWER-3", "Sybil", Cause.BAD_SIGNATURE, said(kind, "member-2"), source, **where)
            add(f"{name} member {when}", "ANSWER-2", "Sybil", Cause.NOT_A_DECRYPTOR, said(kind, member="sybil"), "sybil", **where)
        add(f"a second vote {when}", "ANSWER-4", EQUIVOCATING, Cause.ALREADY_VOTED, said(Vote, outcome=OTHER), source, **where)
        add(f"a second receipt {when}", "ANSWER-5", EQUIVOCATING, Cause.CONFLICT, said(Receipt, uploads=OTHER), source, **where)
        slow = "member-5" if form is Reveal else "member-0"  # has sent no vote
        add(f"a vote that nobody asked for {when}", "ANSWER-6", EQUIVOCATING, Cause.SURVIVORS_INVALID, said(Vote, slow, member=slow, outcome=OTHER), slow, **where)
        found += c.attacks
    add = (c := Chapter("member-2", "coordinator", Vote, "voided")).add
    add("a second vote after VOID", "ANSWER-4", EQUIVOCATING, Cause.ALREADY_VOTED, lambda m, f: f.again(m, "member-2", outcome=OTHER), "member-2", after=True)
    add("a vote that nobody asked for after VOID", "ANSWER-6", EQUIVOCATING, Cause.SURVIVORS_INVALID,
        lambda m, f: f.again(m, "member-3", member="member-3", outcome=OTHER), "member-3", after=True)
    add("shares after VOID", "REVEAL-1", "both secrets of one member", Cause.REVEAL_MISSHAPEN,
        lambda m, f: Reveal.make_signed(f.key("member-3"), context=m.context, member="member-3", outcome=OTHER, evicted=(), runs=()), "member-3", after=True)
    add = (c2 := Chapter("member-4", "coordinator", Erased, "erased")).add
    add("a second report after an Erasure", "ANSWER-5", "erasure abuse", Cause.CONFLICT, lambda m, f: f.again(m, "member-4", revealed=OTHER), "member-4", after=True)
    return [*found, *c.attacks, *c2.attacks]


def attacks() -> list[Attack]:
    """Return all attacks of this module."""
    return [each for group in (cards, pairings, uploads, receipts, votes, reveals, reports, late) for each in group()]
