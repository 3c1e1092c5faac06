"""Under noise no record is refused, and whatever one is, it moves the weighted sum by no more than Δ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, FeaturesLattice
from calibration.collected import Collected
from calibration.errors import NonFinite, WrongDtype
from calibration.privacy import Mechanism, MemberNoise, Neighbours, NoiseTerms, clip_member
from calibration.questions import Earlier, Question, Summed, Wish, ask, question
from protocol.keystream import Keystream

DIM, CLASSES = 4, 3
LATTICE = FeaturesLattice(6)
RNG = np.random.default_rng(0)
ROWS, LABELS = np.abs(RNG.standard_normal((60, DIM))), RNG.integers(0, CLASSES, 60)
CENTRE = np.array([0.6, 0.0, 0.8, 0.0])
COHORT: dict[str, Any] = {"members": 1, "survivors_min": 1, "colluders": 0}


def made(name: str, earlier: Earlier | None = None, **parameters: Any) -> Question:
    """A noisy round's question, with its material."""
    asked = ask(name, Wish(DIM, CLASSES, parameters, noisy=True), earlier)
    return question(name, asked.layout, b"c" * 32, asked.material)


def noisy_before(name: str, earlier: Earlier | None = None) -> Earlier:
    """A noisy round of one member, as another rests on it."""
    asked, noise = made(name, earlier), NoiseTerms(1.0, 1.0)
    mechanism = mechanism_of(asked, noise)
    own = Collected(asked, LATTICE, noise=noise)
    own.update(ROWS, LABELS)
    total = own.vector(LATTICE)
    MemberNoise(asked.layout, mechanism.shares, Keystream(bytes(32))).add_to(total)
    gathering, summed = asked.gathering(LATTICE), Summed(LATTICE, 1, mechanism=mechanism)
    gathering.take(0, total)
    pooled = asked.gathered(gathering, summed)
    return Earlier(name, pooled, asked.answer(pooled, summed).head)


def centred() -> Question:
    """Of which the record `CENTRE` is the mean."""
    asked = ask("ffc", Wish(DIM, CLASSES, noisy=True), noisy_before("mean"))
    return question("ffc", asked.layout, b"", {"centre": CENTRE})


def refined() -> Question:
    first = noisy_before("ffc", noisy_before("mean"))
    found = made("refine", first, clip=0.5)
    return question("refine", found.layout, b"", {**found.material, "centre": CENTRE})


ASKED: dict[str, Any] = {
    "ffc": lambda: made("ffc"),
    "ffc and counts": lambda: made("ffc", publish="lda"),
    "ffc-bias": lambda: made("ffc-bias"),
    "ffc, centred": centred,
    "mean": lambda: made("mean"),
    "rff": lambda: made("rff", size=6, bandwidth=0.7),
    "ccvr": lambda: made("ccvr"),
    "ccvr of any length": lambda: made("ccvr", unit=False, norm_bound=2.0),
    "refine": lambda: made("refine", noisy_before("ffc-bias")),
    "refine, centred": refined,
}
SIGNED = {
    "ffc",
    "ffc and counts",
    "ffc-bias",
    "mean",
    "ccvr",
    "ccvr of any length",
    "refine",
    "refine, centred",
}
"""Those that take features that are never negative."""


def odd(index: int) -> tuple[Any, int]:
    """A record such as no round of exact sums would take, or one that a map leaves without direction."""
    rng = np.random.default_rng(index)
    row, label = rng.standard_normal(DIM) * 10.0 ** rng.integers(-3, 4), int(rng.integers(0, CLASSES))
    match index % 9:
        case 0:
            row[index % DIM] = np.nan
        case 1:
            row[index % DIM] = -np.inf
        case 2:
            row[:] = 0
        case 3:
            label = -1 if index % 2 else CLASSES
        case 4:
            row[:] = CENTRE
        case 5:
            row[:] = 5e-324
        case 6:
            row[:] = [1e308, -1e308, 1e308, 1e308]
        case 7:
            row[:] = -np.abs(row)
        case _:
            pass
    return row, label


