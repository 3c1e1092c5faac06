"""Experiment files, and runs of them."""

from training.experiments.choices import ConfigError
from training.experiments.config import (
    Experiment,
    load_experiment,
    merged,
    parse_change,
    shipped,
    variants,
)
from training.experiments.running import FinishedRun, diverged, prepare, run

__all__ = [
    "ConfigError",
    "Experiment",
    "FinishedRun",
    "diverged",
    "load_experiment",
    "merged",
    "parse_change",
    "prepare",
    "run",
    "shipped",
    "variants",
]
