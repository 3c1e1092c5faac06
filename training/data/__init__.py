"""Labelled data as tensors: the papers' data sets in their publishers' formats, from a folder that the user names."""

from training.data.catalogue import NAMES, SOURCES, load_dataset, load_digits_dataset
from training.data.dataset import Dataset, Split, batches, crop_and_flip, draw_moves, stratified
from training.data.folder import DataError

__all__ = [
    "NAMES",
    "SOURCES",
    "DataError",
    "Dataset",
    "Split",
    "batches",
    "crop_and_flip",
    "draw_moves",
    "load_dataset",
    "load_digits_dataset",
    "stratified",
]
