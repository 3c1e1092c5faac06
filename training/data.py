"""Labelled data as two tensors, and batches as slices of a permutation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@dataclass(frozen=True)
class Dataset:
    """Labelled records.

    Attributes:
        x: inputs, float32 of shape (n, channels, height, width).
        y: labels, int64 of shape (n,), each in 0..classes-1.
        classes: the number of classes C.
        name: what reports call it.

    Raises:
        ValueError: if x and y disagree in length, or a label is out of range.
    """

    x: Tensor
    y: Tensor
    classes: int
    name: str

    def __post_init__(self) -> None:
        if self.y.shape != (len(self.x),):
            raise ValueError(
                f"y must have shape ({len(self.x)},), one label a record, not {tuple(self.y.shape)}"
            )
        if len(self) and not 0 <= int(self.y.min()) <= int(self.y.max()) < self.classes:
            raise ValueError(f"labels must lie in 0..{self.classes - 1}")

    def __len__(self) -> int:
        return len(self.x)

    def subset(self, indices: Tensor) -> Dataset:
        """The records at `indices`, of shape (m,), in that order."""
        return Dataset(self.x[indices], self.y[indices], self.classes, self.name)


class Split(NamedTuple):
    """Records to train on and records held out for the test."""

    train: Dataset
    test: Dataset


def load_digits_dataset(seed: int = 0, *, test_fraction: float = 0.25) -> Split:
    """scikit-learn's 1,797 handwritten digits: x (n, 1, 8, 8) scaled to 0..1, ten classes.

    The split is stratified by class and depends on `seed` alone.
    """
    # Imported here: worker processes train on tensors they are given, and need no scikit-learn.
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    x = torch.as_tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    y = torch.as_tensor(labels, dtype=torch.int64)
    train, test = train_test_split(range(len(y)), test_size=test_fraction, stratify=labels, random_state=seed)
    digits = Dataset(x, y, classes=10, name="digits")
    return Split(digits.subset(torch.tensor(train)), digits.subset(torch.tensor(test)))


def batches(records: int, batch_size: int) -> Iterator[Tensor]:
    """One epoch's batches: index tensors that slice a fresh permutation from torch's generator.

    A last batch of one joins the batch before it: batch normalisation has no variance of one record.
    """
    parts = list(torch.split(torch.randperm(records), batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return iter(parts)
