"""What a coordinator can do to a transcript before it signs it, and what an auditor finds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.protocol.questions import link
from tests.protocol.transcripts import Entries, find, rewritten
from tests.support.forging import again
from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Evictions,
    Freeze,
    Message,
    Receipt,
    RevealSummary,
    Shown,
    UploadSummary,
    VoidRequest,
    Vote,
    cards_tree,
    parse_message,
)


def without_a_card(message: Cards) -> Cards:
    return replace(message, shown=message.shown[1:])


def in_part(message: Cards) -> Cards:
    """Show the cards as to a member of a large cohort: all are bound by the root, but not all are included."""
    tree = cards_tree(each.card for each in message.shown)
    shown = tuple(replace(each, path=tuple(tree.path_to(place))) for place, each in enumerate(message.shown))
    return replace(message, shown=shown[1:])


def with_other_key(federation: Federation, **keys: bytes) -> Callable[[Cards], Cards]:
    """Replace the key in member-0's card, under a root that binds the new card."""

    def change(cards: Cards) -> Cards:
        card = again(cards.shown[0].card, federation.keys["member-0"], **keys)
        shown = (Shown(card, b"", ()), *cards.shown[1:])
        manifest = replace(cards.manifest, cards_root=cards_tree(each.card for each in shown).root)
        return Cards(manifest, shown)

    return change


BEGINNINGS: dict[str, tuple[int, Callable[[Federation, Any], Message], Cause]] = {
    "a roster the admin did not sign": (
        0,
        lambda f, m: again(m, f.coordinator, number=2),
        Cause.BAD_SIGNATURE,
    ),
    "a roster of another federation": (
        0,
        lambda f, m: again(m, f.coordinator, federation=f.coordinator.public),
        Cause.WRONG_FEDERATION,
    ),
    "a roster that revokes the study": (
        0,
        lambda f, m: again(m, f.admin, revoked=(f.study.hash,)),
        Cause.STUDY_REFUSED,
    ),
    "a study the study key did not sign": (1, lambda f, m: again(m, f.coordinator), Cause.BAD_SIGNATURE),
    "a study of another federation": (
        1,
        lambda f, m: again(m, f.admin, federation=f.coordinator.public),
        Cause.WRONG_FEDERATION,
    ),
    "a study that breaks a rule": (
        1,
        lambda f, m: again(m, f.admin, content=m.content.replace(b'"a":1', b'"a":0')),
        Cause.STUDY_REFUSED,
    ),
    "a study that is no study": (1, lambda f, m: again(m, f.admin, content=b"{}"), Cause.STUDY_REFUSED),
    "another study than the cohort's": (1, lambda f, _: f.study_of(dim=9), Cause.WRONG_COHORT),
    "a manifest of another roster": (
        2,
        lambda _, m: replace(m, manifest=replace(m.manifest, roster_hash=bytes(32))),
        Cause.WRONG_COHORT,
    ),
    "a manifest of another period": (
        2,
        lambda _, m: replace(m, manifest=replace(m.manifest, period="another")),
        Cause.WRONG_COHORT,
    ),
    "a lower threshold": (
        2,
        lambda _, m: replace(m, manifest=replace(m.manifest, threshold=2)),
        Cause.WEAK_PARAMETERS,
    ),
    "a card left out": (2, lambda _, m: without_a_card(m), Cause.MANIFEST_MISMATCH),
    "a card left out, the others by their paths": (2, lambda _, m: in_part(m), Cause.MANIFEST_MISMATCH),
    "a card its member did not sign": (
        2,
        lambda f, m: replace(m, shown=(Shown(again(m.shown[0].card, f.admin), b"", ()), *m.shown[1:])),
        Cause.BAD_SIGNATURE,
    ),
    "a card the root does not bind": (
        2,
        lambda f, m: replace(
            m,
            shown=(Shown(again(m.shown[0].card, f.keys["member-0"], nonce=bytes(32)), b"", ()), *m.shown[1:]),
        ),
        Cause.MANIFEST_MISMATCH,
    ),
    "a key of low order": (2, lambda f, m: with_other_key(f, x25519_key=bytes(32))(m), Cause.LOW_ORDER_POINT),
    "an opening of another cohort": (
        3,
        lambda f, m: again(m, f.coordinator, cohort=bytes(32)),
        Cause.WRONG_COHORT,
    ),
    "an opening the coordinator did not sign": (3, lambda f, m: again(m, f.admin), Cause.BAD_SIGNATURE),
    "a place skipped": (3, lambda f, m: again(m, f.coordinator, sequence=1), Cause.CHAIN_BROKEN),
    "a step that the study does not have": (
        3,
        lambda f, m: again(m, f.coordinator, terms=replace(m.terms, step="mean")),
        Cause.TERMS_REFUSED,
    ),
    "a sum of records that were summed before": (
        3,
        lambda f, m: again(m, f.coordinator, links=(link(f, reason="none", cohort=bytes(32)),)),
        Cause.ALREADY_SUMMED,
    ),
}


