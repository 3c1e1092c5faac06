import pytest

from tests.support.forging import certificate
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Checking, Revealing, Voided, Voiding
from veilsum.protocol.member import Closed
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Certificate


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


def test_after_the_latest_end_void_moves_the_keys_too() -> None:
    federation = Federation(4)
    void = voided(federation)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    closed, _ = federation.ask("member-0", void, Closed)
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)


def test_void_keeps_the_keys_for_a_retry_until_the_latest_end() -> None:
    federation = Federation(4)
    closed, _ = federation.ask("member-0", voided(federation), Closed)
    held = [pair.key for pair in (*closed.ready.masks, *closed.ready.boxes)]
    assert (closed.ready.sequence, closed.ready.attempt) == (0, 1)
    end_s = closed.opening.terms.latest_end_s
    assert closed.expiry_s == end_s
    assert closed.erase_expired(end_s - 1) is closed
    erased = closed.erase_expired(end_s)
    assert (erased.ready.sequence, erased.ready.attempt) == (1, 0)
    assert not any(key in erased.to_bytes() for key in held)
