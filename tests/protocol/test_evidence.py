"""Evidence against decryptors and dealers, as an auditor accepts it, and forgeries of it (wire: Reveals, analysis: Transcripts)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.transcripts import (
    COORDINATOR,
    Entries,
    bad_share,
    change,
    doctored,
    drop_entry,
    evidence,
    find,
    named,
    refused_by_two,
)
from tests.support.forging import Edit, again, false_dealers, other_secrets, refusing
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Freezing, Recovered, Revealing
from veilsum.protocol.evidence import check_bad_run, check_proof
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    BadRun,
    Certificate,
    Delivery,
    Evictions,
    Freeze,
    Holder,
    Message,
    Proof,
    Receipt,
    Reveal,
    RevealSummary,
    SurvivorSet,
    Upload,
    UploadSummary,
    parse_message,
)
from veilsum.protocol.replay import Verdict, refusal_follows, replay_transcript
from veilsum.protocol.sealing import commitment_tree
from veilsum.protocol.shelf import Trees


@pytest.fixture(scope="module")
def federation() -> Federation:
    """Five members, one of which revealed a share that it was not dealt."""
    federation = Federation(5)
    federation.tamper = bad_share(federation, "member-1")
    federation.run_round()
    return federation


def framing(federation: Federation, made: BadRun) -> set[tuple[tuple[str, ...], str]]:
    def edit(entries: Entries) -> None:
        entries[find(entries, BadRun)] = made.to_bytes()

    return named(doctored(federation, edit))


def by_another_upload(federation: Federation, held: BadRun) -> BadRun:
    """Have the dealer sign a second upload that commits to other shares; the certificate names the first."""
    row = bytes(len(held.row))
    tree = commitment_tree([held.row], [row] * 5)
    header = again(held.header, federation.keys["member-0"], commitment_root=tree.root)
    return replace(held, header=header, row=row, row_path=tuple(tree.path_to(2)))


def honest_reveal(federation: Federation, _: BadRun) -> RevealSummary:
    reveals = [m for m in federation.transcript.decode_messages() if isinstance(m, RevealSummary)]
    return next(each for each in reveals if each.member != "member-1")


INVALID, UNSIGNED = {(COORDINATOR, "share-invalid")}, {(COORDINATOR, "bad-signature")}
OTHER_OUTCOME = {*INVALID, (("member-1",), "reveal-misshapen")}


@pytest.mark.parametrize(
    ("forge", "found"),
    [
        (lambda _, held: replace(held, run=bytes(36)), INVALID),
        (lambda _, held: replace(held, run=held.run + bytes(36)), INVALID),
        (lambda _, held: replace(held, place=1), INVALID),
        (lambda _, held: replace(held, count=held.count + 1), INVALID),
        (lambda _, held: replace(held, run_path=()), INVALID),
        (lambda _, held: replace(held, row=bytes(16 * 5)), INVALID),
        (lambda _, held: replace(held, row_path=()), INVALID),
        (lambda f, held: replace(held, reveal=honest_reveal(f, held)), INVALID),
        (by_another_upload, INVALID),
        (
            lambda f, held: replace(
                held, reveal=again(held.reveal, f.keys["member-1"], evicted=("member-0",))
            ),
            INVALID,
        ),
        (
            lambda f, held: replace(held, reveal=again(held.reveal, f.keys["member-1"], outcome=bytes(32))),
            OTHER_OUTCOME,
        ),
        (lambda _, held: replace(held, header=replace(held.header, signature=bytes(64))), UNSIGNED),
        (lambda _, held: replace(held, reveal=replace(held.reveal, signature=bytes(64))), UNSIGNED),
    ],
)
def test_forged_evidence_names_the_coordinator(
    federation: Federation, forge: Callable[[Federation, BadRun], BadRun], found: set[Any]
) -> None:
    assert framing(federation, forge(federation, evidence(federation))) == found


def test_evidence_without_a_receipt_or_a_signed_reveal_accuses_nobody(federation: Federation) -> None:
    assert named(doctored(federation, drop_entry(Receipt, "member-1"))) == INVALID

    def edit(entries: Entries) -> None:
        at = find(entries, RevealSummary, "member-2")
        reveal = of(RevealSummary, parse_message(entries[at]))
        entries[at] = again(reveal, federation.coordinator, outcome=bytes(32)).to_bytes()

    assert named(doctored(federation, edit)) == {*UNSIGNED, (("member-1",), "share-invalid")}


def test_a_commitment_too_many_is_the_coordinators_fault_even_if_its_dealer_signed_it() -> None:
    federation = Federation(5)
    federation.run_round()

    def edit(entries: Entries) -> None:
        at = find(entries, UploadSummary, "member-1")
        summary = of(UploadSummary, parse_message(entries[at]))
        commitments = (*summary.secret_commitments, bytes(16))
        tree = commitment_tree(commitments, [bytes(16 * 6)] * 5)
        header = again(summary.header, federation.keys["member-1"], commitment_root=tree.root)
        changes: dict[str, Any] = {
            "header": header,
            "secret_commitments": commitments,
            "path": tuple(tree.path_to(0)),
        }
        entries[at] = replace(summary, **changes).to_bytes()

    assert (COORDINATOR, "upload-misshapen") in named(doctored(federation, edit))


RUNS = tuple(bytes([place]) * 36 for place in range(6))


@pytest.mark.parametrize(
    ("runs", "place", "complaints"),
    [
        # A dealer and the coordinator show it another upload: it reveals a run less, and all that follow move up.
        pytest.param(RUNS[1:], 2, (), id="a run less, and its own shares where member-2's would stand"),
        pytest.param(RUNS, 1, (), id="another dealer's run"),
        pytest.param((*RUNS[:2], RUNS[2][1:], *RUNS[3:]), 2, (), id="a run that is too short"),
        pytest.param(RUNS[1:], 2, ("member-2",), id="a dealer that it complained about"),
    ],
)
def test_a_run_that_is_not_of_this_dealers_shares_frames_no_decryptor(
    runs: tuple[bytes, ...], place: int, complaints: tuple[str, ...]
) -> None:
    federation = Federation(6)
    federation.begin()
    shelf = federation.run_until(Revealing).setting.shelf
    attempt = federation.run_until(Recovered).attempt
    entries, key = federation.transcript.entries, federation.keys["member-3"]
    certificate = of(Certificate, parse_message(entries[find(entries, Certificate)]))
    receipt = of(Receipt, parse_message(entries[find(entries, Receipt, "member-3")]))
    dealers = tuple(each for each in receipt.dealers if each not in complaints)
    reveal = Reveal.make_signed(
        key, context=attempt.context, member="member-3", outcome=certificate.outcome, evicted=(), runs=runs
    )
    delivery = Delivery.from_bytes(shelf.read_delivery("member-2", 3))
    made = BadRun(
        reveal=reveal.summary,
        header=delivery.header,
        place=place,
        count=len(runs),
        run=runs[place],
        run_path=tuple(Tree(runs).path_to(place)),
        row=delivery.row,
        row_path=delivery.row_path,
    )
    with refused("share-invalid", "coordinator"):
        check_bad_run(attempt, certificate, again(receipt, key, dealers=dealers, complaints=complaints), made)


def test_evictions_that_do_not_hold_name_the_coordinator() -> None:
    federation = Federation(9)
    false_dealers(federation, {"member-7": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()

    proof = next(m for m in federation.transcript.decode_messages() if isinstance(m, Evictions)).proofs[0]
    for forged in (replace(proof, index=1), replace(proof, holders=()), replace(proof, path=())):
        found = doctored(federation, change(Evictions, proofs=(forged,)))
        assert named(found) == {(COORDINATOR, "eviction-invalid")}

    def let_back(entries: Entries) -> None:
        at = find(entries, Evictions)
        entries.insert(at + 1, Evictions(federation.phase.attempt.context, ()).to_bytes())

    assert (COORDINATOR, "eviction-invalid") in named(doctored(federation, let_back))


# Proofs that a dealer is false: true ones hold, and none can be forged against an honest dealer (wire: Reveals).


HONEST, FALSE = "member-2", "member-3"


class Case:
    """An attempt of six (a = 1, t = 4), by default without member-5; member-3 dealt falsely."""

    def __init__(
        self, lie: Callable[[Attempt], Edit] = other_secrets, absent: tuple[int, ...] = (5,)
    ) -> None:
        self.federation = Federation(6, drop=dict.fromkeys(absent, After.OPENING))
        false_dealers(self.federation, {FALSE: lie})
        deal, self.uploads = self.federation.tamper, dict[str, Upload]()

        def note(sender: str, message: Message) -> Message | None:
            sent = deal(sender, message)
            if isinstance(sent, Upload):
                self.uploads[sender] = sent
            return sent

        self.federation.tamper = note
        phase = self.federation.reach(Revealing)
        self.voted = dict(self.federation.phases)
        self.attempt, self.certificate = phase.attempt, phase.certificate
        self.proofs = of(Recovered, self.federation.run_until()).proofs

    def shares(self, decryptor: str, dealer: str) -> bytes:
        phase: Any = self.voted[decryptor]
        held = {dealt.member: dealt.shares for dealt in phase.vouched_shares()} | {
            decryptor: phase.own_shares
        }
        shares: bytes = held[dealer]
        return shares

    def proof(self, dealer: str, index: int = 0, holders: tuple[str, ...] = ()) -> Proof:
        """Make a proof from the dealer's own shares of one secret, as a coordinator with those holders' help can."""
        upload = self.uploads[dealer]
        trees = Trees.from_upload(upload)
        shown = []
        for member in holders or tuple(m for m in self.attempt.decryptors if m != "member-5")[:4]:
            place = self.attempt.decryptor_place[member]
            share = self.shares(member, dealer)[36 * index : 36 * index + 36]
            path = tuple(trees.commitments.path_to(1 + place))
            shown.append(Holder(member, share, upload.share_rows[place], path))
        commitments = b"".join(upload.secret_commitments)
        return Proof(upload.header, commitments, tuple(trees.commitments.path_to(0)), index, tuple(shown))

    def refuses(self, proof: Proof) -> None:
        with refused("eviction-invalid", "coordinator"):
            check_proof(self.attempt, self.certificate, proof)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_the_coordinators_proof_holds(case: Case) -> None:
    (true,) = case.proofs
    check_proof(case.attempt, case.certificate, true)
    assert (true.member, true.index, len(true.holders)) == (FALSE, 0, 4)
    assert true == case.proof(FALSE)


# An honest dealer can't be framed


@pytest.mark.parametrize("index", range(6))
def test_any_false_secret_and_any_threshold_prove_it_and_honest_ones_nothing(case: Case, index: int) -> None:
    for holders in (case.federation.ids[:4], case.federation.ids[1:5], case.federation.ids[:5]):
        check_proof(case.attempt, case.certificate, case.proof(FALSE, index, holders))
        case.refuses(case.proof(HONEST, index, holders))


def test_a_header_that_its_dealer_did_not_sign_frames_nobody(case: Case) -> None:
    true = case.proof(FALSE)
    case.refuses(replace(true, header=replace(true.header, signature=bytes(64))))


def test_true_shares_of_too_low_a_place_frame_nobody(case: Case) -> None:
    """Shares are read at their decryptors' places."""
    proof = case.proof(HONEST, 0, case.federation.ids[1:5])
    renamed = replace(
        proof,
        holders=tuple(
            replace(holder, member=member)
            for holder, member in zip(proof.holders, case.federation.ids[:4], strict=True)
        ),
    )
    case.refuses(renamed)


