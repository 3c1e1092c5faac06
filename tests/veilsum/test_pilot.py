"""A whole pilot, in processes of its own."""

import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from client_sdk import Result
from tests.support.cli import Cli


def test_a_pilot_compares_heads_on_hold_out_records(cli: Cli, tmp_path: Path) -> None:
    """Of tabular features, standardised by moments that the study names as its extractor."""
    wine, moments = load_wine(), tmp_path / "moments.safetensors"
    rows = np.random.default_rng(0).permutation(len(wine.target))
    np.savez(tmp_path / "wine.npz", features=wine.data[rows], labels=wine.target[rows])
    words = ("pilot", tmp_path / "wine.npz", "--members", 3, "--output", tmp_path / "pilot")
    found = cli.json(*words, "--standardise", moments)
    assert found["hold_out_records"] + found["record"]["rows"] == len(wine.target)
    assert found["consortium_accuracy"] > 0.9
    assert 0 < found["own_accuracy"] <= 1
    assert found["largest_difference_from_a_fit_in_the_clear"] < 1e-6
    result = Result.load(tmp_path / "pilot/result")
    result.verify()
    assert result.judged is not None
    assert result.spec.question.extractor == hashlib.sha256(moments.read_bytes()).hexdigest()
