"""The head from masked sums beside the one that the same records give in the clear."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch

from client_sdk import Result
from training.data.dataset import Dataset
from training.evaluate import accuracy, extract_features, per_class_accuracy, with_head
from training.heads import Classifier
from veilsum.calibration import FFCStatistics, Solution, solve_ffc
from veilsum.calibration.rows import Floats
from veilsum.cli.demo.consortium import DemoRun
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.learning import Learned
from veilsum.cli.demo.processes import DemoError
from veilsum.cli.features import Part, read_table

T = TypeVar("T")


@dataclass(frozen=True)
class Heads(Generic[T]):
    """Something of each head.

    Attributes:
        before: SphereFed's fixed one, with which its extractor was trained.
        masked: FFC's for that extractor, over masked sums.
        plain: FFC's for that extractor, on the survivors' pooled records in the clear.
        fedavg: the one that FedAvg learned together with its own extractor.
        fedavg_plain: FFC's for FedAvg's extractor, on the survivors' pooled records in the clear.
    """

    before: T
    masked: T
    plain: T
    fedavg: T
    fedavg_plain: T


@dataclass(frozen=True)
class Comparison:
    """What the round gave, verified, and how far it is from the same fit in the clear.

    Attributes:
        result: a surviving member's, verified from its disk against the admin's key.
        verified: the members with verified and equal results.
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


def compare_heads(learned: Learned, held: DemoRun, fedavg: Classifier, folder: Folder) -> Comparison:
    """Verify every living member's result from its disk, then fit the survivors' records in the clear."""
    results = {member: held.rehearsals.federation.member_result(member) for member in held.living}
    if len({result.record.signature for result in results.values()}) != 1:
        raise DemoError("members hold different results of one run")
    result = next(iter(results.values()))
    plain = fit_in_the_clear(result, (_read_part(folder.features_file(m)) for m in result.survivors))
    ridge = result.record.solution.ridge
    if plain.ridge != ridge:
        raise DemoError(f"the masked sums chose λ = {ridge:g}, the plain ones λ = {plain.ridge:g}")
    none = result.unanswered
    masked_head = with_head(learned.classifier, result.weights, result.bias, unanswered=none)
    plain_head = with_head(learned.classifier, plain.weights, plain.bias, unanswered=none)
    fedavg_plain = calibrate_fedavg(result, fedavg, learned)
    heads = (learned.classifier, masked_head, plain_head, fedavg, fedavg_plain)
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


def _read_part(path: Path) -> Part:
    table = read_table(path)
    records = table.take_rows(~table.is_canary)
    return records.features, records.labels


def fit_in_the_clear(result: Result, survivors: Iterable[Part]) -> Solution:
    """FFC on the survivors' pooled features and labels, over the result's own grid of λ."""
    dim, classes = result.weights.shape
    statistics = FFCStatistics(dim, classes, constant=result.bias is not None, normalise=True)
    for features, labels in survivors:
        kept = ~np.isin(labels, result.record.withheld)
        statistics.update(features[kept], labels[kept])
    return solve_ffc(statistics, result.record.solution.grid)


def calibrate_fedavg(result: Result, fedavg: Classifier, learned: Learned) -> Classifier:
    """Put FFC's head, fitted in the clear to the records in the result's sum, on FedAvg's extractor."""
    unit = Classifier(fedavg.extractor, fedavg.head, normalise=True)  # as FFC sees features
    data = learned.data.train
    features, labels = extract_features(unit, data.x).numpy(), data.y.numpy()
    held = dict(zip(learned.members, learned.partition.members, strict=True))
    survivors = (held[member] for member in result.survivors)
    fitted = fit_in_the_clear(result, ((features[rows], labels[rows]) for rows in survivors))
    return with_head(unit, fitted.weights, fitted.bias, unanswered=result.unanswered)


def max_rel_diff(ours: Sequence[Floats | None], reference: Sequence[Floats | None]) -> float:
    """max|a − b| / max|b| over arrays that stand for one; None for those that are not there."""
    a, b = (
        np.concatenate([part.ravel() for part in parts if part is not None]) for parts in (ours, reference)
    )
    return float(np.abs(a - b).max() / np.abs(b).max())
