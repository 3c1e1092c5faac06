"""Evidence against decryptors and dealers, as an auditor takes it, and how it is forged (protocol §4.7, §11)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.doctoring import drop_entry
from tests.protocol.transcripts import (
    Entries,
    bad_share,
    doctored,
    evidence,
    find,
    named,
)
from tests.support.forging import again, false_dealers, other_secrets
from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Recovered, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_bad_run
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    BadRun,
    Certificate,
    Evictions,
    Message,
    Receipt,
    Reveal,
    RevealSummary,
    parse,
)
from veilsum.protocol.sealing import commitment_tree

COORDINATOR = ("coordinator",)


def bad(members: int = 5) -> Federation:
    federation = Federation(members)
    federation.tamper = bad_share(federation, "member-1")
    federation.run_round()
    return federation


def framing(federation: Federation, made: BadRun) -> set[tuple[tuple[str, ...], str]]:
    def edit(entries: Entries) -> None:
        entries[find(entries, BadRun)] = made.to_bytes()

    return named(doctored(federation, edit))


def test_evidence_changed_names_the_coordinator() -> None:
    federation = bad()
    held = evidence(federation)
    reveals = [m for m in federation.transcript.messages() if isinstance(m, RevealSummary)]
    honest = next(each for each in reveals if each.member != "member-1")
    for changes in (
        {"run": bytes(36)},
        {"run": held.run + bytes(36)},
        {"place": 1},
        {"count": held.count + 1},
        {"run_path": ()},
        {"row": bytes(16 * 5)},
        {"row_path": ()},
        {"reveal": honest},
        {"reveal": again(held.reveal, federation.keys["member-1"], evicted=("member-0",))},
    ):
        assert framing(federation, replace(held, **changes)) == {(COORDINATOR, "share-invalid")}


def test_evidence_for_another_outcome_or_without_a_receipt_is_none() -> None:
    federation = bad()
    held = evidence(federation)
    other = replace(held, reveal=again(held.reveal, federation.keys["member-1"], outcome=bytes(32)))
    assert framing(federation, other) == {(COORDINATOR, "share-invalid"), (("member-1",), "reveal-misshapen")}
    found = doctored(federation, drop_entry(Receipt, "member-1"))
    assert named(found) == {(COORDINATOR, "share-invalid")}


def test_true_shares_are_no_evidence() -> None:
    federation = Federation(5)
    kept: list[Any] = []

    def keep(sender: str, message: Message) -> Message:
        if isinstance(message, Reveal) and sender == "member-1":
            kept.append(message)
        return message

    federation.tamper = keep
    federation.begin()
    federation.run_until()
    federation.finish()
    phase = bad()
    held = evidence(phase)
    reveal = kept[0]
    true = replace(
        held, reveal=reveal.summary, run=reveal.runs[0], run_path=tuple(Tree.of(reveal.runs).path(0))
    )
    assert phase.phase.attempt.context == federation.phase.attempt.context
    assert framing(phase, true) == {(COORDINATOR, "share-invalid")}


def test_a_dealer_that_signs_two_uploads_frames_no_decryptor() -> None:
    """Its second upload commits to other shares; the certificate names the first."""
    federation = bad()
    held = evidence(federation)
    dealer = "member-0"
    row = bytes(len(held.row))
    tree = commitment_tree([held.row], [row] * 5)
    forged = again(held.header, federation.keys[dealer], commitment_root=tree.root)
    framed = replace(held, header=forged, row=row, row_path=tuple(tree.path(2)))
    assert framing(federation, framed) == {(COORDINATOR, "share-invalid")}


def test_a_header_that_its_dealer_did_not_sign_is_no_evidence() -> None:
    """The certificate names what was signed, not the signature."""
    federation = bad()
    held = evidence(federation)
    unsigned = replace(held, header=replace(held.header, signature=bytes(64)))
    assert framing(federation, unsigned) == {(COORDINATOR, "bad-signature")}


def test_a_reveal_that_its_decryptor_did_not_sign_is_none_and_accuses_nobody() -> None:
    federation = bad()
    held = evidence(federation)
    forged = replace(held, reveal=replace(held.reveal, signature=bytes(64)))
    assert framing(federation, forged) == {(COORDINATOR, "bad-signature")}

    def edit(entries: Entries) -> None:
        at = find(entries, RevealSummary, "member-2")
        reveal = parse(entries[at])
        assert isinstance(reveal, RevealSummary)
        entries[at] = again(reveal, federation.coordinator, outcome=bytes(32)).to_bytes()

    assert named(doctored(federation, edit)) == {
        (COORDINATOR, "bad-signature"),
        (("member-1",), "share-invalid"),
    }


def test_regression_a_run_out_of_place_frames_a_decryptor_that_was_dealt_another_upload() -> None:
    """A dealer and the coordinator show one decryptor another upload: it reveals a run less, and all that follow move up."""
    federation = Federation(6)
    federation.begin()
    shelf = federation.run_until(Revealing).setting.shelf
    attempt = federation.run_until(Recovered).attempt
    entries = federation.transcript.entries
    certificate = parse(entries[find(entries, Certificate)])
    receipt = parse(entries[find(entries, Receipt, "member-3")])
    assert isinstance(certificate, Certificate)
    assert isinstance(receipt, Receipt)
    # member-3 was dealt another upload of member-0: its first run is of member-1's shares
    runs = tuple(bytes([place]) * 36 for place in range(1, 6))
    reveal = Reveal.make(
        federation.keys["member-3"],
        context=attempt.context,
        member="member-3",
        outcome=certificate.outcome,
        evicted=(),
        runs=runs,
    )
    delivery = shelf.delivery("member-2", 3)
    made = BadRun(
        reveal=reveal.summary,
        header=delivery.header,
        place=2,
        count=5,
        run=runs[2],  # member-3's own shares, where member-2's would stand
        run_path=tuple(Tree.of(runs).path(2)),
        row=delivery.row,
        row_path=delivery.row_path,
    )
    with pytest.raises(PeerFault, match=r"^share-invalid: .*\[coordinator\]$"):
        check_bad_run(attempt, certificate, receipt, made)


def test_evictions_that_do_not_hold_name_the_coordinator() -> None:
    federation = Federation(9)
    false_dealers(federation, {"member-7": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()

    def proof_changed(**changes: Any) -> Callable[[Entries], None]:
        def edit(entries: Entries) -> None:
            at = find(entries, Evictions)
            evictions = parse(entries[at])
            assert isinstance(evictions, Evictions)
            entries[at] = replace(evictions, proofs=(replace(evictions.proofs[0], **changes),)).to_bytes()

        return edit

    for changes in ({"index": 1}, {"holders": ()}, {"path": ()}):
        assert named(doctored(federation, proof_changed(**changes))) == {(COORDINATOR, "eviction-invalid")}

    def let_back(entries: Entries) -> None:
        at = find(entries, Evictions)
        entries.insert(at + 1, Evictions(federation.phase.attempt.context, ()).to_bytes())

    assert (COORDINATOR, "eviction-invalid") in named(doctored(federation, let_back))
