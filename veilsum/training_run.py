"""Federated training up to the features that a round calibrates: the work behind `veilsum train`."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protocol.errors import Misuse
from training import (
    Classifier,
    Dataset,
    ExtractorConfig,
    Partition,
    RoundRecord,
    dirichlet_partition,
    extract_features,
    fedavg,
    load_digits_dataset,
    save_checkpoint,
    spherefed,
    train,
)
from training.seeding import Stream, generator

PREPROCESSING = "scikit-learn digits, 8x8, divided by 16"
_METHODS = {"spherefed": spherefed, "fedavg": fedavg}


@dataclass(frozen=True)
class Choices:
    """What the command was asked for."""

    method: str
    members: int
    alpha: float
    rounds: int
    local_epochs: int
    participation: float
    seed: int
    workers: int


def run(choices: Choices, output: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train, then write `extractor.safetensors`, `member-NN.npz`, `test.npz` and `training.json`; a summary."""
    preset = _METHODS.get(choices.method)
    if preset is None:
        raise Misuse(f"--method {choices.method}: it is {' or '.join(_METHODS)}")
    recipe = preset(
        ExtractorConfig("cnn", (1, 8, 8), {"width": 16, "dim": 64}),
        rounds=choices.rounds,
        local_epochs=choices.local_epochs,
        batch_size=32,
        participation=choices.participation,
        seed=choices.seed,
    )
    output.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    data = load_digits_dataset()
    if choices.members > len(data.train.y):
        raise Misuse(f"--members {choices.members}: there are {len(data.train.y)} records to share")
    partition = dirichlet_partition(
        data.train.y.numpy(),
        choices.members,
        choices.alpha,
        generator(choices.seed, Stream.PARTITION),
        min_size=min(10, len(data.train.y) // choices.members),
    )

    def progress(record: RoundRecord) -> None:
        tell(f"round {record.round} of {record.rounds}: accuracy {record.accuracy:.3f}")

    trained = train(recipe, data, partition, progress=progress, workers=choices.workers)
    digest = save_checkpoint(
        trained.classifier, output / "extractor.safetensors", preprocessing=PREPROCESSING
    )
    write_members(output, trained.classifier, data.train, partition)
    write_features(output / "test.npz", trained.classifier, data.test)
    summary = {
        **asdict(choices),
        "accuracy": trained.history[-1].accuracy,
        "extractor": digest.hex(),
        "partition": partition.digest,
        "records": [int(size) for size in partition.sizes],
        "saved": str(output),
    }
    (output / "training.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def write_members(output: Path, classifier: Classifier, data: Dataset, partition: Partition) -> None:
    """Each member's features and labels, as `veilsum join` reads them."""
    width = len(str(len(partition.members) - 1))
    for index, rows in enumerate(partition.members):
        write_features(
            output / f"member-{index:0{width}}.npz", classifier, data.subset(torch.from_numpy(rows))
        )


def write_features(path: Path, classifier: Classifier, data: Dataset) -> None:
    """Features (n, dim) float32 of length 1, and labels (n,)."""
    features = extract_features(classifier, data.x).numpy()
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    np.savez(path, features=features / np.maximum(lengths, 1e-12), labels=data.y.numpy())
