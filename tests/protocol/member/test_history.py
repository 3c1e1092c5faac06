"""What a member must be shown before it takes part again, and what it does not forget."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Abandoned, Checking, Failed, Freezing, Lost, Recovered, Revealing, Voided
from protocol.errors import PeerFault
from protocol.member import Enrolled, History, MemberPhase, Opened, Ready, Voted
from protocol.member.attempting import Attempting
from protocol.member.history import Unsettled
from protocol.messages import (
    Freeze,
    Message,
    Past,
    Refusal,
    Report,
    ReportRequest,
    SurvivorSet,
    Upload,
    VoidRequest,
    Vote,
)
from protocol.messages import Lost as LostMessage
from protocol.simulator import After, Federation
from tests.protocol.forging import again, lost

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]


def history_of(phase: MemberPhase) -> History:
    assert isinstance(phase, Ready | Attempting)
    return phase.history


def lapsed(stage: type, federation: Federation) -> Federation:
    """Drive into this phase; then the terms' latest end passes, and everybody erases what it holds."""
    federation.begin(terms=federation.terms(8))
    federation.run_until(stage)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    federation.phases = {m: phase.lapse(federation.now_s) for m, phase in federation.phases.items()}
    return federation


def opens(answer: Answer, federation: Federation, member: str = "member-0") -> str | None:
    """The cause for which the next opening is refused, or None."""
    try:
        phase, _ = answer(federation, member, federation.opening(federation.terms(8)))
    except PeerFault as fault:
        return fault.cause
    assert isinstance(phase, Opened)
    return None


def close(federation: Federation, past: Past) -> None:
    """The chain goes on with this end of the attempt."""
    attempt = federation.phase.attempt
    federation.links = (*federation.links, attempt.link(past))
    federation.history = (*federation.history, past)
    federation.place = (attempt.opening.sequence + 1, 0)


# How an attempt ended has to be shown


