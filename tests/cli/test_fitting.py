import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file

from tests.support.cli import CLASSES, DIM, Cli, records
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.head_file import Calibrated, notes_in
from veilsum.cli.fitting import HEAD_KINDS
from veilsum.protocol.rest import HEAD_METADATA


@pytest.fixture
def files(cli: Cli) -> list[Path]:
    rng = np.random.default_rng(3)
    return [write(f"part{index}.npz", *records(rng, 20 + index)) for index in range(3)]


def write(name: str, features: Any, labels: Any) -> Path:
    np.savez(name, features=features, labels=labels)
    return Path(name)


def test_several_files_are_one(cli: Cli, files: list[Path]) -> None:
    said = cli.json("calibrate", *files, "--held-out", files[0])
    pooled = FFCStatistics(DIM, CLASSES, constant=True)
    for path in files:
        with np.load(path) as data:
            pooled.update(data["features"], data["labels"])
    expected, saved = solve_ffc(pooled), load_file("head.safetensors")
    np.testing.assert_allclose(saved["weights"], expected.weights, rtol=0, atol=1e-12)
    assert expected.bias is not None
    np.testing.assert_allclose(saved["bias"], expected.bias, rtol=0, atol=1e-12)
    assert (said["records"], said["classes"]) == (63, CLASSES)
    with np.load(files[0]) as data:
        assert said["accuracy"] == (expected.predict(data["features"]) == data["labels"]).mean()


def write_table(name: str, features: Any, labels: Any, order: Any, columns: str = "") -> Path:
    """Write a CSV file with its columns f0, f1, … in this order."""
    lines = [",".join([*(columns.split() or (f"f{place}" for place in order)), "label"])]
    lines += [",".join(map(str, [*row[order], label])) for row, label in zip(features, labels, strict=True)]
    Path(name).write_text("\n".join(lines))
    return Path(name)


def test_columns_of_several_files_are_matched_by_name(cli: Cli) -> None:
    features, labels = records(np.random.default_rng(1), 60)
    order = np.arange(DIM)
    parts = (slice(20), slice(20, 40), slice(40, 60))
    files = [
        write_table(f"c{turn}.csv", features[part], labels[part], np.roll(order, turn))
        for turn, part in enumerate(parts)
    ]
    moments = ("--standardise", "moments.safetensors")
    expected = cli.json(
        "calibrate",
        write("whole.npz", features[:40], labels[:40]),
        "--held-out",
        write("rest.npz", features[40:], labels[40:]),
        *moments,
    )
    Path("moments.safetensors").unlink()
    words = ("calibrate", *files[:2], "--held-out", files[2], *moments)
    assert cli.json(*words)["accuracy"] == expected["accuracy"]
    # Moments are of names, too: another file may come first.
    assert cli.json("calibrate", *files[1::-1], *words[3:])["accuracy"] == expected["accuracy"]
    other = write_table("other.csv", features, labels, order, "f0 f1 f2 f3 f4 F5")
    for names in ((files[0], other), (files[0], "--held-out", other), (other, *moments)):
        assert re.search("'f5'.*'F5'", cli("calibrate", *names).error)


def test_a_class_without_records_is_named_and_never_answered(cli: Cli) -> None:
    # The held-out record scores below zero in both classes that there are: the zeros of an empty one would win.
    features = np.array([[1, 0.1], [0.1, 1], [1, -0.1], [-0.1, 1], [0.9, 0.1], [0.1, 0.8]])
    path, other = (
        write("x.npz", features, np.array([1, 2] * 3)),
        write("y.npz", np.array([[-1, -0.8]]), np.array([2])),
    )
    said = cli.json("calibrate", path, "--held-out", other, "--head", "lda")
    assert said["empty_classes"] == [0]
    assert said["accuracy"] == 1


@pytest.mark.parametrize("label", [0, 1, "benign"])
def test_records_of_one_class_are_refused_before_any_work(cli: Cli, label: Any) -> None:
    path = write("x.npz", np.random.default_rng(0).normal(size=(60, 2)), np.array([label] * 60))
    privacy = ("privacy", "--records", 60, "--dim", 2, "--classes", 2, "--members", 3, "--epsilon", 1)
    for words in (("calibrate", path), ("pilot", path, "--members", 3), (*privacy, "--features", path)):
        error = cli(*words).error
        assert error.startswith("x.npz")
        assert "1 class," in error


def test_hold_out_records_of_classes_that_were_not_fitted_are_counted_aloud(cli: Cli) -> None:
    features, labels = records(np.random.default_rng(2), 60)
    keys = np.array(["ash", "beech", "cedar"])[labels]
    fitted, held_out = (
        write("fit.npz", features[labels < 2], keys[labels < 2]),
        write("all.npz", features, keys),
    )
    said = cli("calibrate", fitted, "--held-out", held_out)
    assert f"{(labels == 2).sum()} of 60 hold-out records" in said.err
    assert "(cedar)" in said.err
    assert re.search(r"empty classes +cedar\n", said.out)  # not its index
    assert "without a record to fit" not in cli("calibrate", held_out, "--held-out", fitted).err


