"""A small version of the whole chains of `make audit`."""

import numpy as np
import pytest

from assurance.audit.chain import Chain

RECIPE, SHORT, CHAINS = "mean+sum+6-gradients", "mean+sum", 30


def test_a_whole_chain_keeps_its_promise() -> None:
    chain = Chain(RECIPE)
    estimate = chain.estimate(CHAINS, 1)
    assert estimate.fault(chain.mu) is None
    assert estimate.mu == pytest.approx(chain.mu, abs=3 * estimate.error)


def test_too_little_noise_in_every_step_is_flagged() -> None:
    chain = Chain(SHORT, quieter=1.5)
    fault = chain.estimate(CHAINS, 1).fault(chain.mu)
    assert fault is not None
    assert fault.startswith("too little noise")


def test_what_the_canary_changed_steers_the_next_steps() -> None:
    scores = [Chain(RECIPE).score(canary=canary, seed=7) for canary in (False, True)]
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]
