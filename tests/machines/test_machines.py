"""The quick part of `make slow`, that its rules see what is broken on purpose, and what it has found."""

from dataclasses import replace

import pytest

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.due import Due, due_secrets
from protocol.keys import PairKey
from protocol.member import Closed, Opened, Voted
from protocol.member.attempting import Attempting
from protocol.unmasking import Unmasking
from tests.machines import hostile
from tests.machines.campaign import ROUNDS, run_batch
from tests.machines.cast import COHORTS, SHAPES, fork
from tests.machines.faults import run_seed
from tests.machines.loyal import Loyal

BATCHES_MAX = 100
"""A batch ends with the first rule that it breaks, mostly after seconds, though not always this one: as many are run as it takes."""


def seen(what: str, part: str = "hostile", *, first: int = 0, runs: int = 25) -> bool:
    """Whether one of some batches breaks a rule in these words; `first` is one that did, so that the others are rarely needed."""
    hostile.prologue.cache_clear()
    try:
        batches = (run_batch(part, number, runs) for number in (first, *range(BATCHES_MAX)))
        return any(what in violation for batch in batches for violation in batch.violations)
    finally:
        hostile.prologue.cache_clear()


def test_a_hostile_coordinator() -> None:
    batch = run_batch("hostile", 0, 40)
    assert batch.violations == ()
    assert batch.steps > 2_000
    for reached in ("set certified", "VOID certified", "reveal", "sum", "stored bytes searched"):
        assert batch.reached[reached] > 0, reached


def test_an_honest_coordinator() -> None:
    batch = run_batch("loyal", 0, 25)
    assert batch.violations == ()
    assert batch.steps > 1_000
    assert batch.reached["recovered"] > 5


def test_rounds_with_faults() -> None:
    batch = run_batch(ROUNDS, 0, 30)
    assert batch.violations == ()
    assert batch.steps >= 30
    assert len(batch.reached) > 20


# What is broken on purpose is seen


def test_a_second_vote_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Voted, "vote", Attempting.vote)
    assert seen("signed two outcomes")


def test_a_certificate_that_is_not_checked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "check_certificate", lambda *_: None)
    assert seen("took a certificate that nobody signed", first=1)


def test_keys_that_stay_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairKey, "ratcheted", lambda key, *_: key)
    assert seen("stores a key or share of a round that is over")


def test_shares_that_are_not_due_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(attempt: Attempt, dealer: str, staying: set[str]) -> tuple[Due, ...]:
        return due_secrets(attempt, dealer, staying - {max(staying)})

    monkeypatch.setattr("protocol.member.closed.due_secrets", generous)
    assert seen("than are due")


def test_an_eviction_without_proof_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.member.closed.check_proof", lambda *_: None)
    assert seen("were evicted", first=1)


def test_an_old_phase_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Closed, "lapse", lambda phase, _now_s: replace(phase.ready, sequence=0))
    assert seen("went back", first=3)


def test_a_sum_that_is_not_exact_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = Unmasking.chunk
    monkeypatch.setattr(Unmasking, "chunk", lambda *arguments: chunk(*arguments) + 1)
    assert seen("is not exact", "loyal")
    assert seen("is not exact", ROUNDS, runs=2)


# What was found


def test_regression_two_cohorts_open_at_once() -> None:
    """A member that has two openings before it uploads to either refuses the second upload.

    The links of neither hold the other, so both sums were certified, over sets a member apart, and their difference was its vector:
    no colluder was needed.
    """
    world = fork(hostile.prologue(SHAPES[0], frozenset({"member-4"}), hostile.STAGES, 0))
    first, second = world.scenes
    for member in world.honest:
        world.upload(member, first.cohort, 0, 0)
        world.upload(member, second.cohort, 0, 0)
    assert world.ghost.uploads[first.context].keys() == set(world.honest)
    assert not world.ghost.uploads[second.context]
    assert world.ghost.reached["refused outcome-missing"] == len(world.honest)
    for _ in range(3):
        hostile.go_on(world, world.honest, hostile.ALL, 0, which=1)
    assert world.ghost.sums.keys() == {first.context}
    for member in world.honest:
        world.upload(member, second.cohort, 0, 0)
        assert isinstance(world.disks[member].phase(second.cohort), Opened)
    assert world.ghost.reached["refused chain-broken"] == len(world.honest)
    assert len(world.scenes) >= COHORTS


def test_regression_a_message_of_the_attempt_before() -> None:
    """What a restarted member sends again may come in the next attempt: it is refused to its sender, and the end names nobody."""
    run = Loyal()
    run.begin(shape=SHAPES[0], first=False, seed=0)
    member = run.federation.ids[0]
    run.serve_all(lost=0, deceit=0)
    run.serve_all(lost=0, deceit=0)
    run.vanish(who=0)
    run.serve_all(lost=0, deceit=0)
    run.cancel(sure=0)
    run.next()
    run.crash(who=0)
    assert run.answers
    while run.federation.phase.name != "revealing":
        before = run.federation.phase
        run.serve_all(lost=0, deceit=0)
        if run.federation.phase is before:
            run._expire()
    run.arrive(again=False, which=0)
    assert run.late == {member}
    ((_, fault),) = run.federation.faults
    assert (fault.cause, fault.parties) == (Cause.WRONG_CONTEXT, (member,))
    run.teardown()


def test_regression_a_member_that_missed_an_end_and_refuses_the_next_opening() -> None:
    """It uploads nothing: what it has open is the attempt before."""
    assert run_seed(501_737) == "recovered"