def test_the_first_threshold_decides() -> None:
    """A non-canonical word after the first t shares proves nothing; among them it is proof."""
    word = (2**31 - 1).to_bytes(4, "little")
    case = Case(lambda _: lambda who, shares: word + shares[4:] if who == FALSE else shares, absent=())
    first = case.federation.ids[:3]
    check_proof(case.attempt, case.certificate, case.proof(FALSE, 0, (*first, FALSE)))
    for behind in (("member-4",), ("member-4", "member-5")):
        case.refuses(case.proof(FALSE, 0, (*first, *behind)))


# A decryptor refuses: what others can tell of it, and what they can't.


def refused_for(cause: str) -> Verdict:
    """Return an auditor's verdict on a round in which a decryptor refuses, whatever it is shown."""
    federation = Federation(5)
    federation.tamper = refusing(federation, {"member-1": cause})
    federation.run_round()
    return replay_transcript(federation.transcript, federation.admin.public)


@pytest.mark.parametrize(
    "cause",
    [
        "survivors-too-few",
        "survivors-invalid",
        "window-exceeded",
        "own-upload-changed",
        "malformed",
        "repeat-mismatch",
        "count-mismatch",
    ],
)
def test_a_cause_that_the_proposal_does_not_show_is_a_dispute_with_the_coordinator(cause: str) -> None:
    found = refused_for(cause)
    assert named(found) == {(("member-1", "coordinator"), cause)}
    assert found.is_faultless
    assert found.refusals == ()


