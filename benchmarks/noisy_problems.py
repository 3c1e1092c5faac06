"""Problems on which recipes of noise are chosen and judged: features of pictures, sounds and tables, with even and uneven classes.

Recipes are tuned on Fashion-MNIST, CIFAR-10, digits and synthetic tables, and judged on MNIST, PACS, spoken digits, other classes of
TinyImageNet and other tables, through another network and other extractors. No record and no network of the tuning problems is in the held-out ones.
Making all problems takes minutes, so they are kept in a file.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits, make_classification
from torch import nn
from torch.nn import functional

from benchmarks.pictures import fit_network, load_pictures, make_block, to_tensor
from benchmarks.private_heads import unit
from benchmarks.sparse_features import apply_network, colour, orient_gradients

Array = npt.NDArray[Any]
Records = tuple[Array, Array, Array, Array]
"""Rows and labels to fit, and rows and labels to test."""

BALANCED, TENTH, HUNDREDTH, TAIL = "balanced", "1:10", "1:100", "long tail"
NETWORK_CLASSES = 50
"""Networks are trained on the later half of TinyImageNet's 100 classes, so that the earlier half is new to them."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Labelled rows of length 1, to fit and to test.

    Attributes:
        name: data set and extractor.
        kind: how even the classes are.
        held_out: whether it took no part in tuning.
    """

    name: str
    kind: str
    held_out: bool
    train: Array
    labels: Array
    test: Array
    test_labels: Array

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def majority(self) -> float:
        """The accuracy, in %, of always answering the class that is most frequent among the test records."""
        return 100 * float(np.bincount(self.test_labels).max() / len(self.test_labels))


def load_problems(data: Path, kept: Path) -> list[Problem]:
    """Return all problems, from the file `kept` if it exists; else make them from the data sets' folder and write it."""
    if not kept.exists():
        torch.set_num_threads(1)
        made = [*_make_tuning(data), *_make_held_out(data)]
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(made))
    found: list[Problem] = pickle.loads(kept.read_bytes())
    return found


def _make_tuning(data: Path) -> Iterator[Problem]:
    put = partial(_problem, held_out=False)
    net = _train_network(128, nn.ReLU(), data, 9_000, draw=0, seed=0)
    rows, labels, tested, truth = _grey(data, "fashion_mnist")
    x, y = _draw(rows, labels, 6_000, 1)
    test, own = _draw(tested, truth, 4_000, 1)
    hog = (_hog(x), y, _hog(test), own)
    trained = (_apply_network(net, x), y, _apply_network(net, test), own)
    yield put("Fashion-MNIST, HOG", BALANCED, hog)
    yield put("Fashion-MNIST, random", BALANCED, (_rectified(x, 128, 3), y, _rectified(test, 128, 3), own))
    few, seen = _principal(x[:3_000], test, 64)
    yield put("Fashion-MNIST, pixels", BALANCED, (few, y[:3_000], seen, own))
    packed = data / "cifar10_jpegpack.npz"
    cifar = _through(
        partial(_apply_network, net),
        _draw(*load_pictures(packed, "train"), 8_000, 2),
        _draw(*load_pictures(packed, "test"), 4_000, 2),
    )
    yield put("CIFAR-10, network", BALANCED, cifar)
    yield put("Fashion-MNIST, network", BALANCED, trained)
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    pixels, shown = digits.data[order], digits.target[order]
    yield put("digits", BALANCED, (pixels[400:], shown[400:], pixels[:400], shown[:400]))
    yield put("table of 24, 3 classes", BALANCED, _table(5_000, 24, 3, 8, 11))
    yield put("Fashion-MNIST, HOG", TENTH, _make_rare(hog, 6, 1 / 11, 0))
    yield put("CIFAR-10, network", TENTH, _make_rare(cifar, 8, 1 / 11, 0))
    yield put("table of 30", TENTH, _table(6_000, 30, 2, 8, 12, weights=[10 / 11]))
    more = _draw(rows, labels, 12_000, 4)
    yield put("Fashion-MNIST, HOG", HUNDREDTH, _make_rare((_hog(more[0]), more[1], *hog[2:]), 5, 1 / 101, 0))
    whole = (_apply_network(net, more[0]), more[1], *trained[2:])
    yield put("Fashion-MNIST, network", HUNDREDTH, _make_rare(whole, 1, 1 / 101, 0))
    yield put("table of 20", HUNDREDTH, _table(9_000, 20, 2, 6, 13, weights=[100 / 101], flip_y=0.005))