def test_a_long_list_of_empty_classes_is_cut(cli: Cli) -> None:
    path = write("codes.npz", np.eye(4), np.array([3, 17, 99, 3]))
    said = cli("calibrate", path)
    assert re.search(r"empty classes +class-0, .* and 77 more\n", said.out)
    assert len(cli.json("calibrate", path)["empty_classes"]) == 97


def test_records_from_which_no_head_follows_are_refused_with_the_reason(cli: Cli) -> None:
    path = write("x.npz", np.eye(3), np.arange(3))  # one record a class has no covariance
    assert re.search(r"lda: NoRecords: 3 .*\b3 ", cli("calibrate", path, "--head", "lda").error)


def test_rows_of_one_id_are_all_fitted_or_all_held_out(cli: Cli) -> None:
    """A head that memorises persons, and nothing else, is wrong about all held-out ones."""
    rng = np.random.default_rng(0)
    people, labels = rng.standard_normal((60, 64)), rng.integers(0, 2, 60)
    of = np.repeat(np.arange(60), 5)
    features = people[of] + 0.01 * rng.standard_normal((300, 64))
    np.savez("named.npz", features=features, labels=labels[of], ids=of)
    np.savez("bare.npz", features=features, labels=labels[of])
    words = ("--held-out", 0.3)
    named, bare = (cli.json("calibrate", f"{name}.npz", *words) for name in ("named", "bare"))
    assert named["held_out"] % 5 == 0
    assert named["accuracy"] < 0.8 < bare["accuracy"]


def test_a_table_says_the_same_as_arrays(cli: Cli) -> None:
    """With words as labels, ids under a custom name, and unusable rows."""
    rng = np.random.default_rng(1)
    features, labels = records(rng, 60)
    ids, words = np.repeat(np.arange(20), 3), np.array(["ash", "class-0", "class-1"])[labels]
    np.savez("a.npz", features=features, labels=labels, ids=ids)
    lines = [
        f"{','.join(map(str, row))},{word},{each}"
        for row, word, each in zip(features, words, ids, strict=True)
    ]
    lines += [f"{','.join('1' * DIM)},,1", f"{','.join('0' * DIM)},ash,1"]
    names = ",".join(f"f{index}" for index in range(DIM))
    Path("a.csv").write_text("\n".join([f"{names},label,patient", *lines]))
    arrays = cli.json("calibrate", "a.npz", "--held-out", 0.3)
    table = cli.json("calibrate", "a.csv", "--held-out", 0.3, "--id-column", "patient")
    assert table.pop("class_keys") == ["ash", "class-0", "class-1"]
    [read], _ = table.pop("read"), arrays.pop("read")
    assert table == arrays
    assert sum(read["skipped"].values()) == 2


def test_files_that_do_not_fit_together(cli: Cli, files: list[Path]) -> None:
    wide = write("wide.npz", np.eye(3), np.arange(3))
    assert cli("calibrate", files[0], wide).error.startswith("wide.npz")
    error = cli("calibrate", files[0], "--held-out", wide).error
    assert error.startswith("wide.npz")
    assert not Path("made").exists()


def test_no_features_are_overwritten(cli: Cli, files: list[Path]) -> None:
    before = files[0].read_bytes()
    for words in ((files[0],), (files[1], "--held-out", files[0])):
        assert cli("calibrate", *words, "--output", files[0]).error
    assert files[0].read_bytes() == before
    assert cli("calibrate", files[0], "--output", cli.folder).error
    error = cli("calibrate", files[0], "--output", files[1] / "made" / "head.safetensors").error
    assert str(files[1].absolute()) in error


def test_what_follows_from_own_records_is_one_s_own_to_read(cli: Cli, files: list[Path]) -> None:
    old = Path("head.safetensors")
    old.write_text("of another day")
    old.chmod(0o644)
    Path("linked.safetensors").symlink_to(old)
    with old.open() as reading:
        cli.json("calibrate", *files, "--output", "linked.safetensors")
        assert reading.read() == "of another day"  # the file was replaced, not written over
    assert stat.S_IMODE(old.lstat().st_mode) == 0o600
    assert Path("linked.safetensors").is_symlink()
    assert not list(cli.folder.glob(".*"))


def test_more_than_fits_is_refused_at_once(
    cli: Cli, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda _: 10_000)  # pages and their size: 100 MB
    wide = write("wide.npz", np.eye(2, 200), np.array([0, 65_000]))  # labels that are ids
    assert "100" not in cli("calibrate", files[0]).err
    assert "0.1 GB" in cli("calibrate", wide).error
    many = write("many.npz", np.eye(2, 200), np.array([0, 1000]))
    assert cli("calibrate", many, "--head", "ccvr").error  # although the sums of ffc would fit


