"""Attacks on noisy chains: how far one record moves a sum, how often it is charged or used, and what refunds a charge."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assurance.attacks.ledgered import NOISE, Ledgered, noiseless, outcomes, read, rows_of, whole
from client_sdk.reservations import State
from tests.support.simulator import After, untampered
from veilsum.calibration.rows import unit_directions
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import ClosedByAdmin, Freezing, Recovered, Voided, VoidedByErasure
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Upload
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.promise import mechanism_of, study_mu
from veilsum.study.result_files import material_file, material_shapes, read_material
from veilsum.study.vectors import compute_vector

if TYPE_CHECKING:
    from pathlib import Path

    from veilsum.protocol.study import Content

Json = dict[str, Any]
QUIET = {**NOISE, "epsilon": 1.0}
KINDS: list[Json] = [
    {"kind": "ffc"},
    {"kind": "random-features", "size": 6, "bandwidth": 1.0},
    {"kind": "ccvr"},
]


def noisy(tmp_path: Path, members: int = 5, **noise: Any) -> Ledgered:
    return Ledgered.of(tmp_path, members, question={"noise": {**QUIET, **noise}, "ring_bits": 48})


def charged(federation: Ledgered, member: str) -> float:
    """Return the largest μ charged to a record of this member."""
    with federation.ledgers[member]._database.read() as database:
        squares = database.execute(
            "SELECT SUM(mu * mu) FROM held JOIN run ON run.id = held.run GROUP BY record"
        ).fetchall()
    return math.sqrt(max((each for (each,) in squares), default=0.0))


def mu_of(content: Content) -> float:
    assert content.question.noise is not None
    return study_mu(content.question.noise)


def spec_of(content: Content, step: str) -> RoundSpec:
    quorum = content.question.smallest.quorum
    return RoundSpec(content, bytes(32), "p", step, (), quorum.members, quorum.survivors_min, 1 << 20)


# One chain for each record and study, and one budget for all studies


def test_a_record_enters_one_chain_of_a_study_whatever_the_period(tmp_path: Path) -> None:
    """The study states what it reveals about a record. Four periods over one record would reveal twice as much."""
    federation = noisy(tmp_path)
    for period, rows in (("p0", 24), ("p1", 0), ("p2", 0)):
        federation.enrol(period)
        assert not federation.declined
        assert isinstance(federation.run_round().phase, Recovered)
        federation.tell_ending()
        for member in federation.ids:
            assert federation.ledgers[member].list_runs()[-1].rows == rows
            assert charged(federation, member) == mu_of(federation.content)
    federation.data["member-0"] = rows_of(0, first=100)
    federation.enrol("p3")
    assert federation.ledgers["member-0"].list_runs()[-1].rows == 24


def test_a_member_enters_one_chain_where_it_is_the_unit(tmp_path: Path) -> None:
    """Records of a later period belong to the same member."""
    federation = noisy(tmp_path, unit="member")
    federation.enrol("p0")
    federation.data["member-0"] = rows_of(0, first=100)
    federation.enrol("p1")
    assert [run.rows for run in federation.ledgers["member-0"].list_runs()] == [24, 0]


def test_an_exact_runs_records_are_in_no_noisy_sum(tmp_path: Path) -> None:
    """A cohort that claims to repeat the exact sum reserves a member's records. A new cohort would sum them without a charge."""
    federation = Ledgered.of(tmp_path, 6)
    federation.enrol("p0")
    assert isinstance(federation.run_round().phase, Recovered)
    federation.tell_ending()
    (context,) = federation.sets
    federation.use(
        federation.study_of(
            extractor="ab" * 32, noise={**QUIET, "recipe": "mean+sum+16-gradients"}, ring_bits=48
        )
    )
    refuse_to_pair(federation, "p0", context, Cause.TERMS_REFUSED)
    federation.enrol("p0")
    assert federation.run_round().total is None
    assert outcomes(federation) >= {Cause.REPEAT_MISMATCH}


def refuse_to_pair(federation: Ledgered, period: str, repeats: bytes, cause: Cause) -> None:
    """Let a cohort fail, because all of its members refuse the cards for this cause."""
    with pytest.raises(PeerFault, match=r"^cohort-too-small:"):
        federation.enrol(period, repeats)
    assert outcomes(federation) == {cause}


def test_records_answered_for_under_another_extractor_are_not_summed_once_they_are_free(
    tmp_path: Path,
) -> None:
    """A cohort claims to repeat a void attempt. After its run is given up, the records may be used elsewhere."""
    federation = Ledgered.of(tmp_path, 6)
    federation.enrol("p0")
    voided(federation)
    (context,) = federation.sent
    federation.use(federation.study_of(extractor="ab" * 32))
    for member in federation.ids:
        ledger = federation.ledgers[member]
        assert federation.answer(member, "p0", context)
        ledger.give_up(ledger.list_runs()[0])
    federation.enrol("p0")
    assert federation.run_round().total is None
    assert outcomes(federation) >= {Cause.REPEAT_MISMATCH}


# Charges


def voided(federation: Ledgered) -> None:
    """Play an attempt in which half of the uploads never come and all decryptors vote for VOID."""
    late = set(federation.ids[3:])
    federation.tamper = lambda sender, message: (
        None if sender in late and isinstance(message, Upload) else message
    )
    outcome = federation.run_round()
    federation.tamper = untampered
    assert isinstance(outcome.phase, Voided)
    federation.tell_ending()


