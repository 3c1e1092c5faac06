"""FEMNIST as LEAF's scripts write it (Caldas et al. 2018): JSON files with one writer after another.

Each file has "users", "num_samples" and "user_data": {writer: {"x": [784 numbers in 0..1, …], "y": [0..61, …]}}.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data.shelf import Images, Shelf, whole_numbers

if TYPE_CHECKING:
    from pathlib import Path

_SIDE = 28


def read_femnist(shelf: Shelf) -> tuple[Images, Images]:
    """`train/*.json` and `test/*.json`; a record's group is its writer, numbered over both by name."""
    files = {part: sorted(shelf.below(f"data/{part}", part).glob("*.json")) for part in ("train", "test")}
    for part, found in files.items():
        if not found:
            raise shelf.missing(f"{part}/*.json")
    content = {part: [_read(shelf, path) for path in found] for part, found in files.items()}
    writers = sorted({writer for data in content.values() for each in data for writer in each})
    index = {writer: i for i, writer in enumerate(writers)}
    train, test = (
        Images(
            np.concatenate([x for each in data for x, _ in each.values()]),
            np.concatenate([y for each in data for _, y in each.values()]),
            np.concatenate([np.full(len(y), index[w]) for each in data for w, (_, y) in each.items()]),
            group_names=tuple(writers),
        )
        for data in content.values()
    )
    return train, test


def _bytes(x: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not ((x >= 0) & (x <= 1)).all():  # neither is NaN
        raise ValueError("pixels lie in 0..1")
    return np.rint(255 * x).astype(np.uint8)


def _read(
    shelf: Shelf, path: Path
) -> dict[
    str, tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], np.ndarray[tuple[int], np.dtype[np.int64]]]
]:
    try:
        users = json.loads(path.read_text("utf-8"))["user_data"]
        return {
            writer: (
                _bytes(np.asarray(own["x"], np.float64)).reshape(-1, _SIDE, _SIDE),
                whole_numbers(own["y"], "labels"),
            )
            for writer, own in users.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise shelf.broken(path, f"{type(error).__name__}: {error}") from error