def _make_held_out(data: Path) -> Iterator[Problem]:
    put = partial(_problem, held_out=True)
    net = _train_network(192, nn.GELU(), data, 14_000, draw=7, seed=5)
    rows, labels, tested, truth = _grey(data, "mnist")
    x, y = _draw(rows, labels, 8_000, 5)
    test, own = _draw(tested, truth, 4_000, 5)
    hog = (_hog(x), y, _hog(test), own)
    conv = _through(partial(_convolve, width=48, seed=9), (x, y), (test, own))
    trained = _through(partial(_apply_network, net), (x, y), (test, own))
    yield put("MNIST, HOG", BALANCED, hog)
    yield put("MNIST, random convolutions", BALANCED, conv)
    yield put("MNIST, network", BALANCED, trained)
    few, seen = _principal(x[:4_000], test, 96)
    yield put("MNIST, pixels", BALANCED, (few, y[:4_000], seen, own))
    pacs = _split(data / "pacs32.npz", "is_test", 0)
    order = np.random.default_rng(3).permutation(len(pacs[1]))
    pacs = (pacs[0][order], pacs[1][order], *pacs[2:])
    domains = _through(partial(_apply_network, net), pacs[:2], pacs[2:])
    yield put("PACS, network", BALANCED, domains)
    yield put("PACS, HOG", BALANCED, _through(_hog, pacs[:2], pacs[2:]))
    spoken = _split(data / "fsdd_logmel32.npz", "index", 9)
    few, seen = _principal(spoken[0], spoken[2], 48)
    pitched = (few, spoken[1], seen, spoken[3])
    yield put("spoken digits, pixels", BALANCED, pitched)
    coloured = tuple(np.repeat(each[..., None], 3, axis=-1) for each in (spoken[0], spoken[2]))
    speech = _through(partial(_apply_network, net), (coloured[0], spoken[1]), (coloured[1], spoken[3]))
    yield put("spoken digits, network", BALANCED, speech)
    tiny = _halved_images(data, "train"), _halved_images(data, "test")
    twenty, five = ([_keep(*each, kept) for each in tiny] for kept in (range(20), range(20, 41, 5)))
    objects = _through(partial(_apply_network, net), *twenty)
    yield put("TinyImageNet-20, network", BALANCED, objects)
    yield put(
        "TinyImageNet-5, random convolutions",
        BALANCED,
        _through(partial(_convolve, width=40, seed=4, size=7), *five),
    )
    yield put("table of 40, 5 classes", BALANCED, _table(8_000, 40, 5, 12, 101, n_clusters_per_class=1))
    yield put("table of 16", BALANCED, _table(3_000, 16, 2, 6, 102))
    yield put("MNIST, HOG", TENTH, _make_rare(hog, 8, 1 / 11, 1))
    yield put("MNIST, random convolutions", TENTH, _make_rare(conv, 3, 1 / 11, 1))
    yield put("PACS, network", TENTH, _make_rare(domains, 1, 1 / 11, 1))
    yield put(
        "spoken digits, pixels",
        TENTH,
        (few, (spoken[1] == 4).astype(int), seen, (spoken[3] == 4).astype(int)),
    )
    yield put("TinyImageNet-20, network", TENTH, _make_rare(objects, 3, 1 / 20, 1))
    yield put("table of 60", TENTH, _table(7_000, 60, 2, 15, 103, weights=[10 / 11]))
    yield put("table of 12", TENTH, _table(4_000, 12, 2, 5, 104, weights=[10 / 11], class_sep=1.5))
    more = _draw(rows, labels, 20_000, 8)
    whole = (_apply_network(net, more[0]), more[1], *trained[2:])
    yield put("MNIST, network", HUNDREDTH, _make_rare(whole, 7, 1 / 101, 1))
    yield put("MNIST, HOG", HUNDREDTH, _make_rare((_hog(more[0]), more[1], *hog[2:]), 2, 1 / 101, 1))
    rare: dict[str, Any] = {"weights": [100 / 101], "flip_y": 0.002}
    yield put("table of 24", HUNDREDTH, _table(15_000, 24, 2, 8, 105, **rare, class_sep=1.5))
    yield put("table of 10", HUNDREDTH, _table(6_000, 10, 2, 4, 106, **rare))
    yield put(
        "MNIST, random convolutions", TAIL, (*_thin_out(*conv[:2], 50, 1), *_thin_out(*conv[2:], 50, 1))
    )


