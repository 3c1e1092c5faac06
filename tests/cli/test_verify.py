"""`veilsum verify` on transcripts: its findings, whom it blames, and its exit status."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk import Identity, Result
from tests.protocol.transcripts import bad_share, played
from tests.support.cli import Cli, CliConsortium
from tests.support.forging import again, complaining, false_dealers, in_turn, other_secrets, refusing
from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import UploadHeader, parse_message
from veilsum.protocol.replay import Finding
from veilsum.protocol.rest import MAX_TRANSCRIPT_BYTES


def saved(federation: Federation, name: str = "t.json") -> tuple[str, ...]:
    """Save a transcript, and return the words that verify it."""
    Path(name).write_text(federation.transcript.to_json())
    return ("verify", name, "--admin-key", federation.admin.public.hex())


def test_a_round_of_real_members_is_proved_to_whoever_asks(
    held: CliConsortium, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = held
    round_id = Result.load(c.result("m0")).record.round
    fetched = remote.json(*remote.at("operator", "round", "transcript", round_id, "-o", "t.json"))
    assert (fetched["round"], fetched["bytes"]) == (round_id, Path("t.json").stat().st_size)
    folder, m0 = (Path(shutil.copytree(path, path.name)) for path in (c.result("m1"), c.folder / "m0"))
    assert not (folder / "transcript.json").exists()  # to replay it is an auditor's part
    verify = ("verify", "t.json", "--admin-key", c.admin)

    # A stranger has the file and the admin's key.
    found = remote.json(*verify, "--member", "m1")
    assert (found["round"], found["outcome"], found["survivors"]) == (round_id, "certified", list(c.members))
    assert (found["signed"], found["kept"], found["findings"], found["refusals"]) == (True, True, [], [])
    assert (found["counted"], found["upload"].partition(":")[0]) == (True, "counted")
    assert remote.json(*verify, "--identity", m0)["counted"] is True
    shown = remote(*verify, "--member", "m1")
    assert shown.code == 0
    # A result's folder ends as the transcript in it does.
    (folder / "transcript.json").write_bytes(Path("t.json").read_bytes())
    assert remote("verify", folder, "--admin-key", c.admin).code == 0
    shows = Result.load(folder).verdict
    assert shows is not None
    false = replace(shows, findings=(Finding(("m0",), Cause.CHUNK_MISMATCH, "a test"),))
    with monkeypatch.context() as patch:
        patch.setattr(Result, "verdict", false)
        broken = remote("verify", folder, "--admin-key", c.admin)
    assert broken.code == 1

    # One byte, anywhere: it is found, no member is named for it, and nothing is proved against the coordinator.
    document = json.loads(Path("t.json").read_text())
    for entry in range(4, len(document["entries"]), 4):
        text = document["entries"][entry]
        for at in (2, len(text) // 2, len(text) - 1):
            flipped = text[:at] + format(int(text[at], 16) ^ 1, "x") + text[at + 1 :]
            entries = [*document["entries"][:entry], flipped, *document["entries"][entry + 1 :]]
            Path("x.json").write_text(json.dumps({**document, "entries": entries}))
            tampered = remote("verify", "x.json", "--admin-key", c.admin, "--json")
            assert (tampered.code, tampered.values["signed"]) == (1, False)
            assert {party for each in tampered.values["findings"] for party in each["parties"]} == {
                "coordinator"
            }
    other = remote("verify", "t.json", "--admin-key", "00" * 32)
    assert (other.code, other.error.partition(":")[0]) == (1, "wrong-federation")

    assert remote.json(*verify, "--member", "m9")["counted"] is False  # it never sent anything
    kept = m0 / "state" / "results" / round_id / "evidence.bin"
    kept.unlink()  # it knows of no upload: it asks by its name
    assert remote.json("verify", "t.json", "--identity", m0)["counted"] is True


def test_members_that_broke_a_rule_are_named(cli: Cli) -> None:
    federation = Federation(9)
    false_dealers(federation, {"member-2": lambda attempt: other_secrets(attempt, 0)})
    federation.tamper = in_turn(federation.tamper, bad_share(federation, "member-1"))
    federation.run_round()
    outcome = cli(*saved(federation), "--json")
    assert (outcome.code, outcome.values["signed"], outcome.values["kept"]) == (1, True, False)
    assert {(*each["parties"], each["cause"]) for each in outcome.values["findings"]} == {
        ("member-1", "share-invalid"),
        ("member-2", "dealer-inconsistent"),
    }
    shown = cli(*saved(federation))
    assert shown.code == 1
    assert {"member-1", "member-2"} <= {*shown.out.replace(",", " ").split()}


def test_disputes_are_shown_as_disputes_and_refusals_as_said(cli: Cli) -> None:
    federation = Federation(6)
    causes = {"member-2": "policy-refused", "member-3": "survivors-too-few"}
    complaints = complaining(federation, {"member-1": ("member-0",)})
    federation.tamper = in_turn(complaints, refusing(federation, causes))
    federation.run_round()
    outcome = cli(*saved(federation), "--json")
    assert (outcome.code, outcome.values["kept"]) == (0, True)
    disputes = [each["parties"] for each in outcome.values["findings"] if each["dispute"]]
    assert disputes == [["member-0", "member-1"], ["member-3", "coordinator"]]
    assert outcome.values["refusals"] == [{"member": "member-2", "cause": "policy-refused"}]


def test_a_federation_that_somebody_made_up_counts_no_identity(cli: Cli) -> None:
    """Its roster has a member of that name, and its transcript an upload of that member and a certificate over it."""
    verify, name, _, _ = saved(played())
    cli.json("member", "new", "mine", "--member", "member-1")
    refused = cli(verify, name, "--identity", "mine")
    assert refused.code == 1
    assert refused.error.startswith("wrong-federation: ")
    said = cli(verify, name, "--member", "member-1", "--json")
    assert (said.code, said.values["counted"]) == (
        3,
        True,
    )  # that one, not she: nobody knows whose federation it is


def test_an_upload_that_the_transcript_does_not_hold_is_not_counted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = played()
    [header] = [
        parse_message(entry).header  # type: ignore[attr-defined]  # an upload's summary has one
        for entry in federation.transcript.entries[4:5]
    ]
    verify, key = saved(federation), federation.keys[header.member]
    identity = Identity(Path("mine"), header.member, key)
    monkeypatch.setattr("veilsum.cli.replaying.Identity.load", lambda _: identity)
    monkeypatch.setattr("veilsum.cli.replaying.Evidence.saved_in", lambda _: True)

    def own(sent: UploadHeader) -> Any:
        monkeypatch.setattr("veilsum.cli.replaying.Evidence.load", lambda _: SimpleNamespace(header=sent))
        return cli(*verify, "--identity", "mine", "--json")

    assert own(header).values["counted"] is True
    found = own(again(header, key, salt=bytes(32))).values
    assert (found["member"], found["counted"]) == (header.member, False)
    assert own(again(header, federation.admin)).values["cause"] == "bad-signature"
    assert cli(*verify, "--identity", "x", "--member", "member-4").error
    Path("folder").mkdir()
    assert cli("verify", "folder", "--member", "member-4").error


GARBAGE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "another document": b'{"format": "veilsum-result/5"}',
    "no entries": b'{"veilsum-transcript": 4, "entries": [], "signature": ""}',
    "entries that are no messages": b'{"veilsum-transcript": 4, "entries": ["00", "01", "02"], "signature": ""}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_transcript_has_a_code_of_its_own(cli: Cli, name: str) -> None:
    Path("garbage.json").write_bytes(GARBAGE[name])
    outcome = cli("verify", "garbage.json")
    assert outcome.code == 2
    assert outcome.err.startswith("veilsum: garbage.json")
    assert "Traceback" not in outcome.err
    assert cli("verify", "garbage.json", "--json").values["error"]
    assert cli("verify", "missing.json").code == 2


def test_what_never_ends_is_not_read(cli: Cli) -> None:
    assert cli("verify", "/dev/zero").code == 2
    with Path("long.json").open("wb") as file:
        file.truncate(MAX_TRANSCRIPT_BYTES + 1)
    assert cli("verify", "long.json").code == 2
