"""Which head from the same sums is better, by how rare the positives are: the table of docs/heads.md, "Which head".

MNIST, Fashion-MNIST and CIFAR-10, each as histograms of oriented gradients and through a small network trained on TinyImageNet: six sets of
features. Ten classes, or one of three classes against the rest. Of 25,000 records, 20,000 are fitted and the others choose the ridge head's
threshold; positives are left out until they have their share. Figures are of the 10,000 test records, at the share of the fitted ones,
and means over classes and sets of features.

    .venv/bin/python -m benchmarks.head_choice --data FOLDER --output runs/head_choice.json
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.pictures import load_pictures
from benchmarks.secure_sum import ROOT
from benchmarks.sparse_features import (
    TRAINING_PICTURES,
    Array,
    apply_network,
    colour,
    orient_gradients,
    train_network,
)
from client_sdk.comparison import detect_class, find_auroc
from veilsum.calibration import FFCStatistics, Head, RandomFeatures, solve_ffc, solve_random_features
from veilsum.calibration.judge_tables import positive_margins
from veilsum.calibration.random_features import suggested_bandwidth
from veilsum.calibration.rows import unit_rows
from veilsum.cli.head_table import RIDGE, derive_heads

FITTED, HELD_OUT, RANDOM_FEATURES = 20_000, 5_000, 512
POSITIVES, SHARES = (0, 3, 7), (0.3, 0.1, 0.03, 0.01)
THRESHOLD, CLASSES = "ridge, threshold", "ten classes"
FIGURE_NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "recall": "recall",
    "auroc": "AUROC",
}


def read_features(folder: Path) -> Iterator[tuple[str, tuple[Array, Array, Array, Array]]]:
    """Yield each set of features: rows of length 1 with their labels, and test rows with theirs."""
    pictures, labels = load_pictures(folder / "tinyimagenet100_jpegpack.npz", "train")
    chosen = np.random.default_rng(0).permutation(len(labels))[:TRAINING_PICTURES]
    small = pictures[chosen].reshape(-1, 32, 2, 32, 2, 3).mean(axis=(2, 4), dtype=np.float32)
    net = train_network(nn.ReLU(), small, labels[chosen])
    packed = folder / "cifar10_jpegpack.npz"
    sets = {"CIFAR-10": (*load_pictures(packed, "train"), *load_pictures(packed, "test"))}
    for name in ("mnist", "fashion_mnist"):
        with np.load(folder / f"{name}.npz") as file:
            sets[name] = tuple(file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    for name, (x, y, test, truth) in sets.items():
        order = np.random.default_rng(1).permutation(len(y))[: FITTED + HELD_OUT]
        rows, judged, own = colour(x[order]), colour(test), y[order].astype(np.int64)
        for kind, (fit, tested) in {
            "HOG": (orient_gradients(rows), orient_gradients(judged)),
            "network": (apply_network(net, rows), apply_network(net, judged)),
        }.items():
            used, usable = fit.any(axis=1), tested.any(axis=1)
            fitted = unit_rows(fit[used])[0], own[used]
            yield f"{name}, {kind}", (*fitted, unit_rows(tested[usable])[0], truth[usable].astype(np.int64))


def solve_heads(rows: Array, labels: Array, classes: int) -> dict[str, Head]:
    statistics = FFCStatistics(rows.shape[1], classes, constant=True)
    statistics.add(rows, labels)
    heads = derive_heads(statistics, solve_ffc(statistics))
    phi = RandomFeatures(rows.shape[1], RANDOM_FEATURES, suggested_bandwidth(statistics), bytes(32))
    mapped = FFCStatistics(RANDOM_FEATURES, classes)
    mapped.add(phi.of_units(rows), labels)
    return {**heads, "random features": solve_random_features(mapped, phi)}


def judge_classes(rows: Array, labels: Array, test: Array, truth: Array) -> dict[str, dict[str, float]]:
    """Return the accuracy of each head on the ten classes."""
    heads = solve_heads(rows[:FITTED], labels[:FITTED], 10)
    return {name: {"accuracy": float((head.predict(test) == truth).mean())} for name, head in heads.items()}


def judge_positive(
    rows: Array, labels: Array, test: Array, truth: Array, share: float
) -> dict[str, dict[str, float]]:
    """Return the figures of each head on class 1 against class 0, with this share of positives in the fitted records."""
    fitted = np.arange(len(rows)) < FITTED
    kept = np.zeros(len(rows), bool)
    for part in (fitted, ~fitted):
        others, positives = np.flatnonzero(part & (labels == 0)), np.flatnonzero(part & (labels == 1))
        wanted = round(share / (1 - share) * len(others))
        kept[others[: round(len(positives) * (1 - share) / share)]] = True
        kept[positives[:wanted]] = True
    heads = solve_heads(rows[kept & fitted], labels[kept & fitted], 2)
    held_out = kept & ~fitted
    found = detect_class(
        heads[RIDGE].answer_scores(rows[held_out], normalise=True), None, labels[held_out], 1
    )
    assert found is not None
    judged, is_positive = {}, truth == 1
    for name, (head, threshold) in {
        **{name: (head, 0.0) for name, head in heads.items()},
        THRESHOLD: (heads[RIDGE], found.threshold),
    }.items():
        margins = positive_margins(head.answer_scores(test, normalise=True), 1)
        called = margins >= threshold if threshold else margins > 0
        recall, alarms = float(called[is_positive].mean()), float(called[~is_positive].mean())
        judged[name] = {
            "accuracy": share * recall + (1 - share) * (1 - alarms),
            "balanced_accuracy": (recall + 1 - alarms) / 2,
            "recall": recall,
            "auroc": find_auroc(margins, is_positive),
        }
    return judged


def page(means: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return the rows of the table of docs/heads.md, in percent."""
    heads = [*means[f"{SHARES[0]:g}"]]
    rows = [f"| fitted records | figure | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for problem, judged in means.items():
        title = problem if problem == CLASSES else f"{float(problem):.0%} positives".replace("%", " %")
        for figure in ("accuracy",) if problem == CLASSES else ("balanced_accuracy", "recall", "auroc"):
            cells = [f"{100 * judged[head][figure]:.1f}" if head in judged else "–" for head in heads]
            rows.append(f"| {title} | {FIGURE_NAMES[figure]} | {' | '.join(cells)} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "runs/head_choice.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    seen = defaultdict[str, list[dict[str, dict[str, float]]]](list)
    classes = dict[str, dict[str, float]]()
    for features, (rows, labels, test, truth) in read_features(given.data):
        found = judge_classes(rows, labels, test, truth)
        classes[features] = {name: figures["accuracy"] for name, figures in found.items()}
        seen[CLASSES].append(found)
        for share in SHARES:
            for positive in POSITIVES:
                own, true = ((each == positive).astype(np.int64) for each in (labels, truth))
                seen[f"{share:g}"].append(judge_positive(rows, own, test, true, share))
        print(features, classes[features], flush=True)
    means = {
        problem: {
            head: {
                figure: float(np.mean([each[head][figure] for each in judged])) for figure in judged[0][head]
            }
            for head in judged[0]
        }
        for problem, judged in seen.items()
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    written = {"means": means, "ten_classes": classes}
    given.output.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print("\n".join(page(means)))


if __name__ == "__main__":
    main()
