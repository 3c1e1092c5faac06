"""Federated learning run locally: data, partitions, models, heads, algorithms, the run loop and its figures."""

from training.algorithms import Aggregation, Algorithm, ControlVariates, FedAvg, Proximal, Term, Update
from training.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from training.data import DataError, Dataset, Split, load_digits_dataset
from training.demo import demo_fedavg_recipe, demo_partition, demo_recipe, rare_partition
from training.digest import extractor_digest
from training.evaluate import accuracy, extract_features, per_class_accuracy, predict_logits, with_head
from training.federated import DivergedError, Trained, train
from training.heads import Classifier, FixedHead, LearnedHead, orthonormal_head
from training.losses import cross_entropy, mean_squared_error
from training.models import Extractor, ExtractorConfig
from training.partition import Partition, dirichlet_partition, iid_partition
from training.recipe import Recipe, fedavg, spherefed
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
    "demo_fedavg_recipe",
    "demo_partition",
    "demo_recipe",
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
    "rare_partition",
    "save_checkpoint",
    "spherefed",
    "train",
    "with_head",
]
