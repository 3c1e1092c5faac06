"""A short run of `make slow`, and what the campaign has found."""

from collections import Counter

import pytest

from assurance.machines import hostile
from assurance.machines.campaign import run_batch
from assurance.machines.cast import PLACES, SHAPES, Place, cast, fork
from assurance.machines.loyal import Loyal
from assurance.machines.records import Records
from assurance.machines.world import World
from tests.support.forging import again
from veilsum.protocol.attempt import Attempt, check_manifest
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Opened
from veilsum.protocol.messages import ErasureRequest

BATCHES_MAX = 100
"""A batch ends with the first rule that it breaks, mostly after seconds, though not always this one: as many are run as it takes."""


def test_a_hostile_coordinator() -> None:
    wanted = {"set certified", "VOID certified", "reveal", "sum", "erasure", "stored bytes searched"}
    reached = Counter[str]()
    for number in range(BATCHES_MAX):
        batch = run_batch("hostile", number, 25)
        assert batch.violations == ()
        assert batch.steps > 800
        reached += batch.reached
        if wanted <= reached.keys():
            return
    raise AssertionError(f"never reached: {wanted - reached.keys()}")


def test_an_honest_coordinator() -> None:
    wanted = {"recovered", "only lies", "message garbled", "recovered after evictions"}
    reached = Counter[str]()
    for number in range(BATCHES_MAX):
        batch = run_batch("loyal", number, 8)
        assert batch.violations == ()
        assert batch.steps > 300
        reached += batch.reached
        if wanted <= reached.keys():
            return
    raise AssertionError(f"never reached: {wanted - reached.keys()}")


# What is broken on purpose is seen


def summed_world(stage: int = hostile.SUMMED) -> World:
    """The plain study's sum is known; in the last stage a cohort is about to repeat it."""
    hostile.prologue.cache_clear()
    world: World = fork(hostile.prologue(SHAPES[0], frozenset({"member-4"}), stage, 0))
    return world


def run_on(world: World, place: Place | None = None) -> None:
    """Another run as an honest coordinator would have it."""
    if place is not None:
        cohort = world.form(place)
        assert cohort is not None
        hostile.enter(world, world.open(cohort, world.chains[-1]))
    for _ in range(5):
        hostile.go_on(world, world.honest, hostile.ALL)


def test_sums_of_a_record_are_equal() -> None:
    world = summed_world(hostile.REPEATED)
    run_on(world)
    assert world.ghost.reached["repeated sum"] == 1
    assert world.ghost.reached["record summed again"] == 1


def test_a_second_sum_of_a_period_is_refused_and_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = summed_world()
    run_on(world, PLACES[1])
    assert world.ghost.reached["refused already-summed"] > 0
    monkeypatch.setattr("veilsum.protocol.member.ready.check_fresh", lambda *_: None)
    world = summed_world()
    run_on(world, PLACES[1])
    assert world.ghost.reached["refused by the ledger"] > 0
    assert len(world.ghost.sums) == 1
    monkeypatch.setattr(Records, "may_open", _careless)
    with pytest.raises(AssertionError, match="was summed twice"):
        run_on(summed_world(), PLACES[1])


def test_a_repeat_over_other_members_is_refused_and_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = summed_world()
    (context,) = world.sets
    assert world.repeat(context, "plain", 1) is not None
    assert not world.cohorts[-1].ready
    monkeypatch.setattr(
        "veilsum.protocol.member.enrolled.check_manifest", lambda *checked: check_manifest(*checked[:3])
    )
    with pytest.raises(AssertionError, match="enrolled with others"):
        summed_world().repeat(context, "plain", 1)


def test_a_repeat_of_another_question_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extractor's one question: the ledger refuses another before enrolment, the opening is refused besides."""
    world = summed_world()
    (context,) = world.sets
    assert world.repeat(context, "another question") is None
    monkeypatch.setattr(Records, "again", lambda *_: True)
    cohort = world.repeat(context, "another question")
    assert cohort is not None
    run_on(world)
    hostile.enter(world, world.open(cohort, world.chains[-1]))
    run_on(world)
    assert world.ghost.reached["refused repeat-mismatch"] > 0
    assert len(world.ghost.sums) == 1


def replay_late(world: World) -> None:
    """Show the first opening again after its latest end, and ask for reports."""
    scene = world.scenes[0]
    world.now_s = scene.attempt.terms.latest_end_s
    for member in world.honest:
        world.tell(member, scene.cohort, scene.attempt.opening)
        world.tell(member, scene.cohort, ErasureRequest(scene.context))


def _careless(records: Records, attempt: Attempt) -> bool:
    """A ledger that looks at nothing."""
    run = records.run_of[attempt.context] = (attempt.question.digest, attempt.manifest.period)
    records._change(run, ended={attempt.context: "", **records.runs[run].ended})
    return True


# What was found


def test_regression_two_cohorts_open_at_once() -> None:
    """A member that has two openings before it uploads to either refuses the second upload.

    The links of neither hold the other, so both sums were certified, over sets a member apart, and their difference was its vector:
    no colluder was needed.
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
    """A decryptor that revealed does not enter the attempt again by its opening, and then report that it did not reveal.

    With a threshold of reveals the sum was known, and with q such reports the attempt counted as VOID: its records were summed again.
    """
    world = summed_world()
    (scene,) = world.scenes
    assert scene.context in world.ghost.sums
    replay_late(world)
    for member in world.honest:
        assert any(world.ghost.erased[scene.context, member].revealed)


def test_regression_a_late_opening_far_ahead() -> None:
    """The keys of 2^64 rounds are not derived."""
    world = fork(hostile.prologue(SHAPES[0], frozenset({"member-4"}), 0, 0))
    (scene,) = world.scenes
    world.now_s = scene.attempt.terms.latest_end_s
    opening = again(scene.attempt.opening, cast(SHAPES[0]).federation.coordinator, sequence=2**64 - 2)
    world.tell("member-0", scene.cohort, opening)
    assert world.ghost.reached["refused chain-broken"] == 1


def test_regression_a_message_of_the_attempt_before() -> None:
    """What a restarted member sends again may come in the next attempt: it is refused to its sender, and the end names nobody."""
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