def test_whoever_uploaded_opens_nothing_before_it_knows_how_that_ended(answer: Answer) -> None:
    federation = lapsed(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    certified = federation.phase.certificate
    close(federation, certified.past)
    assert opens(answer, federation) == Cause.OUTCOME_MISSING
    federation.phases["member-0"], replies = answer(federation, "member-0", certified)
    assert replies == ()
    assert isinstance(federation.phases["member-0"], Ready)
    assert opens(answer, federation) is None


def test_lost_will_do_as_well(answer: Answer) -> None:
    federation = lapsed(Freezing, Federation(5))
    closed = lost(federation, {})
    close(federation, federation.phase.attempt.past(closed))
    assert opens(answer, federation) == Cause.OUTCOME_MISSING
    federation.phases["member-0"], _ = answer(federation, "member-0", closed)
    assert opens(answer, federation) is None


def test_what_was_shown_must_stand_in_the_chain(answer: Answer) -> None:
    federation = lapsed(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    certified = federation.phase.certificate
    federation.phases["member-0"], _ = answer(federation, "member-0", certified)
    federation.place = (1, 0)
    assert opens(answer, federation) == Cause.CHAIN_BROKEN
    federation.place = (0, 0)
    close(federation, Past(certified.context, "lost", ()))
    assert opens(answer, federation) == Cause.CHAIN_BROKEN


def test_a_voter_that_uploaded_nothing_must_be_shown_the_end_too(answer: Answer) -> None:
    federation = Federation(6)
    federation.tamper = lambda who, sent: None if who == "member-5" and isinstance(sent, Upload) else sent
    lapsed(Revealing, federation)
    close(federation, Past(federation.phase.attempt.context, "lost", ()))
    assert opens(answer, federation, "member-5") == Cause.OUTCOME_MISSING


def test_a_vote_for_void_counts_as_taking_part(answer: Answer) -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    opening = federation.phase.attempt.opening
    for message in (opening, VoidRequest(federation.phase.attempt.context, "cancelled")):
        federation.phases["member-0"], _ = answer(federation, "member-0", message)
    assert isinstance(federation.phases["member-0"], Voted)
    federation.phases["member-0"] = federation.phases["member-0"].lapse(opening.terms.latest_end_s)
    federation.now_s = opening.terms.latest_end_s
    federation.place = (1, 0)
    assert opens(answer, federation) == Cause.OUTCOME_MISSING


def test_who_sent_a_receipt_alone_reports_when_the_attempt_has_run_out(answer: Answer) -> None:
    """It signed nothing, and says so: else Lost finds too few reports where many came too late to upload (protocol §4.9)."""
    federation = Federation(6)
    federation.tamper = lambda who, sent: None if isinstance(sent, Upload) and who in late else sent
    late = {"member-4", "member-5"}
    lapsed(Freezing, federation)
    context = federation.phase.attempt.context
    request, reports = ReportRequest(context), {}
    for member in federation.ids[2:]:
        phase, (reports[member],) = answer(federation, member, request)
        assert isinstance(phase, Ready)
        assert phase == federation.phases[member]
    assert all(isinstance(each, Report) and each.sets == () for each in reports.values())
    made = LostMessage.make(federation.admin, context=context, reports=tuple(reports.values()))
    assert federation.phase.attempt.check_lost(made)
    # and it opens nothing before it has seen the end
    close(federation, federation.phase.attempt.past(made))
    assert opens(answer, federation, "member-5") == Cause.OUTCOME_MISSING
    federation.phases["member-5"], _ = answer(federation, "member-5", made)
    assert history_of(federation.phases["member-5"]).spent == ()
    assert opens(answer, federation, "member-5") is None


def test_who_only_opened_an_attempt_needs_no_end_of_it(answer: Answer) -> None:
    federation = lapsed(Checking, Federation(5, drop={4: After.OPENING}))
    close(federation, Past(federation.phase.attempt.context, "lost", ()))
    assert opens(answer, federation, "member-4") is None


def test_an_end_of_something_else_settles_nothing(answer: Answer) -> None:
    federation = lapsed(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    certified = federation.phase.certificate
    for document in (replace(certified, context=bytes(32)), lost(federation, {}, context=bytes(32))):
        with pytest.raises(PeerFault, match=r"^wrong-context: this member waits for .*\[coordinator\]$"):
            answer(federation, "member-0", document)
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        answer(federation, "member-0", replace(certified, votes=certified.votes[1:]))
    federation.phases["member-0"], _ = answer(federation, "member-0", certified)
    with pytest.raises(PeerFault, match=r"^wrong-context:"):
        answer(federation, "member-0", certified)


# From one cohort to the next


def test_a_new_cohort_begins_with_the_history(answer: Answer) -> None:
    federation = Federation(5)
    federation.run_round(terms=federation.terms(8))
    federation.run_round(terms=federation.terms(8))
    federation.enrol(1)
    assert opens(answer, federation) is None
    links = federation.links
    for shorter in ((), links[:1], links[1:], links[::-1], (replace(links[0], closing=bytes(32)), links[1])):
        federation.links = shorter
        assert opens(answer, federation) == Cause.CHAIN_BROKEN


def test_an_attempt_left_open_in_one_cohort_holds_up_the_next(answer: Answer) -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Revealing)
    assert isinstance(phase, Revealing)
    federation.enrol(1)
    assert isinstance(federation.phases["member-0"], Ready)
    assert opens(answer, federation) == Cause.OUTCOME_MISSING
    federation.phases["member-0"], _ = answer(federation, "member-0", phase.certificate)
    federation.links = (phase.attempt.link(phase.certificate.past),)
    assert opens(answer, federation) is None


def test_what_is_learned_in_another_cohort_is_known_in_this_one(answer: Answer) -> None:
    federation = Federation(5)
    here = federation.phases["member-0"]
    assert isinstance(here, Ready)
    federation.enrol(1)
    federation.begin(terms=federation.terms(8))
    federation.run_until(Checking)
    elsewhere = federation.phases["member-0"]
    assert isinstance(elsewhere, Attempting)
    known = here.knowing(elsewhere.history)
    assert known == replace(here, history=elsewhere.history)
    with pytest.raises(PeerFault, match=r"^outcome-missing: show how 1 attempts ended"):
        known.receive(
            again(
                federation.opening(federation.terms(8)),
                federation.coordinator,
                cohort=here.manifest.cohort,
            ),
            federation.keys["member-0"],
            federation.now_s,
        )
    assert elsewhere.knowing(History()).history == History()


def test_a_member_starts_a_cohort_with_what_it_knows() -> None:
    federation = Federation(5)
    federation.run_round(terms=federation.terms(8))
    known = federation.phases["member-0"].history  # type: ignore[attr-defined]  # the round is over
    phase, _ = Enrolled.start(
        "member-0", federation.roster, bytes(32), federation.keys["member-0"], expires_s=1, history=known
    )
    assert isinstance(phase, Enrolled)
    assert phase.history == known
    assert len(known.settled) == 1


# Lost: what was signed is not forgotten


def test_without_a_threshold_of_reports_the_lineage_is_spent(answer: Answer) -> None:
    federation = Federation(5, drop={3: After.VOTE, 4: After.VOTE}, lineage=b"the same")
    outcome = federation.run_round(terms=federation.terms(8))
    # three reveals of four: a certificate, and no sum
    assert isinstance(outcome.phase, Failed)
    federation.drop = {3: After.RECEIPT, 4: After.RECEIPT}
    federation.lineage = b"another!"
    outcome = federation.run_round(terms=federation.terms(8))
    assert isinstance(outcome.phase, Abandoned)
    assert len(outcome.phase.lost.reports) == 3
    assert history_of(federation.phases["member-0"]).spent == (b"another!",)
    # nobody can say which sets those two would have signed
    federation.drop = {}
    outcome = federation.run_round(terms=federation.terms(8))
    assert {fault.cause for _, fault in outcome.faults} == {Cause.LINEAGE_SPENT}
    assert {who for who, _ in outcome.faults} == set(federation.ids)
    for lineage, terms in ((b"a third!", {}), (b"another!", {"noise": b"some"})):
        federation.lineage = lineage
        outcome = federation.run_round(terms=federation.terms(8, **terms))
        assert isinstance(outcome.phase, Recovered | Voided | Abandoned)
        assert Cause.LINEAGE_SPENT not in {fault.cause for _, fault in outcome.faults}


def test_with_a_threshold_of_reports_no_lineage_is_spent() -> None:
    federation = Federation(6, lineage=b"the same")
    federation.begin(terms=federation.terms(8))
    federation.phase = federation.run_until(Checking).cancel(federation.now_s).expire(federation.now_s)
    assert isinstance(federation.phase, Lost)
    outcome = federation.finish()
    assert isinstance(outcome.phase, Abandoned)
    assert len(outcome.phase.lost.reports) == 6
    assert history_of(federation.phases["member-0"]).spent == ()
    outcome = federation.run_round(terms=federation.terms(8))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.faults == ()


def signed_and_lost(federation: Federation, answer: Answer, reporting: tuple[str, ...]) -> SurvivorSet:
    """Member-0 alone signs a set of all; then the attempt is lost with the reports of some."""
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    proposal = phase.request_for("member-0")
    assert isinstance(proposal, Freeze)
    federation.phases["member-0"], (vote,) = answer(federation, "member-0", proposal)
    assert isinstance(vote, Vote)
    sets = {member: phase.survivors if member == "member-0" else () for member in reporting}
    closed = lost(federation, sets)
    for member in federation.ids:
        federation.phases[member], _ = answer(federation, member, closed)
    close(federation, phase.attempt.past(closed))
    return SurvivorSet(phase.survivors)


def test_a_set_it_signed_itself_counts_as_opened_though_nobody_reported_it(answer: Answer) -> None:
    federation = Federation(8, lineage=b"the same")
    opened = signed_and_lost(federation, answer, federation.ids[1:])
    assert federation.history[-1].sets == ()
    mine = history_of(federation.phases["member-0"])
    assert [each.survivors for each in mine.signed] == [opened.survivors]
    assert history_of(federation.phases["member-1"]).signed == ()
    # two of the eight stay away: their difference to what member-0 signed would be a sum of two
    federation.drop = {6: After.CARD, 7: After.CARD}
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Freezing)
    proposal = phase.request_for("member-0")
    assert isinstance(proposal, Freeze)
    _, (refusal,) = answer(federation, "member-0", proposal)
    assert isinstance(refusal, Refusal)
    assert (refusal.cause, refusal.group) == ("ledger-refused", ("member-6", "member-7"))
    _, (vote,) = answer(federation, "member-1", proposal)
    assert isinstance(vote, Vote)
    end = federation.run_until()
    assert isinstance(end, Voided)
    assert (end.fault.cause, end.fault.parties) == (Cause.LEDGER_REFUSED, ("member-0",))


def test_a_set_that_was_reported_stands_in_the_chain_and_not_here_as_well(answer: Answer) -> None:
    federation = Federation(5, lineage=b"the same")
    opened = signed_and_lost(federation, answer, ("member-0",))
    assert federation.history[-1].sets == (opened,)
    assert history_of(federation.phases["member-0"]).signed == ()


def test_a_sequence_that_was_lost_is_not_tried_again(answer: Answer) -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    federation.phase = federation.run_until(Checking).cancel(federation.now_s).expire(federation.now_s)
    federation.finish()
    assert federation.place == (1, 0)
    assert opens(answer, federation) is None
    for place in ((0, 0), (0, 1)):
        federation.place = place
        assert opens(answer, federation) == Cause.WRONG_SEQUENCE
    federation.place = (2, 0)
    assert opens(answer, federation) == Cause.CHAIN_BROKEN
    federation.place = (1, 0)
    assert isinstance(federation.run_round(terms=federation.terms(8)).phase, Recovered)


# Reports of an attempt that has run out


def test_a_member_whose_attempt_has_run_out_still_reports(answer: Answer) -> None:
    federation = lapsed(Revealing, Federation(5))
    phase = federation.phase
    assert isinstance(phase, Revealing)
    request = ReportRequest(phase.attempt.context)
    before = federation.phases["member-0"]
    after, (report,) = answer(federation, "member-0", request)
    assert after is before
    assert isinstance(report, Report)
    assert report.sets == (SurvivorSet(phase.certificate.survivors),)
    phase.attempt.check_report(report)
    assert answer(federation, "member-0", request)[1] == (report,)


def test_who_left_no_such_attempt_open_reports_nothing(answer: Answer) -> None:
    federation = lapsed(Revealing, Federation(5, decryptors=(1, 2, 3), colluders=0))
    context = federation.phase.attempt.context
    with pytest.raises(PeerFault, match=r"^wrong-context: this member waits for .*\[coordinator\]$"):
        answer(federation, "member-1", ReportRequest(bytes(32)))
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-0\]$"):
        answer(federation, "member-0", ReportRequest(context))


