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
    Descent,
    NoisyGaussians,
    NoisyGradient,
    NoisyMean,
    NoisySolution,
    NoisySums,
    noise_edge,
    solve_noisy,
    whitened,
)
from veilsum.calibration.privacy.plan import CohortSizes, NoisyRound, Outlook, Plan, plan
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
from veilsum.calibration.privacy.trial import TRIAL_OFF_BY, points_lost

__all__ = [
    "TRIAL_OFF_BY",
    "ByteSource",
    "ClassMoments",
    "CohortSizes",
    "Descent",
    "DiscreteGaussian",
    "GradientSums",
    "IntegerMean",
    "IntegerMoments",
    "IntegerSums",
    "Mechanism",
    "NoisyGaussians",
    "NoisyGradient",
    "NoisyMean",
    "NoisyRound",
    "NoisySolution",
    "NoisySums",
    "Outlook",
    "Plan",
    "Release",
    "Share",
    "WeightedBlock",
    "ccvr_release",
    "clip_member",
    "compose",
    "default_weight",
    "ffc_release",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gradient_release",
    "mean_release",
    "noise_edge",
    "plan",
    "points_lost",
    "solve_noisy",
    "sum_defect",
    "whitened",
    "zcdp_epsilon",
]  # fmt: skip