def _problem(name: str, kind: str, records: Records, *, held_out: bool) -> Problem:
    rows, labels, test, truth = records
    fitted, judged = unit(rows.astype(np.float64)), unit(test.astype(np.float64))
    return Problem(
        name, kind, held_out,
        fitted.astype(np.float32), labels.astype(np.int64), judged.astype(np.float32), truth.astype(np.int64),
    )  # fmt: skip


def _through(extract: Callable[[Array], Array], fitted: Any, tested: Any) -> Records:
    (x, y), (test, truth) = fitted, tested
    return extract(x), y, extract(test), truth


def _draw(rows: Array, labels: Array, count: int, seed: int) -> tuple[Array, Array]:
    order = np.random.default_rng(seed).permutation(len(labels))[:count]
    return rows[order], labels[order].astype(np.int64)


def _keep(rows: Array, labels: Array, kept: range) -> tuple[Array, Array]:
    """Keep some classes, numbered in their order."""
    own = np.isin(labels, kept)
    return rows[own], np.searchsorted(kept, labels[own])


def _grey(data: Path, name: str) -> Records:
    with np.load(data / f"{name}.npz") as file:
        return file["x_train"], file["y_train"], file["x_test"], file["y_test"]


def _split(path: Path, mark: str, last: int) -> Records:
    """Split a file into records to fit, and those to test: marked true, or with a mark up to `last`."""
    with np.load(path) as file:
        held = file[mark].astype(bool) if last == 0 else file[mark] <= last
        return file["x"][~held], file["y"][~held].astype(int), file["x"][held], file["y"][held].astype(int)


def _halved_images(data: Path, split: str) -> tuple[Array, Array]:
    """Return TinyImageNet's images at 32 pixels."""
    pictures, labels = load_pictures(data / "tinyimagenet100_jpegpack.npz", split)
    return pictures.reshape(-1, 32, 2, 32, 2, 3).mean(axis=(2, 4), dtype=np.float32).astype(np.uint8), labels


