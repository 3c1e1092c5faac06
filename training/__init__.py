"""Federated learning simulated locally: data, partitions, models, heads, algorithms, the run loop."""

from training.algorithms import Aggregation, Algorithm, ControlVariates, FedAvg, Proximal, Term, Update
from training.checkpoint import (
    Checkpoint,
    CheckpointError,
    extractor_digest,
    load_checkpoint,
    save_checkpoint,
)
from training.data import DataError, Dataset, Split, load_digits_dataset
from training.evaluate import accuracy, extract_features, per_class_accuracy, predict_logits, with_head
from training.federated import DivergedError, Trained, train
from training.heads import Classifier, FixedHead, LearnedHead, orthonormal_head
from training.models import Extractor, ExtractorConfig
from training.partition import Partition, dirichlet_partition, iid_partition
from training.recipe import Recipe, cross_entropy, fedavg, mean_squared_error, spherefed
from training.resume import ResumeError, RoundRecord

__all__ = [
    "Aggregation",
    "Algorithm",
    "Checkpoint",
    "CheckpointError",
    "Classifier",
    "ControlVariates",
    "DataError",
    "Dataset",
    "DivergedError",
    "Extractor",
    "ExtractorConfig",
    "FedAvg",
    "FixedHead",
    "LearnedHead",
    "Partition",
    "Proximal",
    "Recipe",
    "ResumeError",
    "RoundRecord",
    "Split",
    "Term",
    "Trained",
    "Update",
    "accuracy",
    "cross_entropy",
    "dirichlet_partition",
    "extract_features",
    "extractor_digest",
    "fedavg",
    "iid_partition",
    "load_checkpoint",
    "load_digits_dataset",
    "mean_squared_error",
    "orthonormal_head",
    "per_class_accuracy",
    "predict_logits",
    "save_checkpoint",
    "spherefed",
    "train",
    "with_head",
]
