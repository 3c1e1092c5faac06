"""Federated algorithms: the aggregation at the server and the terms at the members."""

from training.algorithms.base import Aggregation, Algorithm, Batch, Round, Site, State, Term, Update
from training.algorithms.contrast import FeatureDiscrepancy, ModelContrastive
from training.algorithms.fedavg import FedAvg, weighted_mean
from training.algorithms.fedaws import Spreading
from training.algorithms.feddyn import DynamicCorrection, DynamicPenalty
from training.algorithms.fednova import FedNova
from training.algorithms.fedopt import ServerOptimiser
from training.algorithms.fedprox import Proximal
from training.algorithms.fedrs import RestrictedSoftmax
from training.algorithms.feduv import ClassVariance, Uniformity
from training.algorithms.gmv import GlobalMemory, PrintedMemory
from training.algorithms.named import ALGORITHMS, LOCAL
from training.algorithms.personal import HeadFirst, Personal
from training.algorithms.scaffold import ControlVariates

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
    "Personal",
    "PrintedMemory",
    "Proximal",
    "RestrictedSoftmax",
    "Round",
    "ServerOptimiser",
    "Site",
    "Spreading",
    "State",
    "Term",
    "Uniformity",
    "Update",
    "weighted_mean",
]