def move(first: type[Message], behind: type[Message]) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        entry = entries.pop(find(entries, first))
        entries.insert(find(entries, behind) + 1, entry)

    return edit


def drop_entry(form: type[Message], member: str = "") -> Callable[[Entries], object]:
    return lambda entries: entries.pop(find(entries, form, member))


def repeat(form: type[Message]) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        at = find(entries, form)
        entries.insert(at, entries[at])

    return edit


def change(form: type[Message], **fields: Any) -> Callable[[Entries], None]:
    return lambda entries: rewritten(entries, find(entries, form), **fields)


DOCTORED: dict[str, tuple[Callable[[Entries], object], Cause]] = {
    "an upload moved behind the receipts": (move(UploadSummary, Receipt), Cause.WRONG_PHASE),
    "a receipt moved behind the proposal that rests on it": (
        lambda e: [move(Receipt, Freeze)(e) for _ in range(2)],
        Cause.SURVIVORS_INVALID,
    ),
    "a vote moved behind the certificate": (move(Vote, Certificate), Cause.WRONG_PHASE),
    "a proposal moved behind the votes": (move(Freeze, Vote), Cause.WRONG_PHASE),
    "a reveal before the certificate": (move(RevealSummary, Freeze), Cause.WRONG_PHASE),
    "an upload left out": (drop_entry(UploadSummary), Cause.MALFORMED),
    "all receipts left out": (lambda e: [e.pop(find(e, Receipt)) for _ in range(5)], Cause.WRONG_PHASE),
    "the proposal left out": (drop_entry(Freeze), Cause.WRONG_PHASE),
    "a vote left out": (drop_entry(Vote), Cause.CERTIFICATE_INVALID),
    "the certificate left out": (drop_entry(Certificate), Cause.OUTCOME_MISSING),
    "the end cut off": (lambda e: e.__delitem__(slice(find(e, Certificate), None)), Cause.OUTCOME_MISSING),
    "an upload twice": (repeat(UploadSummary), Cause.DUPLICATE),
    "an upload twice, with another path": (
        lambda e: e.insert(5, replace(parse_message(e[4]), path=()).to_bytes()),  # type: ignore[call-arg]  # an upload
        Cause.DUPLICATE,
    ),
    "a certificate twice": (repeat(Certificate), Cause.DUPLICATE),
    "a message that belongs nowhere": (lambda e: e.append(e[0]), Cause.UNKNOWN_MESSAGE),
    "bytes that are no message": (lambda e: e.append(b"\x04\xff"), Cause.UNKNOWN_MESSAGE),
    "an upload of a stranger": (
        lambda e: rewritten(
            e,
            4,
            header=replace(parse_message(e[4]).header, member="stranger"),  # type: ignore[attr-defined]  # an upload
        ),
        Cause.UNKNOWN_MEMBER,
    ),
    "an upload its member did not sign": (
        lambda e: rewritten(
            e,
            4,
            header=replace(parse_message(e[4]).header, salt=bytes(32)),  # type: ignore[attr-defined]  # an upload
        ),
        Cause.BAD_SIGNATURE,
    ),
    "an upload with other commitments": (
        change(UploadSummary, secret_commitments=(bytes(16),) * 5),
        Cause.UPLOAD_MISSHAPEN,
    ),
    "an upload with too few commitments": (
        change(UploadSummary, secret_commitments=()),
        Cause.UPLOAD_MISSHAPEN,
    ),
    "a receipt its decryptor did not sign": (change(Receipt, dealers=()), Cause.BAD_SIGNATURE),
    "a vote of another context": (change(Vote, context=bytes(32)), Cause.WRONG_CONTEXT),
    "a vote of no decryptor": (change(Vote, member="stranger"), Cause.NOT_A_DECRYPTOR),
    "a proposal of another context": (change(Freeze, context=bytes(32)), Cause.WRONG_CONTEXT),
    "a proposal without a survivor": (
        lambda e: rewritten(
            e,
            find(e, Freeze),
            headers=parse_message(e[find(e, Freeze)]).headers[1:],  # type: ignore[attr-defined]  # a proposal
        ),
        Cause.SURVIVORS_INVALID,
    ),
    "a certificate of another context": (change(Certificate, context=bytes(32)), Cause.WRONG_CONTEXT),
    "a certificate with too few votes": (
        lambda e: rewritten(
            e,
            find(e, Certificate),
            votes=parse_message(e[find(e, Certificate)]).votes[1:],  # type: ignore[attr-defined]  # a certificate
        ),
        Cause.CERTIFICATE_INVALID,
    ),
    "a void request after the certificate": (
        lambda e: e.append(VoidRequest(parse_message(e[-1]).context, "cancelled").to_bytes()),  # type: ignore[attr-defined]  # a reveal
        Cause.WRONG_PHASE,
    ),
    "evictions of nobody": (
        lambda e: e.append(Evictions(parse_message(e[-1]).context, ()).to_bytes()),  # type: ignore[attr-defined]  # a reveal
        Cause.EVICTION_INVALID,
    ),
}
