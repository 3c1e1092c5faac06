"""The noisy vectors of docs/protocol/member.md, compared with a literal implementation; and the assumptions of the noise."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.study.specs import RECORDS, noisy
from veilsum.study.promise import mechanism_of
from veilsum.study.vectors import Material, compute_vector

DIM, CLASSES = 4, 3
FFC: dict[str, Any] = {"kind": "ffc"}
CONSTANT: dict[str, Any] = {"kind": "ffc", "constant": True}
CCVR: dict[str, Any] = {"kind": "ccvr"}
KERNEL: dict[str, Any] = {"kind": "random-features", "size": 6, "bandwidth": 0.7}
STEPS = [
    ("mean+sum", "mean", FFC),
    ("sum", "sum", FFC),
    ("sum", "sum", CONSTANT),
    ("mean+sum", "sum", CONSTANT),
    ("sum", "sum", CCVR),
    ("mean+sum", "sum", CCVR),
    ("mean+sum", "sum", KERNEL),
    ("mean+sum+16-gradients", "gradient-2", FFC),
    ("mean+sum+16-gradients", "gradient-3", CONSTANT),
    ("mean+sum+16-gradients", "gradient-1", KERNEL),
]


def asked(recipe: str, step: str, statistic: dict[str, Any], **more: Any) -> Any:
    return noisy(recipe, step, statistic, **{"dim": DIM, "classes": ["a", "b", "c"], **more})


def material_of(spec: Any) -> Material:
    rng = np.random.default_rng(5)
    width = spec.question.width
    centre = rng.standard_normal(DIM)
    found = {"centre": 0.4 * centre / np.linalg.norm(centre)} if "mean" in spec.question.steps else {}
    if "-" in spec.step:
        found |= {"weights": rng.standard_normal((width, CLASSES)), "rate": np.ones(1)}
        found |= {"whitening": np.eye(width) + 0.3 * rng.standard_normal((width, width))}
    return found if spec.takes_material else {}


def plain(spec: Any, features: Any, labels: Any) -> Any:
    """Return a vector without its noise, which depends on the random bytes alone."""

    def drawn() -> Any:
        return np.random.default_rng(1).bytes

    material = material_of(spec)
    noise = compute_vector(spec, features[:0], labels[:0], material, drawn())
    return compute_vector(spec, features, labels, material, drawn()) - noise


def test_an_example_by_hand() -> None:
    # (0.6, 0.8)·4096 rounds to (2458, 3277), 3,277 too long; both were rounded away, and the larger gives way.
    spec = noisy("sum", "sum", FFC, dim=2, classes=["a", "b"])
    found = plain(spec, np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([0, 1]))
    V, U = [2458**2, 2458 * 3276, 3276**2 + 4096**2], [2458, 0, 3276, 4096]
    assert found.tolist() == V + U


def distance(spec: Any, one: Any, other: Any) -> float:
    mechanism = mechanism_of(spec)
    apart = (one - other) * mechanism.release.element_weights(mechanism.lattice)
    return float(np.linalg.norm(apart)) / mechanism.sensitivity


def odd(features: Any, labels: Any, seed: int) -> None:
    """Make the first row invalid or unusual."""
    centre = np.random.default_rng(5).standard_normal(DIM)
    match seed % 8:
        case 0:
            features[0, 1] = np.nan
        case 1:
            features[0, 2] = -np.inf
        case 2:
            features[0] = 0
        case 3:
            labels[0] = CLASSES
        case 4:
            features[0] = centre  # the direction of the mean
        case 5:
            features[0] = 5e-324
        case 6:
            features[0] = [1e308, -1e308, 1e308, 1e308]
        case _:
            pass


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from(STEPS), st.integers(1, 3), st.sampled_from(["record", "member"])
)
def test_one_unit_moves_a_vector_by_no_more_than_its_sensitivity(
    seed: int, step: Any, rows_per_id: int, unit: str
) -> None:
    rng = np.random.default_rng(seed)
    records = {**RECORDS, "most": 5, "rows_per_id": rows_per_id}
    spec = asked(*step, records=records, noise={"unit": unit})
    features = rng.standard_normal((9, DIM)) * 10.0 ** rng.integers(-200, 200, (9, 1))
    if seed % 2:
        features[:] = features[0]  # records that all pull the same way
    labels = np.zeros(9, int) if seed % 3 == 0 else rng.integers(0, CLASSES, 9)
    odd(features, labels, seed)
    left = np.arange(9) >= (9 if unit == "member" else rows_per_id)
    whole_set, without = plain(spec, features, labels), plain(spec, features[left], labels[left])
    assert distance(spec, whole_set, without) <= 1
    if unit == "record":
        assert np.abs(whole_set).max() <= 5 * 4**12


def test_one_record_can_reach_the_sensitivity() -> None:
    spec = asked("sum", "sum", FFC)
    none = np.zeros((0, DIM)), np.zeros(0, int)
    assert distance(
        spec, plain(spec, np.eye(DIM)[:1], np.zeros(1, int)), plain(spec, *none)
    ) == pytest.approx(1)


def test_beyond_most_rows_each_number_is_clipped() -> None:
    spec = asked("sum", "sum", FFC, records={**RECORDS, "most": 2})
    features = np.tile([1.0, 0, 0, 0], (7, 1))
    found = plain(spec, features, np.zeros(7, int))
    assert (found[0], found[10]) == (2 * 4**12, 7 * 4**6)
