"""Federated algorithms: the aggregation at the server and the terms at the members."""

from training.algorithms.base import Aggregation, Algorithm, Batch, Round, Site, State, Term, Update
from training.algorithms.fedavg import FedAvg, weighted_mean
from training.algorithms.fedprox import Proximal
from training.algorithms.scaffold import ControlVariates

__all__ = [
    "Aggregation",
    "Algorithm",
    "Batch",
    "ControlVariates",
    "FedAvg",
    "Proximal",
    "Round",
    "Site",
    "State",
    "Term",
    "Update",
    "weighted_mean",
]