def vector(asked: Question, noise: NoiseTerms, records: list[tuple[Any, int]]) -> Any:
    own = Collected(asked, LATTICE, noise=noise)
    own.update(np.array([row for row, _ in records]), np.array([label for _, label in records]))
    return own.vector(LATTICE)


def mechanism_of(asked: Question, noise: NoiseTerms) -> Mechanism:
    return noise.mechanism(asked, LATTICE, **COHORT)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_no_record_is_refused_and_none_moves_the_sum_further_than_promised(
    name: str, *, nonnegative: bool
) -> None:
    if nonnegative and name not in SIGNED:
        return
    asked: Question = ASKED[name]()
    for neighbours in Neighbours:
        noise = NoiseTerms(0.1, 1.5, neighbours=neighbours, nonnegative=nonnegative)
        mechanism = mechanism_of(asked, noise)
        weights, most = mechanism.weights(), mechanism.sensitivity * (1 + 1e-12)
        base = [odd(index) for index in range(20)]
        whole, furthest = vector(asked, noise, base), 0.0
        for index in range(20, 80):
            changed = [*base, odd(index)]
            if neighbours is Neighbours.REPLACE:
                changed = [odd(index) if place == index % 20 else each for place, each in enumerate(base)]
            moved = (vector(asked, noise, changed) - whole) * weights
            furthest = max(furthest, float(np.linalg.norm(moved)))
        assert 0.4 * most < furthest <= most


def test_what_is_no_record_is_left_out_and_the_others_are_summed_as_ever() -> None:
    asked, noise = made("ffc"), NoiseTerms(0.1, 1.0)
    own = Collected(asked, LATTICE, noise=noise)
    rows = np.vstack([ROWS, np.full((1, DIM), np.nan), np.zeros((1, DIM)), ROWS[:2]])
    own.update(rows, np.concatenate([LABELS, [0, 0, -1, CLASSES]]))
    plain = Collected(asked, LATTICE, normalise=True)
    plain.update(ROWS, LABELS)
    assert (own.left_out, own.records) == (4, 60)
    np.testing.assert_array_equal(own.vector(LATTICE), plain.vector(LATTICE))
    assert own.records_digest == plain.records_digest
    assert own.record_digests == plain.record_digests


def test_features_that_are_said_never_to_be_negative_are_not() -> None:
    asked, noise = made("ffc"), NoiseTerms(0.1, 1.0, neighbours=Neighbours.REPLACE, nonnegative=True)
    mixed = RNG.standard_normal((30, DIM)).astype(np.float32)
    mixed[0] = [-1, -2, -3, -4]
    own, cut = Collected(asked, LATTICE, noise=noise), Collected(asked, LATTICE, normalise=True)
    own.update(mixed, LABELS[:30])
    cut.update(np.maximum(mixed[1:], 0), LABELS[1:30])
    assert own.left_out == 1
    assert (own.vector(LATTICE) >= 0).all()
    np.testing.assert_array_equal(own.vector(LATTICE), cut.vector(LATTICE))


def test_an_exact_sum_still_refuses_what_is_no_record() -> None:
    own = Collected(made("ffc"), LATTICE, normalise=True)
    for row, label in (odd(0), odd(2), odd(3)):
        with pytest.raises(CalibrationError):
            own.update(row[None], np.array([label]))
    assert own.records == 0


def test_a_finer_lattice_than_any_number_of_records_fits_is_refused() -> None:
    with pytest.raises(CalibrationError, match="noise on a lattice of 13 bits: 12 at most"):
        NoiseTerms(0.1, 1.0).mechanism(made("ffc"), FeaturesLattice(13), **COHORT)


