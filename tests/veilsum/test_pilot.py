"""`veilsum pilot`: every key of a consortium on one machine, then rounds over it."""

import threading
from pathlib import Path

import numpy as np
import pytest

from client_sdk import Identity
from tests.threads import later
from tests.veilsum.cli import CLASSES, DIM, TOKEN, Cli, records
from veilsum.pinning import pin, pinned

NAMES = ("a", "b", "c")
MEMBERS = tuple(word for name in NAMES for word in ("--member", name))


def written(folder: Path, seed: int) -> Path:
    features, labels = records(np.random.default_rng(seed), 60)
    path = folder / f"{seed}.npz"
    np.savez(path, features=features, labels=labels)
    return path


def test_two_rounds_and_a_command_for_each_member(remote: Cli) -> None:
    pilot = remote.at("pilot", "try", *MEMBERS, "--token", TOKEN)
    made = remote.json(*pilot)
    assert made["state"] == "enrolling"
    assert remote.json(*pilot) == made  # again, nothing new
    for lineage in ("main", "december"):
        round_ = later(remote, *pilot, "--dim", DIM, "--classes", CLASSES, "--json")
        joins = [
            later(
                remote.json,
                *remote.at("member", "join", f"try/{name}", "--lineage", lineage),
                *("--features", written(remote.folder, len(lineage) + index)),
            )
            for index, name in enumerate(NAMES)
        ]
        assert [each.result(120)["counted"] for each in joins] == [True] * 3
        outcome = round_.result(120)
        assert (outcome.code, outcome.values["state"], outcome.values["cohort"]) == (
            0,
            "done",
            made["cohort"],
        )
    assert "a takes part by: veilsum member join try/a --features FILE" in outcome.err
    assert remote.json("verify", "try/a/result", "--admin-key", made["federation"])["verified_against"]

    grown = remote.json(*pilot, "--member", "d")  # another roster, another cohort
    assert grown["federation"] == made["federation"]
    assert grown["cohort"] != made["cohort"]


def test_an_enrolment_that_fails(remote: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pilot = remote.at("pilot", "try", *MEMBERS, "--token", TOKEN)
    cohort = remote.json(*pilot)["cohort"]
    waits = threading.Event()
    monkeypatch.setattr("veilsum.following.note", lambda _text: waits.set())
    watching = later(remote, *pilot, "--dim", DIM, "--classes", CLASSES)
    assert waits.wait(120)
    remote.operate("operator", "cohort", "close", cohort)
    assert "run this again for another cohort" in watching.result(120).error
    assert remote.json(*pilot)["cohort"] != cohort


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--member", "a", "--member", "b", "--member", "a"), "fewer than three"),
        ((*MEMBERS, "--dim", 6), "--dim and --classes go together"),
        ((*MEMBERS, "--extractor", "ab"), "is not an extractor's digest"),
    ],
)
def test_what_means_nothing(cli: Cli, words: tuple[object, ...], why: str) -> None:
    assert why in cli("pilot", "try", *words).error
    assert not Path("try").exists()


def test_a_member_joins_what_its_admin_leads(remote: Cli) -> None:
    admin = remote.json("admin", "new", "admin")["federation"]
    remote.json("member", "new", "a", "--member", "a")
    join = remote.at("member", "join", "a", "--features", written(remote.folder, 0))
    assert "no admin's key is pinned in a" in remote(*join).error
    other = remote.json("member", "new", "b", "--member", "b", "--admin-key", admin.upper())
    assert Path("b/admin-key").read_text() == f"{admin}\n"
    draft: tuple[str, ...] = ("roster.json", "--publish-rare-classes", "--member", f"b={other['public_key']}")
    for name in ("c", "d"):
        draft += (
            "--member",
            f"{name}={remote.json('member', 'new', name, '--member', name)['public_key']}",
        )
    remote.json(*remote.at("admin", "roster", *draft, "--extractor", "ab" * 32))
    remote.operate("admin", "sign", "roster.json", "--folder", "admin", "--publish")
    at_b = remote.at("member", "join", "b", "--features", written(remote.folder, 0))
    assert "no cohort yet" in remote(*at_b).error
    assert "pins another admin's key" in remote(*at_b, "--admin-key", "cd" * 32).error


def test_a_pin_stays(tmp_path: Path) -> None:
    folder = Identity.create(tmp_path / "a", "a").folder
    pin(folder, "ab" * 32)
    pin(folder, "AB" * 32)
    assert pinned(folder, None) == pinned(folder, "ab" * 32) == "ab" * 32
    assert (folder / "admin-key").stat().st_mode & 0o777 == 0o600
