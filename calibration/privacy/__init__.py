"""Differential privacy for sums of statistics: noise, what it promises, what it costs, how to solve under it.

>>> mechanism = Mechanism(layout, FeaturesLattice(12), weight=1, sensitivity=ffc_sensitivity(1), mu=gdp_mu(1, 1e-5),
...                       members=50, survivors_min=32, colluders=12)
>>> MemberNoise(layout, mechanism.shares, os.urandom).add_to(vector)     # each member, before it masks
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
from calibration.privacy.budget import Budget, Charge
from calibration.privacy.mechanism import (
    Mechanism,
    MemberCut,
    MemberNoise,
    Share,
    StepWeights,
    default_weight,
    noisy_layout,
)
from calibration.privacy.plan import NoisyRound, Plan, Verdict, plan, plan_round
from calibration.privacy.rounds import MeanPlan, RefinedPlan, plan_mean, plan_refined
from calibration.privacy.sampler import ByteSource, DiscreteGaussian
from calibration.privacy.sensitivity import (
    Neighbours,
    Release,
    ccvr_sensitivity,
    clip_member,
    ffc_sensitivity,
    gradient_sensitivity,
    mean_sensitivity,
    member_sensitivity,
)
from calibration.privacy.solving import (
    NoisySolution,
    noise_edge,
    solve_adassp,
    solve_mean_ridge,
    solve_noisy,
)
from calibration.privacy.terms import NOISY_BITS, NoiseTerms

__all__ = [
    "NOISY_BITS",
    "Budget",
    "ByteSource",
    "Charge",
    "DiscreteGaussian",
    "Estimate",
    "MeanPlan",
    "Mechanism",
    "MemberCut",
    "MemberNoise",
    "Neighbours",
    "NoiseTerms",
    "NoisyRound",
    "NoisySolution",
    "Plan",
    "RefinedPlan",
    "Release",
    "Share",
    "StepWeights",
    "Verdict",
    "ccvr_sensitivity",
    "clip_member",
    "compose",
    "default_weight",
    "estimate_mu",
    "ffc_sensitivity",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gradient_sensitivity",
    "mean_sensitivity",
    "member_sensitivity",
    "noise_edge",
    "noisy_layout",
    "plan",
    "plan_mean",
    "plan_refined",
    "plan_round",
    "solve_adassp",
    "solve_mean_ridge",
    "solve_noisy",
    "sum_defect",
    "zcdp_epsilon",
    "zcdp_epsilon_classic",
]
