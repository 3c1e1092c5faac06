"""What hashes and signatures are taken over (protocol §2 to §4), spelt out by hand."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.forging import again
from tests.protocol.messages.forms import sample
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    EMPTY_CHAIN,
    NO_CONTEXT,
    Certificate,
    Erasure,
    KeyCard,
    Link,
    Lost,
    Manifest,
    Opening,
    Reveal,
    Roster,
    Study,
    Survivor,
    Terms,
    UploadHeader,
    cards_beacon,
    cards_tree,
    cohort_id,
    deliveries_hash,
    edge_commitment,
    extend_chain,
    self_commitment,
    share_commitment,
    share_commitments,
    survivors_hash,
    void_hash,
)
from veilsum.protocol.messages.base import Signed
from veilsum.protocol.messages.parse import MESSAGES

CONTEXT = b"\xc7" * 32
KEY = SigningKey(b"\x0a" * 32)
SIGNED = [form for form in MESSAGES.values() if issubclass(form, Signed)]
REVEALS = {"Reveal", "RevealSummary"}


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/3/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def other(value: Any) -> Any:
    """A value of the same type that is not this one."""
    match value:
        case bytes():
            return bytes(len(value)) if any(value) else b"\x01" * len(value)
        case str():
            return "b"
        case int():
            return value + 1
        case tuple():
            return ()
    return replace(value, latest_end_s=2)


@pytest.mark.parametrize("form", SIGNED, ids=lambda form: form.__name__)
def test_every_field_is_signed(form: type[Signed]) -> None:
    made = again(sample(form), KEY)
    made.verify(KEY.public, "the signer")
    if form.__name__ not in REVEALS:
        tag = form.tag.removeprefix(b"veilsum/3/").removesuffix(b"\0")
        assert made.digest == h(tag, made.to_bytes()[:-64])
    for name, _ in form.codecs():
        if name != "signature":
            changed: dict[str, Any] = {name: other(getattr(made, name))}
            with pytest.raises(PeerFault, match=r"^bad-signature: .*\[the signer\]$"):
                replace(made, **changed).verify(KEY.public, "the signer")


def test_what_names_roster_study_cohort_and_manifest() -> None:
    roster, study, manifest = sample(Roster), sample(Study), sample(Manifest)
    assert roster.hash == h(b"roster", roster.to_bytes())
    assert study.hash == h(b"study", study.to_bytes()[:-64])
    assert replace(study, signature=bytes(64)).hash == study.hash
    assert manifest.hash == h(b"manifest", manifest.to_bytes())
    named = (roster.hash, (5).to_bytes(8, "little"), study.hash, b"2026-11", CONTEXT)
    assert cohort_id(roster.hash, 5, study.hash, "2026-11", CONTEXT) == h(b"cohort", *named)


def test_the_cards_root_and_the_beacon() -> None:
    cards = [replace(sample(KeyCard), member=member) for member in ("a", "b", "c")]
    assert cards_tree(cards).root == Tree.of(card.to_bytes() for card in cards).root
    assert cards_beacon(CONTEXT, bytes(32)) == h(b"cards", CONTEXT, bytes(32))
    manifest = sample(Manifest)
    assert manifest.beacon == cards_beacon(manifest.cohort, manifest.cards_root)


def test_terms_and_chain() -> None:
    terms, link = sample(Terms), sample(Link)
    second = replace(link, attempt=2)
    assert terms.hash == h(b"terms", terms.encode_fields())
    once = h(b"link", bytes(32), link.encode_fields())
    assert extend_chain(EMPTY_CHAIN, ()) == bytes(32)
    assert extend_chain(EMPTY_CHAIN, (link, second)) == h(b"link", once, second.encode_fields())
    for name, _ in Link.codecs():
        changed: dict[str, Any] = {name: other(getattr(link, name))}
        assert extend_chain(EMPTY_CHAIN, (replace(link, **changed),)) != once


def test_an_uploads_digest_and_signature() -> None:
    header = again(sample(UploadHeader), KEY)
    roots = (header.chunk_root, header.commitment_root, header.box_root)
    assert header.digest == h(b"upload-digest", header.context, b"a", header.salt, *roots)
    assert header.signature == KEY.sign(h(b"upload", header.context, b"a", header.digest))
    header.verify(KEY.public)
    for name, _ in UploadHeader.codecs():
        changed: dict[str, Any] = {name: other(getattr(header, name))}
        with pytest.raises(PeerFault, match=r"^bad-signature:"):
            replace(header, **changed).verify(KEY.public)


def test_a_receipt_binds_what_was_delivered() -> None:
    assert deliveries_hash(CONTEXT, (b"\x01" * 32, b"\x02" * 32)) == (
        h(b"deliveries", CONTEXT, b"\x01" * 32, b"\x02" * 32)
    )
    assert deliveries_hash(CONTEXT, ()) == h(b"deliveries", CONTEXT)


def test_commitments_are_sixteen_bytes_of_the_hash() -> None:
    seed, share = b"\x5d" * 32, b"\x5f" * 36
    assert self_commitment(CONTEXT, "ann", seed) == h(b"commit-self", CONTEXT, b"ann", seed)[:16]
    assert (
        edge_commitment(CONTEXT, "ann", "bob", seed)
        == (h(b"commit-edge", CONTEXT, b"ann", b"bob", seed)[:16])
    )
    assert (
        share_commitment(CONTEXT, "ann", "bob", 258, share)
        == (h(b"commit-share", CONTEXT, b"ann", b"bob", b"\x02\x01\0\0", share)[:16])
    )


def test_shares_are_committed_to_together_as_one_by_one() -> None:
    shares = [bytes([fill]) * 36 for fill in (0x5F, 0x60, 0x61)]
    singly = [
        share_commitment(CONTEXT, "ann", "bob", index, share)
        for index, share in zip((0, 258, 7), shares, strict=True)
    ]
    assert share_commitments(CONTEXT, "ann", "bob", (0, 258, 7), b"".join(shares)) == b"".join(singly)
    for indices in ((0, 1), (0, 1, 2, 3)):
        with pytest.raises(ValueError, match="zip"):
            share_commitments(CONTEXT, "ann", "bob", indices, b"".join(shares))


def test_outcomes_are_hashes_of_the_context_and_what_ends_it() -> None:
    survivors = (Survivor("ann", b"\x01" * 32), Survivor("bob", b"\x02" * 32))
    certified = Certificate(CONTEXT, survivors, "none", ())
    void = Certificate(CONTEXT, (), "cancelled", ())
    fields = [survivor.encode_fields() for survivor in survivors]
    assert certified.outcome == survivors_hash(CONTEXT, survivors) == h(b"survivors", CONTEXT, *fields)
    assert void.outcome == void_hash(CONTEXT, "cancelled") == h(b"void", CONTEXT, b"cancelled")
    assert certified.survivors_hash == certified.outcome
    assert void.survivors_hash == NO_CONTEXT
    assert certified.names(replace(sample(UploadHeader), member="ann")) is False


def test_what_else_ends_an_attempt_is_named_by_its_reason_alone() -> None:
    assert (Erasure.reason, Erasure.survivors_hash) == ("erased", NO_CONTEXT)
    assert (Lost.reason, Lost.survivors_hash) == ("lost", NO_CONTEXT)


def test_a_reveal_is_signed_by_the_roots_of_what_it_reveals() -> None:
    runs = (SecretBytes(b"\x5f" * 36), SecretBytes(b"\x60" * 72))
    reveal = replace(sample(Reveal), evicted=("cat", "dan"), runs=runs)
    roots = Tree.of([b"cat", b"dan"]).root, Tree.of(list(runs)).root
    assert reveal.digest == h(b"reveal", reveal.context, b"a", reveal.outcome, *roots)
    nothing = Tree.of([b""]).root
    bare = replace(reveal, evicted=(), runs=())
    assert bare.digest == h(b"reveal", reveal.context, b"a", reveal.outcome, nothing, nothing)


def test_a_reveals_summary_stands_under_the_same_signature_and_holds_no_share() -> None:
    runs = (SecretBytes(b"\x5f" * 36), SecretBytes(b"\x60" * 72))
    reveal = again(replace(sample(Reveal), runs=runs), KEY)
    reveal.summary.verify(KEY.public, "bob")
    assert reveal.summary.digest == reveal.digest
    assert not any(run[:8] in reveal.summary.to_bytes() for run in runs)
    assert "5f5f" not in repr(reveal)


def test_an_opening_is_named_by_its_place() -> None:
    assert sample(Opening).place == (1, 1)
