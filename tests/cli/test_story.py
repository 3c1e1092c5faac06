"""From `admin new` to `verify`, by commands alone."""

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from client_sdk import Member, Records, Result
from client_sdk.agent import Agent
from client_sdk.effects import Flow
from client_sdk.errors import UnexpectedAnswer, Unreachable
from client_sdk.operator import Operator
from client_sdk.store import Store
from tests.support.cli import (
    CLASSES,
    DIM,
    EXTRACTOR,
    PATIENCE_S,
    PERIOD,
    TOKEN,
    Cli,
    CliConsortium,
    records,
    until,
)
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.cli.moments import Moments
from veilsum.protocol.errors import Misuse
from veilsum.protocol.messages import Study
from veilsum.protocol.study import read_content

Make = Callable[..., CliConsortium]


def test_the_whole_story(consortium: Make, remote: Cli) -> None:
    c = consortium(withhold=True)
    record, printed = c.held()
    assert (record["name"], record["period"], record["step"]) == ("digits", PERIOD, "sum")
    assert record["rows"] == 120
    assert record["holders"] == [3] * CLASSES
    for member in c.members:
        said = printed[member]
        assert said["record"]["signature"] == record["signature"]
        assert said["counted"] is True
        assert said["records"] == {
            "rows_used": 40,
            "records_spent": 1,
            "rows_skipped_unusable": 0,
            "rows_skipped_not_free": 0,
            "rows_held_out": 0,
            "rows_beyond_the_limit": 0,
        }
        checked = remote.json("verify", c.result(member), "--admin-key", c.admin)
        assert checked["record"]["signature"] == record["signature"]

    # The same head as from all files in one place.
    local = remote.json("calibrate", *c.files, "--output", c.folder / "local.safetensors")
    pooled, masked = (
        load_file(c.folder / "local.safetensors"),
        load_file(c.result("m0") / "weights.safetensors"),
    )
    assert masked["weights"].shape == (DIM, CLASSES)
    np.testing.assert_allclose(masked["weights"], pooled["weights"], rtol=0, atol=1e-6)
    assert record["solution"]["ridge"] == local["ridge"]

    # The same command again shows the same result, and no record is summed twice.
    again = c.run("--json").result(PATIENCE_S)
    assert again.code == 0
    assert again.values == record
    shown = remote.json("member", "ledger", c.folder / "m0")["runs"]
    assert [(each["study"], each["period"], each["state"], each["rows"]) for each in shown] == [
        ("digits", PERIOD, "spent", 40)
    ]

    for command in ("status", "watch", "result"):
        assert remote(*remote.at("operator", "round", command, record["round"])).code == 0
    transcript = c.folder / "transcript.json"
    remote.json(*remote.at("operator", "round", "transcript", record["round"], "--output", transcript))
    verdict = remote.json("verify", transcript, "--admin-key", c.admin, "--identity", c.folder / "m0")
    assert verdict["kept"] is True
    assert verdict["counted"] is True

    printed_text = "".join(outcome.out + outcome.err for outcome in remote.said)
    assert not [secret for secret in c.secrets() if secret in printed_text]


def test_join_ends_with_accuracy_on_hold_out_records(consortium: Make, remote: Cli) -> None:
    """One member's labels are in another order than all others': its own head is better on its records, and it is warned."""
    c = consortium(held_out=0.25)
    rng = np.random.default_rng(5)
    rows = 160  # a member draws by its own key which are held out: some 40, and surely more than it takes to tell
    for index, shift in enumerate((0, 1, 0)):
        features, labels = records(rng, rows)
        c.files[index] = c.write(f"m{index}", features, (labels + shift) % CLASSES, np.arange(rows))
    run = c.run("--json")
    joins = [c.join("m0"), c.join("m1"), c.join("m2", "--test-set", c.test)]
    honest, lying, with_file = (each.result(PATIENCE_S) for each in joins)
    assert run.result(PATIENCE_S).code == 0
    for outcome in (honest, lying, with_file):
        assert outcome.code == 0, outcome
        assert "hold-out" in outcome.err
    [used] = Store(c.folder / "m0").ledger.list_runs()
    assert f"160 can be used; {used.held_out} of these are held out" in honest.err
    assert "WARNING" in lying.err
    for member, outcome in zip(c.members, (honest, lying, with_file), strict=True):
        seen = Result.load(c.result(member)).judged
        assert seen is not None
        assert seen.worse == ("WARNING" in outcome.err)
    judged = Result.load(c.result("m0")).judged
    assert judged is not None
    assert judged.accuracy > 0.5
    assert 15 < judged.records < 80
    ledger = remote.json("member", "ledger", c.folder / "m0")["runs"]
    assert ledger[0]["rows"] == rows - judged.records
    printed = honest.err.replace("\n", " ")
    assert f"{judged.records} held out" in printed
    filed = Result.load(c.result("m2")).judged
    assert filed is not None
    assert filed.records == 30


