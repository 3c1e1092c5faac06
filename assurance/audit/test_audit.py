"""A small version of `make audit`, which makes 20,000 releases."""

import numpy as np
import pytest

from assurance.audit.canaries import Canaries
from assurance.audit.pipeline import BUGS, DIM, MEMBERS, Pipeline, silent, unchanged
from assurance.audit.run import repeated

RELEASES = 1_000


def test_the_mechanism_keeps_its_promise() -> None:
    estimate, promised = repeated(unchanged, 1, RELEASES)
    assert estimate.fault(promised) is None
    assert estimate.mu == pytest.approx(Pipeline().mechanism.mu, abs=2.58 * estimate.error)


@pytest.mark.parametrize("name", BUGS)
def test_every_bug_is_flagged(name: str) -> None:
    estimate, promised = repeated(BUGS[name], 1, RELEASES)
    fault = estimate.fault(promised)
    assert fault is not None
    assert fault.startswith("too little noise")


def test_each_block_has_its_variance_after_a_masked_round_of_exactly_the_fewest_survivors() -> None:
    pipeline = Pipeline()
    mechanism = pipeline.mechanism
    assert mechanism.survivors_min == MEMBERS
    exact = sum(pipeline.member(index, canary=False) for index in range(MEMBERS))
    noise = (pipeline.sums(300, canary=False, seed=2) - exact).astype(np.float64)
    blocks = [mechanism.release.layout.unflatten(row) for row in noise]
    moments, sums = (np.array([block[name] for block in blocks]) for name in ("V", "U"))
    share_V, share_U = mechanism.shares
    inside = np.eye(DIM, dtype=np.bool_)
    for values, variance in (
        (moments[:, inside], share_V.diagonal),
        (moments[:, ~inside], share_V.variance),
        (sums, share_U.variance),
    ):
        assert values.var() == pytest.approx(mechanism.honest * variance, rel=0.05)
        assert abs(values.mean()) < 0.05 * values.std()


@pytest.mark.parametrize("name", [None, next(iter(BUGS))])
def test_many_canaries_in_a_few_releases_see_the_same(name: str | None) -> None:
    canaries = Canaries(512, 2, bug=BUGS[name] if name else unchanged)
    assert np.abs(canaries.rows @ canaries.rows.T - np.eye(512)).max() < 0.01
    fault = canaries.estimate(8, seed=1).fault(canaries.mechanism.mu_round)
    assert (fault or "").startswith("too little noise") == (name is not None)
    assert (fault is None) == (name is None)


def test_without_noise_the_pipeline_is_exact() -> None:
    quiet = Pipeline(silent)
    exact = sum(quiet.member(index, canary=True) for index in range(MEMBERS))
    assert (quiet.sums(3, canary=True, seed=3) == exact).all()
