"""Attacks on noisy chains: how far one record moves a sum, and what refunds a charge.

How often a record is charged and used: the plays of NOISE-2 and LEDGER-7 over a ledger, in `assurance/vectors`.
"""

from typing import Any

import numpy as np
import pytest

from assurance.attacks.studies import NOISE, noiseless, read, whole
from assurance.vectors.ledger_player import play_ledger
from assurance.vectors.ledgers import ALL, OTHERS, answer, case_of, end, give_up, upload
from veilsum.calibration.rows import unit_directions
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Content
from veilsum.study.promise import mechanism_of
from veilsum.study.result_files import material_file, material_shapes, read_material
from veilsum.study.vectors import compute_vector

Json = dict[str, Any]
KINDS: list[Json] = [
    {"kind": "ffc"},
    {"kind": "random-features", "size": 6, "bandwidth": 1.0},
    {"kind": "ccvr"},
]


def spec_of(content: Content, step: str) -> RoundSpec:
    quorum = content.question.smallest.quorum
    return RoundSpec(content, bytes(32), "p", step, (), quorum.members, quorum.survivors_min, 1 << 20)


@pytest.mark.parametrize(
    ("reason", "survivors", "state"),
    [
        ("cancelled", (), "free"),
        ("erased", (), "free"),
        ("none", OTHERS, "free"),
        ("none", ALL, "spent"),
        ("lost", (), "spent"),
    ],
)
def test_only_a_chain_that_told_nothing_is_refunded(
    reason: str, survivors: tuple[str, ...], state: str
) -> None:
    """The chain of two steps is given up after the first one's end; an exact run then takes the records, or not."""
    begun = [answer("noisier"), *upload("x", "noisier", step="mean"), end("x", reason, survivors)]
    *_, last = play_ledger(case_of([*begun, give_up("noisier"), answer("exact", "p2")]))["steps"]
    assert last["runs"][0][2] == state
    assert last["yes"] == (state == "free")


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
