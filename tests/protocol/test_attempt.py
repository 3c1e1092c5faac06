from dataclasses import replace
from typing import Any

import pytest

from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.messages import Certificate, Manifest, Survivor, Vote
from veilsum.protocol.messages.outcome import survivors_hash, void_hash


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )


TERMS_CHANGES: list[dict[str, Any]] = [
    {"step": "count"},
    {"count": b"\x01" * 32},
    {"rows": b"\x01" * 32, "count": b"\x01" * 32},
    {"withheld": (1,), "count": b"\x01" * 32},
    {"evicted": ("member-0",), "count": b"\x01" * 32},
    {"material": b"\x01" * 32},
    {"latest_end_s": 1},
]


@pytest.mark.parametrize("change", TERMS_CHANGES, ids=lambda change: next(iter(change)))
def test_every_term_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    terms = replace(attempt.opening.terms, **change)
    assert replace(attempt, opening=replace(attempt.opening, terms=terms)).context != attempt.context
    assert set(vars(attempt.opening.terms)) == {next(iter(c)) for c in TERMS_CHANGES}


OTHERS: dict[type, Any] = {bytes: b"\x01" * 32, int: 9, str: "another", tuple: ()}


@pytest.mark.parametrize("field", [name for name, _ in Manifest.codecs.items()])
def test_the_whole_manifest_stands_in_the_context(attempt: Attempt, field: str) -> None:
    other = OTHERS[type(getattr(attempt.manifest, field))]
    assert replace(attempt, manifest=replace(attempt.manifest, **{field: other})).context != attempt.context


def test_the_coordinators_signature_does_not_stand_in_the_context(attempt: Attempt) -> None:
    # a malleable or renewed signature must not split members
    assert replace(attempt, opening=replace(attempt.opening, signature=bytes(64))).context == attempt.context


# A sparse graph


@pytest.fixture(scope="module")
def sparse() -> Attempt:
    """Twelve members on a ring, each joined to the two nearest on either side; one of two in a row may drop out."""
    federation = Federation(12)
    manifest = replace(federation.manifest, degree=4, window_dropped_max=1)
    return Attempt(federation.roster, federation.study, manifest, federation.opening(federation.terms()))


def test_two_lost_next_to_each_other_are_too_many_for_a_window(sparse: Attempt) -> None:
    ring = sparse.manifest.graph.ring
    everyone = set(sparse.members)
    sparse.check_windows(everyone)
    sparse.check_windows(everyone - {ring[0], ring[2], ring[4], ring[6], ring[8], ring[10]})
    for place in range(12):
        pair = {ring[place], ring[(place + 1) % 12]}
        with refused("window-exceeded", *sorted(pair)):
            sparse.check_windows(everyone - pair)


def test_a_round_is_named_by_its_study_and_period(attempt: Attempt) -> None:
    assert attempt.spec.name == "simulated, period period-0"


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


def test_void_dressed_as_survivors_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with refused("certificate-invalid"):
        attempt.check_certificate(void)


def test_survivors_dressed_as_void_are_refused(federation: Federation, attempt: Attempt) -> None:
    dressed = replace(certificate(federation, attempt), survivors=(), reason="cancelled")
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
