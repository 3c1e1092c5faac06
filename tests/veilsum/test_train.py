import json
from pathlib import Path

import numpy as np

from tests.veilsum.cli import Cli

QUICK = ("--rounds", 1, "--local-epochs", 1, "--members", 3)


def test_features_for_a_round(cli: Cli) -> None:
    outcome = cli("train", *QUICK, "--output", "made/t", "--json")
    assert outcome.code == 0
    assert outcome.err.startswith("round 1 of 1: accuracy 0.")
    folder = Path("made/t")
    assert json.loads((folder / "training.json").read_text()) == outcome.values
    assert sum(outcome.values["records"]) == 1347
    assert len(outcome.values["extractor"]) == 64
    with np.load(folder / "member-2.npz") as data:
        assert data["features"].shape == (outcome.values["records"][2], 64)
    parts = [folder / f"member-{index}.npz" for index in range(3)]
    said = cli.json("calibrate", *parts, "--test", folder / "test.npz")
    assert said["accuracy"] > outcome.values["accuracy"]


def test_what_cannot_be_trained(cli: Cli) -> None:
    assert cli("train", "--method", "x").error == "--method x: it is spherefed or fedavg"
    assert "there are 1347 records to share" in cli("train", "--members", 2000).error
    Path("file").touch()
    assert "file" in cli("train", *QUICK, "--output", "file").error
