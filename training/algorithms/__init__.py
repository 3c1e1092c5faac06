"""Federated algorithms: the aggregation at the server and the terms at the members."""

from training.algorithms.aggregations import FedAvg, FedNova, ServerOptimiser, Spreading
from training.algorithms.base import (
    Aggregation,
    Algorithm,
    Batch,
    Site,
    State,
    Term,
    TrainingRound,
    Update,
    weighted_mean,
)
from training.algorithms.features import (
    ClassVariance,
    FeatureDiscrepancy,
    GlobalMemory,
    ModelContrastive,
    PrintedMemory,
    RestrictedSoftmax,
    Uniformity,
)
from training.algorithms.named import ALGORITHMS, LOCAL
from training.algorithms.weights import (
    ControlVariates,
    DynamicCorrection,
    DynamicPenalty,
    HeadFirst,
    PersonalLayers,
    Proximal,
)

__all__ = [
    "ALGORITHMS",
    "LOCAL",
    "Aggregation",
    "Algorithm",
    "Batch",
    "ClassVariance",
    "ControlVariates",
    "DynamicCorrection",
    "DynamicPenalty",
    "FeatureDiscrepancy",
    "FedAvg",
    "FedNova",
    "GlobalMemory",
    "HeadFirst",
    "ModelContrastive",
    "PersonalLayers",
    "PrintedMemory",
    "Proximal",
    "RestrictedSoftmax",
    "ServerOptimiser",
    "Site",
    "Spreading",
    "State",
    "Term",
    "TrainingRound",
    "Uniformity",
    "Update",
    "weighted_mean",
]
