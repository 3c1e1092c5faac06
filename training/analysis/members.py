"""All of the analyses at once, as they go into a result file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from training.algorithms import Round
from training.analysis.cka import cka_by_layer, layer_outputs
from training.analysis.embedding import embed
from training.analysis.heads import direction_consistency, head_norms, norm_difference, singular_values
from training.analysis.separability import separability
from training.data import stratified
from training.evaluate import extract_features
from training.hardware import CPU, Hardware
from training.local import Task
from training.results import Analyses, Matrix
from training.workers import local_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt
    from torch import Tensor

    from training.algorithms import State
    from training.data import Dataset
    from training.federated import Trained
    from training.heads import Classifier
    from training.partition import Partition

_RECORDS, _EMBEDDED = 512, 1000
_COMPARED = 10  # CCVR's number of members: each keeps (512, 512) numbers a layer


def member_models(
    trained: Trained, data: Dataset, partition: Partition, *, workers: int = 1, hardware: Hardware = CPU
) -> Iterator[Classifier]:
    """Each member's model after one more local training from the global one, in the members' order, in one module.

    It has the recipe's learning rate before any schedule, and the algorithm's terms as they are before a server's first message: what
    FedAvg, FedProx, MOON or FedUV would do next, and SCAFFOLD or FedDyn without their corrections.

    Args:
        trained: from `train`.
        data: the training records.
        partition: who holds which of them.
        workers: processes that train members.
        hardware: where they do.
    """
    recipe, classifier = trained.recipe, trained.classifier
    model = recipe.build(data.classes)
    round_ = Round(recipe.rounds, recipe.lr, len(partition), records=int(partition.sizes.sum()))
    weights = {name: tensor.clone() for name, tensor in classifier.shared_weights().items()}
    if recipe.calibrate_every is not None:  # the head in use is then not the one that every member builds
        weights["head.weight"] = classifier.head.weight.detach().clone()
    broadcasts = tuple(term.start(classifier) for term in recipe.algorithm.terms)
    nothing: tuple[State, ...] = tuple({} for _ in recipe.algorithm.terms)
    model.load_state_dict(classifier.state_dict())
    tasks = [Task(member, round_, weights, broadcasts, nothing) for member in range(len(partition))]
    with local_training(recipe, data, partition, workers, hardware) as train_locally:
        for update in train_locally(tasks):
            model.load_state_dict(update.weights, strict=False)
            yield model.eval()


def analyse(
    trained: Classifier,
    members: Iterable[Classifier],
    test: Dataset,
    *,
    predicted: Mapping[str, npt.NDArray[np.integer]] | None = None,
    seed: int = 0,
) -> Analyses:
    """What the pictures of one run show.

    Args:
        trained: the global classifier.
        members: each member's after its local training in one round, one after another; they may share a module. The
            first ten are compared by CKA.
        test: records to compare on: 512 of them for CKA, 1,000 for t-SNE, with all classes' shares.
        predicted: by name, predictions of heads for the test records, (n,), to colour the embedding by.
        seed: of t-SNE, the directions of the sliced distance, and which records are taken.
    """
    x = test.x[_some(test, _RECORDS, seed)]
    heads: list[npt.NDArray[np.float64]] = []

    def outputs() -> Iterator[Mapping[str, npt.NDArray[np.float64]]]:
        for k, member in enumerate(members):
            heads.append(member.head.weight.detach().double().numpy().copy())
            if k < _COMPARED:
                yield layer_outputs(member, x)

    similarity = cka_by_layer(outputs())
    shown = _some(test, _EMBEDDED, seed)
    z, labels = extract_features(trained, test.x[shown]).double().numpy(), test.y[shown].numpy()
    # Methods normalise features or don't: on one scale their distances compare.
    scaled = z / np.sqrt(np.square(z).sum(axis=1).mean())
    weights = np.stack(heads) if heads else np.empty((0, 0, 0))
    return Analyses(
        cka={name: _rows(matrix) for name, matrix in similarity.items()},
        head_norms=_rows(head_norms(weights)) if heads else (),
        consistency={"direction": direction_consistency(weights), "norm difference": norm_difference(weights)}
        if len(heads) > 1
        else {},
        singular_values=tuple(singular_values(trained.head.weight.detach().double().numpy()).tolist()),
        separability=separability(scaled, labels, np.random.default_rng(seed)),
        embedding=_rows(embed(z, seed=seed)),
        labels=tuple(labels.tolist()),
        predicted={name: tuple(values[shown.numpy()].tolist()) for name, values in (predicted or {}).items()},
    )


def _some(data: Dataset, records: int, seed: int) -> Tensor:
    """Which ones: publishers' test records may lie sorted by class."""
    return stratified(data.y, min(records, len(data)), torch.Generator().manual_seed(seed))


def _rows(matrix: npt.NDArray[np.float64]) -> Matrix:
    return tuple(map(tuple, matrix.tolist()))
