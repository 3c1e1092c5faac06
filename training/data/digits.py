"""scikit-learn's digits: real, small, and there without a download."""

from __future__ import annotations

import torch

from training.data.dataset import Dataset, Split


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
