"""Proofs that a dealer is false: true ones hold, and none can be forged against an honest dealer (protocol §4.7)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.forging import again, certificate, false_dealers, other_secrets, resign
from tests.support.simulator import After, Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Recovered, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Certificate, Holder, Message, Proof, Receipt, Reveal, Survivor, Upload
from veilsum.protocol.sealing import commit_row
from veilsum.protocol.shelf import Trees

HONEST, FALSE = "member-2", "member-3"


class Case:
    """An attempt of six (a = 1, t = 4), without member-5; member-3 dealt falsely, and was evicted."""

    def __init__(self) -> None:
        self.federation = Federation(6, drop={5: After.OPENING})
        false_dealers(self.federation, {FALSE: other_secrets})
        deal, self.uploads = self.federation.tamper, dict[str, Upload]()

        def note(sender: str, message: Message) -> Message | None:
            sent = deal(sender, message)
            if isinstance(sent, Upload):
                self.uploads[sender] = sent
            return sent

        self.federation.tamper = note
        self.federation.begin(terms=self.federation.terms())
        phase = self.federation.run_until(Revealing)
        assert isinstance(phase, Revealing)
        self.voted = dict(self.federation.phases)
        recovered = self.federation.run_until()
        assert isinstance(recovered, Recovered)
        self.attempt, self.certificate = recovered.attempt, recovered.certificate
        (self.true,) = recovered.proofs

    def shares(self, decryptor: str, dealer: str) -> bytes:
        phase: Any = self.voted[decryptor]
        held = {dealt.member: dealt.shares for dealt in phase.held()} | {decryptor: phase.own_shares}
        shares: bytes = held[dealer]
        return shares

    def proof(self, dealer: str, index: int = 0, holders: tuple[str, ...] = ()) -> Proof:
        """The dealer's own shares of one secret, as a coordinator with those holders' help can show them."""
        upload = self.uploads[dealer]
        trees = Trees.of(upload)
        shown = []
        for member in holders or tuple(m for m in self.attempt.decryptors if m != "member-5")[:4]:
            place = self.attempt.decryptor_place[member]
            share = self.shares(member, dealer)[36 * index : 36 * index + 36]
            path = tuple(trees.commitments.path(1 + place))
            shown.append(Holder(member, share, upload.share_rows[place], path))
        commitments = b"".join(upload.secret_commitments)
        return Proof(upload.header, commitments, tuple(trees.commitments.path(0)), index, tuple(shown))

    def refused(self, proof: Proof, certified: Certificate | None = None) -> str:
        with pytest.raises(PeerFault, match=r"^eviction-invalid: against .*\[coordinator\]$") as caught:
            check_proof(self.attempt, certified or self.certificate, proof)
        return caught.value.detail


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_the_coordinators_proof_holds(case: Case) -> None:
    check_proof(case.attempt, case.certificate, case.true)
    assert (case.true.member, case.true.index, len(case.true.holders)) == (FALSE, 0, 4)
    assert case.true == case.proof(FALSE)


@pytest.mark.parametrize("index", range(6))
def test_any_false_secret_and_any_threshold_prove_it(case: Case, index: int) -> None:
    for holders in (case.federation.ids[:4], case.federation.ids[1:5], case.federation.ids[:5]):
        check_proof(case.attempt, case.certificate, case.proof(FALSE, index, holders))


# Nobody frames an honest dealer


@pytest.mark.parametrize("index", range(6))
def test_an_honest_dealers_own_shares_prove_nothing(case: Case, index: int) -> None:
    for holders in (case.federation.ids[:4], case.federation.ids[1:5], case.federation.ids[:5]):
        proof = case.proof(HONEST, index, holders)
        assert case.refused(proof).endswith("the shares make the secret that was committed to")


def test_another_header_frames_nobody(case: Case) -> None:
    """1. The dealer stands in the certificate with this digest, and signed this header."""
    true, upload = case.proof(FALSE), case.uploads[HONEST]
    other = resign(case.federation, upload, salt=b"R" * 32).header
    forged = replace(true.header, signature=bytes(64))
    assert case.refused(replace(true, header=other)).endswith("the certificate does not name this upload")
    assert "signature does not verify" in case.refused(replace(true, header=forged))
    # a dealer that did not survive, in a certificate that colluders would have to sign
    without = certificate(case.federation, tuple(s for s in case.certificate.survivors if s.member != FALSE))
    assert case.refused(true, without).endswith("the certificate does not name this upload")
    # one of another context, which it has signed
    elsewhere = resign(case.federation, case.uploads[FALSE], context=bytes(32)).header
    survivors = tuple(Survivor.of(elsewhere) if s.member == FALSE else s for s in case.certificate.survivors)
    named = replace(case.certificate, survivors=survivors)
    assert "another context" in case.refused(replace(true, header=elsewhere), named)
    # and a stranger's
    sybil = again_header(elsewhere, member="sybil", context=case.attempt.context)
    named = replace(case.certificate, survivors=(*case.certificate.survivors, Survivor.of(sybil)))
    assert "not in the cohort" in case.refused(replace(true, header=sybil), named)


def again_header(header: Any, **changes: Any) -> Any:
    return type(header).make(
        SigningKey(bytes(32)),
        **{**{n: getattr(header, n) for n, _ in header.codecs() if n != "signature"}, **changes},
    )


COMMITMENTS: dict[str, Callable[[Proof, Proof], dict[str, Any]]] = {
    "changed": lambda p, _: {"commitments": bytes(16) + p.commitments[16:]},
    "another dealer's": lambda _, other: {"commitments": other.commitments},
    "another dealer's with its path": lambda _, other: {"commitments": other.commitments, "path": other.path},
    "cut": lambda p, _: {"commitments": p.commitments[:-16]},
    "longer": lambda p, _: {"commitments": p.commitments + bytes(16)},
    "a row instead": lambda p, _: {"commitments": p.holders[0].row, "path": p.holders[0].path},
    "another path": lambda p, _: {"path": p.path[::-1]},
    "no path": lambda _p, _: {"path": ()},
    "beyond the last secret": lambda _p, _: {"index": 6},
    "far beyond the last secret": lambda _p, _: {"index": 2**32 - 1},
}


@pytest.mark.parametrize("how", COMMITMENTS)
def test_other_commitments_frame_nobody(case: Case, how: str) -> None:
    """2. Commitments lead to the signed commitment root."""
    proof = case.proof(HONEST)
    changed = replace(proof, **COMMITMENTS[how](proof, case.proof("member-1")))
    assert case.refused(changed).endswith("the secrets' commitments are not those that were signed")


def holder_changed(proof: Proof, place: int, **changes: Any) -> Proof:
    holders = list(proof.holders)
    holders[place] = replace(holders[place], **changes)
    return replace(proof, holders=tuple(holders))


def test_other_rows_frame_nobody(case: Case) -> None:
    """2. Rows lead to the signed commitment root, each at its decryptor's place."""
    proof, other = case.proof(HONEST), case.proof("member-1")
    false = b"\x01" * 36
    row = commit_row(case.attempt.context, HONEST, "member-1", false * 6)
    for changed in (
        holder_changed(proof, 1, share=false, row=row),
        holder_changed(proof, 1, row=other.holders[1].row, path=other.holders[1].path),
        holder_changed(proof, 1, row=proof.holders[0].row, path=proof.holders[0].path),
        holder_changed(proof, 1, path=()),
        holder_changed(proof, 1, row=proof.commitments, path=proof.path),
    ):
        assert case.refused(changed).endswith("member-1's row is not the one that was signed")


