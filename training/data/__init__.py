"""Data as tensors: the data sets of the papers in their publishers' formats, from a folder that the user names."""

from training.data.augment import crop_and_flip
from training.data.catalogue import NAMES, SOURCES, load_dataset
from training.data.dataset import Dataset, Split, batches, stratified
from training.data.digits import load_digits_dataset
from training.data.shelf import DataError

__all__ = [
    "NAMES",
    "SOURCES",
    "DataError",
    "Dataset",
    "Split",
    "batches",
    "crop_and_flip",
    "load_dataset",
    "load_digits_dataset",
    "stratified",
]
