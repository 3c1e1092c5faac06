"""Heads fitted after training to the features of all members, by any run.

All except the oracle are computed from sums over members (`veilsum.calibration`), here in the clear.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from training.data.dataset import Dataset
from training.evaluate import extract_features
from training.heads import Classifier, compute_linear_map
from training.partition import Partition
from training.seeding import Stream, make_generator
from veilsum.calibration import (
    CCVRStatistics,
    FFCStatistics,
    Head,
    RandomFeatures,
    nearest_class_mean,
    solve_ccvr,
    solve_ffc,
    solve_lda,
    solve_random_features,
)
from veilsum.calibration.ccvr_head import TukeyHead, fit_logistic_sgd, tukey_transform, virtual_features
from veilsum.calibration.head import find_empty_classes
from veilsum.calibration.layout import Layout
from veilsum.calibration.random_features import mean_squared_distance

VIRTUAL_PER_CLASS = (
    2000  # features of each class: CCVR's for CIFAR-10 at α = 0.1 and 0.05 (Luo et al. 2021, Table 8)
)
_RING_BITS = 48
# Option types, which `experiments.choices.check_options` checks before training.
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ridge = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, eq=False)
class MemberFeatures:
    """All members' features under a frozen extractor.

    Attributes:
        features: per member, (n_k, l) float32 as the head saw them in training.
        labels: per member, (n_k,) int64.
        classes: C.
        head: the trained weights, (l + 1, C) float64, the bias in the last row.
        seed: of a calibration's draws.
    """

    features: tuple[npt.NDArray[np.float32], ...]
    labels: tuple[npt.NDArray[np.int64], ...]
    classes: int
    head: npt.NDArray[np.float64]
    seed: int = 0

    @classmethod
    def compute_features(
        cls, classifier: Classifier, data: Dataset, partition: Partition, *, seed: int = 0
    ) -> Self:
        """Compute every member's features."""
        z, y = extract_features(classifier, data.x).cpu().numpy(), data.y.cpu().numpy()
        weights, bias = compute_linear_map(classifier.head)
        return cls(
            tuple(z[rows] for rows in partition.members),
            tuple(y[rows] for rows in partition.members),
            data.classes,
            torch.cat([weights.T, bias[None]]).double().cpu().numpy(),
            seed,
        )

    @property
    def dim(self) -> int:
        """The number of features l."""
        return len(self.head) - 1

    def sum_ffc(self, *, constant: bool = False, through: RandomFeatures | None = None) -> FFCStatistics:
        """Sum V, U and counts over members, with a constant last feature (`constant`) or of random features (`through`)."""

        def empty() -> FFCStatistics:
            dim = self.dim if through is None else through.size
            return FFCStatistics(dim, self.classes, normalise=through is None, constant=constant)

        pooled = empty()
        for z, y in self.records_of_members():
            own = empty()
            own.update(z if through is None else through(z, normalise=True), y)
            pooled.merge(own)
        return pooled

    def records_of_members(self) -> Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
        return tuple(zip(self.features, self.labels, strict=True))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted head and its cost.

    Attributes:
        head: predicts from features as `MemberFeatures` has them.
        unit: whether it was fitted to features of length 1 and scales others.
        upload_bytes: bytes that a member would send for it at 48 bits per number; None if it is not computed from a sum.
        seconds: wall-clock time, statistics included.
        options: the given and the chosen options.
    """

    kind: str
    head: Head
    unit: bool
    upload_bytes: int | None
    seconds: float
    options: dict[str, float | int | str | bool]

    def predict(self, features: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        return self.head.predict(features, normalise=self.unit)


Solved = tuple[Head, bool, Layout | None, dict[str, float | int | str | bool]]


def fit_ffc(held: MemberFeatures, *, ridge: Ridge | None = None, constant: bool = False) -> Solved:
    """Fit SphereFed's head (Dong et al. 2022, eq. 10 to 12); without `ridge` λ is chosen by generalised cross-validation."""
    statistics = held.sum_ffc(constant=constant)
    solution = solve_ffc(statistics, ridge)
    return solution, True, statistics.layout, {"ridge": solution.ridge, "constant": constant}


def fit_rff(held: MemberFeatures, *, size: Count = 1024, ridge: Ridge | None = None) -> Solved:
    """Fit ridge regression on random features, with their bandwidth from a first round's means (Fed3R-RF: Fanì et al. 2024)."""
    bandwidth = float(np.sqrt(mean_squared_distance(held.sum_ffc())))
    context = held.seed.to_bytes(8, "little")
    features = RandomFeatures(held.dim, size, bandwidth, context)
    statistics = held.sum_ffc(through=features)
    head = solve_random_features(statistics, features, [size], ridge)
    return head, True, statistics.layout, {"size": size, "bandwidth": bandwidth}