@pytest.mark.parametrize("cause", ["chain-broken", "outcome-missing", "a-cause-of-its-own"])
def test_what_only_its_sender_can_know_stands_as_said(cause: str) -> None:
    found = refused_for(cause)
    assert found.findings == ()
    assert [(each.member, each.cause) for each in found.refusals] == [("member-1", cause)]


def test_who_refuses_what_should_be_refused_is_not_named() -> None:
    """The coordinator shows a proposal with two decryptors too few, and records it."""
    federation = refused_by_two()

    def own_up(entries: Entries) -> None:
        at = find(entries, Freeze)
        proposed = of(Freeze, parse_message(entries[at]))
        entries[at] = replace(proposed, headers=proposed.headers[2:]).to_bytes()

    found = doctored(federation, own_up)
    assert {finding.parties for finding in found.findings} == {("coordinator",)}
    assert found.refusals == ()


def frozen() -> tuple[Freezing, Attempt]:
    federation = Federation(8)
    phase = federation.reach(Freezing)
    return phase, phase.attempt


def test_what_follows_from_the_proposal_accuses_nobody() -> None:
    phase, attempt = frozen()
    proposal, uploads, receipts = phase.survivors, phase.uploads, phase.receipts
    member = proposal[0].member
    known = attempt, proposal, uploads, receipts
    assert refusal_follows(Cause.SURVIVORS_TOO_FEW, member, *known) is False
    least = attempt.quorum.survivors_min
    enough, few = ((attempt, proposal[:count], uploads, receipts) for count in (least, least - 1))
    assert refusal_follows(Cause.SURVIVORS_TOO_FEW, member, *enough) is False
    assert refusal_follows(Cause.SURVIVORS_TOO_FEW, member, *few) is True
    other = (replace(proposal[0], digest=bytes(32)), *proposal[1:])
    changed = attempt, other, uploads, receipts
    assert refusal_follows(Cause.OWN_UPLOAD_CHANGED, member, *changed) is True
    assert refusal_follows(Cause.OWN_UPLOAD_CHANGED, proposal[1].member, *changed) is False
    assert refusal_follows(Cause.SURVIVORS_INVALID, member, *changed) is True
    disordered = attempt, proposal[::-1], uploads, receipts
    assert refusal_follows(Cause.SURVIVORS_INVALID, member, *disordered) is True
    twice = attempt, (*proposal, proposal[-1]), uploads, receipts
    assert refusal_follows(Cause.SURVIVORS_INVALID, member, *twice) is True
    assert refusal_follows(Cause.SURVIVORS_INVALID, member, *known) is False


