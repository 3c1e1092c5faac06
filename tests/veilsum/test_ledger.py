"""The ledger by commands: rounds past their latest end, exceptions, and what a member is shown of it."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_sdk import Identity, Member, Policy
from protocol.messages import LedgerException, Roster
from tests.threads import together
from tests.veilsum.cli import CLASSES, DIM, TOKEN, Cli, Consortium, records

Make = Callable[..., Consortium]


def enrol(c: Consortium) -> None:
    def one(member: str) -> None:
        policy = Policy(admin_key=c.admin)
        with Member(c.cli.url, Identity.load(c.folder / member), None, policy) as joined:
            joined.enrol(c.cohort)

    together(one, c.members)


SHORT = ("--upload-s", 0.2, "--answer-s", 0.2, "--lifetime-s", 3)


def test_an_overdue_round_ends_by_reports(consortium: Make, remote: Cli) -> None:
    c = consortium()
    enrol(c)
    round_id = c.open(*SHORT)
    watched = remote("operator", "round", "watch", round_id, "--url", remote.url)
    assert watched.code == 1
    assert "erasing" in watched.out
    assert f"veilsum admin close {round_id} --folder ADMIN" in watched.out
    again = remote("operator", "round", "open", c.cohort, "--dim", 6, "--classes", 3, "--extractor", "ab" * 32, "--url",
                   remote.url, "--token", TOKEN)  # fmt: skip
    assert "0 of 2 decryptors have reported" in again.error
    shown = remote(*remote.at("admin", "close", round_id), "--json")
    assert "Not signed" in shown.err
    assert (shown.values["reported"], shown.values["silent"]) == ([], list(c.members))
    assert "waits for reports" in remote(*c.words("m0", "--round", round_id)).error
    remote(*c.words("m1", "--round", round_id))
    status = remote("operator", "round", "status", round_id, "--url", remote.url).out
    assert "erased" in status
    assert "nothing was opened: open the next round" in status
    following = c.open()
    joining = [c.join(member, "--round", following) for member in c.members]
    outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes


def test_a_round_is_closed_by_the_admin_under_an_older_roster(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = consortium()
    enrol(c)
    round_id = c.open(*SHORT)
    lost = remote.at("admin", "close", round_id, "--folder", c.folder / "admin")
    assert remote("operator", "round", "watch", round_id, "--url", remote.url).code == 1
    with monkeypatch.context() as patch:
        patch.setattr("veilsum.lost.time", SimpleNamespace(time=lambda: 0.0))
        assert "members take no Lost before the round's latest end" in remote(*lost).error
    remote("admin", "new", "other")
    other = remote.at("admin", "close", round_id, "--folder", "other")
    assert "another federation's admin key" in remote(*other).error
    first = c.draft.with_suffix(".bin").read_bytes()
    remote.json("admin", "roster", c.draft, "--remove", "m2")
    remote.operate("admin", "sign", c.draft, "--folder", c.folder / "admin", "--publish")
    assert "formed under another roster than version 2: pass that one's signed file" in remote(*lost).error
    (c.folder / "first.bin").write_bytes(first)
    assert Roster.from_bytes(first).version_number == 1
    assert remote.json(*lost, "--roster", c.folder / "first.bin")["state"] == "lost"
    assert "the admin closed it" in remote("operator", "round", "status", round_id, "--url", remote.url).out


def test_exceptions_and_the_ledger(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open()
    outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    shown = remote.json(*remote.at("member", "ledger", c.folder / "m0"))
    [only] = shown["rounds"]
    assert (only["round"], only["ended"], only["sets"], only["own"]) == (round_id, "sum", [3], ["x"])
    assert [each["lineage"] for each in shown["lineages"]] == ["x"]
    assert {(group["size"], tuple(group["rounds"])) for group in shown["groups"]} == {(3, (round_id,))}
    assert shown["refused_next"][0] == "a sum in exact rounds over some but not all of m0, m1, m2"
    told = remote(*remote.at("member", "ledger", c.folder / "m0")).out
    for words in ("Rounds", "Your lineages", "Groups", "What would be refused next", "3 members"):
        assert words in told
    alone = remote.json("member", "ledger", c.folder / "m0")
    assert (alone["rounds"], len(alone["lineages"])) == ([], 1)

    signed = remote.json(
        *remote.at("admin", "exception", c.cohort, "--member", "m1", "--member", "m0"),
        *("--reason", "m1 leaves", "--folder", c.folder / "admin", "--output", "leave.bin"),
    )
    assert (signed["sequence"], signed["members"]) == (1, ["m0", "m1"])
    exception = LedgerException.from_bytes(Path("leave.bin").read_bytes())
    exception.verify(bytes.fromhex(c.admin), "admin")
    second = c.open("--exception", "leave.bin")
    refused = remote(*c.words("m0", "--round", second)).error
    assert refused.startswith("policy-refused: accept_exceptions: ")
    assert "m1 leaves" in refused
    joining = [c.join(member, "--round", second, "--accept-exceptions") for member in c.members]
    outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    other = remote(
        *("admin", "exception", c.cohort, "--member", "M1", "--sequence", 0, "--reason", "x"),
        *("--folder", c.folder / "admin", "--output", "bad.bin"),
    )
    assert "'M1' is not a name" in other.error
    assert not Path("bad.bin").exists()


def test_two_periods_are_combined(consortium: Make, remote: Cli) -> None:
    c = consortium()
    rng, rounds = np.random.default_rng(9), list[str]()
    for lineage in ("autumn", "winter"):
        c.files = [c.write(member, *records(rng, 40)) for member in c.members]
        joining = [
            c.later(*[lineage if word == "x" else word for word in c.words(member)]) for member in c.members
        ]
        if not rounds:
            c.formed()
        rounds.append(c.open("--classes", CLASSES + len(rounds)))  # the later period knows one more
        outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    made = remote.operate("operator", "round", "combine", *rounds, "--federation", c.admin)
    assert (made["rounds"], made["records"]) == (sorted(rounds), 240)
    # The key that `member join` was given when it enrolled is pinned since.
    words = ("operator", "round", "combined", made["combination"], "--folder", c.folder / "m0")
    other = remote(*remote.at(*words), "--output", "head.safetensors", "--admin-key", "cd" * 32)
    assert "pins another admin's key" in other.error
    checked = remote.json(*remote.at(*words), "--output", "head.safetensors")
    assert (checked["records"], checked["weights"]) == (240, [DIM, CLASSES + 1])
    assert list(load_file("head.safetensors")) == ["weights"]


def test_records_under_another_name_are_refused(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    c.open()
    outcomes = [future.result(120) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    second = c.open()
    words = ["y" if word == "x" else word for word in c.words("m0", "--round", second)]
    assert "40 of the records offered as lineage 'y' were used as lineage 'x' before" in remote(*words).error
    assert (
        "publish_rare_classes: this member wants"
        in remote(*c.words("m0", "--round", second, "--refuse-rare-classes")).error
    )


def test_a_ledger_of_nobody(cli: Cli) -> None:
    cli("member", "new", "a", "--member", "a")
    shown = cli.json("member", "ledger", "a")
    assert (shown["floor"], shown["rounds"], shown["lineages"]) == (3, [], [])
    assert (
        "has taken part in no federation yet"
        in cli("member", "ledger", "a", "--url", "http://127.0.0.1:9").error
    )


def test_rare_classes_are_withheld_unless_the_admin_signs_otherwise(cli: Cli) -> None:
    cli("admin", "new", "admin")
    words = ("admin", "roster", "r.json", "--coordinator", "09" * 32, "--member", f"a={'01' * 32}")
    assert cli.json(*words)["rare_classes"] == "withheld"
    sign = ("admin", "sign", "r.json", "--folder", "admin")
    assert cli.json(*sign)["rare_classes"] == "withheld"
    assert Roster.from_bytes(Path("r.bin").read_bytes()).withhold == 1
    assert cli.json(*words, "--publish-rare-classes")["version"] == 2
    assert json.loads(Path("r.json").read_text())["withhold"] is False
    assert cli.json(*words)["version"] == 2
    assert cli.json(*sign)["rare_classes"] == "published"
    assert Roster.from_bytes(Path("r.bin").read_bytes()).withhold == 0
