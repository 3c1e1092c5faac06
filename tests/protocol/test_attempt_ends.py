"""What a certificate must satisfy, an Erasure, and the admin's Lost."""

from dataclasses import replace

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Certificate, Survivor, Vote
from veilsum.protocol.messages.outcome import survivors_hash, void_hash


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )


def survivors_of(count: int) -> tuple[Survivor, ...]:
    return tuple(Survivor(f"member-{i}", bytes(32)) for i in range(count))


def certificate(
    federation: Federation,
    attempt: Attempt,
    voters: tuple[int, ...] = (0, 1, 2, 3),
    survivors: tuple[Survivor, ...] = survivors_of(4),
    outcome: bytes | None = None,
) -> Certificate:
    outcome = outcome or survivors_hash(attempt.context, survivors)
    votes = tuple(
        Vote.make(federation.keys[m], context=attempt.context, member=m, outcome=outcome)
        for m in (federation.ids[v] for v in voters)
    )
    return Certificate(attempt.context, survivors, "none", votes)


def test_void_dressed_as_survivors_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(void)


def test_survivors_dressed_as_void_are_refused(federation: Federation, attempt: Attempt) -> None:
    dressed = replace(certificate(federation, attempt), survivors=(), reason="cancelled")
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(dressed)


def test_regression_the_shamir_threshold_and_n_min_confused() -> None:
    """A set of t survivors, fewer than n_min, is refused although t shares would open it.

    With a threshold alone an active coordinator drove the honest cohort to 4 while every client believed in 34.
    """
    federation = Federation(6, decryptors=(0, 1, 2, 3))
    attempt = Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )
    t, n_min = attempt.quorum.threshold, attempt.quorum.survivors_min
    assert t < n_min
    attempt.check_certificate(
        certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(n_min))
    )
    for count in range(t, n_min):
        with pytest.raises(PeerFault, match=rf"^survivors-too-few: {count} survivors, {n_min} are needed"):
            attempt.check_certificate(
                certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(count))
            )


# What an Erasure and the admin's Lost must satisfy


@pytest.fixture(scope="module")
def given_up() -> Federation:
    """Six members: t = 4, a_D = 1, q = 4."""
    federation = Federation(6)
    federation.begin()
    return federation
