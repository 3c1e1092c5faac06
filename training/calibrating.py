"""Heads fitted after training to the features of all members: the last step of any run, whatever trained it.

Every one but the oracle is computed from sums over members (`calibration`), in this process and in the clear; that masked sums
give the same is what `veilsum train --through service` shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from calibration import (
    CCVRStatistics,
    FFCStatistics,
    Head,
    RandomFeatures,
    fit_logistic_sgd,
    mean_squared_distance,
    nearest_class_mean,
    solve_ccvr,
    solve_ffc,
    solve_lda,
    solve_random_features,
    tukey,
    virtual_features,
)
from calibration.virtual import TukeyHead
from training.evaluate import extract_features
from training.seeding import Stream, generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from calibration.layout import Layout
    from training.data import Dataset
    from training.heads import Classifier
    from training.partition import Partition

VIRTUAL = 2000  # features of each class: CCVR's for CIFAR-10 at α = 0.1 and 0.05 (Luo et al. 2021, Table 8)
_RING_BITS = 48
# What options may be, for whoever checks them before training (`experiments.choices.check_later`).
_Count = Annotated[int, Field(ge=1)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Ridge = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, eq=False)
class Held:
    """A frozen extractor's view of the federation.

    Attributes:
        features: per member, (n_k, l) float32 as the head saw them in training.
        labels: per member, (n_k,) int64.
        classes: C.
        head: the weights, (l + 1, C) float64, the bias in the last row, that training left.
        seed: of whatever a calibration draws.
    """

    features: tuple[npt.NDArray[np.float32], ...]
    labels: tuple[npt.NDArray[np.int64], ...]
    classes: int
    head: npt.NDArray[np.float64]
    seed: int = 0

    @classmethod
    def of(cls, classifier: Classifier, data: Dataset, partition: Partition, *, seed: int = 0) -> Held:
        """Every member's features under the classifier's extractor."""
        z, y = extract_features(classifier, data.x).cpu().numpy(), data.y.cpu().numpy()
        with torch.no_grad():
            identity = torch.eye(classifier.extractor.dim, device=classifier.head.weight.device)
            constant = classifier.head(torch.zeros_like(identity[:1]))
            weights = classifier.head(identity) - constant  # whatever kind of linear head it is
        return cls(
            tuple(z[rows] for rows in partition.members),
            tuple(y[rows] for rows in partition.members),
            data.classes,
            torch.cat([weights, constant]).double().cpu().numpy(),
            seed,
        )

    @property
    def dim(self) -> int:
        """The number of features l."""
        return len(self.head) - 1

    def ffc(
        self,
        *,
        bias: bool = False,
        through: RandomFeatures | None = None,
    ) -> FFCStatistics:
        """V, U and counts, summed over members.

        Args:
            bias: whether features have a last one that is constant.
            through: the random features that features of length 1 are mapped to first.
        """

        def empty() -> FFCStatistics:
            return FFCStatistics(
                self.dim if through is None else through.size,
                self.classes,
                normalise=through is None,
                bias=bias,
            )

        pooled = empty()
        for z, y in self.members():
            own = empty()
            own.update(z if through is None else through(z, normalise=True), y)
            pooled.merge(own)
        return pooled

    def members(self) -> Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        """Features and labels, member by member."""
        return tuple(zip(self.features, self.labels, strict=True))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A head and what it took.

    Attributes:
        kind: the calibration's name in `CALIBRATIONS`.
        head: answers features as `Held` has them.
        unit: whether it was fitted to features of length 1 and takes others scaled.
        upload_bytes: that a member would send for it at 48 bits a number; None where it is no sum.
        seconds: wall-clock time, statistics included.
        options: what it was asked for, and chose.
    """

    kind: str
    head: Head
    unit: bool
    upload_bytes: int | None
    seconds: float
    options: dict[str, float | int | str | bool]

    def predict(self, features: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """The classes of features, (n,)."""
        return self.head.predict(features, normalise=self.unit)


Solved = tuple[Head, bool, "Layout | None", dict[str, float | int | str | bool]]


def ffc(held: Held, *, ridge: _Ridge | None = None, bias: bool = False) -> Solved:
    """SphereFed's head (Dong et al. 2022, eq. 10 to 12), λ by generalised cross-validation where None."""
    statistics = held.ffc(bias=bias)
    solution = solve_ffc(statistics, ridge)
    return solution, True, statistics.layout, {"ridge": solution.ridge, "bias": bias}


def rff(held: Held, *, size: _Count = 1024, ridge: _Ridge | None = None) -> Solved:
    """Ridge on random features, their bandwidth from a first round's means (Fed3R-RF: Fanì et al. 2024)."""
    bandwidth = float(np.sqrt(mean_squared_distance(held.ffc())))
    context = held.seed.to_bytes(8, "little")
    features = RandomFeatures(held.dim, size, bandwidth, context)
    statistics = held.ffc(through=features)
    head = solve_random_features(statistics, features, [size], ridge)
    return head, True, statistics.layout, {"size": size, "bandwidth": bandwidth}


def lda(held: Held, *, shrinkage: _Share | None = None) -> Solved:
    """CCVR with one covariance for all classes, in closed form."""
    statistics = held.ffc()
    head = solve_lda(statistics, shrinkage=shrinkage)
    return head, True, statistics.layout, {"shrinkage": head.shrinkage}


def ncm(held: Held) -> Solved:
    """The nearest class mean."""
    statistics = held.ffc()
    return nearest_class_mean(statistics), True, statistics.layout, {}


def ccvr(
    held: Held,
    *,
    per_class: _Count = VIRTUAL,
    transform: Literal["tukey", "none"] = "tukey",
    solver: Literal["sgd", "exact"] = "sgd",
    lr: _Rate = 0.001,
    epochs: _Count = 10,
) -> Solved:
    """CCVR (Luo et al. 2021, Algorithm 1): virtual features of each class's Gaussian, and a head retrained on them.

    The paper retrains on what was drawn as it is: `transform="none"`.

    Args:
        held: the features.
        per_class: M_c.
        transform: a ReLU and square root as in Yang et al. 2021 (`calibration.virtual`), which set negative features to 0; or neither.
        solver: the paper's SGD from the head that training left, or the minimum of the same cross-entropy.
        lr: of that SGD.
        epochs: of that SGD.
    """
    bound = max(float(np.linalg.norm(z, axis=1).max()) for z in held.features)
    # The bound is a term of the round: rounding to float32 on the way must not make its own row too long.
    statistics = CCVRStatistics(held.dim, held.classes, norm_bound=max(bound * (1 + 1e-6), 1e-12))
    for z, y in held.members():
        own = CCVRStatistics(held.dim, held.classes, norm_bound=statistics.norm_bound)
        own.update(z, y)
        statistics.merge(own)
    rng = generator(held.seed, Stream.CALIBRATION)
    power = 0.5 if transform == "tukey" else None
    if solver == "exact":
        head = solve_ccvr(statistics, rng, per_class=per_class, power=power)
    else:
        features, labels = virtual_features(statistics, per_class, rng)
        seen = tukey(features, power)
        parameters = fit_logistic_sgd(
            seen, labels, held.classes, rng, start=held.head, rate=lr, epochs=epochs
        )
        empty = tuple(np.flatnonzero(statistics.counts == 0).tolist())
        head = TukeyHead(parameters[:-1], parameters[-1], empty, power)
    options: dict[str, float | int | str | bool] = {"per_class": per_class, "transform": transform}
    options |= {"solver": solver} if solver == "exact" else {"solver": solver, "lr": lr, "epochs": epochs}
    return head, False, statistics.layout, options


def all_data(held: Held, *, lr: _Rate = 0.001, epochs: _Count = 50) -> Solved:
    """The oracle that no federation has: the head retrained by SGD on everybody's features (Luo et al. 2021, §3.3)."""
    rng = generator(held.seed, Stream.CALIBRATION)
    features = np.concatenate(held.features).astype(np.float64)
    labels = np.concatenate(held.labels)
    parameters = fit_logistic_sgd(
        features, labels, held.classes, rng, start=held.head, rate=lr, epochs=epochs
    )
    empty = tuple(np.flatnonzero(np.bincount(labels, minlength=held.classes) == 0).tolist())
    head = TukeyHead(parameters[:-1], parameters[-1], empty, None)
    return head, False, None, {"lr": lr, "epochs": epochs}


CALIBRATIONS: dict[str, Callable[..., Solved]] = {
    "ffc": ffc,
    "rff": rff,
    "lda": lda,
    "ncm": ncm,
    "ccvr": ccvr,
    "all-data": all_data,
}


def recalibrated(held: Held) -> tuple[Tensor, int]:
    """FFC's solution as a head that training goes on with: its weight, (C, l) float32, and the bytes that a member sends for it."""
    statistics = held.ffc()
    return torch.from_numpy(solve_ffc(statistics).weights.T).float().contiguous(), _sent_bytes(
        statistics.layout
    )


def calibrate(kind: str, held: Held, **options: Any) -> Fitted:
    """Fit one of `CALIBRATIONS`.

    Raises:
        KeyError: there is none of this name.
        CalibrationError: the features don't allow it, as `calibration`'s solvers say.
    """
    started = time.perf_counter()
    head, unit, layout, chosen = CALIBRATIONS[kind](held, **options)
    upload = None if layout is None else _sent_bytes(layout)
    return Fitted(kind, head, unit, upload, time.perf_counter() - started, chosen)


def _sent_bytes(layout: Layout) -> int:
    return layout.elements * _RING_BITS // 8
