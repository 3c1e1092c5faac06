from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibration import FFCStatistics, solve_ffc
from tests.veilsum.cli import CLASSES, DIM, Cli, records


@pytest.fixture
def files(cli: Cli) -> list[Path]:
    rng = np.random.default_rng(3)
    return [write(f"part{index}.npz", *records(rng, 20 + index)) for index in range(3)]


def write(name: str, features: Any, labels: Any) -> Path:
    np.savez(name, features=features, labels=labels)
    return Path(name)


def test_several_files_are_one(cli: Cli, files: list[Path]) -> None:
    said = cli.json("calibrate", *files, "--bias", "--test", files[0])
    pooled = FFCStatistics(DIM, CLASSES, bias=True)
    for path in files:
        with np.load(path) as data:
            pooled.update(data["features"], data["labels"])
    expected, saved = solve_ffc(pooled), load_file("head.safetensors")
    np.testing.assert_array_equal(saved["weights"], expected.weights)
    assert expected.bias is not None
    np.testing.assert_array_equal(saved["bias"], expected.bias)
    assert (said["records"], said["classes"], said["chosen_by"]) == (63, CLASSES, "GCV")
    with np.load(files[0]) as data:
        assert said["accuracy"] == (expected.predict(data["features"]) == data["labels"]).mean()


def test_a_ridge_of_ones_own(cli: Cli, files: list[Path]) -> None:
    said = cli("calibrate", files[0], "--ridge", 0.25, "--output", "made/here/head.safetensors")
    assert "ridge          0.25\nchosen by      you" in said.out
    assert Path("made/here/head.safetensors").exists()
    assert cli.json("calibrate", files[0], "--ridge", 0.25, "--ridge", 1)["chosen_by"] == "GCV"
    assert "a ridge is finite and not negative" in cli("calibrate", files[0], "--ridge", -1).error


def test_too_small_a_ridge_for_what_there_is(cli: Cli) -> None:
    features = np.eye(2, 4)
    error = cli("calibrate", write("x.npz", features, np.arange(2)), "--ridge", 0).error
    assert "pass a larger --ridge" in error


def test_a_class_without_records_is_named_and_never_answered(cli: Cli) -> None:
    # The last record scores below zero in the only class that there is: the zeros of an empty one would win.
    path = write("x.npz", np.array([[1.0, 0], [1, 0], [-1, 0]]), np.ones(3, int))
    said = cli.json("calibrate", path, "--test", path, "--ridge", 1)
    assert said["empty_classes"] == [0]
    assert said["accuracy"] == 1
    assert "empty classes  0\n" in cli("calibrate", path).out


def test_the_highest_label_of_all_files_counts(cli: Cli, files: list[Path]) -> None:
    high = write("high.npz", np.eye(1, DIM), np.array([7]))
    assert cli.json("calibrate", files[0], high)["classes"] == 8
    assert cli.json("calibrate", files[0], "--classes", 5)["empty_classes"] == [3, 4]
    error = cli("calibrate", files[0], "--test", high).error
    assert error.startswith("high.npz: 1 of 1 labels lie outside 0…2: 7 in row 0")
    assert "or more classes" in error
    assert cli.json("calibrate", files[0], "--test", high, "--classes", 8)["accuracy"] == 0
    assert cli("calibrate", high, "--classes", 3).error.startswith("high.npz: 1 of 1 labels")


def test_files_that_do_not_fit_together(cli: Cli, files: list[Path]) -> None:
    wide = write("wide.npz", np.eye(3), np.arange(3))
    assert cli("calibrate", files[0], wide).error.startswith("wide.npz: features have shape (3, 3)")
    error = cli("calibrate", files[0], "--test", wide).error
    assert error == f"wide.npz: features have shape (3, 3), the head takes (n, {DIM})"
    np.save("x.npy", np.eye(3))
    np.save("y.npy", np.arange(3))
    assert cli.json("calibrate", "x.npy", "--labels", "y.npy")["records"] == 3
    assert "--labels goes with one file" in cli("calibrate", "x.npy", files[0], "--labels", "y.npy").error
    assert not Path("made").exists()


def test_no_features_are_overwritten(cli: Cli, files: list[Path]) -> None:
    before = files[0].read_bytes()
    for words in ((files[0],), (files[1], "--test", files[0])):
        assert "would replace the features" in cli("calibrate", *words, "--output", files[0]).error
    assert files[0].read_bytes() == before
    assert "name a file in it" in cli("calibrate", files[0], "--output", cli.folder).error


def test_other_lengths(cli: Cli, files: list[Path]) -> None:
    with np.load(files[0]) as data:
        long = write("long.npz", 5 * data["features"], data["labels"])
    said = cli.json("calibrate", long, "--normalise", "--test", long)
    assert said["accuracy"] == cli.json("calibrate", files[0], "--test", files[0])["accuracy"]


ROUND = {"--folder": "m0", "--cohort": "00" * 32, "--admin-key": "00" * 32, "--lineage": "x"}


@pytest.mark.parametrize("missing", ROUND)
def test_a_round_takes_all_of_its_options(missing: str, cli: Cli, files: list[Path]) -> None:
    words = [word for name, value in ROUND.items() if name != missing for word in (name, value)]
    assert "together" in cli("calibrate", files[0], *words).error


@pytest.mark.parametrize("given", [("--classes", 3), ("--bias",), ("--ridge", 0.5)])
def test_a_round_s_terms_are_not_ones_own(given: tuple[object, ...], cli: Cli, files: list[Path]) -> None:
    words = [word for item in ROUND.items() for word in item]
    error = cli("calibrate", files[0], *words, *given).error
    assert error == f"the round's terms fix {given[0]}: leave that out"
    assert "one file" in cli("calibrate", *files, *words).error
    assert "no.npz does not exist" in cli("calibrate", files[0], *words, "--test", "no.npz").error