def test_who_signed_no_receipt_may_not_have_been_delivered_an_upload() -> None:
    phase, attempt = frozen()
    known = attempt, phase.survivors, phase.uploads
    member = phase.survivors[0].member
    others = {name: receipt for name, receipt in phase.receipts.items() if name != member}
    assert refusal_follows(Cause.SURVIVORS_INVALID, member, *known, others) is None
    # Its receipt is for other uploads than those that were announced.
    fewer = {name: upload for name, upload in phase.uploads.items() if name != phase.survivors[-1].member}
    assert (
        refusal_follows(Cause.SURVIVORS_INVALID, member, attempt, phase.survivors[:-1], fewer, phase.receipts)
        is True
    )


def test_a_window_that_is_exceeded_is_one() -> None:
    phase, attempt = frozen()
    manifest = replace(attempt.manifest, degree=4, window_dropped_max=1)
    sparse = replace(attempt, manifest=manifest)
    ring = sparse.manifest.graph.ring
    gone = {*ring[:2]}
    left = tuple(each for each in phase.survivors if each.member not in gone)
    assert refusal_follows(Cause.WINDOW_EXCEEDED, "member-0", sparse, left, {}, {}) is True
    assert refusal_follows(Cause.WINDOW_EXCEEDED, "member-0", sparse, phase.survivors, {}, {}) is False


def test_a_set_shown_for_no_reason_is_one() -> None:
    phase, attempt = frozen()
    shown = (SurvivorSet(phase.survivors),)
    for cause in (Cause.MALFORMED, Cause.REPEAT_MISMATCH, Cause.COUNT_MISMATCH):
        assert refusal_follows(cause, "member-0", attempt, phase.survivors, {}, {}, shown) is True
        assert refusal_follows(cause, "member-0", attempt, phase.survivors, {}, {}) is False
