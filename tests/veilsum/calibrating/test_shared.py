"""`veilsum calibrate` through rounds that lead to the head it was asked for."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibration.questions import QUESTIONS
from client_sdk import Identity, Member, Policy
from tests.veilsum.cli import CLASSES, DIM, Cli, Consortium
from veilsum.features import split
from veilsum.pinning import pin

Make = Callable[..., Consortium]


def words(c: Consortium, index: int, *more: object) -> tuple[object, ...]:
    member = c.members[index]
    named: tuple[object, ...] = ("--folder", c.folder / member)
    if index == 2:
        pin(
            c.folder / member, c.admin
        )  # as `member new --admin-key` does; then the newest cohort, and a lineage's usual name
    else:
        named += ("--cohort", c.cohort, "--admin-key", c.admin, "--lineage", "x")
    head = c.folder / member / "head.safetensors"
    return c.cli.at("calibrate", c.files[index], *named, "--output", head, *more)


def test_two_rounds_lead_to_random_features(consortium: Make, remote: Cli) -> None:
    c = consortium()
    page = c.folder / "report.html"
    more = ("--head", "rff", "--held-out", 0.2, "--json")
    waiting = [c.later(*words(c, index, *more)) for index in (1, 2)]
    with Member(remote.url, Identity.load(c.folder / "m0"), None, Policy(admin_key=c.admin)) as early:
        early.enrol(c.cohort)
    c.formed()
    first = c.open()
    waiting.insert(0, c.later(*words(c, 0, *more, "--report", page, "--round", first)))
    [asked] = remote.json(*words(c, 0, "--head", "rff", "--explain", "--round", first))["rounds"]
    assert (asked["question"], asked["members"]) == ("ffc", 3)
    assert asked["coordinator_learns"] == QUESTIONS["ffc"].learns
    assert asked["numbers"] == DIM * (DIM + 1) // 2 + DIM * CLASSES + CLASSES
    assert asked["sums"] == f"V {DIM}×{DIM}, its upper triangle, U {DIM}×{CLASSES}, n {CLASSES}"
    assert asked["noise"].startswith("none: ")
    assert remote("operator", "round", "watch", first, "--url", remote.url).code == 0
    second = c.open("--statistic", "rff", "--parameter", "size=16", "--rests-on", first)
    ended = [future.result(120) for future in waiting]
    assert [each.code for each in ended] == [0, 0, 0], ended
    assert all(f"Round {first}, of ffc, is done; rff follows." in each.err for each in ended)
    said = ended[0].values
    assert (said["round"], said["chosen_by"]) == (second, "gcv")
    other = remote(*words(c, 0, "--head", "ffc", "--round", second)).error
    assert f"round {second} is none of ffc or ffc-bias or mean: leave --round out" in other
    held = [split(*records_in(path), 0.2)[1] for path in c.files]
    assert said["held_out"] == len(held[0][1])
    assert said["records"] == 120 - sum(len(labels) for _, labels in held)
    shown = page.read_text()
    assert "The sums are of 3 members of 3" in shown
    assert second in shown


def test_a_centred_head_waits_for_a_round_that_rests_on_means(consortium: Make, remote: Cli) -> None:
    c = consortium(4)
    waiting = [c.later(*words(c, index, "--head", "centred", "--json")) for index in range(4)]
    c.formed()
    means = c.open("--statistic", "mean", "--epsilon", 2)
    assert remote("operator", "round", "watch", means, "--url", remote.url).code == 0
    plain = c.open("--epsilon", 2)
    assert remote("operator", "round", "watch", plain, "--url", remote.url).code == 0
    last = c.open("--rests-on", means, "--epsilon", 2)
    ended = [future.result(120) for future in waiting]
    assert [each.code for each in ended] == [0] * 4, ended
    assert all(f"Round {plain}, of ffc, is done; centred follows." in each.err for each in ended)
    assert [each.values["round"] for each in ended] == [last] * 4
    assert set(load_file(ended[0].values["head"])) == {"weights", "centre"}


def test_what_is_published_beside_a_round_s_head(consortium: Make, remote: Cli) -> None:
    c = consortium()
    waiting = [
        c.later(*words(c, index, "--head", "lda", "--held-out", c.test, "--json", *more))
        for index, more in enumerate(((), (), ("--unit-columns",)))
    ]
    c.formed()
    said = remote.json(*words(c, 0, "--head", "lda", "--explain"))["rounds"]
    assert [each["question"] for each in said] == ["ffc"]
    assert "No round that leads there is open" in remote.said[-1].err
    c.open("--parameter", "publish=lda")
    ended = [future.result(120) for future in waiting]
    assert [each.code for each in ended] == [0, 0, 0], ended
    alone = remote.json("calibrate", *c.files, "--head", "lda", "--output", c.folder / "alone.safetensors")
    assert alone["records"] == ended[0].values["records"] == 120
    lda, plain = load_file(ended[0].values["head"]), load_file(c.folder / "alone.safetensors")
    np.testing.assert_allclose(lda["weights"], plain["weights"], rtol=1e-6)
    assert ended[0].values["accuracy"] > 0.9
    unit = load_file(ended[2].values["head"])
    np.testing.assert_allclose(np.linalg.norm([*unit["weights"], unit["bias"]], axis=0), 1)
    said = remote(*words(c, 0, "--head", "lda", "--prior", "uniform")).error
    assert said == "a round's record says no counts of classes for --prior: leave that out"


def test_a_head_of_one_s_own_beside_everybody_s(consortium: Make, remote: Cli) -> None:
    c = consortium()
    # The first member's labels are its own: what others call 0 it calls 1.
    features, labels = records_in(c.files[0])
    c.files[0] = c.write("m0", features, np.array([1, 0, 2])[labels])
    waiting = [c.later(*words(c, index, "--personal", "--held-out", 0.4, "--json")) for index in range(3)]
    c.formed()
    c.open("--parameter", "publish=pooled")
    ended = [future.result(120) for future in waiting]
    assert [each.code for each in ended] == [0, 0, 0], ended
    said = ended[0].values
    assert said["own_weight"] > 0
    assert said["accuracy"] > said["accuracy_of_the_shared_head"]
    saved = load_file(said["head"])["weights"]
    assert saved[0, 1] > saved[0, 0]
    assert saved[1, 0] > saved[1, 1]


def test_the_report_of_a_noisy_round_shows_the_edge_of_its_noise(consortium: Make, remote: Cli) -> None:
    c = consortium(4)
    page = c.folder / "report.html"
    waiting = [c.later(*words(c, 0, "--held-out", c.test, "--report", page, "--json"))]
    waiting += [c.join(member) for member in c.members[1:]]
    c.formed()
    c.open("--epsilon", 8)
    ended = [future.result(120) for future in waiting]
    assert [each.code for each in ended] == [0] * 4, ended
    shown = page.read_text()
    assert "eigenvalues lie above the noise&#x27;s edge of " in shown
    assert "Noise: ε = 8 at δ = 1e-05 for a record&#x27;s presence." in shown
    assert "Ridge head from noisy second moments, by shrinkage." in shown
    assert "How λ was chosen" not in shown
    assert shown.count("<img src=") == 3


def test_limits_are_for_rounds(cli: Cli) -> None:
    refused = cli("calibrate", "x.npz", "--members-min", 4, "--sigma-min", 0).error
    assert refused.startswith("only a round takes --members-min, --sigma-min: pass --folder")


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        (("--held-out", 0.2), "only a round takes --personal: pass --folder"),
        (("--held-out", "x.npz"), "--personal needs --held-out SHARE"),
        (("--held-out", 0.2, "--head", "ccvr"), "a personal head is one of ffc, not of ccvr"),
    ],
)
def test_a_personal_head_takes_a_round_and_records_held_out(
    more: tuple[object, ...], refusal: str, cli: Cli
) -> None:
    assert refusal in cli("calibrate", "x.npz", "--personal", *more).error


def records_in(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as data:
        return data["features"], data["labels"]
