"""Proofs that a dealer is false: true ones hold, and none can be forged against an honest dealer (protocol §4.7)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again, false_dealers, other_secrets
from tests.support.simulator import After, Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Recovered, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.messages import Certificate, Holder, Message, Proof, Receipt, Reveal, Upload
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
        assert case.refused(proof).endswith("the shares recover the committed secret")


def test_a_header_that_its_dealer_did_not_sign_frames_nobody(case: Case) -> None:
    true = case.proof(FALSE)
    forged = replace(true.header, signature=bytes(64))
    assert "signature does not verify" in case.refused(replace(true, header=forged))


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
    assert case.refused(renamed).endswith("member-0's row does not match the signed root")


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
    with pytest.raises(PeerFault, match=r"^eviction-invalid: .* recover the committed secret"):
        check_proof(attempt, certified, shown("member-0", "member-1", "member-2", "member-4"))
    with pytest.raises(PeerFault, match=r"^eviction-invalid: .* recover the committed secret"):
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
    phase = federation.reach(Revealing)
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
