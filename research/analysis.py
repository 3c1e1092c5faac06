"""What a run's models and heads look like: similarity of layers, heads' norms and directions, separability, sweeps."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from research.results import Analyses, Matrix, Sweep
from training.algorithms.base import TrainingRound
from training.calibrating import fit_calibration
from training.data.dataset import draw_stratified
from training.evaluate import extract_features
from training.hardware import CPU_HARDWARE, Hardware
from training.local import Task
from training.workers import local_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    from torch import Tensor

    from training.heads import Classifier

    Floats = npt.NDArray[np.float64]
    from collections.abc import Iterator, Sequence

    from training.algorithms.base import State
    from training.calibrating import MemberFeatures
    from training.data.dataset import Dataset
    from training.federated import Trained
    from training.partition import Partition


HEAD = "head"


def linear_cka(x: Floats, y: Floats) -> float:
    """‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖) of centred X, (n, p), and Y, (n, q), in 0..1 (Kornblith et al. 2019, eq. 3 with linear kernels).

    Rotations and common scales do not change it. Constant outputs give NaN.

    Raises:
        ValueError: if the records differ in number.
    """
    if len(x) != len(y):
        raise ValueError(f"CKA compares outputs of the same records: there are {len(x)} and {len(y)}")
    a, b = _gram(x), _gram(y)
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / scale if scale > 0 else float("nan")


def layer_outputs(classifier: Classifier, x: Tensor) -> dict[str, Floats]:
    """Return each layer's outputs for x, flattened to (n, ·): the children of `extractor.layers` with weights, then the head.

    Layers are called "layer 1", "layer 2", … as in CCVR's Table 6 for the MOON CNN, and the head "head".
    """
    layers = classifier.extractor.layers
    children = list(layers) if isinstance(layers, nn.Sequential) else [layers]
    weighted = [child for child in children if any(True for _ in child.parameters())]
    named = {f"layer {i}": child for i, child in enumerate(weighted, 1)} | {HEAD: classifier.head}
    kept: dict[str, Floats] = {}

    def keep(name: str) -> object:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            kept[name] = output.detach().flatten(1).double().numpy()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in named.items()]  # type: ignore[arg-type]  # as above
    try:
        with torch.no_grad():
            classifier.eval()(x)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def cka_by_layer(outputs: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Return the similarity of every two members' outputs, by layer, (K, K), from `layer_outputs` of each on the same records.

    Outputs are consumed one member at a time; only their (n, n) products are kept.
    """
    grams: dict[str, list[Floats]] = {}
    for each in outputs:
        for name, values in each.items():
            grams.setdefault(name, []).append(_gram(values))
    result = {}
    for name, own in grams.items():
        norms = np.array([np.linalg.norm(gram) for gram in own])
        products = np.array([[np.vdot(a, b) for b in own] for a in own])
        with np.errstate(invalid="ignore", divide="ignore"):
            result[name] = products / np.outer(norms, norms)
    return result


def _gram(x: Floats) -> Floats:
    # (n, n), centred: memory depends on the records alone, whatever the layer's width.
    centred = x - x.mean(axis=0)
    gram: Floats = centred @ centred.T
    return gram


def head_norms(weights: Floats) -> Floats:
    """‖w_c‖ of each class at each member, (K, C), from heads (K, C, l) (Luo et al. 2021, Fig. 3)."""
    norms: Floats = np.linalg.norm(weights, axis=2)
    return norms


def direction_consistency(weights: Floats) -> float:
    """The mean cosine of one class's vectors at two different members (Dong et al. 2022, eq. 2), from heads (K, C, l).

    Raises:
        ValueError: if there is only one member.
    """
    unit = weights / np.linalg.norm(weights, axis=2, keepdims=True)
    cosines = np.einsum("kcl,mcl->ckm", unit, unit)
    return float(cosines[:, _pairs(len(weights))].mean())


def norm_difference(weights: Floats) -> float:
    """The mean | ‖w_c^k‖ − ‖w_c^m‖ | over classes and two different members (Dong et al. 2022, eq. 3), from heads (K, C, l).

    Raises:
        ValueError: if there is only one member.
    """
    norms = head_norms(weights)
    differences = np.abs(norms[:, None] - norms[None, :])
    return float(differences[_pairs(len(weights))].mean())


def singular_values(weights: Floats) -> Floats:
    """Return a head's singular values, descending; W is (C, l). With uneven data the smaller ones vanish (Son et al. 2024, Fig. 1)."""
    values: Floats = np.linalg.svd(weights.astype(np.float64), compute_uv=False).astype(np.float64)
    return values


def _pairs(members: int) -> npt.NDArray[np.bool_]:
    if members < 2:
        raise ValueError("consistency is between members: it takes two or more")
    return ~np.eye(members, dtype=bool)