def test_other_shares_frame_nobody(case: Case) -> None:
    """3. Each share is the one that was committed to."""
    proof = case.proof(HONEST)
    for share in (
        bytes(36),
        b"\xff" * 36,
        proof.holders[0].share,
        case.proof(HONEST, 1).holders[1].share,
        case.proof(FALSE).holders[1].share,
    ):
        changed = holder_changed(proof, 1, share=share)
        assert case.refused(changed).endswith("member-1's share is not the one that was dealt")


def test_too_few_holders_frame_nobody(case: Case) -> None:
    """4. At least t holders are different decryptors."""
    for proof in (case.proof(HONEST), case.true):
        for count in range(4):
            few = replace(proof, holders=proof.holders[:count])
            assert case.refused(few).endswith(f"{count} holders, the threshold is 4")


def test_a_holder_counts_once(case: Case) -> None:
    for proof in (
        case.proof(HONEST, 0, case.federation.ids[:3]),
        case.proof(FALSE, 0, case.federation.ids[:3]),
    ):
        twice = replace(proof, holders=(proof.holders[0], *proof.holders))
        assert case.refused(twice).endswith("3 holders, the threshold is 4")


def test_a_stranger_holds_no_share(case: Case) -> None:
    proof = holder_changed(case.proof(HONEST), 3, member="sybil")
    assert case.refused(proof).endswith("sybil is not a decryptor of this cohort")


