"""Which secrets a certified set needs, and which shares of them a decryptor reveals (protocol §4.7)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.messages import edge_commitment, self_commitment
from veilsum.protocol.reveal_plan import Due, due_secrets


@pytest.fixture(scope="module")
def attempt() -> Attempt:
    federation = Federation(5)
    return Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )


def test_a_dealers_own_seed_is_due_and_its_edges_to_those_who_are_not_there(attempt: Attempt) -> None:
    staying = {"member-0", "member-2", "member-3"}
    assert due_secrets(attempt, "member-2", staying) == (
        Due("member-2", 0, None),
        Due("member-2", 2, "member-1"),
        Due("member-2", 4, "member-4"),
    )
    assert due_secrets(attempt, "member-0", staying) == (
        Due("member-0", 0, None),
        Due("member-0", 1, "member-1"),
        Due("member-0", 4, "member-4"),
    )
    assert due_secrets(attempt, "member-0", attempt.members) == (Due("member-0", 0, None),)


def test_on_a_ring_only_neighbours_are_due(sparse: Callable[..., Federation]) -> None:
    federation = sparse()
    attempt = Attempt(
        federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
    )
    ring = attempt.manifest.graph.ring
    staying = set(ring) - {ring[0]}
    for dealer in staying:
        due = due_secrets(attempt, dealer, staying)
        near = dealer in {ring[1], ring[2], ring[-1], ring[-2]}
        assert [each.lost for each in due] == [None, *([ring[0]] if near else [])]
        assert [each.index for each in due] == [
            0,
            *([1 + attempt.neighbours(dealer).index(ring[0])] if near else []),
        ]


def test_a_secret_is_held_against_the_commitment_of_its_kind(attempt: Attempt) -> None:
    seed, context = b"\x05" * 32, attempt.context
    assert Due("member-2", 0, None).commitment(context, seed) == self_commitment(context, "member-2", seed)
    expected = edge_commitment(context, "member-1", "member-2", seed)
    assert Due("member-2", 2, "member-1").commitment(context, seed) == expected
    assert Due("member-1", 2, "member-2").commitment(context, seed) == expected


def test_both_secrets_of_one_member_are_never_due(attempt: Attempt) -> None:
    """Whoever is outside has b_w closed; whoever is inside has no edge open to another inside."""
    for outside in range(1 << 5):
        lost = {m for place, m in enumerate(attempt.members) if outside >> place & 1}
        staying = tuple(m for m in attempt.members if m not in lost)
        due = [each for dealer in staying for each in due_secrets(replace(attempt), dealer, staying)]
        assert {each.dealer for each in due if each.lost is None} == set(staying)
        assert {each.lost for each in due} - {None} <= lost
