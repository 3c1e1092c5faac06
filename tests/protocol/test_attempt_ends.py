"""What a certificate must satisfy, and the admin's Lost."""

from dataclasses import replace

import pytest

from protocol.attempt import Attempt
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Certificate, Report, Survivor, SurvivorSet, Vote
from protocol.messages.outcome import survivors_hash, void_hash
from protocol.simulator import Federation
from tests.protocol.forging import again, lost


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(100)))


def survivors_of(count: int) -> tuple[Survivor, ...]:
    return tuple(Survivor(f"member-{i}", bytes(8), bytes(8), bytes(32)) for i in range(count))


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
    attempt = Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(8)))
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
    survivors = tuple(Survivor(m, bytes(8), bytes(8), bytes(32)) for m in members)
    with pytest.raises(PeerFault, match=r"^survivors-invalid:"):
        attempt.check_certificate(certificate(federation, attempt, survivors=survivors))


def test_regression_the_shamir_threshold_and_n_min_confused() -> None:
    """A set of t survivors, fewer than n_min, is refused although t shares would open it.

    With a threshold alone an active coordinator drove the honest cohort to 4 while every client believed in 34.
    """
    federation = Federation(6, decryptors=(0, 1, 2), colluders=0)
    attempt = Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(8)))
    t, n_min = attempt.quorum.threshold, attempt.quorum.survivors_min
    assert t < n_min
    attempt.check_certificate(
        certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(n_min))
    )
    for count in range(t, n_min):
        with pytest.raises(PeerFault, match=rf"^survivors-too-few: {count} survivors, n_min is {n_min}"):
            attempt.check_certificate(
                certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(count))
            )


# What the admin's Lost must satisfy


@pytest.fixture(scope="module")
def given_up() -> Federation:
    """Five members (t = 4, a_D = 1) in an attempt that is to be closed by the admin."""
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    return federation


def test_a_threshold_of_reports_tells_of_every_set(given_up: Federation) -> None:
    attempt, s = given_up.phase.attempt, survivors_of(4)
    for voters in ((), federation_ids(3), federation_ids(4), federation_ids(5)):
        message = lost(given_up, dict.fromkeys(voters, s))
        assert attempt.check_lost(message) == (len(voters) >= 4)


def federation_ids(count: int) -> tuple[str, ...]:
    return tuple(f"member-{index}" for index in range(count))


@pytest.mark.parametrize(
    ("reports", "opened"),
    [
        ({}, []),
        ({"member-0": 4}, [4]),
        ({"member-0": 4, "member-1": 5}, [4, 5]),
        # one of four who report: with one silent, a certified set would have two honest voters among them
        ({"member-0": 4, "member-1": 0, "member-2": 0, "member-3": 0}, []),
        ({"member-0": 4, "member-1": 4, "member-2": 0, "member-3": 0}, [4]),
        ({"member-0": 4, "member-1": 4, "member-2": 5, "member-3": 5}, [4, 5]),
        ({"member-0": 4, "member-1": 4, "member-2": 5, "member-3": 5, "member-4": 5}, [5]),
    ],
)
def test_sets_that_only_colluders_can_have_reported_are_not_opened(
    given_up: Federation, reports: dict[str, int], opened: list[int]
) -> None:
    attempt = given_up.phase.attempt
    past = attempt.past(lost(given_up, {member: survivors_of(count) for member, count in reports.items()}))
    assert (past.context, past.reason) == (attempt.context, "lost")
    assert {each.survivors for each in past.sets} == {survivors_of(count) for count in opened}
    assert list(past.outcomes) == sorted(past.outcomes)


def test_another_admin_closes_nothing(given_up: Federation) -> None:
    attempt = given_up.phase.attempt
    true = lost(given_up, {})
    with pytest.raises(PeerFault, match=r"^bad-signature: admin's .*\[admin\]$"):
        attempt.check_lost(again(true, given_up.coordinator))
    with pytest.raises(PeerFault, match=r"^bad-signature: admin's .*\[admin\]$"):
        attempt.check_lost(replace(lost(given_up, {"member-0": ()}), reports=()))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[admin\]$"):
        attempt.check_lost(lost(given_up, {}, context=bytes(32)))


def test_a_report_is_a_decryptors_for_this_context(given_up: Federation) -> None:
    attempt, key = given_up.phase.attempt, given_up.keys["member-1"]

    def closing(report: Report) -> None:
        attempt.check_lost(lost(given_up, {}, reports=(report,)))

    true = Report.make(key, context=attempt.context, member="member-1", sets=(SurvivorSet(survivors_of(4)),))
    closing(true)
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-1\]$"):
        closing(again(true, key, context=bytes(32)))
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        closing(again(true, key, member="sybil"))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-1\]$"):
        closing(replace(true, sets=()))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-2\]$"):
        closing(again(true, key, member="member-2"))