# Two cohorts that are open at once


def two_cohorts(federation: Federation) -> tuple[Opened, Freezing]:
    """Member-0 has opened an attempt in cohort 0; since then it has voted in one of cohort 1."""
    federation.begin(terms=federation.terms(8))
    opening = federation.phase.attempt.opening
    here, _ = federation.phases["member-0"].receive(opening, federation.keys["member-0"], federation.now_s)
    assert isinstance(here, Opened)
    federation.enrol(1)
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    request = phase.request_for("member-0")
    assert request is not None
    federation.phases["member-0"], _ = federation.phases["member-0"].receive(
        request, federation.keys["member-0"], federation.now_s
    )
    return here, phase


def test_nobody_uploads_in_one_cohort_while_it_takes_part_in_another() -> None:
    federation = Federation(5)
    here, _ = two_cohorts(federation)
    known = here.knowing(history_of(federation.phases["member-0"]))
    sealing = known.seal(federation.random)
    sealing.chunk(np.zeros(8, np.int64))
    upload, own = sealing.finish(
        federation.keys["member-0"], lineage=bytes(8), records_tag=bytes(8), records=1
    )
    with pytest.raises(PeerFault, match=r"^outcome-missing: show how 1 attempts ended"):
        known.uploaded(upload, own)
    assert here.uploaded(upload, own)[1] == (upload,)


