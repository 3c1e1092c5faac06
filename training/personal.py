"""Personalised evaluation: members' own models on their own held-out records (Dong et al. 2022, appendix B)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from training.calibrating import Count, Rate, Ridge
from training.data.dataset import Dataset, shuffle_batches
from training.evaluate import accuracy, extract_features, with_head
from training.federated import Trained
from training.heads import Classifier, FixedHead
from training.local import MomentumSGD
from training.partition import Partition
from training.seeding import Stream, make_generator, torch_seeded
from veilsum.calibration import FFCStatistics, solve_ffc


@dataclass(frozen=True, eq=False)
class OwnRecords:
    """Each member's records, split into those that it trains on and those that it keeps back, at least one."""

    train: Partition
    test: Partition


def keep_back(partition: Partition, labels: np.ndarray[Any, Any], share: float, seed: int) -> OwnRecords:
    """Let every member keep back a random share of its records, at least one.

    `labels`, (n,) int64, are those of all records.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share that members keep back lies in (0, 1), not {share}")
    if partition.sizes.min() < 2:
        raise ValueError(
            "a member with one record has none to keep back; draw the partition with min_size >= 2"
        )
    kept, used = [], []
    for k, rows in enumerate(partition.members):
        order = make_generator(seed, Stream.KEPT_BACK, k).permutation(rows)
        cut = min(max(1, round(share * len(rows))), len(rows) - 1)
        kept.append(order[:cut])
        used.append(order[cut:])
    return OwnRecords(Partition.of(used, labels), Partition.of(kept, labels))


def personal_accuracies(
    trained: Trained, data: Dataset, records: OwnRecords, method: str, **options: Any
) -> tuple[float, ...]:
    """Return each member's accuracy on the records it kept back, under its own classifier.

    Each of `PERSONAL_METHODS` starts from the global model of a run on `records.train`, with the layers that the member keeps (LG-FedAvg,
    FedPer, FedRep). `data` are the records that both parts index.

    Raises:
        CalibrationError: if a member's head can't be fitted.
        FloatingPointError: if a member's training diverges.
    """
    make = PERSONAL_METHODS[method]
    result = []
    for k, (rows, held_out) in enumerate(zip(records.train.members, records.test.members, strict=True)):
        own = data.subset(torch.from_numpy(rows))
        classifier = make(trained, k, own, **options)
        result.append(accuracy(classifier, data.subset(torch.from_numpy(held_out))))
    return tuple(result)


def as_trained(trained: Trained, member: int, own: Dataset) -> Classifier:
    """Return the global model with the layers that the member keeps, if any (LG-FedAvg, FedPer, FedRep)."""
    return _of_member(trained, member).eval()


def local_ffc(trained: Trained, member: int, own: Dataset, *, ridge: Ridge | None = None) -> Classifier:
    """Fit FFC's head to the member's own records ("Ours (FFC)")."""
    found = as_trained(trained, member, own)
    classifier = Classifier(found.extractor, found.head, normalise=True)
    statistics = FFCStatistics(classifier.extractor.dim, own.classes, normalise=True)
    statistics.update(extract_features(classifier, own.x), own.y)
    solution = solve_ffc(statistics, ridge)
    return with_head(classifier, solution.weights, unanswered=solution.empty_classes)


def local_sgd(
    trained: Trained, member: int, own: Dataset, *, epochs: Count = 5, lr: Rate = 0.1
) -> Classifier:
    """Train the head further by SGD on the member's records ("Ours (SGD)")."""
    classifier = _of_member(trained, member)
    classifier.extractor.requires_grad_(requires_grad=False)
    return _tune_classifier(trained, classifier, member, own, epochs, lr)


def fine_tuned(
    trained: Trained, member: int, own: Dataset, *, epochs: Count = 5, lr: Rate = 0.01
) -> Classifier:
    """Train the whole model further by SGD on the member's records: FedBABU (Oh et al. 2022)."""
    return _tune_classifier(trained, _of_member(trained, member), member, own, epochs, lr)


PERSONAL_METHODS: dict[str, Callable[..., Classifier]] = {
    "as-trained": as_trained,
    "ffc": local_ffc,
    "sgd": local_sgd,
    "fine-tuned": fine_tuned,
}


def _of_member(trained: Trained, member: int) -> Classifier:
    """Copy the global model with the layers that the member keeps; its head can be trained even if it was fixed."""
    recipe = trained.recipe
    classifier = recipe.build(trained.classifier.head.out_features).to(trained.classifier.head.weight.device)
    classifier.load_state_dict(trained.classifier.state_dict())
    for term, kept in zip(recipe.algorithm.terms, trained.memory[member], strict=True):
        # Other terms keep tensors under the same names that are not weights.
        own = {name: tensor for name, tensor in kept.items() if term.keeps(name)}
        classifier.load_state_dict(own, strict=False)
    if isinstance(classifier.head, FixedHead):
        classifier.head.requires_grad_(requires_grad=True)
    return classifier


def _tune_classifier(
    trained: Trained, classifier: Classifier, member: int, own: Dataset, epochs: int, lr: float
) -> Classifier:
    recipe = trained.recipe
    tuned = [p for p in classifier.parameters() if p.requires_grad]
    velocities = {p: torch.zeros_like(p, requires_grad=False) for p in tuned if recipe.momentum}
    descent = MomentumSGD({recipe.weight_decay: tuned}, lr, recipe.momentum, velocities)
    place = classifier.head.weight.device
    inputs, labels = own.x.to(place), own.y.to(place)
    model: nn.Module = classifier.train()
    if not any(p.requires_grad for p in classifier.extractor.parameters()):
        # A fixed extractor keeps its running statistics, so each record's features are computed once.
        inputs, model = extract_features(classifier, inputs), classifier.head
    with torch_seeded(recipe.seed, Stream.TUNING, member):
        for _ in range(epochs):
            for indices in shuffle_batches(len(own), recipe.batch_size, place):
                loss = recipe.loss(model(inputs[indices]), labels[indices])
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
                descent.step()
    if not all(bool(p.isfinite().all()) for p in tuned):
        raise FloatingPointError(f"a weight is not a finite number at a learning rate of {lr:g}: lower it")
    return classifier.eval()
