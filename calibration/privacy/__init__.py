"""Differential privacy for sums of statistics: noise, what it promises, what it costs, how to solve under it.

>>> mechanism = Mechanism(ffc_release(64, 10), rows=1, mu=gdp_mu(1, 1e-5), members=50, survivors_min=32, colluders=12)
>>> mechanism.add_noise(vector, os.urandom)                               # each member, before it masks
>>> solve_noisy(V, U, mechanism.deviation("V", survivors)).weights       # the coordinator, from the sum
"""

from calibration.privacy.accountant import (
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    sum_defect,
    zcdp_epsilon,
    zcdp_epsilon_classic,
)
from calibration.privacy.audit import Estimate, estimate_mu
from calibration.privacy.mechanism import Mechanism, Share
from calibration.privacy.plan import NoisyRound, Plan, Verdict, plan
from calibration.privacy.release import (
    Part,
    Release,
    ccvr_release,
    clip_member,
    default_weight,
    ffc_release,
    gradient_release,
    mean_release,
)
from calibration.privacy.rounds import MeanPlan, RefinedPlan, plan_mean, plan_refined
from calibration.privacy.sampler import ByteSource, DiscreteGaussian
from calibration.privacy.solving import (
    NoisySolution,
    noise_edge,
    solve_adassp,
    solve_mean_ridge,
    solve_noisy,
)

__all__ = [
    "ByteSource",
    "DiscreteGaussian",
    "Estimate",
    "MeanPlan",
    "Mechanism",
    "NoisyRound",
    "NoisySolution",
    "Part",
    "Plan",
    "RefinedPlan",
    "Release",
    "Share",
    "Verdict",
    "ccvr_release",
    "clip_member",
    "compose",
    "default_weight",
    "estimate_mu",
    "ffc_release",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gradient_release",
    "mean_release",
    "noise_edge",
    "plan",
    "plan_mean",
    "plan_refined",
    "solve_adassp",
    "solve_mean_ridge",
    "solve_noisy",
    "sum_defect",
    "zcdp_epsilon",
    "zcdp_epsilon_classic",
]
