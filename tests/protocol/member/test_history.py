"""What a member must be shown before it takes part again, and what it remembers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.forging import erasure, lost
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.attempt import Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Freezing, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import History, MemberPhase, Opened, Ready
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import ErasureRequest, Freeze, Refusal, Vote


def history_of(phase: MemberPhase) -> History:
    assert isinstance(phase, Ready | Attempting)
    return phase.history


def lapsed(stage: type, federation: Federation) -> Federation:
    """Drive the attempt into this phase; then its latest end passes, and all members erase their secrets."""
    federation.begin()
    federation.run_until(stage)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    federation.phases = {m: phase.erase_expired(federation.now_s) for m, phase in federation.phases.items()}
    return federation


def opens(federation: Federation, member: str = "member-0") -> str | None:
    """Return the cause for which the history refuses the next opening; None if it accepts, or if a later rule refuses."""
    try:
        phase, _ = federation.ask(member, federation.opening(federation.terms()))
    except PeerFault as fault:
        return None if fault.cause is Cause.ALREADY_SUMMED else fault.cause
    assert isinstance(phase, Opened)
    return None


def close(federation: Federation, closing: Closing) -> None:
    """Continue the chain with this end of the attempt."""
    attempt = federation.phase.attempt
    federation.links = (*federation.links, attempt.make_link(closing))
    federation.place = (attempt.opening.sequence + 1, 0)


# How an attempt ended has to be shown


def test_who_only_opened_an_attempt_must_be_shown_its_end_once_it_has_erased() -> None:
    federation = lapsed(Checking, Federation(5, drop={4: After.OPENING}))
    closed = lost(federation)
    close(federation, closed)
    assert opens(federation, "member-4") == Cause.OUTCOME_MISSING
    federation.phases["member-4"], _ = federation.ask("member-4", closed)
    assert opens(federation, "member-4") is None


# An Erasure or Lost takes the place of a certificate, and no certificate theirs


@pytest.mark.parametrize("end", [lost, lambda federation: erasure(federation, *federation.ids[:3])])
def test_a_certificate_is_not_the_last_word(end: Callable[[Federation], Closing]) -> None:
    federation = lapsed(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    certified, closed = federation.phase.certificate, end(federation)
    federation.phases["member-0"], _ = federation.ask("member-0", certified)
    federation.phases["member-0"], _ = federation.ask("member-0", closed)
    history = history_of(federation.phases["member-0"])
    assert history.settled == (federation.phase.attempt.make_link(closed),)
    assert history.certified == ()
    close(federation, certified)
    assert opens(federation) == Cause.CHAIN_BROKEN
    federation.links = ()
    close(federation, closed)
    assert opens(federation) is None
    # and now it is
    with refused("wrong-context", "coordinator"):
        federation.ask("member-0", certified)
    assert federation.ask("member-0", closed)[0] == federation.phases["member-0"]


def test_a_crash_between_history_and_phase_does_not_bring_a_certificate_back() -> None:
    federation = Federation(5)
    federation.reach(Revealing)
    assert isinstance(federation.phase, Revealing)
    before = federation.phases["member-0"]
    after, _ = federation.ask("member-0", erasure(federation, *federation.ids))
    federation.phases["member-0"] = before.with_history(
        history_of(after)
    )  # the phase was not stored any more
    with refused("wrong-context", "coordinator"):
        federation.ask("member-0", federation.phase.certificate)
    again_, _ = federation.ask("member-0", erasure(federation, *federation.ids))
    assert again_ == after


# A coordinator that does not know an attempt


def forgotten(reason: str = "lost") -> Federation:
    """Return a federation whose coordinator has forgotten an attempt, which its members know to have ended; the next period is enrolled."""
    federation = lapsed(Revealing, Federation(5))
    closed = federation.phase.attempt.make_link(lost(federation))
    for member, phase in federation.phases.items():
        history = replace(history_of(phase), unsettled=(), settled=(replace(closed, reason=reason),))
        federation.phases[member] = phase.with_history(history)
    federation.enrol("period-1")
    return federation


@pytest.mark.parametrize("reason", ["lost", "erased", "cancelled"])
def test_an_attempt_without_a_certified_set_may_be_left_out(reason: str) -> None:
    federation = forgotten(reason)
    [ended] = history_of(federation.phases["member-0"]).settled
    opened, _ = federation.ask("member-0", federation.opening(federation.terms()), Opened)
    assert opened.history.settled == (ended,)
    federation.links = (replace(ended, reason="another-end"),)
    assert opens(federation) == Cause.CHAIN_BROKEN
    federation.links = (replace(ended, reason="none", survivors=bytes([1] * 32)),)
    assert opens(federation) == Cause.CHAIN_BROKEN
    federation.links = (ended,)
    opened, _ = federation.ask("member-0", federation.opening(federation.terms()), Opened)
    assert opened.history.settled == ()


def test_a_step_that_was_lost_and_left_out_is_not_run_again() -> None:
    for federation in (forgotten("erased"), forgotten("lost")):
        federation.enrol("period-0")
        opening = federation.opening(federation.terms())
        if history_of(federation.phases["member-0"]).settled[0].spends_records:
            with refused("already-summed", "coordinator"):
                federation.ask("member-0", opening)
        else:
            federation.ask("member-0", opening, Opened)


def test_an_attempt_that_was_opened_before_its_step_was_lost_elsewhere_gets_no_upload() -> None:
    federation = Federation(5)
    federation.enrol("period-0")
    federation.begin()
    elsewhere = replace(federation.phase.attempt, manifest=replace(federation.manifest, counter=7))
    opened, _ = federation.ask("member-0", federation.phase.attempt.opening, Opened)
    sealing, vector, step = (
        opened.begin_sealing(federation.random),
        federation.vectors()["member-0"],
        opened.attempt.spec.chunk_elements,
    )
    for index in range(opened.attempt.chunk_count):
        sealing.mask_next_chunk(vector[index * step : (index + 1) * step])
    sealed = sealing.finish(federation.keys["member-0"])
    closed = elsewhere.make_link(lost(federation))
    opened.with_history(replace(opened.history, settled=(replace(closed, reason="erased"),))).store_upload(
        *sealed
    )
    with refused("already-summed", "coordinator"):
        opened.with_history(replace(opened.history, settled=(closed,))).store_upload(*sealed)


# Two cohorts that are open at once


def test_nobody_signs_in_one_cohort_what_it_has_not_been_shown_of_another() -> None:
    federation = Federation(5)
    federation.begin()
    proposal = of(Freeze, federation.run_until(Freezing).request_for("member-0"))
    here, context = federation.phases["member-0"], federation.phase.attempt.context
    assert isinstance(here, Attempting)
    federation.phases["member-0"], history = here, here.history
    # an attempt of another cohort, opened and ended meanwhile, that this one's opening does not tell of
    elsewhere = replace(here.attempt, manifest=replace(here.attempt.manifest, counter=1))
    closed = elsewhere.make_link(lost(federation))
    certified = replace(closed, reason="none", survivors=bytes([1] * 32))
    for known, cause in (
        (history.enter_attempt(elsewhere), "outcome-missing"),
        (replace(history, settled=(certified,)), "chain-broken"),
        (replace(history, settled=(closed,)), "already-summed"),
    ):
        federation.phases["member-0"] = here.with_history(known)
        refusal = federation.answered("member-0", proposal, Refusal)
        assert (refusal.context, refusal.cause) == (context, cause)
    for ended in (
        (),
        (replace(closed, period="other-1"),),
        (replace(closed, step="mean"),),
        (replace(closed, repeats=bytes([1] * 32)),),
        (replace(closed, reason="cancelled"),),
        (replace(closed, reason="erased"),),
    ):
        federation.phases["member-0"] = here.with_history(replace(history, settled=ended))
        assert isinstance(federation.ask("member-0", proposal)[1][0], Vote)


def test_a_report_is_made_in_the_cohort_of_the_attempt() -> None:
    """A member that voted in an attempt of cohort 1 is asked for its report in cohort 0."""
    federation = Federation(5)
    here = of(Ready, federation.phases["member-0"])
    federation.enrol("other-1")
    request = of(Freeze, federation.reach(Freezing).request_for("member-0"))
    federation.phases["member-0"], _ = federation.ask("member-0", request)
    known = here.with_history(history_of(federation.phases["member-0"]))
    elsewhere = ErasureRequest(federation.phase.attempt.context)
    with refused("wrong-context", "coordinator"):
        known.receive(elsewhere, federation.keys["member-0"], federation.now_s)