def test_a_system_that_does_not_tell_its_memory_fits_a_head(
    cli: Cli, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sysconf")  # Windows has none
    assert cli.json("calibrate", *files)["records"] == 63


def test_records_close_together_have_random_features(cli: Cli) -> None:
    features, labels = records(np.random.default_rng(2), 60)
    close = write("close.npz", features + 100, labels)
    assert cli.json("calibrate", close, "--head", "random-features")["records"] == 60


@pytest.mark.parametrize("name", HEAD_KINDS)
def test_every_head_is_fitted_saved_and_judged(name: str, cli: Cli, files: list[Path]) -> None:
    said = cli.json("calibrate", *files, "--head", name, "--held-out", 0.3)
    assert said["records"] + said["held_out"] == 63
    assert said["accuracy"] > 0.7  # of some twenty records
    content = Path("head.safetensors").read_bytes()
    saved = Calibrated.of(load(content), notes_in(content, HEAD_METADATA))
    assert saved.temperature == said["temperature"]
    features, labels = (
        np.concatenate([np.load(path)[key] for path in files]) for key in ("features", "labels")
    )
    assert (saved.predict(features) == labels).mean() > 0.8
    assert cli.json("calibrate", *files, "--head", name, "--held-out", 0.3) == said


@pytest.mark.parametrize(
    "words",
    [
        ("--head", "best"),
        ("--prior", "uniform"),
        ("--prior", "no.txt", "--held-out", 0.3),
        ("--held-out", 1.5),
        ("--held-out", 1e-9),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[object, ...], cli: Cli, files: list[Path]) -> None:
    assert cli("calibrate", *files, *words).error
    assert not Path("head.safetensors").exists()


@pytest.mark.parametrize("share", ["20%", "20 %", "0,2", "1.5"])
def test_a_share_that_is_written_otherwise_is_refused_with_how_to_write_it(
    share: str, cli: Cli, files: list[Path]
) -> None:
    error = cli("calibrate", *files, "--held-out", share).error
    assert error.startswith(f"--held-out {share}:")
    assert " 0.2," in error


@pytest.mark.parametrize("shares", [[0.5, 0.5], [1.0] * 4, [[1.0, 1.0, 1.0]] * 2])
def test_shares_of_another_number_of_classes_are_refused_with_the_classes_in_order(
    shares: list[Any], cli: Cli
) -> None:
    features, labels = records(np.random.default_rng(2), 60)
    path = write("x.npz", features, np.array(["cedar", "ash", "beech"])[labels])
    np.savetxt("shares.txt", shares)
    for more in ((), ("--held-out", 0.3)):
        error = cli("calibrate", path, "--head", "lda", "--prior", "shares.txt", *more).error
        assert f"--prior shares.txt: got {np.size(shares)} numbers, expected 3" in error
        assert error.endswith("ash, beech, cedar")


def test_other_class_shares_keep_the_temperature(cli: Cli) -> None:
    # The hold-out set has the old shares: its own temperature would undo the shift.
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(int)
    path = write("x.npz", rng.normal(size=(400, 3)) + np.outer(1 + labels, [1, 0, 0]), labels)
    found, even = (
        cli.json("calibrate", path, "--held-out", path, *more) for more in ((), ("--prior", "uniform"))
    )
    assert even["temperature"] == found["temperature"]
    assert even["accuracy"] < found["accuracy"]


def test_columns_of_length_1_and_other_shares_of_the_classes(cli: Cli, files: list[Path]) -> None:
    with np.load(files[0]) as data:
        rare = (data["labels"] > 0) | (np.arange(len(data["labels"])) < 4)  # two records of class 0 are left
        path = write("rare.npz", data["features"][rare], data["labels"][rare])
        counts = np.bincount(data["labels"][rare])
    held = ("--held-out", files[1])

    def fitted(*more: object) -> Calibrated:
        cli.json("calibrate", path, *more)
        content = Path("head.safetensors").read_bytes()
        return Calibrated.of(load(content), notes_in(content, HEAD_METADATA))

    plain, unit = fitted().head, fitted("--unit-columns").head
    np.testing.assert_allclose(unit.weights, plain.with_unit_columns().weights)
    assert unit.bias is not None
    np.testing.assert_allclose(np.linalg.norm(np.vstack([unit.weights, unit.bias]), axis=0), 1)

    found, even = fitted(*held), fitted("--prior", "uniform", *held)
    assert found.temperature is not None
    expected = plain.with_prior(counts, np.ones(CLASSES), temperature=found.temperature)
    assert plain.bias is not None
    assert even.head.bias is not None
    np.testing.assert_array_equal(even.head.weights, plain.weights)
    np.testing.assert_allclose(even.head.bias, expected.bias)  # type: ignore[arg-type]
    assert even.head.bias[0] - plain.bias[0] == (even.head.bias - plain.bias).max()

    Path("shares.txt").write_text("\n".join(map(str, counts)))
    np.testing.assert_allclose(fitted("--prior", "shares.txt", *held).head.bias, plain.bias)  # type: ignore[arg-type]
    lda = fitted("--head", "lda").head
    same = fitted("--head", "lda", "--prior", "uniform").head
    np.testing.assert_allclose(same.bias, lda.with_prior(counts, np.ones(CLASSES)).bias)  # type: ignore[arg-type]
