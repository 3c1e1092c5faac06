from collections.abc import Callable

import pytest

from protocol.coordinator import Checking, Collecting, Freezing, Revealing
from protocol.errors import PeerFault
from protocol.member import Closed, MemberPhase, Ready, Reported, load_phase
from protocol.member.attempting import Attempting
from protocol.messages import (
    Certificate,
    Freeze,
    Message,
    Report,
    ReportRequest,
    Reveal,
    SurvivorSet,
    VoidRequest,
    Vote,
)
from protocol.simulator import Federation
from tests.protocol.forging import certificate, lost

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]


def at(stage: type, federation: Federation) -> Federation:
    """Drive until the coordinator is in this phase; member-0 has seen the opening in any case."""
    federation.begin(terms=federation.terms(8))
    federation.run_until(stage)
    if stage is Collecting:
        opening = federation.phase.attempt.opening
        federation.phases["member-0"], _ = federation.phases["member-0"].receive(
            opening, federation.keys["member-0"], federation.now_s
        )
    return federation


def report(federation: Federation, answer: Answer) -> Report:
    """Member-0's report; it is stored and reloaded."""
    request = ReportRequest(federation.phase.attempt.context)
    phase, replies = answer(federation, "member-0", request)
    assert isinstance(phase, Reported)
    assert replies == phase.outbox() == (phase.report,)
    phase.report.verify(federation.keys["member-0"].public, "member-0")
    federation.phases["member-0"] = load_phase(phase.to_bytes())
    return phase.report


@pytest.mark.parametrize("stage", [Collecting, Checking, Freezing])
def test_who_signed_nothing_reports_no_set(stage: type, answer: Answer) -> None:
    federation = at(stage, Federation(5))
    assert report(federation, answer).sets == ()


def test_who_signed_reports_the_set(answer: Answer) -> None:
    federation = at(Revealing, Federation(5))
    phase = federation.phase
    assert isinstance(phase, Revealing)
    assert report(federation, answer).sets == (SurvivorSet(phase.certificate.survivors),)


def test_who_signed_void_reports_no_set(answer: Answer) -> None:
    federation = at(Freezing, Federation(5))
    request = VoidRequest(federation.phase.attempt.context, "cancelled")
    federation.phases["member-0"], _ = answer(federation, "member-0", request)
    assert report(federation, answer).sets == ()


def test_a_report_again_is_the_same_bytes(answer: Answer) -> None:
    federation = at(Revealing, Federation(5))
    first = report(federation, answer)
    assert report(federation, answer).to_bytes() == first.to_bytes()
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, "member-0", ReportRequest(bytes(32)))


def test_after_the_report_nothing_is_signed(answer: Answer) -> None:
    federation = at(Freezing, Federation(5))
    proposal = federation.phase.request_for("member-0")
    assert isinstance(proposal, Freeze)
    report(federation, answer)
    with pytest.raises(PeerFault, match=r"^already-voted: member-0 has reported what it signed"):
        answer(federation, "member-0", proposal)
    with pytest.raises(PeerFault, match=r"^already-voted: member-0 has reported what it signed"):
        answer(federation, "member-0", VoidRequest(proposal.context, "cancelled"))


def test_not_even_what_was_signed_before_is_signed_again(answer: Answer) -> None:
    federation = at(Revealing, Federation(5))
    report(federation, answer)
    with pytest.raises(PeerFault, match=r"^already-voted:"):
        answer(federation, "member-0", VoidRequest(federation.phase.attempt.context, "cancelled"))


def test_who_holds_no_shares_reports_nothing(answer: Answer) -> None:
    federation = at(Freezing, Federation(5, decryptors=(1, 2, 3), colluders=0))
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-0\]$"):
        report(federation, answer)
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, "member-1", ReportRequest(bytes(32)))


def test_a_certificate_that_comes_after_all_is_answered_by_the_reveal(answer: Answer) -> None:
    federation = at(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    certified = federation.phase.certificate
    _, (expected,) = answer(federation, "member-0", certified)
    report(federation, answer)
    phase, (reveal,) = answer(federation, "member-0", certified)
    assert isinstance(phase, Closed)
    assert isinstance(reveal, Reveal)
    assert reveal == expected


def test_who_reported_nothing_takes_a_certificate_too(answer: Answer) -> None:
    # it was not among the voters; what it vouched for by its receipt it reveals
    federation = at(Freezing, Federation(5))
    assert isinstance(federation.phase, Freezing)
    report(federation, answer)
    _, (reveal,) = answer(federation, "member-0", certificate(federation, federation.phase.survivors))
    assert isinstance(reveal, Reveal)
    assert len(reveal.runs) == 5


def keys(phase: MemberPhase) -> list[bytes]:
    assert isinstance(phase, Attempting)
    return [pair.key for pair in (*phase.ready.masks, *phase.ready.boxes)]


def test_after_the_report_the_keys_are_gone_and_the_shares_are_kept(answer: Answer) -> None:
    federation = at(Freezing, Federation(5))
    before = federation.phases["member-0"]
    report(federation, answer)
    after = federation.phases["member-0"]
    assert isinstance(before, Attempting)
    assert isinstance(after, Reported)
    assert not any(key in after.to_bytes() for key in keys(before))
    assert after.held() == before.held()
    assert after.attempt == before.attempt
    assert (after.ready.sequence, after.ready.attempt) == (1, 0)


def test_no_retry_follows_a_report(answer: Answer) -> None:
    federation = at(Checking, Federation(5))
    context = federation.phase.attempt.context
    votes = []
    for member in federation.ids[1:]:
        _, (vote,) = answer(federation, member, VoidRequest(context, "cancelled"))
        assert isinstance(vote, Vote)
        votes.append(vote)
    void = Certificate(context, (), "cancelled", tuple(votes))
    retrying, _ = answer(federation, "member-0", void)
    report(federation, answer)
    closed, _ = answer(federation, "member-0", void)
    assert isinstance(retrying, Closed)
    assert isinstance(closed, Closed)
    assert (retrying.ready.sequence, retrying.ready.attempt) == (0, 1)
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)


@pytest.mark.parametrize("reports_first", [False, True])
def test_lost_closes_the_sequence(answer: Answer, reports_first: bool) -> None:  # noqa: FBT001 - pytest's own
    federation = at(Freezing, Federation(5))
    before = keys(federation.phases["member-0"])
    if reports_first:
        report(federation, answer)
    phase, replies = answer(federation, "member-0", lost(federation, dict.fromkeys(federation.ids, ())))
    assert isinstance(phase, Ready)
    assert replies == ()
    assert (phase.sequence, phase.attempt) == (1, 0)
    assert not any(key in phase.to_bytes() for key in before)


def test_lost_of_another_attempt_or_admin_closes_nothing(answer: Answer) -> None:
    federation = at(Freezing, Federation(5))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[admin\]$"):
        answer(federation, "member-0", lost(federation, {}, context=bytes(32)))
    true = lost(federation, {})
    forged = type(true).make(federation.coordinator, context=true.context, reports=())
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
        answer(federation, "member-0", forged)
