import pytest

from tests.support.forging import certificate
from tests.support.simulator import After, Federation, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Checking, Revealing, Voided, Voiding
from veilsum.protocol.member import Closed, Ready
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Certificate, Survivor


def revealing(federation: Federation) -> Certificate:
    """Drive the attempt until there is a certificate, before any member sees it."""
    phase = federation.reach(Revealing)
    return phase.certificate


def attempting(federation: Federation, member: str) -> Attempting:
    return of(Attempting, federation.phases[member])


# VOID


def voided(federation: Federation) -> Certificate:
    """Cancel an attempt in which all members have uploaded; no member has seen the certificate."""
    federation.begin()
    federation.phase = federation.run_until(Checking).cancel(federation.now_s)
    assert isinstance(federation.phase, Voiding)
    phase = of(Voided, federation.run_until())
    return phase.closing


# Certificates and reveals


@pytest.fixture
def federation() -> Federation:
    """Six members; member-1 and member-4 have not uploaded."""
    return Federation(6, drop={1: After.OPENING, 4: After.CARD})


def test_keys_move_on_at_the_certificate_and_shares_are_gone_once_the_result_is_out(
    federation: Federation,
) -> None:
    certified = revealing(federation)
    voted = attempting(federation, "member-2")
    closed, _ = federation.ask("member-2", certified, Closed)
    assert {*closed.own_survivor} & {*closed.certificate.survivors}
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)
    stored = closed.to_bytes()
    assert not any(pair.key in stored for pair in (*voted.ready.masks, *voted.ready.boxes))
    # until then a dealer may prove false, and its neighbours' shares are wanted
    shares = [voted.own_shares, *(dealt.shares for dealt in voted.vouched_shares())]
    assert all(each in stored for each in shares)
    settled = closed.erase_shares()
    assert not any(each in settled.to_bytes() for each in shares)
    assert settled.messages_to_resend() == ()
    assert settled.erase_shares() is settled


def test_a_certificate_for_another_set_after_the_reveal_reveals_nothing_more(federation: Federation) -> None:
    certified = revealing(federation)
    federation.phases["member-2"], first = federation.ask("member-2", certified)
    smaller = certificate(federation, certified.survivors[:4])
    _, again = federation.ask("member-2", smaller)
    assert again == first


# The terms' latest end


def test_after_the_latest_end_a_certificate_closes_without_a_reveal(federation: Federation) -> None:
    certified = revealing(federation)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    closed, replies = federation.ask("member-2", certified, Closed)
    assert {*closed.own_survivor} & {*closed.certificate.survivors}
    assert replies == ()


def test_after_the_latest_end_void_moves_the_keys_too() -> None:
    federation = Federation(4)
    void = voided(federation)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    closed, _ = federation.ask("member-0", void, Closed)
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)


def test_keys_lapse_at_the_latest_end_certificate_or_not(federation: Federation) -> None:
    revealing(federation)
    voted = attempting(federation, "member-2")
    end = voted.opening.terms.latest_end_s
    assert voted.erase_expired(end - 1) is voted
    lapsed = of(Ready, voted.erase_expired(end))
    assert lapsed == voted.ready.advance_to(1, 0, voted.history)
    stored = lapsed.to_bytes()
    assert not any(pair.key in stored for pair in (*voted.ready.masks, *voted.ready.boxes))
    assert not any(dealt.shares in stored for dealt in voted.vouched_shares())


def test_the_phase_of_an_attempt_is_one_with_its_messages(federation: Federation) -> None:
    revealing(federation)
    phase = attempting(federation, "member-2")
    assert phase.attempt == Attempt(federation.roster, federation.study, federation.manifest, phase.opening)
    assert phase.own_survivor == (Survivor.from_header(phase.uploads[0].header),)
    assert attempting(federation, "member-1").own_survivor == ()
