"""The ledger by commands: lost rounds that the admin closes, exceptions, and what a member is shown of it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from client_sdk import Identity, Member, Policy
from protocol.messages import LedgerException, Roster
from tests.veilsum.cli import CLASSES, DIM, TOKEN, Cli, Consortium, records

Make = Callable[..., Consortium]


def enrol(c: Consortium) -> None:
    def one(member: str) -> None:
        policy = Policy(admin_key=c.admin)
        with Member(c.cli.url, Identity.load(c.folder / member), None, policy) as joined:
            joined.enrol(c.cohort)

    for future in [c._pool.submit(one, member) for member in c.members]:
        future.result(60)


def test_a_lost_round_is_closed_by_the_admin(consortium: Make, remote: Cli) -> None:
    c = consortium()
    enrol(c)
    round_id = c.open("--upload-s", 0.2, "--answer-s", 0.2)
    watched = remote("round", "watch", round_id, "--url", remote.url)
    assert watched.code == 1
    assert "lost" in watched.out
    assert f"veilsum round lost {round_id} --folder ADMIN" in watched.out
    again = remote("round", "open", c.cohort, "--dim", 6, "--classes", 3, "--extractor", "ab" * 32, "--url",
                   remote.url, "--token", TOKEN)  # fmt: skip
    assert f"`veilsum round lost {round_id} --folder ADMIN`" in again.error
    lost = remote.at("round", "lost", round_id)
    shown = remote(*lost, "--json")
    assert "Not signed" in shown.err
    assert shown.values["silent"] == list(c.members)
    assert shown.values["reports"] == "0 of 2 needed"
    refused = remote(*lost, "--folder", c.folder / "admin").error
    assert "0 of 2 reports are in, m0, m1, m2 are silent: wait for them, or pass --incomplete" in refused
    for member in c.members[:2]:
        error = remote(*c.words(member, "--round", round_id)).error
        assert "waits for the admin to close it" in error
    remote("federation", "new", "other")
    assert "another federation's admin key" in remote(*lost, "--folder", "other").error
    closed = remote.json(*lost, "--folder", c.folder / "admin")
    assert closed == {
        "round": round_id,
        "reported": {"m0": "signed no sum", "m1": "signed no sum"},
        "silent": ["m2"],
        "reports": "2 of 2 needed",
        "counts_as_opened": [],
        "state": "abandoned",
    }
    assert "only a lost one waits for the admin" in remote(*lost).error
    assert "the admin closed it" in remote("round", "status", round_id, "--url", remote.url).out
    following = c.open()
    joining = [c.join(member, "--round", following) for member in c.members]
    outcomes = [future.result(60) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes


def test_a_lost_round_with_few_reports_and_an_older_roster(consortium: Make, remote: Cli) -> None:
    c = consortium()
    enrol(c)
    round_id = c.open("--upload-s", 0.2, "--answer-s", 0.2)
    assert remote("round", "watch", round_id, "--url", remote.url).code == 1
    first = c.draft.with_suffix(".bin").read_bytes()
    remote.json("federation", "roster", c.draft, "--remove", "m2")
    remote.operate("federation", "sign", c.draft, "--folder", c.folder / "admin", "--publish")
    lost = remote.at("round", "lost", round_id, "--folder", c.folder / "admin", "--incomplete")
    assert "formed under another roster than version 2: pass that one's signed file" in remote(*lost).error
    (c.folder / "first.bin").write_bytes(first)
    assert Roster.from_bytes(first).version_number == 1
    assert remote.json(*lost, "--roster", c.folder / "first.bin")["state"] == "abandoned"


def test_exceptions_and_the_ledger(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    round_id = c.open()
    outcomes = [future.result(60) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    shown = remote.json(*remote.at("ledger", c.folder / "m0"))
    [only] = shown["rounds"]
    assert (only["round"], only["ended"], only["sets"], only["own"]) == (round_id, "sum", [3], ["x"])
    assert [each["lineage"] for each in shown["lineages"]] == ["x"]
    assert {(group["size"], tuple(group["rounds"])) for group in shown["groups"]} == {(3, (round_id,))}
    assert shown["refused_next"][0] == "a sum in exact rounds over some but not all of m0, m1, m2"
    told = remote(*remote.at("ledger", c.folder / "m0")).out
    for words in ("Rounds", "Your lineages", "Groups", "What would be refused next", "3 members"):
        assert words in told
    alone = remote.json("ledger", c.folder / "m0")
    assert (alone["rounds"], len(alone["lineages"])) == ([], 1)

    signed = remote.json(
        *remote.at("round", "exception", c.cohort, "--member", "m1", "--member", "m0"),
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
    outcomes = [future.result(60) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    other = remote(
        *("round", "exception", c.cohort, "--member", "M1", "--sequence", 0, "--reason", "x"),
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
        outcomes = [future.result(60) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    made = remote.operate("round", "combine", *rounds, "--federation", c.admin)
    assert (made["rounds"], made["records"]) == (sorted(rounds), 240)
    # The key that `join` was given when it enrolled is pinned since.
    words = ("round", "combined", made["combination"], "--folder", c.folder / "m0")
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
    outcomes = [future.result(60) for future in joining]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    second = c.open()
    words = ["y" if word == "x" else word for word in c.words("m0", "--round", second)]
    assert "40 of the records offered as lineage 'y' were used as lineage 'x' before" in remote(*words).error
    assert (
        "publish_rare_classes: this member wants"
        in remote(*c.words("m0", "--round", second, "--refuse-rare-classes")).error
    )


def test_a_ledger_of_nobody(cli: Cli) -> None:
    cli("identity", "new", "a", "--member", "a")
    shown = cli.json("ledger", "a")
    assert (shown["floor"], shown["rounds"], shown["lineages"]) == (3, [], [])
    assert "has taken part in no federation yet" in cli("ledger", "a", "--url", "http://127.0.0.1:9").error


def test_rare_classes_are_withheld_unless_the_admin_signs_otherwise(cli: Cli) -> None:
    cli("federation", "new", "admin")
    words = ("federation", "roster", "r.json", "--coordinator", "09" * 32, "--member", f"a={'01' * 32}")
    assert cli.json(*words)["rare_classes"] == "withheld"
    sign = ("federation", "sign", "r.json", "--folder", "admin")
    assert cli.json(*sign)["rare_classes"] == "withheld"
    assert Roster.from_bytes(Path("r.bin").read_bytes()).withhold == 1
    assert cli.json(*words, "--publish-rare-classes")["version"] == 2
    assert json.loads(Path("r.json").read_text())["withhold"] is False
    assert cli.json(*words)["version"] == 2
    assert cli.json(*sign)["rare_classes"] == "published"
    assert Roster.from_bytes(Path("r.bin").read_bytes()).withhold == 0
