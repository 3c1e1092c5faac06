"""Experiments as files: every row of the papers' main tables, each with a small variant that two cores finish in minutes."""

from training.experiments.config import (
    Experiment,
    load_experiment,
    merged,
    parse_change,
    shipped,
    variants,
)
from training.experiments.errors import ConfigError
from training.experiments.running import Finished, Prepared, diverged, prepare, run

__all__ = [
    "ConfigError",
    "Experiment",
    "Finished",
    "Prepared",
    "diverged",
    "load_experiment",
    "merged",
    "parse_change",
    "prepare",
    "run",
    "shipped",
    "variants",
]
