"""Federated learning simulated locally: data, partitions, models, heads, algorithms, the run loop."""

from training.checkpoint import load_checkpoint, save_checkpoint
from training.data import DataError, Dataset, Split, load_digits_dataset
from training.evaluate import accuracy, extract_features, per_class_accuracy, with_head
from training.federated import DivergedError, Trained, train
from training.heads import Classifier, orthonormal_head
from training.models import ExtractorConfig
from training.partition import Partition, dirichlet_partition, iid_partition
from training.recipe import Recipe, cross_entropy, fedavg, mean_squared_error, spherefed
from training.resume import ResumeError, RoundRecord

__all__ = [
    "Classifier",
    "DataError",
    "Dataset",
    "DivergedError",
    "ExtractorConfig",
    "Partition",
    "Recipe",
    "ResumeError",
    "RoundRecord",
    "Split",
    "Trained",
    "accuracy",
    "cross_entropy",
    "dirichlet_partition",
    "extract_features",
    "fedavg",
    "iid_partition",
    "load_checkpoint",
    "load_digits_dataset",
    "mean_squared_error",
    "orthonormal_head",
    "per_class_accuracy",
    "save_checkpoint",
    "spherefed",
    "train",
    "with_head",
]
