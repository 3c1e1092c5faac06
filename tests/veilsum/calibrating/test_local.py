import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file

from calibration import FFCStatistics, solve_ffc
from calibration.head_file import Calibrated, notes_in
from calibration.questions import QUESTIONS, kind
from protocol.rest import HEAD
from tests.threads import later
from tests.veilsum.cli import CLASSES, DIM, Cli, records
from veilsum.calibrating.order import DERIVED, HEADS


@pytest.fixture
def files(cli: Cli) -> list[Path]:
    rng = np.random.default_rng(3)
    return [write(f"part{index}.npz", *records(rng, 20 + index)) for index in range(3)]


def write(name: str, features: Any, labels: Any) -> Path:
    np.savez(name, features=features, labels=labels)
    return Path(name)


def test_several_files_are_one(cli: Cli, files: list[Path]) -> None:
    said = cli.json("calibrate", *files, "--bias", "--held-out", files[0])
    pooled = FFCStatistics(DIM, CLASSES, bias=True)
    for path in files:
        with np.load(path) as data:
            pooled.update(data["features"], data["labels"])
    expected, saved = solve_ffc(pooled), load_file("head.safetensors")
    np.testing.assert_allclose(saved["weights"], expected.weights, rtol=0, atol=1e-12)
    assert expected.bias is not None
    np.testing.assert_allclose(saved["bias"], expected.bias, rtol=0, atol=1e-12)
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
    said = cli.json("calibrate", path, "--held-out", path, "--ridge", 1)
    assert said["empty_classes"] == [0]
    assert said["accuracy"] == 1
    assert "empty classes  0\n" in cli("calibrate", path).out


def test_the_highest_label_of_all_files_counts(cli: Cli, files: list[Path]) -> None:
    high = write("high.npz", np.eye(1, DIM), np.array([7]))
    assert cli.json("calibrate", files[0], high)["classes"] == 8
    assert cli.json("calibrate", files[0], "--classes", 5)["empty_classes"] == [3, 4]
    error = cli("calibrate", files[0], "--held-out", high).error
    assert error.startswith("high.npz: 1 of 1 labels lie outside 0…2: 7 in row 0")
    assert "or more classes" in error
    assert cli.json("calibrate", files[0], "--held-out", high, "--classes", 8)["accuracy"] == 0
    assert cli("calibrate", high, "--classes", 3).error.startswith("high.npz: 1 of 1 labels")


def test_files_that_do_not_fit_together(cli: Cli, files: list[Path]) -> None:
    wide = write("wide.npz", np.eye(3), np.arange(3))
    assert cli("calibrate", files[0], wide).error.startswith("wide.npz: features have shape (3, 3)")
    error = cli("calibrate", files[0], "--held-out", wide).error
    assert error == f"wide.npz: features have shape (3, 3), the head takes (n, {DIM})"
    np.save("x.npy", np.eye(3))
    np.save("y.npy", np.arange(3))
    assert cli.json("calibrate", "x.npy", "--labels", "y.npy")["records"] == 3
    assert "--labels goes with one file" in cli("calibrate", "x.npy", files[0], "--labels", "y.npy").error
    assert not Path("made").exists()


def test_no_features_are_overwritten(cli: Cli, files: list[Path]) -> None:
    before = files[0].read_bytes()
    for words in ((files[0],), (files[1], "--held-out", files[0])):
        assert "would replace the features" in cli("calibrate", *words, "--output", files[0]).error
    assert files[0].read_bytes() == before
    assert "name a file in it" in cli("calibrate", files[0], "--output", cli.folder).error
    error = cli("calibrate", files[0], "--report", files[1] / "made" / "report.html").error
    assert f"is to lie in {files[1].absolute()}, which is a file" in error


def test_what_follows_from_own_records_is_one_s_own_to_read(cli: Cli, files: list[Path]) -> None:
    old = Path("report.html")
    old.write_text("of another day")
    old.chmod(0o644)
    Path("linked.safetensors").symlink_to("head.safetensors")
    words = ("--report", old, "--output", "linked.safetensors", "--parameter", "publish=lda")
    with old.open() as reading:
        cli.json("calibrate", *files, "--held-out", 0.3, *words)
        assert reading.read() == "of another day"  # the file was replaced, not written over
    for made in ("report.html", "head.safetensors", "linked.lda.safetensors"):
        assert stat.S_IMODE(Path(made).lstat().st_mode) == 0o600
    assert Path("linked.safetensors").is_symlink()
    assert not list(cli.folder.glob(".*"))


