"""Factorisations of large symmetric matrices: their results, their side effects and their memory."""

import sys
from typing import Any

import numpy as np
import pytest

from tests.calibration.records import ffc
from veilsum.calibration import solve_ffc, spectrum
from veilsum.calibration.checks import check_semidefinite
from veilsum.calibration.errors import SumCheckFailed
from veilsum.calibration.spectrum import eigh, is_definite

ROWS = 300


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every matrix as a large one."""
    monkeypatch.setattr(spectrum, "LARGE_MATRIX_ROWS", 1)


def sums(rank: int = 2 * ROWS) -> Any:
    features = np.random.default_rng(1).standard_normal((rank, ROWS)) * np.logspace(0, -3, ROWS)
    return features.T @ features


@pytest.mark.parametrize("rank", [2 * ROWS, ROWS // 3])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.usefixtures("large")
def test_decomposes_and_restores_the_matrix(*, rank: int, in_place: bool) -> None:
    V = sums(rank)
    before = V.copy()
    V.flags.writeable = in_place  # without, a matrix that may only be read is copied
    values, vectors = eigh(V, in_place=True) if in_place else eigh(V)
    assert np.array_equal(V, before)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(before), atol=1e-13 * values[-1])
    np.testing.assert_allclose((vectors * values) @ vectors.T, before, atol=1e-13 * values[-1])


@pytest.mark.usefixtures("large")
def test_restores_the_matrix_if_the_library_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    V = sums()
    before = V.copy()

    def failed(work: Any, **_: Any) -> None:
        work[np.triu_indices(ROWS)] = np.nan  # what the driver may touch, by columns
        raise np.linalg.LinAlgError

    monkeypatch.setattr("scipy.linalg.eigh", failed)
    with pytest.raises(np.linalg.LinAlgError):
        eigh(V, in_place=True)
    assert np.array_equal(V, before)


@pytest.mark.parametrize("with_scipy", [True, False])
@pytest.mark.usefixtures("large")
def test_tells_definite_from_indefinite(*, with_scipy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    V = sums()
    lowest = np.linalg.eigvalsh(V)[0]
    if not with_scipy:
        monkeypatch.setitem(sys.modules, "scipy.linalg", None)
        for found, expected in zip(eigh(V, in_place=True), np.linalg.eigh(V), strict=True):
            assert np.array_equal(found, expected)
    assert is_definite(V - 0.9 * lowest * np.eye(ROWS))
    assert not is_definite(V - 1.1 * lowest * np.eye(ROWS))


@pytest.mark.parametrize("in_place", [False, True])
def test_checks_a_schur_complement_block_by_block(*, in_place: bool) -> None:
    """The matrix has more rows than one block, and a class with one record more than V holds is detected."""
    features = np.random.default_rng(2).standard_normal((1000, ROWS))
    features /= np.linalg.norm(features, axis=1)[:, None]
    labels = np.random.default_rng(3).integers(0, 4, 1000)
    U, counts, V = features.T @ np.eye(4)[labels], np.bincount(labels), features.T @ features
    checked, how = V.copy(), {"in_place": True} if in_place else {}
    check_semidefinite(checked, U, counts, 1e-9, **how)
    assert np.array_equal(checked, V) is not in_place
    mean = U[:, 0] / np.linalg.norm(U[:, 0])
    forged = V - np.outer(mean, mean) * (mean @ V @ mean)
    with pytest.raises(SumCheckFailed, match="semidefinite"):
        check_semidefinite(forged, U, counts, 1e-9, **how)


def test_a_large_head_is_that_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a condition of 10⁹, which would expose inaccurate eigenvectors."""
    rng = np.random.default_rng(4)
    features = np.abs(rng.standard_normal((900, ROWS))) * np.logspace(0, -4, ROWS)
    statistics = ffc(features, rng.integers(0, 5, 900), 5, normalise=True)
    before = statistics.V.copy()
    expected = solve_ffc(statistics, 1e-7)
    monkeypatch.setattr(spectrum, "LARGE_MATRIX_ROWS", 1)
    found = solve_ffc(statistics, 1e-7, in_place=True)
    assert np.array_equal(statistics.V, before)
    assert found.condition > 1e9
    assert max(found.residual, expected.residual) < 1e-12
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-6, atol=1e-8)
    assert found.dof == pytest.approx(expected.dof, rel=1e-9)
