"""After the latest end a member erases its secrets, and reports what it revealed (wire: Ends)."""

import math
from dataclasses import replace

import pytest

from tests.support.forging import again, erasure, lost
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Collecting, Freezing, Revealing
from veilsum.protocol.member import MemberPhase, Ready, load_phase
from veilsum.protocol.member.attempting import Attempting, Closed
from veilsum.protocol.messages import NOTHING_REVEALED, Certificate, Erased, ErasureRequest, Opening, Survivor


def at(stage: type, federation: Federation) -> Federation:
    """Drive the attempt until the coordinator is in this phase; member-0 has seen the opening."""
    federation.begin()
    federation.run_until(stage)
    if stage is Collecting:
        opening = federation.phase.attempt.opening
        federation.phases["member-0"], _ = federation.ask("member-0", opening)
    return federation


def pass_end(federation: Federation) -> None:
    federation.now_s = federation.phase.attempt.terms.latest_end_s


def request(federation: Federation) -> ErasureRequest:
    return ErasureRequest(federation.phase.attempt.context)


def report(federation: Federation, member: str = "member-0") -> Erased:
    """Return the member's report, after storing and reloading its phase."""
    federation.phases[member] = load_phase(federation.phases[member].to_bytes())
    phase, (made,) = federation.ask(member, request(federation))
    assert isinstance(made, Erased)
    federation.phase.attempt.check_from_decryptor(made)
    federation.phases[member] = load_phase(phase.to_bytes())
    return made


def keys(phase: MemberPhase) -> list[bytes]:
    ready = phase if isinstance(phase, Ready) else getattr(phase, "ready")  # noqa: B009 - whatever the phase
    return [pair.key for pair in (*ready.masks, *ready.boxes)]


def shares(phase: MemberPhase) -> list[bytes]:
    assert isinstance(phase, Attempting)
    return [bytes(dealt.shares) for dealt in phase.vouched_shares()] + [bytes(phase.own_shares)] * bool(
        phase.uploads
    )


@pytest.mark.parametrize("stage", [Collecting, Checking, Freezing, Revealing])
def test_whoever_revealed_nothing_erases_and_says_so(stage: type) -> None:
    federation = at(stage, Federation(5))
    before = federation.phases["member-0"]
    pass_end(federation)
    assert report(federation).revealed == NOTHING_REVEALED
    after = of(Ready, federation.phases["member-0"])
    assert (after.sequence, after.attempt) == (1, 0)
    stored = after.to_bytes()
    assert not any(secret in stored for secret in (*keys(before), *filter(None, shares(before))))


def test_a_report_again_is_the_same_bytes_however_late() -> None:
    federation = at(Freezing, Federation(5))
    pass_end(federation)
    first = report(federation)
    federation.now_s += 1e9
    assert report(federation).to_bytes() == first.to_bytes()