def test_a_record_that_an_accumulator_refuses_after_all_is_left_out_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, noise = made("ffc"), NoiseTerms(0.1, 1.0)
    own, rest = Collected(asked, LATTICE, noise=noise), Collected(asked, LATTICE, noise=noise)
    update = own._sums.update

    def refusing(features: Any, labels: Any) -> None:
        if (features == ROWS[7]).all(axis=1).any():
            raise NonFinite("an overflow, say")
        update(features, labels)

    monkeypatch.setattr(own._sums, "update", refusing)
    own.update(ROWS, LABELS)
    rest.update(np.delete(ROWS, 7, axis=0), np.delete(LABELS, 7))
    assert (own.left_out, own.records) == (1, 59)
    np.testing.assert_array_equal(own.vector(LATTICE), rest.vector(LATTICE))


def test_a_missing_label_leaves_one_record_out_and_refuses_none() -> None:
    own, rest = (Collected(made("ffc"), LATTICE, noise=NoiseTerms(0.1, 1.0)) for _ in range(2))
    floats = LABELS.astype(np.float64)
    floats[[0, 1, 2, 3]] = [np.nan, 0.5, np.inf, -1e300]
    own.update(ROWS, floats)
    rest.update(ROWS[4:], LABELS[4:])
    assert (own.left_out, own.records) == (4, 56)
    np.testing.assert_array_equal(own.vector(LATTICE), rest.vector(LATTICE))
    exact = Collected(made("ffc"), LATTICE, normalise=True)
    with pytest.raises(WrongDtype):
        exact.update(ROWS, floats)


def test_a_record_has_one_name_whatever_the_terms_cut_off_it() -> None:
    rows, labels = RNG.standard_normal((20, DIM)), LABELS[:20].copy()
    rows[:2], labels[1] = [[-1, -2, -3, -4], [-4, -3, -2, -1]], labels[0]
    names = set()
    for name in ("ffc", "ccvr", "ccvr of any length"):
        for nonnegative in (False, True):
            noise = NoiseTerms(0.1, 1.0, neighbours=Neighbours.REPLACE, nonnegative=nonnegative)
            own = Collected(ASKED[name](), LATTICE, noise=noise)
            own.update(rows, labels)
            names.add(own.record_digests)
    (only,) = names
    assert len({only[start : start + 16] for start in range(0, len(only), 16)}) == 20


@pytest.mark.parametrize("name", ASKED)
def test_a_member_as_a_whole_moves_the_weighted_sum_by_no_more_than_its_bound(name: str) -> None:
    asked, whole = ASKED[name](), NoiseTerms(0.1, 1.0)
    most = NoiseTerms(0.1, 1.0, member_records=5)
    weights = most.mechanism(asked, LATTICE, **COHORT).weights()
    bound = most.bound(asked, LATTICE)
    assert bound is not None
    assert most.mechanism(asked, LATTICE, **COHORT).sensitivity == bound

    def sums(noise: NoiseTerms, records: int, elements: int) -> Any:
        own = Collected(asked, LATTICE, noise=noise)
        own.update(ROWS[:records], LABELS[:records])
        return np.concatenate(list(own.pieces(LATTICE, elements)))

    for few in (0, 1, 5):  # so many are never cut
        np.testing.assert_array_equal(sums(most, few, 7), sums(whole, few, 1000))
    cut, uncut = sums(most, 60, 7), sums(whole, 60, 1000)
    np.testing.assert_array_equal(cut, clip_member(uncut, weights, bound))
    norm = np.linalg.norm(cut * weights)
    assert norm <= bound
    if norm < np.linalg.norm(uncut * weights):
        assert norm > 0.8 * bound  # truncation on a coarse lattice takes some
        longer = np.abs(uncut) > np.abs(uncut).max() / 2
        np.testing.assert_allclose(
            cut[longer] / uncut[longer], norm / np.linalg.norm(uncut * weights), rtol=0.25
        )
