from dataclasses import replace

import pytest

from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
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


# What a certificate must satisfy


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
        Vote.make_signed(federation.keys[m], context=attempt.context, member=m, outcome=outcome)
        for m in (federation.ids[v] for v in voters)
    )
    return Certificate(attempt.context, survivors, "none", votes)


def test_no_outcome_passes_for_another(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    survivors = replace(certificate(federation, attempt), survivors=(), reason="cancelled")
    for dressed in (void, survivors):
        with refused("certificate-invalid"):
            attempt.check_certificate(dressed)


def test_regression_the_shamir_threshold_and_n_min_confused() -> None:
    """A set of t survivors, fewer than n_min, is refused although t shares would open it.

    With only a threshold, an active coordinator reduced the honest cohort to 4 while every client believed it to be 34.
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
        with refused("survivors-too-few"):
            attempt.check_certificate(
                certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(count))
            )


def test_a_round_is_named_by_its_study_and_period(attempt: Attempt) -> None:
    assert attempt.spec.name == "simulated, period period-0"