def test_who_hears_of_the_certificate_after_the_latest_end_has_revealed_nothing() -> None:
    federation = at(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    pass_end(federation)
    federation.phases["member-0"], replies = federation.ask("member-0", federation.phase.certificate)
    assert replies == ()
    assert report(federation).revealed == NOTHING_REVEALED


def test_a_request_is_for_a_decryptor_of_an_attempt_that_it_knows() -> None:
    federation = at(Freezing, Federation(5, decryptors=(1, 2, 3, 4)))
    with refused("not-a-decryptor", "member-0"):
        federation.ask("member-0", request(federation))
    pass_end(federation)
    for lapsed in (False, True):
        if lapsed:
            federation.phases = {m: p.erase_expired(federation.now_s) for m, p in federation.phases.items()}
        with refused("not-a-decryptor", "member-0"):
            federation.ask("member-0", request(federation))
        with refused("wrong-context", "coordinator"):
            federation.ask("member-1", ErasureRequest(bytes(32)))


def test_who_has_closed_reports_on_its_own_attempt_alone_and_after_its_end() -> None:
    federation = Federation(5)
    federation.run_round()
    with refused("wrong-phase", "coordinator"):
        federation.ask("member-0", request(federation))
    pass_end(federation)
    with refused("wrong-context", "coordinator"):
        federation.ask("member-0", ErasureRequest(bytes(32)))
    assert report(federation).revealed != NOTHING_REVEALED


def test_the_end_of_another_attempt_ends_nothing() -> None:
    federation = at(Freezing, Federation(5))
    pass_end(federation)
    other = bytes(32)
    for end in (
        lost(federation, context=other),
        replace(erasure(federation, *federation.ids), context=other),
    ):
        with refused("wrong-context", ...):
            federation.ask("member-0", end)


# A decryptor that never saw the opening


def test_an_expired_opening_is_refused_and_changes_nothing() -> None:
    federation = at(Checking, Federation(5, drop={4: After.CARD}))
    pass_end(federation)
    before = federation.phases["member-4"].to_bytes()
    with refused("terms-expired"):
        federation.ask("member-4", federation.phase.attempt.opening)
    assert federation.phases["member-4"].to_bytes() == before


def erase_unopened(federation: Federation, opening: Opening, asked: ErasureRequest) -> Erased:
    ready = of(Ready, federation.phases["member-4"])
    _, (made,) = ready.erase_unopened(opening, asked, federation.keys["member-4"], federation.now_s)
    assert isinstance(made, Erased)
    return made


def test_an_attempt_that_was_never_opened_is_erased_on_request_after_its_latest_end() -> None:
    federation = at(Checking, Federation(5, drop={4: After.CARD}))
    opening, asked = federation.phase.attempt.opening, request(federation)
    with refused("wrong-phase", "coordinator"):
        erase_unopened(federation, opening, asked)
    pass_end(federation)
    for false, cause in (
        (again(opening, federation.admin), Cause.BAD_SIGNATURE),
        (again(opening, federation.coordinator, cohort=bytes(32)), Cause.WRONG_COHORT),
        (again(opening, federation.coordinator, attempt=1), Cause.WRONG_CONTEXT),
    ):
        with refused(cause, "coordinator"):
            erase_unopened(federation, false, asked)
    skipping = again(opening, federation.coordinator, sequence=2**64 - 1)
    other = Attempt(federation.roster, federation.study, federation.phase.attempt.manifest, skipping)
    with refused("chain-broken", "coordinator"):
        erase_unopened(federation, skipping, ErasureRequest(other.context))
    assert erase_unopened(federation, opening, asked).revealed == NOTHING_REVEALED


# What a thief finds afterwards, and what a crash leaves


def test_a_member_killed_between_erasing_and_answering_reports_the_same() -> None:
    federation = at(Revealing, Federation(5))
    pass_end(federation)
    erased = federation.phases["member-0"].erase_expired(federation.now_s)
    expected = federation.ask("member-0", request(federation))[1]
    federation.phases["member-0"] = load_phase(erased.to_bytes())  # killed here, and started again
    assert federation.ask("member-0", request(federation))[1] == expected


def test_a_member_killed_between_history_and_phase_erases_before_it_reports() -> None:
    federation = at(Checking, Federation(5, drop={4: After.CARD}))
    before = of(Ready, federation.phases["member-4"])
    pass_end(federation)
    shown = before.erase_keys(federation.phase.attempt, before.history)
    federation.phases["member-4"] = before.with_history(shown.history)  # the phase was not stored any more
    report(federation, "member-4")
    assert not set(keys(before)) & set(keys(federation.phases["member-4"]))


# The end is shown


def test_an_erasure_leaves_nothing_of_a_closed_attempt() -> None:
    federation = at(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    federation.phases["member-0"], _ = federation.ask("member-0", federation.phase.certificate)
    phase, replies = federation.ask("member-0", erasure(federation, *federation.ids[1:]), Ready)
    assert replies == ()
    assert [link.reason for link in phase.history.settled] == ["erased"]


def test_who_revealed_in_an_attempt_does_not_enter_it_again_to_report_nothing() -> None:
    federation = Federation(5)
    federation.run_round()
    pass_end(federation)
    closed = of(Closed, federation.phases["member-0"])
    key, opening = federation.keys["member-0"], federation.phase.attempt.opening
    with refused("wrong-sequence"):
        closed.ready.erase_unopened(opening, request(federation), key, federation.now_s)


# A certificate that comes after the erasure


def certified_and_erased() -> tuple[Federation, Ready, Certificate, tuple[Survivor, ...]]:
    """Return a member that erased its keys at the latest end, the certificate, and its upload as the certificate should name it."""
    federation = at(Revealing, Federation(5))
    assert isinstance(federation.phase, Revealing)
    pass_end(federation)
    phase = federation.phases["member-0"]
    assert isinstance(phase, Attempting)
    return (
        federation,
        of(Ready, phase.erase_expired(federation.now_s)),
        federation.phase.certificate,
        phase.own_survivor,
    )


def test_a_certificate_closes_an_attempt_whose_keys_are_erased() -> None:
    federation, ready, certificate, own = certified_and_erased()
    closed = Closed.after_erasure(ready, certificate, own, federation.now_s)
    assert (closed.certificate, closed.own_survivor, closed.vouched_shares, closed.reveals) == (
        certificate,
        own,
        (),
        (),
    )
    assert [each.context for each in closed.history.certified] == [certificate.context]
    assert load_phase(closed.to_bytes()) == closed
    federation.phases["member-0"] = closed
    assert report(federation).revealed == NOTHING_REVEALED


def test_a_certificate_of_another_upload_or_attempt_closes_nothing() -> None:
    federation, ready, certificate, own = certified_and_erased()
    with refused("own-upload-changed"):
        Closed.after_erasure(ready, certificate, (replace(own[0], digest=bytes(32)),), federation.now_s)
    with refused("wrong-context", "coordinator"):
        Closed.after_erasure(ready, replace(certificate, context=bytes(32)), own, federation.now_s)


@pytest.mark.parametrize("stage", [Freezing, Revealing])
def test_a_phase_says_when_it_expires(stage: type) -> None:
    federation = at(stage, Federation(5))
    end_s = federation.phase.attempt.terms.latest_end_s
    phase = federation.phases["member-0"]
    if isinstance(federation.phase, Revealing):
        phase, _ = federation.ask("member-0", federation.phase.certificate)
    assert phase.expiry_s == end_s
    assert phase.erase_expired(end_s - 1) is phase
    erased = phase.erase_expired(end_s)
    held = phase.vouched_shares if isinstance(phase, Closed) else of(Attempting, phase).vouched_shares()
    assert held
    assert not any(dealt.shares in erased.to_bytes() for dealt in held)
    assert erased.expiry_s == math.inf
    assert erased.erase_expired(end_s) is erased
