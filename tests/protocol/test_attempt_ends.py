"""What a certificate must satisfy, an Erasure, and the admin's Lost."""

from dataclasses import replace

import pytest

from tests.protocol.forging import again, erased, erasure, lost
from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
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


def test_a_threshold_of_votes_is_a_certificate(federation: Federation, attempt: Attempt) -> None:
    attempt.check_certificate(certificate(federation, attempt))
    attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 3, 4)))
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    attempt.check_certificate(replace(void, survivors=(), reason="cancelled"))


def test_one_vote_less_is_none(federation: Federation, attempt: Attempt) -> None:
    with pytest.raises(PeerFault, match=r"^certificate-invalid: 3 votes, the threshold is 4"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 2)))


def test_one_decryptors_vote_counts_once(federation: Federation, attempt: Attempt) -> None:
    with pytest.raises(PeerFault, match=r"^certificate-invalid: .* threshold is 4"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 2, 2)))


def test_votes_for_another_outcome_are_refused(federation: Federation, attempt: Attempt) -> None:
    other = certificate(federation, attempt, outcome=survivors_hash(attempt.context, survivors_of(5)))
    with pytest.raises(PeerFault, match=r"^certificate-invalid: a vote in the certificate is for another"):
        attempt.check_certificate(other)


def test_void_dressed_as_survivors_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(void)


def test_survivors_dressed_as_void_are_refused(federation: Federation, attempt: Attempt) -> None:
    dressed = replace(certificate(federation, attempt), survivors=(), reason="cancelled")
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(dressed)


def test_void_for_another_reason_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(replace(void, survivors=(), reason="quorum-lost"))


def test_a_forged_vote_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    forged = replace(true, votes=(*true.votes[:3], replace(true.votes[3], signature=bytes(64))))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-3\]$"):
        attempt.check_certificate(forged)


def test_a_strangers_vote_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    vote = Vote.make(SigningKey(bytes(32)), context=attempt.context, member="sybil", outcome=true.outcome)
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        attempt.check_certificate(replace(true, votes=(*true.votes, vote)))


def test_a_members_vote_who_is_no_decryptor_is_refused() -> None:
    federation = Federation(6, decryptors=(0, 1, 2, 3))
    attempt = Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-5\]$"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 5)))


def test_a_certificate_of_another_context_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        attempt.check_certificate(replace(true, context=bytes(32)))
    smuggled = replace(true.votes[0], context=bytes(32))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-0\]$"):
        attempt.check_certificate(replace(true, votes=(smuggled, *true.votes[1:])))


@pytest.mark.parametrize(
    "members", [("member-1", "member-0"), ("member-0", "member-0"), ("member-0", "sybil")]
)
def test_survivors_out_of_order_repeated_or_strange_are_refused(
    federation: Federation, attempt: Attempt, members: tuple[str, ...]
) -> None:
    survivors = tuple(Survivor(m, bytes(32)) for m in members)
    with pytest.raises(PeerFault, match=r"^survivors-invalid:"):
        attempt.check_certificate(certificate(federation, attempt, survivors=survivors))


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


def test_enough_reports_of_nothing_are_an_erasure(given_up: Federation) -> None:
    attempt = given_up.phase.attempt
    assert attempt.quorum.erasures_min == 4
    attempt.check_closing(erasure(given_up, *given_up.ids[:4]))
    attempt.check_closing(erasure(given_up, *given_up.ids))
    with pytest.raises(PeerFault, match=r"^erasure-invalid: 3 reports, 4 are needed"):
        attempt.check_closing(erasure(given_up, *given_up.ids[:3]))


def test_a_report_that_tells_of_a_reveal_does_not_stand_in_an_erasure(given_up: Federation) -> None:
    true = erasure(given_up, *given_up.ids[:5])
    told = erased(given_up, "member-0", revealed=b"\x01" * 32)
    with pytest.raises(PeerFault, match=r"^erasure-invalid: member-0 reports that it revealed"):
        given_up.phase.attempt.check_erasure(replace(true, reports=(told, *true.reports[1:])))


def test_every_report_in_an_erasure_is_a_decryptors_for_this_context(given_up: Federation) -> None:
    attempt, true = given_up.phase.attempt, erasure(given_up, *given_up.ids[:4])
    for false in (
        erased(given_up, "member-0", context=bytes(32)),
        replace(true.reports[0], signature=bytes(64)),
        again(true.reports[0], given_up.keys["member-0"], member="a-sybil"),
    ):
        with pytest.raises(PeerFault, match=r"^erasure-invalid:"):
            attempt.check_erasure(replace(true, reports=(false, *true.reports[1:])))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        attempt.check_erasure(replace(true, context=bytes(32)))


def test_another_admin_closes_nothing(given_up: Federation) -> None:
    attempt, true = given_up.phase.attempt, lost(given_up)
    attempt.check_closing(true)
    with pytest.raises(PeerFault, match=r"^bad-signature: admin's .*\[admin\]$"):
        attempt.check_lost(again(true, given_up.coordinator))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[admin\]$"):
        attempt.check_lost(lost(given_up, context=bytes(32)))


def test_a_certificate_closes_too(federation: Federation, attempt: Attempt) -> None:
    attempt.check_closing(certificate(federation, attempt))