def fit_lda(held: MemberFeatures, *, shrinkage: _Share | None = None) -> Solved:
    """Fit LDA: CCVR with one covariance for all classes, in closed form."""
    statistics = held.sum_ffc()
    head = solve_lda(statistics, shrinkage=shrinkage)
    return head, True, statistics.layout, {"shrinkage": head.shrinkage}


def fit_ncm(held: MemberFeatures) -> Solved:
    """Fit the nearest class mean."""
    statistics = held.sum_ffc()
    return nearest_class_mean(statistics), True, statistics.layout, {}


def fit_ccvr(
    held: MemberFeatures,
    *,
    per_class: Count = VIRTUAL_PER_CLASS,
    transform: Literal["tukey", "none"] = "tukey",
    solver: Literal["sgd", "exact"] = "sgd",
    lr: Rate = 0.001,
    epochs: Count = 10,
) -> Solved:
    """Retrain the head on virtual features of each class's Gaussian: CCVR (Luo et al. 2021, Algorithm 1).

    `per_class` is M_c. The transform "tukey" applies a ReLU and a square root, as the paper's §5.1 does (`veilsum.calibration.ccvr_head`);
    it loses negative features. "none" leaves both out, as Algorithm 1. The solver is the paper's SGD from the trained head, or the exact minimum of the
    same cross-entropy.
    """
    bound = max(float(np.linalg.norm(z, axis=1).max()) for z in held.features)
    # Rounding to float32 must not make the longest row exceed the bound.
    statistics = CCVRStatistics(held.dim, held.classes, norm_bound=max(bound * (1 + 1e-6), 1e-12))
    for z, y in held.records_of_members():
        own = CCVRStatistics(held.dim, held.classes, norm_bound=statistics.norm_bound)
        own.update(z, y)
        statistics.merge(own)
    rng = make_generator(held.seed, Stream.CALIBRATION)
    power = 0.5 if transform == "tukey" else None
    if solver == "exact":
        head = solve_ccvr(statistics, rng, per_class=per_class, power=power)
    else:
        features, labels = virtual_features(statistics, per_class, rng)
        seen = tukey_transform(features, power)
        parameters = fit_logistic_sgd(
            seen, labels, held.classes, rng, start=held.head, rate=lr, epochs=epochs
        )
        empty = find_empty_classes(statistics.counts)
        head = TukeyHead(parameters[:-1], parameters[-1], empty, power)
    options: dict[str, float | int | str | bool] = {"per_class": per_class, "transform": transform}
    options |= {"solver": solver} if solver == "exact" else {"solver": solver, "lr": lr, "epochs": epochs}
    return head, False, statistics.layout, options


def all_data(held: MemberFeatures, *, lr: Rate = 0.001, epochs: Count = 50) -> Solved:
    """Retrain the head by SGD on all members' features: an oracle that no federation has (Luo et al. 2021, §3.3)."""
    rng = make_generator(held.seed, Stream.CALIBRATION)
    features = np.concatenate(held.features).astype(np.float64)
    labels = np.concatenate(held.labels)
    parameters = fit_logistic_sgd(
        features, labels, held.classes, rng, start=held.head, rate=lr, epochs=epochs
    )
    empty = find_empty_classes(np.bincount(labels, minlength=held.classes))
    head = TukeyHead(parameters[:-1], parameters[-1], empty, None)
    return head, False, None, {"lr": lr, "epochs": epochs}


CALIBRATIONS: dict[str, Callable[..., Solved]] = {
    "ffc": fit_ffc,
    "rff": fit_rff,
    "lda": fit_lda,
    "ncm": fit_ncm,
    "ccvr": fit_ccvr,
    "all-data": all_data,
}


def solve_fixed_head(held: MemberFeatures) -> tuple[Tensor, int]:
    """Solve FFC for a head that training continues with: its weight, (C, l) float32, and the bytes that a member sends for it."""
    statistics = held.sum_ffc()
    weights = solve_ffc(statistics).weights
    return torch.from_numpy(weights.T).float().contiguous(), _sent_bytes(statistics.layout)


def fit_calibration(kind: str, held: MemberFeatures, **options: Any) -> Fitted:
    """Fit one of `CALIBRATIONS`. Raises KeyError if the name is unknown, and what the solver raises."""
    started = time.perf_counter()
    head, unit, layout, chosen = CALIBRATIONS[kind](held, **options)
    upload = None if layout is None else _sent_bytes(layout)
    return Fitted(kind, head, unit, upload, time.perf_counter() - started, chosen)


def _sent_bytes(layout: Layout) -> int:
    return layout.elements * _RING_BITS // 8
