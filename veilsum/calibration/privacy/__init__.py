"""Differential privacy for sums of statistics: the noise, what it promises, what it costs, and how to solve under it.

>>> mechanism = Mechanism(ffc_release(64, 10), rows=1, mu=gdp_mu(1, 1e-5), members=50, survivors_min=32, colluders=12)
>>> mechanism.add_noise(vector, os.urandom)                               # each member, before it masks
>>> solve_noisy(V, U, mechanism.deviation("V", survivors)).weights       # the coordinator, from the sum
"""

from veilsum.calibration.privacy.accountant import (
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    sum_defect,
    zcdp_epsilon,
)
from veilsum.calibration.privacy.integer_sums import (
    ClassMoments,
    GradientSums,
    IntegerMean,
    IntegerMoments,
    IntegerSums,
)
from veilsum.calibration.privacy.mechanism import Mechanism, Share
from veilsum.calibration.privacy.noisy_sums import (
    NoisyGaussians,
    NoisyMean,
    NoisySolution,
    NoisySums,
    noise_edge,
    solve_noisy,
)
from veilsum.calibration.privacy.plan import CohortSizes, FFCPlan, MeanPlan, NoisyRound, Outlook, plan
from veilsum.calibration.privacy.release import (
    Release,
    WeightedBlock,
    ccvr_release,
    clip_member,
    default_weight,
    ffc_release,
    gradient_release,
    mean_release,
)
from veilsum.calibration.privacy.sampler import ByteSource, DiscreteGaussian

__all__ = [
    "ByteSource", "ClassMoments", "CohortSizes", "DiscreteGaussian", "FFCPlan", "GradientSums", "IntegerMean",
    "IntegerMoments", "IntegerSums", "MeanPlan", "Mechanism", "NoisyGaussians", "NoisyMean", "NoisyRound",
    "NoisySolution", "NoisySums", "Outlook", "Release", "Share", "WeightedBlock", "ccvr_release",
    "clip_member", "compose", "default_weight", "ffc_release", "gdp_delta", "gdp_epsilon", "gdp_mu",
    "gradient_release", "mean_release", "noise_edge", "plan", "solve_noisy", "sum_defect", "zcdp_epsilon",
]  # fmt: skip