@pytest.mark.parametrize("ending", ["void", "erased", "lost", "none", "half"])
def test_only_a_chain_that_told_nothing_is_refunded(tmp_path: Path, ending: str) -> None:
    federation = noisy(tmp_path, 6, recipe="mean+sum" if ending == "half" else "sum")
    federation.enrol("p0")
    if ending == "void":
        voided(federation)
    elif ending == "erased":
        phase = federation.reach(Freezing)
        federation.now_s = phase.attempt.terms.latest_end_s
        federation.phase = phase.pass_latest_end()
        federation.run_until()
        assert isinstance(federation.finish().phase, VoidedByErasure)
    else:
        federation.drop = dict.fromkeys((3, 4, 5), After.ANNOUNCEMENT) if ending == "lost" else {}
        assert isinstance(federation.run_round().phase, ClosedByAdmin if ending == "lost" else Recovered)
    federation.drop = {}
    federation.tell_ending()
    for member in federation.ids:
        ledger, free = federation.ledgers[member], ending in {"void", "erased"}
        [run] = ledger.list_runs()
        assert charged(federation, member) == mu_of(federation.content)
        ledger.give_up(run)
        assert charged(federation, member) == (0.0 if free else mu_of(federation.content))
        assert ledger.list_runs()[0].state == (State.FREE if free else State.SPENT)


def test_a_retry_draws_its_noise_afresh(tmp_path: Path) -> None:
    """With the same noise, two attempts would differ by their masks alone."""
    federation = noisy(tmp_path, 6)
    federation.enrol("p0")
    voided(federation)
    assert isinstance(federation.run_round().phase, Recovered)
    first, second = (sent["member-0"] for sent in federation.sent.values())
    assert (first != second).all()


# What one record moves


@pytest.mark.parametrize("statistic", KINDS[:2], ids=lambda each: each["kind"])
def test_no_material_lets_an_id_move_a_step_by_more_than_delta(
    statistic: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The centre is one of the rows, and the opposite of another; whitening and weights are huge, tiny or zero."""
    noiseless(monkeypatch)
    records = {"least": 1, "most": 6, "least_per_class": 1, "rows_per_id": 2}
    noise = {**NOISE, "recipe": "mean+sum+16-gradients"}
    content = read(whole(dim=3, statistics=[statistic], records=records, noise=noise, ring_bits=48))
    rng = np.random.default_rng(3)
    rows, labels = (
        rng.standard_normal((24, 3)) * 10.0 ** rng.integers(-200, 200, (24, 1)),
        rng.integers(0, 2, 24),
    )
    rows[1], rows[3:20:2] = -rows[0], rows[2]
    units, ids = unit_directions(rows), np.arange(24) // 2
    for step in ("mean", "sum", "gradient-16"):
        spec = spec_of(content, step)
        mechanism = mechanism_of(spec)
        weights = mechanism.release.element_weights(mechanism.lattice)
        for largest in (0.0, 1e-300, 1.0, 1e6):
            arrays = {
                name: rng.uniform(-largest, largest, shape) for name, shape in material_shapes(spec).items()
            }
            for centre in (units[0], units[2], -units[2], arrays.get("centre", units[0])):
                material = read_material(
                    spec, material_file({**arrays, "centre": centre}) if arrays else None
                )
                full = compute_vector(spec, rows, labels, material)
                bound = content.question.records.most * mechanism.lattice.unit(2)
                assert np.abs(full).max() <= bound
                for each in set(ids.tolist()):
                    moved = full - compute_vector(spec, rows[ids != each], labels[ids != each], material)
                    assert np.linalg.norm(moved * weights) <= mechanism.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("statistic", KINDS, ids=lambda each: each["kind"])
def test_no_member_puts_more_into_the_ring_than_its_most_rows(
    statistic: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and their opposites cancel in all blocks but one, which could be as long as Δ."""
    noiseless(monkeypatch)
    records = {"least": 1, "most": 8, "least_per_class": 1, "rows_per_id": 1}
    noise = {**NOISE, "unit": "member"}
    content = read(whole(statistics=[statistic], records=records, noise=noise, ring_bits=48))
    rows = np.array([[1.0, 0.0], [-1.0, 0.0]] * 40)
    mechanism = mechanism_of(spec_of(content, "sum"))
    sent = compute_vector(spec_of(content, "sum"), rows, np.zeros(80, int))
    assert (
        np.linalg.norm(sent * mechanism.release.element_weights(mechanism.lattice)) <= mechanism.sensitivity
    )
    assert np.abs(sent).max() <= 8 * mechanism.lattice.unit(2)


# Noise


def test_the_fewest_honest_shares_carry_the_noise_of_the_step() -> None:
    """With n_min survivors, `a` of whom know their own noise, the remaining variance of each coordinate, less 4, is at least σ²."""
    for kind in KINDS:
        for recipe in ("sum", "mean+sum"):
            content = read(whole(statistics=[kind], noise={**NOISE, "recipe": recipe}, ring_bits=48))
            for step in content.question.steps:
                spec = spec_of(content, step)
                mechanism = mechanism_of(spec)
                assert mechanism.honest == spec.survivors_min - content.question.a
                assert mechanism.mu_round <= mechanism.mu * (1 + 1e-12)


def test_no_run_repeats_a_noisy_one(tmp_path: Path) -> None:
    """Neither the noisy question nor an exact one under another extractor, although members hold the reservation and know the chain."""
    federation = noisy(tmp_path)
    federation.enrol("p0")
    assert isinstance(federation.run_round().phase, Recovered)
    federation.tell_ending()
    (context,) = federation.sets
    federation.use(federation.study_of(extractor="ab" * 32, noise=None))
    refuse_to_pair(federation, "p0", context, Cause.REPEAT_MISMATCH)
    federation.enrol("p0")
    assert federation.run_round().total is None
    assert outcomes(federation) >= {Cause.REPEAT_MISMATCH}
