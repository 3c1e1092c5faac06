"""What records state as the most that rounding moved a weight, where an entry is rounded more than once, or scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import CalibrationError, SumsLattice, check_ridge
from calibration.questions import REFUSED, Answer, Question, Summed, Wish, ask, question
from calibration.questions.alone import alone
from calibration.ridge import default_grid

COARSE, FINE = SumsLattice(8), SumsLattice(40)
CONTEXT = bytes(32)


def answered(posed: Question, lattice: SumsLattice, parts: list[Any], ridges: tuple[float, ...]) -> Answer:
    """The answer to members' records, (features, labels) each."""
    vectors = []
    for features, labels in parts:
        own = posed.accumulator(lattice, normalise=True)
        own.update(features, labels)
        vectors.append(np.concatenate(list(own.pieces(lattice, 1 << 20))))
    gathering = posed.gathering(lattice)
    gathering.take(0, np.sum(vectors, axis=0))
    summed = Summed(lattice, len(parts), ridges)
    return posed.answer(posed.gathered(gathering, summed), summed)


def test_the_bound_holds_of_sums_that_are_scaled() -> None:
    posed = question("rff", ask("rff", Wish(2, 2, {"size": 8, "bandwidth": 1.0})).layout, CONTEXT)
    reached, beyond_one_rounding = 0.0, False
    for seed in range(20):
        rng = np.random.default_rng(seed)
        parts = [(rng.normal(size=(40, 2)), rng.integers(0, 2, 40))]
        coarse, fine = (answered(posed, each, parts, (0.5,)) for each in (COARSE, FINE))
        assert coarse.solution is not None
        assert fine.solution is not None
        if coarse.solution.raw_weights.shape != fine.solution.raw_weights.shape:
            continue  # GCV took another number of features
        moved = np.abs(coarse.solution.raw_weights - fine.solution.raw_weights).max()
        assert coarse.error_bound is not None
        assert moved <= coarse.error_bound
        reached = max(reached, moved / coarse.error_bound)
        beyond_one_rounding |= bool(moved > coarse.error_bound / posed.roundings)
    assert reached > 0.02
    assert beyond_one_rounding


def test_ridges_that_hold_the_promise_grow_with_the_roundings() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(60, 4)), rng.integers(0, 2, 60))]
    posed = question("rff", ask("rff", Wish(4, 2, {"size": 8, "bandwidth": 1.0})).layout, CONTEXT)
    lattice = SumsLattice(20)
    own = posed.accumulator(lattice, normalise=True)
    own.update(*parts[0])
    gathering = posed.gathering(lattice)
    gathering.take(0, np.concatenate(list(own.pieces(lattice, 1 << 20))))
    summed = Summed(lattice, 1, promised=True)
    answer = posed.answer(posed.gathered(gathering, summed), summed)
    assert answer.grid is not None
    least = float(answer.grid[0])
    dim = len(answer.solution.raw_weights) if answer.solution is not None else 0
    assert least > default_grid(60, dim)[0]
    check_ridge(least, dim=dim, members=8 / dim, scale_bits=20)


def test_a_document_that_does_not_follow_leaves_the_round_its_head() -> None:
    # Records of a class coincide: no covariance within classes, and no LDA.
    features, labels = np.eye(3)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])
    answer = alone("ffc", Wish(3, 2, {"publish": "lda,ncm"}), [(features, labels)]).answer
    assert answer.head is not None
    assert answer.head.predict(features).tolist() == labels.tolist()
    assert answer.documents["lda"].arrays == {}
    assert "SingularSystem" in answer.documents["lda"].notes[REFUSED]
    assert "weights" in answer.documents["ncm"].arrays


@pytest.mark.parametrize("dim", [1 << 26, 1 << 60])
def test_no_map_is_drawn_that_takes_all_memory(dim: int) -> None:
    parameters = {"size": 4, "bandwidth": 1.0}
    posed = question("rff", ask("rff", Wish(2, 2, parameters)).layout.having(dim=dim), CONTEXT)
    with pytest.raises(CalibrationError, match=r"normals; \d+ at most|a whole number"):
        posed.accumulator(COARSE, normalise=True)