def test_nobody_signs_in_one_cohort_what_it_has_not_been_shown_of_another(answer: Answer) -> None:
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    proposal = federation.run_until(Freezing).request_for("member-0")
    assert isinstance(proposal, Freeze)
    here, context = federation.phases["member-0"], federation.phase.attempt.context
    assert isinstance(here, Attempting)
    federation.phases["member-0"], history = here, here.history
    # an attempt of another cohort, opened and ended meanwhile, that this one's opening does not tell of
    elsewhere = replace(here.attempt, manifest=replace(here.attempt.manifest, counter=1))
    for known, cause in (
        (history.entered(Unsettled(elsewhere, (), ())), "outcome-missing"),
        (replace(history, settled=(elsewhere.link(Past(elsewhere.context, "lost", ())),)), "chain-broken"),
    ):
        federation.phases["member-0"] = here.knowing(known)
        _, (refusal,) = answer(federation, "member-0", proposal)
        assert isinstance(refusal, Refusal)
        assert (refusal.context, refusal.cause) == (context, cause)
    federation.phases["member-0"] = here
    assert isinstance(answer(federation, "member-0", proposal)[1][0], Vote)


def test_a_report_is_made_in_the_cohort_of_the_attempt() -> None:
    federation = Federation(5)
    here = federation.phases["member-0"]
    assert isinstance(here, Ready)
    two_cohorts(federation)
    elsewhere = ReportRequest(federation.phase.attempt.context)
    known = here.knowing(history_of(federation.phases["member-0"]))
    with pytest.raises(PeerFault, match=r"^wrong-context: the attempt is another cohort's"):
        known.receive(elsewhere, federation.keys["member-0"], federation.now_s)
