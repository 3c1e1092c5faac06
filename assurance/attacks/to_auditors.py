"""Transcripts that a coordinator changed before it signed them: an auditor blames the coordinator alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from assurance.attacks.base import Attack
from tests.protocol.questions import link
from tests.protocol.transcripts import Entries, change, doctored, drop_entry, find, move, repeat, rewritten
from tests.support.forging import again
from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Evictions,
    Freeze,
    Receipt,
    RevealSummary,
    Shown,
    UploadSummary,
    VoidRequest,
    Vote,
    cards_tree,
    parse_message,
)

# fmt: off
# The tables are easier to read with one row to a line.
OTHER = bytes(32)
Edit = Callable[[Federation, Entries], object]


@dataclass(frozen=True)
class Doctored(Attack):
    """A coordinator signs a transcript that it has changed."""

    members: int
    edit: Edit

    def run(self) -> PeerFault:
        """Show the transcript to an auditor, who must blame the coordinator alone."""
        federation = Federation(self.members)
        federation.run_round()
        try:
            found = doctored(federation, lambda entries: self.edit(federation, entries))
        except PeerFault as fault:
            return fault
        assert {finding.parties for finding in found.findings} == {self.parties}, self.name
        causes = [finding.cause for finding in found.findings]
        return PeerFault(self.cause if self.cause in causes else causes[0], "", self.parties)


# Its beginning: roster, study, cards, opening


def in_part(message: Cards) -> Cards:
    """Show the cards as to a member of a large cohort: all are bound by the root, but not all are included."""
    tree = cards_tree(each.card for each in message.shown)
    shown = tuple(replace(each, path=tuple(tree.path_to(place))) for place, each in enumerate(message.shown))
    return replace(message, shown=shown[1:])


def with_low_order_key(federation: Federation, cards: Cards) -> Cards:
    """Replace the X25519 key in member-0's card, under a root that binds the new card."""
    card = again(cards.shown[0].card, federation.keys["member-0"], x25519_key=OTHER)
    shown = (Shown(card, b"", ()), *cards.shown[1:])
    return Cards(replace(cards.manifest, cards_root=cards_tree(each.card for each in shown).root), shown)


def with_first(message: Cards, card: Any) -> Cards:
    return replace(message, shown=(Shown(card, b"", ()), *message.shown[1:]))


def stated(message: Cards, **numbers: Any) -> Cards:
    return replace(message, manifest=replace(message.manifest, **numbers))


BEGINNINGS: tuple[tuple[str, int, Callable[[Federation, Any], Any], Cause], ...] = (
    ("a roster the admin did not sign", 0, lambda f, m: again(m, f.coordinator, number=2), Cause.BAD_SIGNATURE),
    ("a roster of another federation", 0, lambda f, m: again(m, f.coordinator, federation=f.coordinator.public), Cause.WRONG_FEDERATION),
    ("a roster that revokes the study", 0, lambda f, m: again(m, f.admin, revoked=(f.study.hash,)), Cause.STUDY_REFUSED),
    ("a study the study key did not sign", 1, lambda f, m: again(m, f.coordinator), Cause.BAD_SIGNATURE),
    ("a study of another federation", 1, lambda f, m: again(m, f.admin, federation=f.coordinator.public), Cause.WRONG_FEDERATION),
    ("a study that breaks a rule", 1, lambda f, m: again(m, f.admin, content=m.content.replace(b'"a":1', b'"a":0')), Cause.STUDY_REFUSED),
    ("a study that is no study", 1, lambda f, m: again(m, f.admin, content=b"{}"), Cause.STUDY_REFUSED),
    ("another study than the cohort's", 1, lambda f, _: f.study_of(dim=9), Cause.WRONG_COHORT),
    ("a manifest of another roster", 2, lambda _, m: stated(m, roster_hash=OTHER), Cause.WRONG_COHORT),
    ("a manifest of another period", 2, lambda _, m: stated(m, period="another"), Cause.WRONG_COHORT),
    ("a lower threshold", 2, lambda _, m: stated(m, threshold=2), Cause.WEAK_PARAMETERS),
    ("a card left out", 2, lambda _, m: replace(m, shown=m.shown[1:]), Cause.MANIFEST_MISMATCH),
    ("a card left out, the others by their paths", 2, lambda _, m: in_part(m), Cause.MANIFEST_MISMATCH),
    ("a card its member did not sign", 2, lambda f, m: with_first(m, again(m.shown[0].card, f.admin)), Cause.BAD_SIGNATURE),
    ("a card the root does not bind", 2, lambda f, m: with_first(m, again(m.shown[0].card, f.keys["member-0"], nonce=OTHER)), Cause.MANIFEST_MISMATCH),
    ("a key of low order", 2, with_low_order_key, Cause.LOW_ORDER_POINT),
    ("an opening of another cohort", 3, lambda f, m: again(m, f.coordinator, cohort=OTHER), Cause.WRONG_COHORT),
    ("an opening the coordinator did not sign", 3, lambda f, m: again(m, f.admin), Cause.BAD_SIGNATURE),
    ("a place skipped", 3, lambda f, m: again(m, f.coordinator, sequence=1), Cause.CHAIN_BROKEN),
    ("a step that the study does not have", 3, lambda f, m: again(m, f.coordinator, terms=replace(m.terms, step="mean")), Cause.TERMS_REFUSED),
    ("a sum of records that were summed before", 3, lambda f, m: again(m, f.coordinator, links=(link(f, reason="none", cohort=OTHER),)), Cause.ALREADY_SUMMED),
)


# What follows


