"""The noise of a study: its scale at each step and its privacy guarantee (member: Noise)."""

import math
from functools import lru_cache

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.privacy.accountant import gdp_epsilon, gdp_mu
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.release import (
    Release,
    ccvr_release,
    ffc_release,
    gradient_release,
    mean_release,
)
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import NoiseView
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.statistics import CCVR
from veilsum.protocol.study import MEAN_STEP, SUM_STEP, Judge, Noise, Question


@lru_cache(maxsize=64)
def study_mu(noise: Noise | Judge) -> float:
    """Return μ of the whole chain or judgement, which a noisy reservation charges to each of its records."""
    return gdp_mu(noise.epsilon, noise.delta)


def promise_noise(spec: RoundSpec) -> NoiseView | None:
    """Return the privacy guarantee of a noisy step and its chain for one unit; None for a step without noise."""
    question, noise, judge = spec.question, spec.question.noise, spec.question.judge
    if not spec.adds_noise:
        return None
    if spec.judges:
        assert judge is not None
        epsilon = judge.epsilon
        return NoiseView(
            mu=study_mu(judge),
            epsilon=epsilon,
            spent_epsilon=epsilon,
            study_epsilon=epsilon,
            delta=judge.delta,
        )
    assert noise is not None
    mu, past = study_mu(noise), question.steps[: question.steps.index(spec.step) + 1]
    spent = mu * math.sqrt(min(1.0, math.fsum(question.share_of(step) for step in past)))
    own = _step_mu(question, noise, spec.step)
    step, chain, study = (gdp_epsilon(each, noise.delta) for each in (own, spent, mu))
    return NoiseView(mu=own, epsilon=step, spent_epsilon=chain, study_epsilon=study, delta=noise.delta)


def check_noise(question: Question, members: int, survivors_min: int) -> None:
    """Refuse a study whose noise, at any step in a cohort of this size, is too small for the grid, or too large to draw or for the ring.

    Raises:
        PeerFault: weak-parameters.
    """
    if question.noise is None:
        return
    for step in question.steps:
        try:
            mechanism = _make_mechanism(question, question.noise, step, members, survivors_min)
        except CalibrationError as error:
            raise _weak_noise_fault(f"step {step}: {error}") from error
        bound = mechanism.lattice.largest_sum(question.records_max, mechanism.noise_tail)
        if bound >= 1 << question.ring_bits - 1:
            raise _weak_noise_fault(
                f"step {step}: rows and noise reach 2^{math.log2(bound):.1f} steps, but the ring holds sums below "
                f"2^{question.ring_bits - 1}: take a larger ε, or fewer rows of a unit"
            )


def mechanism_of(spec: RoundSpec) -> Mechanism:
    """Return the noise mechanism of a noisy step that passed `check_cohort`."""
    assert spec.question.noise is not None
    return _make_mechanism(spec.question, spec.question.noise, spec.step, spec.members, spec.survivors_min)


def rows_per_unit(question: Question, noise: Noise) -> int:
    """Return the maximum rows of the protected unit, a record or a member. Δ is proportional to it."""
    return question.records.rows_per_id if noise.unit == "record" else question.records.most


def release_of(question: Question, step: str) -> Release:
    """Return the blocks of a noisy step's vector."""
    (statistic,) = question.statistics
    width, classes = question.width_of(statistic), len(question.classes)
    if step == MEAN_STEP:
        return mean_release(question.dim)
    if step != SUM_STEP:
        return gradient_release(width, classes)
    return (ccvr_release if isinstance(statistic, CCVR) else ffc_release)(width, classes)


def _make_mechanism(
    question: Question, noise: Noise, step: str, members: int, survivors_min: int
) -> Mechanism:
    rows, mu = rows_per_unit(question, noise), _step_mu(question, noise, step)
    return Mechanism(release_of(question, step), rows, mu, members, survivors_min, question.a)


def _step_mu(question: Question, noise: Noise, step: str) -> float:
    return study_mu(noise) * math.sqrt(question.share_of(step))


def _weak_noise_fault(detail: str) -> PeerFault:
    return PeerFault(Cause.WEAK_PARAMETERS, detail, ["coordinator"])