def test_a_pipe_is_written_to(cli: Cli, files: list[Path]) -> None:
    os.mkfifo("pipe")
    reading = later(Path("pipe").read_bytes)
    cli.json("calibrate", *files, "--output", "pipe")
    assert load(reading.result(120))["weights"].shape == (DIM, CLASSES)
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_more_than_fits_is_refused_at_once(
    cli: Cli, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--classes 65536 is more than 65535" in cli("calibrate", files[0], "--classes", 65536).error
    monkeypatch.setattr("veilsum.calibrating.local.memory_bytes", lambda: 200_000_000)
    wide = write("wide.npz", np.eye(2, 200), np.array([0, 65_000]))  # labels that are ids
    error = cli("calibrate", wide).error
    assert "sums of ffc over 65001 classes and 200 features take 0.3 GB at the least" in error
    assert "and this machine has 0.2 GB: are the labels class indices from 0" in error
    error = cli("calibrate", wide, "--held-out", 0.5).error
    assert "figures of records held out over 65001 classes and 200 features take 33.8 GB" in error
    monkeypatch.setattr("veilsum.calibrating.local.memory_bytes", lambda: 100_000_000)
    many = write("many.npz", np.eye(2, 200), np.array([0, 1000]))
    error = cli("calibrate", many, "--head", "ccvr").error  # whose sums of ffc fit
    assert "sums of ccvr over 1001 classes and 200 features take 0.3 GB at the least" in error
    assert not Path("head.safetensors").exists()


def test_other_lengths(cli: Cli, files: list[Path]) -> None:
    with np.load(files[0]) as data:
        long = write("long.npz", 5 * data["features"], data["labels"])
    said = cli.json("calibrate", long, "--normalise", "--held-out", long)
    assert said["accuracy"] == cli.json("calibrate", files[0], "--held-out", files[0])["accuracy"]


ROUND = {"--folder": "m0", "--cohort": "00" * 32, "--admin-key": "00" * 32, "--lineage": "x"}


@pytest.mark.parametrize("given", [("--cohort", "00" * 32), ("--lineage", "x"), ("--round", "0" * 16)])
def test_a_round_takes_an_identity(given: tuple[str, str], cli: Cli, files: list[Path]) -> None:
    error = cli("calibrate", files[0], *given).error
    assert error == f"only a round takes {given[0]}: pass --folder with your identity too"
    assert "no admin's key is pinned in m0" in cli("calibrate", files[0], "--folder", "m0").error


@pytest.mark.parametrize("given", [("--classes", 3), ("--bias",), ("--ridge", 0.5)])
def test_a_round_s_terms_are_not_ones_own(given: tuple[object, ...], cli: Cli, files: list[Path]) -> None:
    words = [word for item in ROUND.items() for word in item]
    error = cli("calibrate", files[0], *words, *given).error
    assert error == f"the round's terms fix {given[0]}: leave that out"
    assert "one file" in cli("calibrate", *files, *words).error
    assert "no.npz does not exist" in cli("calibrate", files[0], *words, "--held-out", "no.npz").error


@pytest.mark.parametrize(
    "name", [name for name in HEADS if name in DERIVED or (name in QUESTIONS and kind(name).exact)]
)
def test_every_head_is_fitted_saved_and_judged(name: str, cli: Cli, files: list[Path]) -> None:
    few = ("--parameter", "size=64") if name == "rff" else ()
    said = cli.json("calibrate", *files, "--head", name, "--held-out", 0.3, *few)
    assert said["records"] + said["held_out"] == 63
    assert said["accuracy"] >= 0.8
    content = Path("head.safetensors").read_bytes()
    saved = Calibrated.of(load(content), notes_in(content, HEAD))
    assert saved.temperature == said["temperature"]
    features, labels = (
        np.concatenate([np.load(path)[key] for path in files]) for key in ("features", "labels")
    )
    assert (saved.predict(features) == labels).mean() > 0.8
    assert cli.json("calibrate", *files, "--head", name, "--held-out", 0.3, *few) == said
    assert all(Path(f"head.{document}.safetensors").exists() for document in said["documents"])


@pytest.mark.parametrize("name", ["mean", "refine", "centred"])
def test_a_head_that_exists_under_noise_alone_takes_a_round(name: str, cli: Cli, files: list[Path]) -> None:
    for more in ((), ("--explain",)):
        error = cli("calibrate", *files, "--head", name, *more).error
        assert error == f"{name} exists under noise alone: only a round ends in it"


def test_what_follows_beside_a_head(cli: Cli, files: list[Path]) -> None:
    assert cli.json("calibrate", *files, "--parameter", "publish=pooled,ncm")["documents"] == [
        "ncm",
        "pooled",
    ]
    pooled = load_file("head.pooled.safetensors")
    assert pooled["V"].trace() == pytest.approx(63)


def test_what_rounds_would_take_is_said_before_anything_is_done(cli: Cli, files: list[Path]) -> None:
    more = ("--head", "rff", "--parameter", "size=16", "--explain")
    first, second = cli.json("calibrate", *files, *more)["rounds"]
    assert (first["question"], first["numbers"]) == ("ffc", DIM * (DIM + 1) // 2 + DIM * CLASSES + CLASSES)
    assert first["upload_bytes"] == 6 * first["numbers"]
    assert (second["question"], second["numbers"]) == ("rff", 16 * 17 // 2 + 16 * CLASSES + CLASSES)
    [only] = cli.json("calibrate", *files, "--head", "lda", "--explain")["rounds"]
    assert only["members_learn"] == "lda"
    assert only["coordinator_learns"] == QUESTIONS["ffc"].learns
    assert not list(Path().glob("*.safetensors"))


def test_the_report_is_one_file_with_its_figures(cli: Cli, files: list[Path]) -> None:
    said = cli.json("calibrate", *files, "--held-out", 0.3, "--report", "made/report.html")
    page = Path(said["report"]).read_text()
    assert page.count("<img src=") == page.count("data:image/svg+xml") == 4
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert f"of {said['held_out']} records held out" in page
    assert "nothing was sent to anybody" in page
    cli.json("calibrate", *files, "--ridge", 1, "--report", "plain.html")
    assert "pass <code>--held-out</code>" in Path("plain.html").read_text()
    cli.json("calibrate", *files, "--head", "ncm", "--held-out", files[0], "--report", "ncm.html")
    assert "λ by" not in Path("ncm.html").read_text()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--head", "best"), "no head is called best: choose one of ffc, "),
        (("--head", "lda", "--ridge", 1), "a head of lda has no λ"),
        (("--head", "ccvr", "--ridge", 1), "a ccvr head takes no --ridge"),
        (("--head", "rff", "--bias"), "a rff head takes no bias"),
        (("--head", "rff", "--parameter", "length=2"), "no parameter length; it has "),
        (("--prior", "uniform"), "--prior takes scores that are log-odds: pass --held-out"),
        (("--prior", "no.txt", "--held-out", 0.3), "--prior no.txt is neither uniform nor a text file"),
        (("--head", "mean", "--unit-columns"), "mean ends in no head: leave --unit-columns"),
        (("--held-out", 1.5), "write one between 0 and 1, or a file"),
        (("--held-out", 1e-9), "kept none of so few records back"),
        (("--report", "head.safetensors"), "--report and --output name the same file"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[object, ...], refusal: str, cli: Cli, files: list[Path]
) -> None:
    assert refusal in cli("calibrate", *files, *words).error
    assert not Path("head.safetensors").exists()


def test_a_report_without_what_draws_it(cli: Cli, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    error = cli("calibrate", *files, "--report", "report.html").error
    assert error == "--report draws with the training extra: pip install 'veilsum[training]'"


def test_columns_of_length_1_and_other_shares_of_the_classes(cli: Cli, files: list[Path]) -> None:
    with np.load(files[0]) as data:
        rare = (data["labels"] > 0) | (np.arange(len(data["labels"])) < 4)  # two records of class 0 are left
        path = write("rare.npz", data["features"][rare], data["labels"][rare])
        counts = np.bincount(data["labels"][rare])
    held = ("--held-out", files[1])

    def fitted(*more: object) -> Calibrated:
        cli.json("calibrate", path, "--bias", *more)
        content = Path("head.safetensors").read_bytes()
        return Calibrated.of(load(content), notes_in(content, HEAD))

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