def said(entries: Entries, form: Any) -> Any:
    """Return the first message of a type."""
    return parse_message(entries[find(entries, form)])


def last_context(entries: Entries) -> bytes:
    message: Any = parse_message(entries[-1])
    context: bytes = message.context
    return context


def with_header(entries: Entries, **changes: Any) -> None:
    """Change the header of the first upload."""
    rewritten(entries, 4, header=replace(said(entries, UploadSummary).header, **changes))


LATER: tuple[tuple[str, str, Callable[[Entries], object], Cause], ...] = (
    ("an upload moved behind the receipts", "AUDIT-4", move(UploadSummary, Receipt), Cause.WRONG_PHASE),
    ("a receipt moved behind the proposal that rests on it", "AUDIT-9", lambda e: [move(Receipt, Freeze)(e) for _ in range(2)], Cause.SURVIVORS_INVALID),
    ("a vote moved behind the certificate", "AUDIT-4", move(Vote, Certificate), Cause.WRONG_PHASE),
    ("a proposal moved behind the votes", "AUDIT-4", move(Freeze, Vote), Cause.WRONG_PHASE),
    ("a reveal before the certificate", "AUDIT-4", move(RevealSummary, Freeze), Cause.WRONG_PHASE),
    ("an upload left out", "AUDIT-8", drop_entry(UploadSummary), Cause.MALFORMED),
    ("all receipts left out", "AUDIT-4", lambda e: [e.pop(find(e, Receipt)) for _ in range(5)], Cause.WRONG_PHASE),
    ("the proposal left out", "AUDIT-4", drop_entry(Freeze), Cause.WRONG_PHASE),
    ("a vote left out", "AUDIT-14", drop_entry(Vote), Cause.CERTIFICATE_INVALID),
    ("the certificate left out", "AUDIT-23", drop_entry(Certificate), Cause.OUTCOME_MISSING),
    ("the end cut off", "AUDIT-23", lambda e: e.__delitem__(slice(find(e, Certificate), None)), Cause.OUTCOME_MISSING),
    ("an upload twice", "AUDIT-3", repeat(UploadSummary), Cause.DUPLICATE),
    ("an upload twice, with another path", "AUDIT-3", lambda e: e.insert(5, replace(said(e, UploadSummary), path=()).to_bytes()), Cause.DUPLICATE),
    ("a certificate twice", "AUDIT-3", repeat(Certificate), Cause.DUPLICATE),
    ("a message that belongs nowhere", "AUDIT-2", lambda e: e.append(e[0]), Cause.UNKNOWN_MESSAGE),
    ("bytes that are no message", "AUDIT-2", lambda e: e.append(b"\x04\xff"), Cause.UNKNOWN_MESSAGE),
    ("an upload of a stranger", "AUDIT-5", lambda e: with_header(e, member="stranger"), Cause.UNKNOWN_MEMBER),
    ("an upload its member did not sign", "AUDIT-5", lambda e: with_header(e, salt=OTHER), Cause.BAD_SIGNATURE),
    ("an upload with other commitments", "AUDIT-6", change(UploadSummary, secret_commitments=(bytes(16),) * 5), Cause.UPLOAD_MISSHAPEN),
    ("an upload with too few commitments", "AUDIT-6", change(UploadSummary, secret_commitments=()), Cause.UPLOAD_MISSHAPEN),
    ("a receipt its decryptor did not sign", "AUDIT-5", change(Receipt, dealers=()), Cause.BAD_SIGNATURE),
    ("a vote of another context", "AUDIT-5", change(Vote, context=OTHER), Cause.WRONG_CONTEXT),
    ("a vote of no decryptor", "AUDIT-5", change(Vote, member="stranger"), Cause.NOT_A_DECRYPTOR),
    ("a proposal of another context", "AUDIT-5", change(Freeze, context=OTHER), Cause.WRONG_CONTEXT),
    ("a proposal without a survivor", "AUDIT-11", lambda e: change(Freeze, headers=said(e, Freeze).headers[1:])(e), Cause.SURVIVORS_INVALID),
    ("a certificate of another context", "AUDIT-5", change(Certificate, context=OTHER), Cause.WRONG_CONTEXT),
    ("a certificate with too few votes", "AUDIT-14", lambda e: change(Certificate, votes=said(e, Certificate).votes[1:])(e), Cause.CERTIFICATE_INVALID),
    ("a void request after the certificate", "AUDIT-4", lambda e: e.append(VoidRequest(last_context(e), "cancelled").to_bytes()), Cause.WRONG_PHASE),
    ("evictions of nobody", "AUDIT-19", lambda e: e.append(Evictions(last_context(e), ()).to_bytes()), Cause.EVICTION_INVALID),
)


def attacks() -> list[Attack]:
    """Return all attacks of this module: invalid beginnings of a transcript, and entries that must not be there."""

    def beginning(index: int, change: Callable[[Federation, Any], Any]) -> Edit:
        def edit(federation: Federation, entries: Entries) -> None:
            entries[index] = change(federation, parse_message(entries[index])).to_bytes()

        return edit

    def later(edit: Callable[[Entries], object]) -> Edit:
        return lambda _, entries: edit(entries)

    def made(name: str, rule: str, cause: Cause, members: int, edit: Edit) -> Attack:
        return Doctored(f"in a transcript, {name}", rule, "transcripts doctored", cause, ("coordinator",), members, edit)

    return [
        *(made(name, "AUDIT-1", cause, 4, beginning(index, change)) for name, index, change, cause in BEGINNINGS),
        *(made(name, rule, cause, 5, later(edit)) for name, rule, edit, cause in LATER),
    ]