def sliced_wasserstein(x: Floats, y: Floats, directions: Floats) -> float:
    """The root mean square, over directions, of the 1-D 2-Wasserstein distances of the projected samples.

    Args:
        x: (n, l).
        y: (m, l).
        directions: unit vectors (P, l).
    """
    a, b = np.sort(x @ directions.T, axis=0), np.sort(y @ directions.T, axis=0)
    # Both quantile functions are steps; between two neighbouring levels of either, both are constant.
    levels = np.unique(np.concatenate([np.arange(len(a) + 1) / len(a), np.arange(len(b) + 1) / len(b)]))
    middle, width = (levels[1:] + levels[:-1]) / 2, np.diff(levels)
    apart = a[(middle * len(a)).astype(int)] - b[(middle * len(b)).astype(int)]
    return float(np.sqrt((width[:, None] * apart**2).sum(axis=0).mean()))


def separability(
    z: Floats, labels: npt.NDArray[np.int64], rng: np.random.Generator, *, directions: int = 64
) -> float:
    """The mean sliced Wasserstein distance over pairs of classes.

    Args:
        z: features (n, l), or draws from each class's Gaussian as in CCVR.
        labels: (n,).
        rng: draws the directions.
        directions: how many.

    Raises:
        ValueError: if there is only one class.
    """
    classes = [z[labels == label] for label in np.unique(labels)]
    if len(classes) < 2:
        raise ValueError("separability is between classes: it takes two or more")
    drawn = rng.standard_normal((directions, z.shape[1]))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return float(np.mean([sliced_wasserstein(x, y, drawn) for x, y in combinations(classes, 2)]))


def embed(z: npt.NDArray[np.floating], *, seed: int = 0, perplexity: float = 30.0) -> npt.NDArray[np.float64]:
    """Embed features (n, l) in the plane, (n, 2), by t-SNE from a PCA start (van der Maaten and Hinton 2008).

    Neighbourhoods are meaningful; distances between clusters and their sizes are not.

    Raises:
        ValueError: if there are fewer than three records.
    """
    from sklearn.manifold import TSNE  # noqa: PLC0415 - reports alone need scikit-learn

    if len(z) < 3:
        raise ValueError(f"an embedding takes three records or more, not {len(z)}")
    model = TSNE(init="pca", random_state=seed, perplexity=min(perplexity, (len(z) - 1) / 3))
    return np.asarray(model.fit_transform(np.asarray(z, dtype=np.float64)), dtype=np.float64)


def sweep(
    kind: str,
    held: MemberFeatures,
    z: npt.NDArray[np.floating],
    labels: npt.NDArray[np.int64],
    parameter: str,
    values: Sequence[float],
    **options: Any,
) -> Sweep:
    """Measure a calibration's accuracy over one option: FFC's λ (Dong et al. 2022, §C.1), or M_c (Luo et al. 2021, Fig. 7).

    Args:
        kind: one of `CALIBRATIONS`.
        held: members' features.
        z: test features as the head sees them, (n, l).
        labels: of the test records, (n,).
        parameter: the option to vary, such as "ridge" or "per_class".
        values: of that option.
        options: the other options.
    """
    fitted = (fit_calibration(kind, held, **options | {parameter: value}) for value in values)
    return Sweep(
        kind=kind,
        parameter=parameter,
        values=tuple(values),
        accuracies=tuple(float((each.predict(z) == labels).mean()) for each in fitted),
    )


_RECORDS, _EMBEDDED = 512, 1000
_COMPARED = 10  # CCVR's number of members: each keeps (512, 512) numbers a layer


def member_models(
    trained: Trained,
    data: Dataset,
    partition: Partition,
    *,
    workers: int = 1,
    hardware: Hardware = CPU_HARDWARE,
) -> Iterator[Classifier]:
    """Train every member once more from the global model, and yield its model, in the members' order, in one module.

    The learning rate is the initial one, and terms are as before a server's first message: FedAvg, FedProx or FedUV as in the
    next round, MOON, SCAFFOLD or FedDyn without what members keep.

    Args:
        trained: from `train`.
        data: the training records.
        partition: who holds which of them.
        workers: processes that train members.
        hardware: where they do.
    """
    recipe, classifier = trained.recipe, trained.classifier
    model = recipe.build(data.classes)
    round_ = TrainingRound(recipe.rounds, recipe.lr, len(partition), records=int(partition.sizes.sum()))
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
    """Compute all analyses of a run.

    Args:
        trained: the global classifier.
        members: each member's model after local training; they may share a module. The first ten are compared by CKA.
        test: records to compare on, of which 512 are drawn for CKA and 1,000 for t-SNE.
        predicted: predictions for the test records, (n,), by head.
        seed: of t-SNE, the directions and the drawn records.
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
    """Draw records: publishers may sort test records by class."""
    return draw_stratified(data.y, min(records, len(data)), torch.Generator().manual_seed(seed))


def _rows(matrix: npt.NDArray[np.float64]) -> Matrix:
    return tuple(map(tuple, matrix.tolist()))
