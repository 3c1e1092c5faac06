"""A whole pilot, in processes of its own."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

from client_sdk import Result
from tests.support.cli import Cli
from veilsum.commands import pilot


@pytest.mark.parametrize(
    "keys", [np.arange(3), np.array(["no", "perhaps", "yes"]), np.array([0.0, 1.0, np.nan])]
)
def test_each_member_is_dealt_its_share_of_every_class(keys: np.ndarray, tmp_path: Path) -> None:
    labels = np.repeat(keys, (10, 7, 30))
    np.savez(tmp_path / "a.npz", features=np.arange(94.0).reshape(47, 2), labels=labels)
    dealt = pilot._tables([tmp_path / "a.npz"], 3)
    assert sorted(row for table in dealt for row in table.features[:, 0]) == list(range(0, 94, 2))
    for key in keys.astype(str):
        held = [np.count_nonzero(table.labels.astype(str) == key) for table in dealt]
        assert max(held) - min(held) <= 1


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
