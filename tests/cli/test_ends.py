"""Rounds that end without a sum, by commands: past their latest end, and closed by the admin."""

import shutil
from collections.abc import Callable

import pytest

from client_sdk.operator import Operator
from client_sdk.store import Store
from tests.support.cli import PATIENCE_S, PERIOD, Cli, CliConsortium, until
from veilsum.protocol.messages import Roster
from veilsum.protocol.rest import RoundView
from veilsum.study.progress import CLOSED_EARLY_ADVICE

Make = Callable[..., CliConsortium]
QUICK = {"upload = 600": "upload = 1", "answer = 60": "answer = 1"}
"""The shortest attempt lasts upload + 3 · answer."""


def overdue(c: CliConsortium) -> str:
    """Play a round past its latest end, with nothing uploaded."""
    cohort = c.enrolled()
    view = c.cli.operate("operator", "round", "open", cohort, "--lifetime-s", 5)
    watched = c.cli(*c.cli.at("operator", "round", "watch", view["round"], "--json"))
    assert watched.code == 1
    assert watched.values["state"] == "erasing"
    return str(view["round"])


def test_the_admin_closes_a_round_under_an_older_roster(consortium: Make, remote: Cli) -> None:
    c = consortium(edits=QUICK)
    cohort = c.enrolled()
    round_id = remote.operate("operator", "round", "open", cohort, "--lifetime-s", 4)["round"]
    lost = remote.at("admin", "close", round_id, "--folder", c.folder / "admin")
    assert remote(*lost).code == 1  # before its latest end
    until(remote.url, c.admin, lambda _, rounds: rounds[-1].state == "erasing")
    remote("admin", "new", "other")
    assert remote(*remote.at("admin", "close", round_id, "--folder", "other")).code == 1
    first = c.roster.read_bytes()
    remote.json("admin", "roster", c.draft, "--remove", "m2", "--folder", c.folder / "admin")
    remote.operate("admin", "publish", c.roster)
    assert remote(*lost).code == 1  # the newest roster is another one
    for other in (c.draft, c.study):
        assert str(other) in remote(*lost, "--roster", other).error
    (c.folder / "first.bin").write_bytes(first)
    assert Roster.from_bytes(first).number == 1
    assert remote.json(*lost, "--roster", c.folder / "first.bin")["state"] == "lost"


def test_the_admin_closes_what_the_coordinator_does_not_know_by_its_context(
    consortium: Make, remote: Cli
) -> None:
    c, context = consortium(), "7" * 64
    unknown = remote.at("admin", "close", context)
    assert remote.json(*unknown)["state"].startswith("unknown")
    assert "context" in remote(*remote.at("admin", "close", context[1:])).error
    assert "not-found" in remote(*remote.at("admin", "close", context[:16])).error
    remote("admin", "new", "other")
    assert remote(*unknown, "--folder", "other").code == 1
    for _ in range(2):
        done = remote(*unknown, "--folder", c.folder / "admin", "--json")
        assert (done.values["context"], done.values["state"]) == (context, "lost")
        assert CLOSED_EARLY_ADVICE in done.err


@pytest.mark.slow
def test_the_admin_does_not_lose_what_can_be_repeated(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = consortium(edits=QUICK)
    round_id, shown = overdue(c), Operator.round

    def certified(client: Operator, name: str, after: int | None = None) -> RoundView:
        return shown(client, name, after).model_copy(update={"survivors": c.members})

    with monkeypatch.context() as patch:
        patch.setattr(Operator, "round", certified)
        refused = remote(*remote.at("admin", "close", round_id, "--folder", c.folder / "admin"))
    assert f"round cancel {round_id}" in refused.error
    assert remote.json(*remote.at("operator", "round", "status", round_id))["state"] == "erasing"


def test_a_result_that_a_killed_command_did_not_save_is_saved_by_the_next_and_a_repeat_beside_it(
    consortium: Make, remote: Cli
) -> None:
    c = consortium()
    record, _ = c.held()
    assert Store(c.folder / "m0").unexported_folders() == ()
    shutil.rmtree(c.folder / "m0" / "results")  # as if it had been killed before it saved the result
    (c.folder / "m0" / "state" / "results" / record["round"] / "exported").unlink()
    other = c.write("other", [[1.0]], [0])
    joined = c.join("m0", "--json", "--test-set", other).result(PATIENCE_S)
    again = joined.values
    assert (again["record"]["round"], again["saved"]) == (record["round"], str(c.result("m0")))
    words = ("operator", "cohort", "open", c.study, "--period", PERIOD, "--repeats", record["context"])
    cohort = remote.operate(*words)["cohort"]
    joins = [c.join(member, "--json") for member in c.members]
    until(remote.url, c.admin, lambda view, _: view.cohort == cohort and view.state == "formed")
    remote.operate("operator", "round", "open", cohort)
    saved = [each.result(PATIENCE_S).values["saved"] for each in joins]
    for member, place in zip(c.members, saved, strict=True):
        assert place == f"{c.result(member)}.2"
        assert remote.json("verify", place, "--admin-key", c.admin)["record"]["round"] != record["round"]
        kept = remote.json("verify", c.result(member), "--admin-key", c.admin)["record"]
        assert kept["round"] == record["round"]
