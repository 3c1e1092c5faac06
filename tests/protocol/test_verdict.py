"""What became of a member's upload, in every way that it can go."""

from tests.protocol.transcripts import doctored, verdict
from tests.support.forging import false_dealers, other_secrets
from tests.support.simulator import After, Federation
from veilsum.protocol.messages import Message, Upload, VoidRequest
from veilsum.protocol.replay import Standing


def test_counted_evicted_and_absent() -> None:
    federation = Federation(9, drop={0: After.OPENING})
    false_dealers(federation, {"member-7": lambda attempt: other_secrets(attempt, 0)})
    federation.run_round()
    found = verdict(federation)
    assert found.signed
    assert found.standing("member-0") is found.standing("stranger") is Standing.ABSENT
    assert found.standing("member-7") is Standing.EVICTED
    assert found.standing("member-1") is Standing.COUNTED
    assert found.survivors == federation.ids[1:]
    assert [member for member in federation.ids if found.counted(member)] == [
        member for member in federation.ids[1:] if member != "member-7"
    ]


def test_no_sum_counts_nobody() -> None:
    def silent(sender: str, message: Message) -> Message | None:
        return None if sender in {"member-3", "member-4"} and isinstance(message, Upload) else message

    federation = Federation(5, tamper=silent)
    federation.run_round()
    found = verdict(federation)
    assert found.certificate is not None
    assert (found.survivors, found.standing("member-0")) == ((), Standing.UNCERTIFIED)
    lost = Federation(5, drop={0: After.RECEIPT, 1: After.RECEIPT, 2: After.RECEIPT})
    lost.run_round(terms=lost.terms())
    assert (verdict(lost).survivors, verdict(lost).standing("member-3")) == ((), Standing.UNCERTIFIED)


def test_what_the_coordinator_did_not_sign_as_it_is_says_so() -> None:
    federation = Federation(4)
    federation.run_round()
    assert verdict(federation).signed
    assert doctored(federation, lambda entries: entries.pop()).signed
    request = VoidRequest(federation.phase.attempt.context, "cancelled").to_bytes()
    federation.transcript = type(federation.transcript)(
        (*federation.transcript.entries, request), federation.transcript.signature
    )
    found = verdict(federation)
    assert not found.signed
    assert {finding.parties for finding in found.findings} == {("coordinator",)}
