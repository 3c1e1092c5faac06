"""The demo's canaries: digits of the test set, which stand in each member's file beside its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from training.data.dataset import Dataset
from training.evaluate import extract_features
from training.heads import Classifier
from veilsum.cli.training_run import write_features
from veilsum.study.canaries import CANARY_PREFIX, CanaryPack
from veilsum.study.canary_slips import Image, image_slips

CANARIES_PER_CLASS = 2


def choose_canaries(test: Dataset) -> Dataset:
    """Take the first test records of each class."""
    places = [torch.nonzero(test.y == label)[:CANARIES_PER_CLASS, 0] for label in range(test.classes)]
    return test.subset(torch.cat(places))


def make_pack(classifier: Classifier, canaries: Dataset) -> CanaryPack:
    """Make the pack: the features of the canaries, and those under slips that pipelines for images make."""

    def extract(images: Sequence[Image]) -> np.ndarray:
        features: np.ndarray = extract_features(
            classifier, torch.from_numpy(np.stack(images)[:, None])
        ).numpy()
        return features

    reference, slips = image_slips(extract, list(canaries.x[:, 0].numpy()))
    return CanaryPack(
        _canary_ids(canaries), [str(label) for label in canaries.y.tolist()], reference, slips=slips
    )


def write_member_file(
    path: Path, classifier: Classifier, records: Dataset, canaries: Dataset, *, transposed: bool = False
) -> None:
    """Write a member's features, labels and ids, canaries included. With `transposed`, rows and columns of all images are exchanged."""
    x = torch.cat([records.x, canaries.x])
    data = Dataset(
        x.swapaxes(2, 3) if transposed else x,
        torch.cat([records.y, canaries.y]),
        records.classes,
        records.name,
    )
    ids = [*(f"digit-{place}" for place in range(len(records))), *_canary_ids(canaries)]
    write_features(path, classifier, data, ids)


def _canary_ids(canaries: Dataset) -> list[str]:
    return [f"{CANARY_PREFIX}{place:02}" for place in range(len(canaries))]
