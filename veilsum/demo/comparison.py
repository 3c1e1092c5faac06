"""The masked head beside the one that the same records give in the clear."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from calibration import FFCStatistics, Solution, solve_ffc
from client_sdk import Result
from training import Classifier, Dataset, accuracy, per_class_accuracy, with_head
from veilsum.demo.consortium import Held
from veilsum.demo.errors import DemoError
from veilsum.demo.folder import Folder
from veilsum.demo.learning import Learned
from veilsum.features import read_features

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Heads(Generic[T]):
    """Something of each head: the trained one, FFC over masked sums, FFC on the survivors' pooled records."""

    before: T
    masked: T
    plain: T


@dataclass(frozen=True)
class Comparison:
    """What the round gave, verified, and how far it is from the same fit in the clear.

    Attributes:
        result: a surviving member's, verified from its disk against the admin's key.
        verified: the members whose results were verified and are the same.
        calibrated: the extractor under the masked head.
        test: the test records of the classes that were not withheld.
        accuracies: on those, in 0..1.
        per_class: the same on each class, (C,); NaN for one withheld.
        max_rel_diff: max|ΔW|/max|W| at the same λ, over the weights and, with one, the bias.
    """

    result: Result
    verified: tuple[str, ...]
    calibrated: Classifier
    test: Dataset
    accuracies: Heads[float]
    per_class: Heads[Floats]
    max_rel_diff: float


def compare(learned: Learned, held: Held, folder: Folder) -> Comparison:
    """Verify every living member's result from its disk, then fit the survivors' records in the clear.

    Raises:
        PeerFault: a result does not verify.
        DemoError: members hold different results, or the two fits chose different λ.
    """
    results = {member: Result.load(folder.member(member) / "result") for member in held.reports}
    for result in results.values():
        result.verify(held.admin_key)
    if len({result.record.signature for result in results.values()}) != 1:
        raise DemoError("members hold different results of one round")
    result = next(iter(results.values()))
    plain = fit_in_the_clear(result, folder)
    ridge = result.record.solution.ridge
    if plain.ridge != ridge:
        raise DemoError(f"the masked sums chose λ = {ridge:g}, the plain ones λ = {plain.ridge:g}")
    none = result.unanswered
    masked_head = with_head(learned.classifier, result.weights, result.bias, unanswered=none)
    plain_head = with_head(learned.classifier, plain.weights, plain.bias, unanswered=none)
    heads = (learned.classifier, masked_head, plain_head)
    test, withheld = learned.data.test, list(result.record.withheld)
    if withheld:
        test = test.subset(torch.from_numpy(np.flatnonzero(~np.isin(test.y.numpy(), withheld))))
    return Comparison(
        result=result,
        verified=tuple(results),
        calibrated=masked_head,
        test=test,
        accuracies=Heads(*(accuracy(head, test) for head in heads)),
        per_class=Heads(*(per_class_accuracy(head, test) for head in heads)),
        max_rel_diff=max_rel_diff((result.weights, result.bias), (plain.weights, plain.bias)),
    )


def fit_in_the_clear(result: Result, folder: Folder) -> Solution:
    """FFC on the survivors' pooled features, from the files that they gave, over the result's own grid of λ."""
    statistics: FFCStatistics | None = None
    for member in result.survivors:
        features, labels = read_features(folder.features(member))
        if statistics is None:
            dim, classes = result.weights.shape
            statistics = FFCStatistics(
                dim,
                classes,
                bias=result.bias is not None,
                withheld=result.record.withheld,
                track_records=False,
            )
        statistics.update(features, labels)
    assert statistics is not None
    return solve_ffc(statistics, result.record.solution.grid)


def max_rel_diff(ours: Sequence[Floats | None], reference: Sequence[Floats | None]) -> float:
    """max|a − b| / max|b| over arrays that stand for one; None for those that are not there."""
    a, b = (
        np.concatenate([part.ravel() for part in parts if part is not None]) for parts in (ours, reference)
    )
    return float(np.abs(a - b).max() / np.abs(b).max())
