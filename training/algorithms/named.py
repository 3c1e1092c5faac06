"""The algorithms that an experiment file can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from training.algorithms.aggregations import FedAvg, FedNova, ServerOptimiser, Spreading
from training.algorithms.base import Algorithm
from training.algorithms.features import (
    ClassVariance,
    FeatureDiscrepancy,
    GlobalMemory,
    ModelContrastive,
    PrintedMemory,
    RestrictedSoftmax,
    Uniformity,
)
from training.algorithms.weights import (
    ControlVariates,
    DynamicCorrection,
    DynamicPenalty,
    HeadFirst,
    PersonalLayers,
    Proximal,
)


def fedavg(*, uniform: bool = False) -> Algorithm:
    """McMahan et al. 2017."""
    return Algorithm(FedAvg(uniform))


def fedprox(*, mu: float = 0.001) -> Algorithm:
    """Li et al. 2020."""
    return fedavg().plus(Proximal(mu))


def clsprox(*, mu: float = 0.001) -> Algorithm:
    """Luo et al. 2021, §3.3: FedProx over the head alone."""
    return fedavg().plus(Proximal(mu, "head"))


def fedavgm(*, momentum: float = 0.9, lr: float = 1.0) -> Algorithm:
    """Hsu et al. 2019: momentum at the server. Luo et al. 2021 take 0.1."""
    return Algorithm(ServerOptimiser("sgd", lr, momentum))


def fednova() -> Algorithm:
    """Wang et al. 2020."""
    return Algorithm(FedNova())


def fedopt(
    *,
    rule: Literal["sgd", "adam", "yogi", "adagrad"] = "adam",
    lr: float = 0.1,
    momentum: float | None = None,
    beta2: float = 0.99,
    tau: float = 1e-3,
) -> Algorithm:
    """Reddi et al. 2021. The default momentum is the paper's: none for `adagrad`, else 0.9."""
    if momentum is None:
        momentum = 0.0 if rule == "adagrad" else 0.9
    return Algorithm(ServerOptimiser(rule, lr, momentum, beta2, tau))


def scaffold(*, uniform: bool = True) -> Algorithm:
    """Karimireddy et al. 2020. With `uniform` weights and variates weigh members equally, as in the paper; else by their records."""
    return fedavg(uniform=uniform).plus(ControlVariates(uniform))


def feddyn(*, alpha: float = 0.01) -> Algorithm:
    """Acar et al. 2021."""
    return Algorithm(DynamicCorrection(alpha), (DynamicPenalty(alpha),))


def moon(*, mu: float = 1.0, temperature: float = 0.5) -> Algorithm:
    """Li et al. 2021."""
    return fedavg().plus(ModelContrastive(mu, temperature))


def fedmmd(*, weight: float = 0.1) -> Algorithm:
    """Yao et al. 2018."""
    return fedavg().plus(FeatureDiscrepancy(weight))


def fedrs(*, alpha: float = 0.5) -> Algorithm:
    """Li and Zhan 2021."""
    return fedavg().plus(RestrictedSoftmax(alpha))


def fedaws(*, margin: float = 2**0.5, lr: float = 0.1, steps: int = 1) -> Algorithm:
    """Yu et al. 2020, the server's half; the members' half is the loss `positive_hinge`."""
    return Algorithm(Spreading(margin, lr, steps))


def feduv(*, variance: float | None = None, uniformity: float = 0.5) -> Algorithm:
    """Son et al. 2024: λ = `variance`, C/4 if None, and μ = `uniformity`; 0 leaves a term out."""
    on_logits = () if variance == 0 else (ClassVariance(variance),)
    on_features = () if uniformity == 0 else (Uniformity(uniformity),)
    return fedavg().plus(*on_logits, *on_features)


def gmv(
    *,
    alpha: float = 1.0,
    warmup: int = 0,
    uniform: bool = True,
    over: Literal["holders", "participants"] = "holders",
) -> Algorithm:
    """Huang et al. 2023, Algorithm 1. With `uniform` the server averages participants equally, as in the paper; else by their records.

    A class's vector is the mean over the participants that hold it or, as printed, their sum divided by the number of all participants.
    """
    memory = GlobalMemory if over == "holders" else PrintedMemory
    return fedavg(uniform=uniform).plus(memory(alpha, warmup))


def lg_fedavg() -> Algorithm:
    """Liang et al. 2020."""
    return fedavg().plus(PersonalLayers("extractor"))


def fedper() -> Algorithm:
    """Arivazhagan et al. 2019."""
    return fedavg().plus(PersonalLayers("head"))


def fedrep(*, head_epochs: int) -> Algorithm:
    """Collins et al. 2021: `head_epochs` of the local epochs train the head, the others the extractor."""
    return fedper().plus(HeadFirst(head_epochs))


Maker = Callable[..., Algorithm]
_SERVER_ALGORITHMS: list[Maker] = [fedavg, fedavgm, fednova, fedopt, feddyn, fedaws]
_CLIENT_ALGORITHMS: list[Maker] = [
    fedprox,
    clsprox,
    scaffold,
    moon,
    fedmmd,
    fedrs,
    feduv,
    gmv,
    lg_fedavg,
    fedper,
    fedrep,
]
ALGORITHMS = {make.__name__.replace("_", "-"): make for make in _SERVER_ALGORITHMS + _CLIENT_ALGORITHMS}
LOCAL_ALGORITHMS = frozenset(ALGORITHMS).difference(make.__name__ for make in _SERVER_ALGORITHMS)
"""Algorithms made of terms beside FedAvg's mean: their terms can be added to another algorithm."""
