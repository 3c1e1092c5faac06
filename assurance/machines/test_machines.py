"""A short run of `make slow`, and regressions that the campaign found."""

from collections import Counter

from assurance.machines import hostile
from assurance.machines.campaign import run_batch
from assurance.machines.cast import SHAPES, fork
from assurance.machines.loyal import Loyal
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Opened
from veilsum.protocol.messages import ErasureRequest

BATCHES_MAX = 100
"""Limit of batches. A batch ends with the first rule that it breaks, usually after seconds but not always this rule, so several may run."""


def reach(part: str, wanted: set[str], first: int, runs: int, steps_min: int) -> None:
    """Run batches until all these states have been reached; none may break a rule."""
    reached = Counter[str]()
    for number in range(first, first + BATCHES_MAX):
        batch = run_batch(part, number, runs)
        assert batch.violations == ()
        assert batch.steps > steps_min
        reached += batch.reached
        if wanted <= reached.keys():
            return
    raise AssertionError(f"never reached: {wanted - reached.keys()}")


def test_a_hostile_coordinator() -> None:
    """Only one batch in ten repeats a sum: that is left to `make slow`."""
    certified = {"set certified", "VOID certified", "reveal", "sum", "erasure"}
    formed = {"paired afresh", "joined under two manifests", "lapsed"}
    reach("hostile", {*certified, *formed, "stored bytes searched"}, 1, 12, 800)


def test_an_honest_coordinator() -> None:
    ended = {"recovered", "recovered after evictions", "formed without a member", "no cohort", "lapsed"}
    reach("loyal", {*ended, "only lies", "message garbled", "lie: false ciphertexts"}, 0, 8, 300)


# Regressions


def test_regression_two_cohorts_open_at_once() -> None:
    """A member that has two openings before it uploads to either refuses the second upload.

    Neither opening's links included the other attempt, so both sums were certified, over sets that differed by one member: their difference
    was its vector. No colluder was needed.
    """
    world = fork(hostile.prologue(SHAPES[0], frozenset({"member-4"}), hostile.TWO_OPEN, 0))
    first, second = world.scenes
    for member in world.honest:
        world.upload(member, first.cohort)
        world.upload(member, second.cohort)
    assert world.ghost.uploads[first.context].keys() == set(world.honest)
    assert not world.ghost.uploads[second.context]
    assert world.ghost.reached["refused outcome-missing"] == len(world.honest)
    for _ in range(3):
        hostile.go_on(world, world.honest, hostile.ALL, which=1)
    assert world.ghost.sums.keys() == {first.context}
    for member in world.honest:
        world.upload(member, second.cohort)
        assert isinstance(world.disks[member].phase(second.cohort), Opened)
    assert world.ghost.reached["refused outcome-missing"] == 2 * len(world.honest)


def test_regression_an_opening_replayed_after_the_latest_end() -> None:
    """A decryptor that revealed must not reenter the attempt by its opening, and then report that it revealed nothing.

    A threshold of reveals made the sum known, yet with q such reports the attempt counted as VOID, and its records were summed again.
    """
    world = fork(hostile.prologue(SHAPES[0], frozenset({"member-4"}), hostile.SUMMED, 0))
    (scene,) = world.scenes
    assert scene.context in world.ghost.sums
    world.now_s = scene.attempt.terms.latest_end_s
    for member in world.honest:
        world.tell(member, scene.cohort, scene.attempt.opening)
        world.tell(member, scene.cohort, ErasureRequest(scene.context))
    for member in world.honest:
        assert any(world.ghost.erased[scene.context, member].revealed)


def test_regression_a_message_of_the_attempt_before() -> None:
    """A restarted member's repeated message may arrive in the next attempt. It is refused to its sender, and the end blames no member."""
    run = Loyal()
    run.begin(shape=SHAPES[0], first=False, seed=0)
    member = run.federation.ids[0]
    run.serve_all(lost=0, deceit=0)
    run.serve_all(lost=0, deceit=0)
    run.vanish(who=0)
    run.cancel(sure=0)
    run.serve_all(lost=0, deceit=0)
    run.next()
    run.crash(who=0)
    assert run.answers
    run.come_back(who=0)
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