def test_true_shares_of_too_low_a_place_frame_nobody(case: Case) -> None:
    """5. Shares are read at their decryptors' places: those of others under a wrong name make nothing."""
    proof = case.proof(HONEST, 0, case.federation.ids[1:5])
    renamed = replace(
        proof,
        holders=tuple(
            replace(holder, member=member)
            for holder, member in zip(proof.holders, case.federation.ids[:4], strict=True)
        ),
    )
    assert case.refused(renamed).endswith("member-0's row is not the one that was signed")


def test_the_first_threshold_decides(case: Case) -> None:
    """A word that is not canonical behind the first t shares proves nothing; among them it does."""
    federation = Federation(6)
    word = (2**31 - 1).to_bytes(4, "little")
    false_dealers(
        federation,
        {FALSE: lambda _attempt: lambda who, shares: word + shares[4:] if who == FALSE else shares},
    )
    phase = run_with_uploads(federation)
    upload = phase[0][FALSE]
    attempt, certified = phase[1], phase[2]
    trees = Trees.of(upload)

    def shown(*members: str) -> Proof:
        holders = []
        for member in members:
            place = attempt.decryptor_place[member]
            voted: Any = phase[3][member]
            shares = {d.member: d.shares for d in voted.held()} | {member: voted.own_shares}
            # member-3 complains of nobody: it is its own box
            path = tuple(trees.commitments.path(1 + place))
            holders.append(Holder(member, shares[FALSE][:36], upload.share_rows[place], path))
        commitments = b"".join(upload.secret_commitments)
        return Proof(upload.header, commitments, tuple(trees.commitments.path(0)), 0, tuple(holders))

    check_proof(attempt, certified, shown("member-0", "member-1", "member-2", FALSE))
    with pytest.raises(PeerFault, match=r"^eviction-invalid: .* make the secret"):
        check_proof(attempt, certified, shown("member-0", "member-1", "member-2", "member-4"))
    with pytest.raises(PeerFault, match=r"^eviction-invalid: .* make the secret"):
        check_proof(attempt, certified, shown("member-0", "member-1", "member-2", "member-4", "member-5"))


def run_with_uploads(
    federation: Federation,
) -> tuple[dict[str, Upload], Attempt, Certificate, dict[str, Any]]:
    """Drive to the certificate; uploads as they were announced, and phases before anything was revealed."""
    deal, uploads = federation.tamper, dict[str, Upload]()

    def note(sender: str, message: Message) -> Message | None:
        sent = deal(sender, message)
        if isinstance(sent, Upload):
            uploads[sender] = sent
        return sent

    federation.tamper = note
    federation.begin()
    phase = federation.run_until(Revealing)
    assert isinstance(phase, Revealing)
    return uploads, phase.attempt, phase.certificate, dict(federation.phases)


def test_colluding_decryptors_do_not_frame_a_dealer_by_the_coordinators_own_rules() -> None:
    """A false share names who revealed it, before it could stand in a proof."""
    federation = Federation(6)

    def lie(sender: str, message: Message) -> Message:
        if sender == "member-1" and isinstance(message, Reveal):
            runs = tuple(bytes(len(run)) for run in message.runs)
            return again(message, federation.keys[sender], runs=runs)
        return message

    federation.tamper = lie
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.evicted == ()
    assert [fault.parties for _, fault in outcome.faults] == [("member-1",)]
    assert not any(isinstance(m, Receipt) for m in outcome.faults)
