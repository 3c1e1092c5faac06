import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.calibration.privacy.published import published_epsilon
from tests.support.simulator import SeededRandom
from veilsum.calibration import CalibrationError
from veilsum.calibration.errors import LayoutMismatch, NoiseTooSmall, WrongDtype
from veilsum.calibration.lattice import FeaturesLattice
from veilsum.calibration.privacy.accountant import gdp_delta, gdp_mu
from veilsum.calibration.privacy.mechanism import VARIANCE_DEFECT, Mechanism, Share
from veilsum.calibration.privacy.release import ccvr_release, ffc_release, mean_release

DELTA = 1e-5
RELEASE = ffc_release(8, 3)


def mechanism(**changes: Any) -> Mechanism:
    terms: dict[str, Any] = {"release": RELEASE, "rows": 1, "mu": gdp_mu(1, DELTA), "members": 12}
    return Mechanism(**(terms | {"survivors_min": 8, "colluders": 3} | changes))


def test_shares_follow_the_rule() -> None:
    made = mechanism(release=ffc_release(8, 21), rows=3)
    sigma = 3 * math.sqrt(5) / gdp_mu(1, DELTA)
    assert made.sigma == pytest.approx(sigma)
    diagonal, half, U = (4**12 * sigma) ** 2, (4**12 * sigma) ** 2 / 2, (2**12 * sigma / 2) ** 2
    assert made.shares == (
        Share(math.ceil((half + 4) / 5), math.ceil((diagonal + 4) / 5)),
        Share(math.ceil((U + 4) / 5), math.ceil((U + 4) / 5)),
    )
    assert made.deviation("V", 5) == pytest.approx(sigma)
    assert made.deviation("U", 20) == pytest.approx(sigma)
    counted = mechanism(release=ccvr_release(8, 3))
    assert counted.deviation("N", 5) == pytest.approx(2 * counted.sigma, rel=0.01)
    assert counted.deviation("M.2", 5) == pytest.approx(counted.sigma, rel=0.01)
    mean = mechanism(release=mean_release(8))
    assert mean.deviation("z", 5) == pytest.approx(1 / gdp_mu(1, DELTA), rel=1e-6)
    # The tail: twelve deviations of all members' noise.
    assert made.largest == made.shares[0].diagonal
    assert 0 <= made.noise_tail - 12 * math.sqrt(12 * made.largest) <= 12


def test_the_diagonal_has_noise_of_its_own_and_no_other() -> None:
    made = mechanism()
    source, places = SeededRandom(3), made.release.layout.slices["V"]
    drawn = np.zeros((400, RELEASE.layout.elements), np.int64)
    for vector in drawn:
        made.add_noise(vector, source)
    V, diagonal = drawn[:, places].astype(float), made.release.block_named("V").diagonal
    on, off = V[:, diagonal], np.delete(V, diagonal, axis=1)
    assert on.var() == pytest.approx(made.shares[0].diagonal, rel=0.15)  # six deviations
    assert off.var() == pytest.approx(made.shares[0].variance, rel=0.15)


@pytest.mark.parametrize("bits", [3, 5, 12])
@pytest.mark.parametrize(("survivors_min", "colluders"), [(3, 0), (8, 3), (12, 3)])
def test_rounding_shares_up_only_lowers_mu(bits: int, survivors_min: int, colluders: int) -> None:
    made = mechanism(lattice=FeaturesLattice(bits), survivors_min=survivors_min, colluders=colluders)
    assert 0.9 * made.mu < made.mu_round <= made.mu * (1 + 1e-12)
    honest = survivors_min - colluders
    # By hand, from the shares: each weighted coordinate's variance less 4 steps².
    V, U = made.shares
    smallest = min(
        2 * (honest * V.variance - VARIANCE_DEFECT) / 4 ** (2 * bits),
        (honest * V.diagonal - VARIANCE_DEFECT) / 4 ** (2 * bits),
        (honest * U.variance - VARIANCE_DEFECT) / 4**bits,
    )
    assert made.mu_round == pytest.approx(made.sensitivity / math.sqrt(smallest))
    assert made.epsilon(DELTA) <= 1 + 1e-9
    assert made.epsilon(DELTA) < published_epsilon(made, DELTA) < 1.15


def test_mu_round_is_that_of_elements_off_the_diagonal_if_only_their_share_is_not_rounded_up() -> None:
    made = mechanism(lattice=FeaturesLattice(1), mu=math.sqrt(2 / 24.5) * (1 + 1e-9))
    assert made.shares == (Share(40, 80), Share(21, 21))  # 2·(5·40 − 4)/16 is 24.5, the others are above
    assert made.mu_round == pytest.approx(math.sqrt(2 / 24.5))