def test_a_study_by_name(held: CliConsortium, remote: Cli) -> None:
    words = ("operator", "run", "digits", "--federation", held.admin, "--token", TOKEN)
    assert remote.json(*remote.at(*words), "--period", PERIOD)["name"] == "digits"
    unnamed = remote(*remote.at("operator", "run", "digits", "--token", TOKEN, "--period", PERIOD, "--json"))
    with Operator(remote.url, TOKEN) as operator:
        known = operator.coordinator().federations  # of other tests too
    if len(known) == 1:
        assert unnamed.values["name"] == "digits"
    else:
        assert unnamed.code == 1
        assert f"{len(known)} federations: pass --federation" in unnamed.values["error"]
    assert remote(*remote.at("operator", "run", "other", *words[3:])).code == 1


def test_step_by_step(consortium: Make, remote: Cli) -> None:
    c = consortium()
    joins = [c.join(member, "--json") for member in c.members]
    opened = remote.operate("operator", "cohort", "open", c.study, "--period", PERIOD)
    watched = remote(*remote.at("operator", "cohort", "watch", opened["cohort"], "--json"))
    assert watched.code == 0
    assert watched.values["quorum"]["members"] == 3
    foreseen = remote.operate("operator", "round", "open", opened["cohort"], "--dry-run")
    assert foreseen["spec"]["step"] == "sum"
    view = remote.operate("operator", "round", "open", opened["cohort"], "--lifetime-s", 4000)
    assert view["spec"]["name"] == "digits"
    assert remote(*remote.at("operator", "round", "watch", view["round"])).code == 0
    for each in joins:
        assert each.result(PATIENCE_S).values["record"]["round"] == view["round"]
    assert remote(*remote.at("operator", "cohort", "status", opened["cohort"])).code == 0
    closed = remote(*remote.at("admin", "close", view["round"], "--folder", c.folder / "admin"))
    assert "(done)" in closed.error


@pytest.mark.slow
def test_periods_add_up(consortium: Make, remote: Cli) -> None:
    c = consortium()
    rng = np.random.default_rng(4)
    parts, all_rows = [], list[Any]()
    for number, period in enumerate(("2026-10", "2026-11")):
        for index, member in enumerate(c.members):
            features, labels = records(rng, 30)
            all_rows.append((features, labels))
            c.files[index] = c.write(
                f"{member}-{period}", features, labels, [f"{number}-{row}" for row in range(30)]
            )
        run = c.run("--json", "--period", period)
        joins = [c.join(member) for member in c.members]
        assert [each.result(PATIENCE_S).code for each in joins] == [0, 0, 0]
        parts.append(run.result(PATIENCE_S).values["round"])
    combined = remote.operate("operator", "round", "combine", *parts)
    assert combined["periods"] == ["2026-10", "2026-11"]
    assert combined["rows"] == 180
    head = c.folder / "combined.safetensors"
    words = ("operator", "round", "combined", combined["combination"], "--folder", c.folder / "m0")
    remote.json(*remote.at(*words, "--output", head))
    pooled = FFCStatistics(DIM, CLASSES, constant=True)
    for rows in all_rows:
        pooled.update(*rows)
    expected = solve_ffc(pooled, combined["ridge"]).weights
    np.testing.assert_allclose(load_file(head)["weights"], expected, rtol=0, atol=1e-6)