def _train_network(
    width: int, last: nn.Module, data: Path, records: int, *, draw: int, seed: int
) -> nn.Sequential:
    """Train a small network that ends in `width` features on the later classes of TinyImageNet."""
    rows, labels = _halved_images(data, "train")
    later = labels >= NETWORK_CLASSES
    x, y = _draw(rows[later], labels[later] - NETWORK_CLASSES, records, draw)
    torch.manual_seed(seed)
    pools = [
        layer for pair in ((3, 16), (16, 32), (32, 64)) for layer in (*make_block(*pair), nn.MaxPool2d(2))
    ]
    net = nn.Sequential(*pools, nn.Flatten(), nn.Linear(64 * 16, width), last)
    head = nn.Linear(width, int(y.max()) + 1)
    fit_network(net, head, x, y, epochs=3, batches=len(y) // 128, rate=1.5e-3)
    return net


def _apply_network(net: nn.Sequential, pictures: Array) -> Array:
    return apply_network(net, colour(pictures))


@torch.no_grad()
def _convolve(pictures: Array, width: int, seed: int, size: int = 5) -> Array:
    """Random convolutions without a mean, rectified and averaged over quarters of the picture."""
    torch.manual_seed(seed)
    filters = torch.randn(width, 3, size, size) / size
    filters -= filters.mean((1, 2, 3), keepdim=True)
    found = []
    for part in np.array_split(colour(pictures), -(-len(pictures) // 512)):
        seen = torch.relu(functional.conv2d(to_tensor(part), filters, stride=2) - 0.5)
        found.append(functional.adaptive_avg_pool2d(seen, 2).flatten(1).numpy())
    return np.concatenate(found)


def _rectified(pictures: Array, dim: int, seed: int) -> Array:
    rows = unit(pictures.reshape(len(pictures), -1) + 1e-3)
    return np.maximum(rows @ np.random.default_rng(seed).standard_normal((rows.shape[1], dim)), 0)


def _hog(pictures: Array) -> Array:
    return orient_gradients(colour(pictures)) + 1e-9


def _principal(fitted: Array, tested: Array, dim: int) -> tuple[Array, Array]:
    """Project pixels on the principal components of the first ones."""
    rows, test = (each.reshape(len(each), -1) / 255.0 for each in (fitted, tested))
    mean = rows.mean(axis=0)
    vectors = np.linalg.eigh((rows - mean).T @ (rows - mean))[1][:, -dim:]
    return (rows - mean) @ vectors, (test - mean) @ vectors


def _table(records: int, dim: int, classes: int, informative: int, seed: int, **options: Any) -> Records:
    """Make a synthetic table, standardised by its first rows, and 3,000 test records."""
    drawn: dict[str, Any] = {
        "n_informative": informative, "n_redundant": dim // 5, "flip_y": 0.02, "n_clusters_per_class": 2, **options,
    }  # fmt: skip
    rows, labels = make_classification(records + 3_000, dim, n_classes=classes, random_state=seed, **drawn)
    scales = np.random.default_rng(seed).uniform(0.2, 3, dim)
    rows = (rows + np.random.default_rng(seed).normal(0, 1, dim)) * scales
    rows = (rows - rows[:1_000].mean(axis=0)) / rows[:1_000].std(axis=0)
    return rows[:records], labels[:records], rows[records:], labels[records:]


def _make_rare(records: Records, positive: int, share: float, seed: int) -> Records:
    """Make one class the positive one, with this share of the records to fit and of those to test."""
    found = list[Array]()
    for rows, labels in (records[:2], records[2:]):
        rng = np.random.default_rng(seed)
        positives, others = np.flatnonzero(labels == positive), np.flatnonzero(labels != positive)
        count = round(share / (1 - share) * len(others))
        if count > len(positives):
            others = rng.permutation(others)[: int(len(positives) * (1 - share) / share)]
            count = len(positives)
        kept = rng.permutation(np.r_[rng.permutation(positives)[:count], others])
        found += [rows[kept], (labels[kept] == positive).astype(np.int64)]
    rows, labels, test, truth = found
    return rows, labels, test, truth


def _thin_out(rows: Array, labels: Array, ratio: float, seed: int) -> tuple[Array, Array]:
    """Keep fewer records of each next class, the last one's fewest by `ratio`."""
    classes, rng = int(labels.max()) + 1, np.random.default_rng(seed)
    most = np.bincount(labels).max()
    kept = rng.permutation(
        np.concatenate(
            [
                rng.permutation(np.flatnonzero(labels == label))[
                    : max(5, int(most * ratio ** (-label / (classes - 1))))
                ]
                for label in range(classes)
            ]
        )
    )
    return rows[kept], labels[kept]