def test_mu_round_bounds_every_neighbour() -> None:
    rng, made = np.random.default_rng(20), mechanism(lattice=FeaturesLattice(3))
    V, U = made.shares
    variances = np.concatenate([np.full(36, V.variance), np.full(24, U.variance)])
    variances[RELEASE.block_named("V").diagonal] = V.diagonal
    worst = 0.0
    for _ in range(500):
        z = rng.standard_normal(8) ** 3
        q = np.trunc(8 * z / np.linalg.norm(z))
        columns = np.zeros((8, 3))
        columns[:, 1] = q
        difference = np.concatenate([np.outer(q, q)[np.triu_indices(8)], columns.ravel()])
        worst = max(worst, float(np.sum(difference**2 / (made.honest * variances - VARIANCE_DEFECT))))
    assert 0.5 * made.mu_round < math.sqrt(worst) <= made.mu_round


@pytest.mark.parametrize(
    ("term", "values"),
    [("survivors_min", [12, 9, 6, 4]), ("mu", [1.0, 0.3, 0.1]), ("colluders", [0, 1, 3, 7])],
)
def test_shares_grow_where_less_can_be_relied_on(term: str, values: list[Any]) -> None:
    shares = [mechanism(**{term: value}).largest for value in values]
    assert shares == sorted(shares)


def test_shares_below_four_steps_are_refused() -> None:
    coarse = {"release": ffc_release(2, 2), "lattice": FeaturesLattice(1)}
    with pytest.raises(NoiseTooSmall, match=f"variance of {math.ceil((4 * 2 / 1.13**2 + 4) / 5)} steps²"):
        mechanism(**coarse, mu=1.13)
    # (s² + 4)/5 = 16 exactly, and the next larger μ is refused
    at_the_limit = mechanism(**coarse, mu=2 * math.sqrt(2 / (5 * 16 - 4 - 1)))
    assert at_the_limit.shares[1].variance == 16
    with pytest.raises(NoiseTooSmall, match="variance of 15 steps²"):
        mechanism(**coarse, mu=2 * math.sqrt(2 / (5 * 15 - 4)))


@pytest.mark.parametrize(
    ("term", "value"),
    [
        *(("colluders", -1), ("colluders", 8), ("survivors_min", 13), ("rows", 0)),
        *(("mu", mu) for mu in (0.0, math.nan, 1e-9)),
    ],
)
def test_impossible_terms_are_refused(term: str, value: Any) -> None:
    with pytest.raises(CalibrationError):
        mechanism(**{term: value})


def test_noise_is_added_to_a_vector() -> None:
    made = mechanism()
    vector, plain = np.arange(60, dtype=np.int64), np.zeros(60, np.int64)
    made.add_noise(plain, SeededRandom(1))
    made.add_noise(vector, SeededRandom(1))
    assert (vector - plain).tolist() == list(range(60))
    assert np.unique(plain).size == 60
    with pytest.raises(LayoutMismatch):
        made.add_noise(vector[:-1], SeededRandom(1))
    with pytest.raises(WrongDtype):
        made.add_noise(np.zeros(60), SeededRandom(1))  # type: ignore[arg-type]


def test_large_vectors_take_a_piece_of_scratch_memory() -> None:
    made = mechanism(release=ffc_release(2500, 100))
    vector = np.zeros(made.release.layout.elements, np.int64)
    tracemalloc.start()
    made.add_noise(vector, SeededRandom(3))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < vector.nbytes / 2
    assert np.count_nonzero(vector) > 0.999 * vector.size


def sum_of_shares(variance: int, shares: int) -> Any:
    """Return the exact probabilities of a sum of discrete Gaussians, far into its tails."""
    points = np.arange(-400, 401)
    share = np.exp(-(points**2) / (2 * variance))
    share /= share.sum()
    total = share
    for _ in range(shares - 1):
        total = np.convolve(total, share)
    return total


@pytest.mark.parametrize("variance", [16, 25])
@pytest.mark.parametrize("shares", [1, 2, 5])
def test_exact_probabilities_of_a_sum_of_shares_keep_the_own_proof(variance: int, shares: int) -> None:
    mass = sum_of_shares(variance, shares)
    excesses = {}
    for defect in (0, VARIANCE_DEFECT):
        excess = []
        for shift in (1, 2, 5, 12):
            mu = shift / math.sqrt(shares * variance - defect)
            before, after = np.append(mass, np.zeros(shift)), np.append(np.zeros(shift), mass)
            for epsilon in np.linspace(0, 8 * mu + mu**2 / 2, 60).tolist():
                exact = float(np.maximum(before - math.exp(epsilon) * after, 0).sum())
                excess.append((exact - gdp_delta(mu, epsilon)) / max(gdp_delta(mu, epsilon), 1e-11))
        excesses[defect] = max(excess)
    assert excesses[VARIANCE_DEFECT] < 0
    assert excesses[0] > 0.01  # without it a grid is a little worse than a continuum


def test_a_refusal_of_too_many_rows_says_how_many_fit() -> None:
    with pytest.raises(CalibrationError) as refused:
        mechanism(rows=20_000)
    [_, most_said] = re.findall(r"([\d,]+) rows", str(refused.value))
    most = int(most_said.replace(",", ""))
    assert mechanism(rows=most).largest < 1 << 62
    with pytest.raises(CalibrationError):
        mechanism(rows=most + 1)