def test_a_changed_result_does_not_verify(held: CliConsortium, cli: Cli) -> None:
    folder = Path(shutil.copytree(held.result("m0"), "result"))
    verify = ("verify", folder, "--admin-key", held.admin)
    assert cli(*verify).code == 0
    assert cli("verify", folder, "--admin-key", "00" * 32).error.startswith("wrong-federation")
    for wrong in ("", "zz", "00" * 31):
        assert cli("verify", folder, "--admin-key", wrong).code
    for path in sorted(folder.iterdir()):
        raw = path.read_bytes()
        changed = bytearray(raw)
        changed[len(raw) // 2] ^= 1
        path.write_bytes(changed)
        assert f"{folder}" in cli(*verify).error.replace("result-mismatch", ""), path
        path.unlink()
        refused = cli(*verify, "--json")
        if path.name in {"model-card.md", "transcript.json"}:  # not every result has them
            assert refused.code == 0
        else:
            assert refused.code == 1
            assert set(json.loads(refused.out)) == {"error", "cause"}
        path.write_bytes(raw)
    assert cli.json(*verify)["not_checked"] == []
    (folder / "weights.onnx").touch()
    assert cli.json(*verify)["not_checked"] == ["weights.onnx"]


def test_without_the_admins_key_nobody_is_told_that_a_result_is_verified(
    held: CliConsortium, cli: Cli
) -> None:
    folder = held.result("m0")
    outcome = cli("verify", folder)
    assert (outcome.code, "Verified" in outcome.out) == (3, False)
    assert cli("verify", folder, "--json").code == 3
    # An identity has pinned the key.
    assert cli.json("verify", folder, "--identity", held.folder / "m0")["record"]
    assert cli("verify", folder, "--identity", held.folder / "m0", "--admin-key", "00" * 32).error


def test_approvals(consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    c = consortium()
    words = [each for each in c.words("m0") if each not in {"--approve", c.approval}]
    refused = remote(*words)  # no terminal to ask on
    assert c.approval in refused.error
    explained = refused.err
    assert "digits" in explained
    narrow = c.write("narrow", np.ones((5, DIM - 1)), np.zeros(5, int))
    others = [narrow if each == c.files[0] else each for each in words]
    assert re.search(r"digits: .*\b5 columns", remote(*others).err)
    flags = np.random.default_rng(1).integers(0, 2, (80, DIM))
    coarse = c.write(
        "coarse",
        np.where(np.arange(DIM) < 3, flags, np.random.default_rng(2).random((80, DIM))),
        np.zeros(80, int),
    )
    table = remote(*[coarse if each == c.files[0] else each for each in words])
    assert re.search(rf"WARNING: 3 .*\b{DIM}\b", table.err)
    assert "WARNING" not in explained
    assert "64 hex digits" in remote(*words, "--approve", "digits").error  # a name approves nothing
    assert remote(*words, "--mu-budget", "-1").error.startswith("mu_budget: ")
    monkeypatch.setattr(Member, "join", lambda *_, **__: iter(()))
    waiting = remote(*words, "--approve", "ab" * 32).err
    monkeypatch.undo()
    assert {"ab" * 32, c.approval} <= {*re.findall("[0-9a-f]{64}", waiting)}
    # A stored approval needs not be given again.
    c.held()
    kept = c.folder / "m0" / "approvals.json"
    assert c.approval in kept.read_text()
    with monkeypatch.context() as expired:  # and it continues after its study is no longer published
        expired.setattr("veilsum.cli.commands.member.newest_studies", lambda _: iter(()))
        expired.setattr(Member, "join", lambda *_, **__: iter(()))
        going_on = remote(*words)
    with monkeypatch.context() as ending:  # rows that don't fit an approved study are reported at each start
        ending.setattr(Member, "join", lambda *_, **__: iter(()))
        assert re.search(r"digits: .*\b5 columns", remote(*others).err)
    assert going_on.code == 0
    for damaged in (b'{"', b'["x"]', b'{"x": "y"}', b"\xff"):
        kept.write_bytes(damaged)
        assert str(kept) in remote(*words).error
    (c.folder / "m0" / "admin-key").write_bytes(b"\xff")
    assert "public key" in remote(*words).error


def test_moments_are_for_the_studies_that_name_them(
    consortium: Make, remote: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that approved a study of features, too, takes part in a study of tables, and in that study alone."""
    c, moments = consortium(), tmp_path / "moments.safetensors"
    Moments(np.full(DIM, 5.0), np.full(DIM, 3.0)).save_moments(moments)
    words = c.words("m0", "--standardise", moments)
    assert re.search(r"no approved study .*\bdigits\b", remote(*words).error)
    digest = hashlib.sha256(moments.read_bytes()).hexdigest()
    study, approval = c.signed_study("tables", edits={EXTRACTOR: digest})
    remote.operate("admin", "publish", study)
    joined: list[Records] = []

    def join(_: Member, found: Records, **__: Any) -> Iterator[Result]:
        joined.append(found)
        return iter(())

    monkeypatch.setattr(Member, "join", join)
    outcome = remote(*words, "--approve", approval)
    assert outcome.code == 0, outcome
    assert re.search(rf"digits: your records can't be used: .*{digest}.*{EXTRACTOR}", outcome.err)
    digits, tables = (Study.from_bytes(path.read_bytes()) for path in (c.study, study))
    features = joined[0].features_for(read_content(tables.content).question)
    np.testing.assert_allclose(features, (np.load(c.files[0])["features"] - 5) / 3)
    with pytest.raises(Misuse, match=digest):
        joined[0].features_for(read_content(digits.content).question)


def test_a_member_that_has_approved_a_study_waits_for_the_coordinator_at_its_start(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop may start in a network without one, or with a page of its own in its place."""
    c, studies, failures = consortium(), Member.studies, list[Exception]()
    monkeypatch.setattr("veilsum.cli.commands.member.RUNS_POLL_S", 0.0)
    monkeypatch.setattr(Member, "join", lambda *_, **__: iter(()))

    def failing(member: Member) -> Any:
        if failures:
            raise failures.pop()
        return studies(member)

    monkeypatch.setattr(Member, "studies", failing)
    words = [each for each in c.words("m0") if each != "--once"]
    failures[:] = [Unreachable("no way"), UnexpectedAnswer("a page")]
    assert remote(*words).error == "a page"  # so far the address may be wrong
    failures.clear()
    assert remote(*words).code == 0
    failures[:] = [Unreachable("no way"), UnexpectedAnswer("a page")]
    waited = remote(*words)
    assert (waited.code, failures) == (0, [])
    assert re.search("a page\n.*no way", waited.err)
    failures[:] = [Unreachable("no way")]
    assert "no way" in remote(*words, "--once").error


def test_a_run_of_a_revoked_study_says_so(consortium: Make, remote: Cli) -> None:
    c = consortium()
    digest = Study.from_bytes(c.study.read_bytes()).hash.hex()
    remote.json("admin", "roster", c.draft, "--folder", c.folder / "admin", "--revoke", digest)
    remote.operate("admin", "publish", c.roster)
    words = ("operator", "run", "digits", "--federation", c.admin, "--token", TOKEN)
    assert re.search(r"digits, .*\b1 .*revoked", remote(*remote.at(*words)).error)


def test_giving_up_a_run(consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    c = consortium()
    remote.operate("operator", "cohort", "open", c.study, "--period", PERIOD)
    join = c.join("m0")
    view = until(remote.url, c.admin, lambda view, _: bool(view.cards))
    [reserved] = remote.json("member", "ledger", c.folder / "m0")["runs"]
    assert (reserved["state"], reserved["rows"]) == ("reserved", 40)
    in_use = remote("member", "ledger", c.folder / "m0", "--give-up", "digits", "--period", PERIOD)
    assert in_use.code == 1

    def look_for_work(_: Agent) -> Flow[None]:
        raise Misuse("looked for more")

    monkeypatch.setattr(Agent, "_look_for_work", look_for_work)  # else it would wait until the session's end
    remote.operate("operator", "cohort", "close", view.cohort)
    assert remote("member", "ledger", c.folder / "m1", "--give-up", "digits", "--period", PERIOD).code == 1
    assert remote("member", "ledger", c.folder / "m1", "--give-up", "digits").code == 1
    assert join.result(PATIENCE_S).error == "looked for more"


def test_wrong_words(consortium: Make, remote: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = consortium()
    run = remote.at("operator", "run", c.study)
    assert remote(*run, "--token", "wrong", "--json").values["cause"] == "unauthorised"
    assert remote(*run, "--json").values["cause"] == "unauthorised"
    for words in (
        ("operator", "cohort", "open", "digits", "--federation", "zz"),
        ("operator", "cohort", "open", "digits", "--federation", "00" * 32),
        ("operator", "cohort", "open", c.roster),
        ("operator", "cohort", "open", c.study, "--federation", "00" * 32),
        ("operator", "cohort", "status", "../../healthz"),
        ("operator", "round", "status", "00" * 8),
        ("operator", "round", "status", "x?y"),
        ("operator", "round", "watch", "x?y"),
        ("operator", "round", "open", "00" * 32),
        ("admin", "publish", c.draft),
    ):
        with_token = "status" not in words and "watch" not in words
        assert remote(*remote.at(*words), *(("--token", TOKEN) if with_token else ())).error
    for name, value in (
        ("--admin-key", "abc"),
        ("--admin-key", "00" * 32),
        ("--id-column", "patient"),
        ("--ca", "nowhere.pem"),
        ("--output", c.draft),
    ):
        assert remote(*c.words("m0", name, value)).error
    assert "approval digest 'abc'" in remote(*c.words("m0", "--approve", "abc")).error
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
        assert "choose another --output" in remote(*c.words("m0")).error
    assert not remote.json("member", "ledger", c.folder / "m0")["runs"]
    missing = [tmp_path / "nowhere.npz" if word == c.files[0] else word for word in c.words("m0")]
    assert "nowhere.npz" in remote(*missing).error
    stranger = [tmp_path / "nobody" if word == c.folder / "m0" else word for word in c.words("m0")]
    assert remote(*stranger).error


def test_a_new_identity_marks_what_its_old_one_may_have_summed(consortium: Make, remote: Cli) -> None:
    c = consortium()
    rows = records(np.random.default_rng(7), 60)
    with_ids = c.write("ids", *rows, np.array([f"patient-{row}" for row in range(60)]))
    new, words = c.folder / "new", ("--admin-key", c.admin)
    remote.json("member", "new", new, "--member", "m0")
    marked = remote.json("member", "mark-summed", new, with_ids, with_ids, *words)
    assert marked["records_marked"] == 60
    again = remote("member", "mark-summed", new, with_ids)  # the key is pinned now
    assert again.code == 0
    assert "patient-" not in again.out + again.err
    assert remote.json("member", "mark-summed", new, with_ids)["records_marked"] == 0
    assert (
        remote.json("member", "mark-summed", new, c.files[0])["records_marked"] == 1
    )  # all of it, without ids


def test_each_printed_next_step_runs_as_it_stands(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For an admin without an operator's token; only the first roster needs one."""
    c = consortium()
    monkeypatch.setenv("VEILSUM_URL", remote.url)

    def follow(values: dict[str, Any]) -> dict[str, Any]:
        program, *words = shlex.split(values["next"])
        assert program == "veilsum"
        return remote.json(*words)

    folder = ("--folder", c.folder / "admin")
    revised = remote.json("admin", "roster", c.draft, "--reader", "m0", *folder)
    assert follow(revised)["published"][0]["roster"] == 2
    drafted = remote.json(
        *("admin", "study", "new", "another.toml", "--extractor", EXTRACTOR, "--dim", DIM),
        "--class a --class b --members 3 --name another --why-not-listable simulated",
    )
    assert "explained" in follow(drafted)
    checked = remote("admin", "study", "check", "another.toml")
    step = checked.err.split("Next: ")[1].split()
    assert step[:4] == ["veilsum", "admin", "study", "sign"]
    signed = remote.json(*" ".join(step[1:]).replace("ADMIN", str(c.folder / "admin")).split())
    assert follow(signed)["published"][0]["study"] == "another"
