import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import EXTRACTOR, TOKEN, Cli
from veilsum.cli import remote as connecting
from veilsum.protocol.messages import ErasureRequest, Roster

KEYS = [f"{index:02x}" * 32 for index in range(10)]
NEW = ("--coordinator", KEYS[9], "--member", f"a={KEYS[1]}", "--member", f"b={KEYS[2]}")


def draft() -> Any:
    return json.loads(Path("r.json").read_text())


def test_the_admins_folder(cli: Cli) -> None:
    made = cli.json("admin", "new", "admin")
    folder, key = cli.folder / "admin", cli.folder / "admin" / "admin.key"
    assert (folder.stat().st_mode & 0o777, key.stat().st_mode & 0o777) == (0o700, 0o600)
    assert made["fingerprint"].replace(" ", "") == made["federation"]
    before = key.read_bytes()
    assert "choose another folder" in cli("admin", "new", "admin").error
    assert key.read_bytes() == before
    assert before.hex() not in str(cli.said)


def test_an_admins_key_that_cannot_be_used(cli: Cli) -> None:
    sign = ("admin", "roster", "r.json", *NEW, "--folder", "admin")
    assert "admin new" in cli(*sign).error
    assert not Path("r.json").exists()
    cli("admin", "new", "admin")
    key = Path("admin/admin.key")
    key.chmod(0o640)
    assert "chmod 600 admin/admin.key" in cli(*sign).error
    key.chmod(0o600)
    key.write_bytes(b"short")
    assert "admin.key" in cli(*sign).error


def test_a_draft_without_a_coordinator_names_the_option(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "open_operator", partial(connecting.open_operator, patience_s=0.0))
    said = cli("admin", "roster", "r.json", "--member", f"a={KEYS[1]}", "--url", "http://127.0.0.1:9")
    assert ("--coordinator" in said.error, Path("r.json").exists()) == (True, False)


def test_every_change_raises_the_number(cli: Cli) -> None:
    def roster(*words: object) -> int:
        return int(cli.json("admin", "roster", "r.json", *words)["number"])

    assert roster(*NEW) == 1
    assert roster() == 1
    assert roster(*NEW) == 1
    assert roster("--member", f"c={KEYS[3]}", "--decryptor", "c", "--reader", "c", "--reader", "a") == 2
    assert roster("--revoke", EXTRACTOR, "--revoke", EXTRACTOR) == 3
    assert draft()["revoked"] == [EXTRACTOR]
    assert roster("--decryptor", "c") == 3
    assert roster("--remove", "c") == 4
    assert (sorted(draft()["members"]), draft()["decryptors"], draft()["readers"]) == (["a", "b"], [], ["a"])
    assert roster("--member", f"b={KEYS[4]}") == 5
    assert draft()["members"]["b"] == KEYS[4]
    assert roster("--coordinator", KEYS[8]) == 6
    assert roster("--name", "Hospitals") == 7
    assert roster("--study-key", KEYS[7]) == 8
    assert roster("--name", "Hospitals", "--study-key", KEYS[7]) == 8


@pytest.mark.parametrize(
    "words",
    [
        ("--member", "c"),
        ("--member", "c=zz"),
        ("--member", f"C={KEYS[1]}"),
        ("--member", f"c={KEYS[1]}", "--member", f"c={KEYS[2]}"),
        ("--remove", "z"),
        ("--revoke", "abc"),
        ("--study-key", "abc"),
        ("--coordinator", "abc"),
        ("--name", "Ü" * 33),
    ],
)
def test_a_change_that_is_refused_changes_nothing(words: tuple[str, ...], cli: Cli) -> None:
    cli("admin", "roster", "r.json", *NEW)
    before = Path("r.json").read_text()
    assert cli("admin", "roster", "r.json", *words).error
    assert Path("r.json").read_text() == before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"number": 1}',
        f'{{"number": "1", "coordinator": "{KEYS[1]}"}}',
        f'{{"number": 0, "coordinator": "{KEYS[1]}"}}',
        f'{{"number": 1, "coordinator": "{KEYS[1]}", "member": {{}}}}',
        f'{{"number": 1, "coordinator": "{KEYS[1]}", "members": {{"a": "{KEYS[1]}", "a": "{KEYS[2]}"}}}}',
    ],
)
def test_a_file_that_is_not_a_draft(text: str, cli: Cli) -> None:
    Path("r.json").write_text(text)
    assert cli("admin", "roster", "r.json").error.startswith("r.json")


def test_signing(cli: Cli) -> None:
    admin = cli.json("admin", "new", "admin")["federation"]
    words = ("--folder", "admin", "--name", "Hospitals", "--decryptor", "b", "--decryptor", "a")
    said = cli.json("admin", "roster", "r.json", *NEW, *words)
    signed = Roster.from_bytes(Path("r.bin").read_bytes())
    signed.verify_admin(bytes.fromhex(admin))
    assert (said["hash"], said["roster"]) == (signed.hash.hex(), "r.bin")
    assert (signed.number, signed.name, signed.decryptors) == (1, "Hospitals", ("a", "b"))
    assert signed.study_key == signed.federation
    cli("admin", "roster", "r.json", "--study-key", KEYS[7], "--folder", "admin")
    assert Roster.from_bytes(Path("r.bin").read_bytes()).study_key.hex() == KEYS[7]
    Path("r.json").rename("r.bin")
    before = Path("r.bin").read_text()
    assert cli("admin", "roster", "r.bin", "--folder", "admin", "--name", "Other").error
    assert Path("r.bin").read_text() == before


@pytest.mark.parametrize(
    ("words", "cause"),
    [(("--member", f"c={KEYS[1]}"), "duplicate"), (("--decryptor", "z"), "unknown-member")],
)
def test_what_a_signature_does_not_cover_up(words: tuple[str, ...], cause: str, cli: Cli) -> None:
    cli("admin", "new", "admin")
    refused = cli("admin", "roster", "r.json", *NEW, *words, "--folder", "admin", "--json")
    assert refused.values["cause"] == cause
    assert not Path("r.bin").exists()


def test_publishing(remote: Cli) -> None:
    remote("admin", "new", "admin")
    folder = ("--folder", "admin")
    remote.json(*remote.at("admin", "roster", "r.json", *NEW[2:], *folder))
    coordinator = draft()["coordinator"]
    assert coordinator != KEYS[9]
    publish = remote.at("admin", "publish", "r.bin", *folder)
    assert "unauthorised" in remote(*publish).error  # a new federation takes the operator's token
    assert remote.operate("admin", "publish", "r.bin")["published"][0]["roster"] == 1
    more = ("--member", f"c={KEYS[3]}", "--url", "http://127.0.0.1:9")
    remote.json("admin", "roster", "r.json", *folder, *more)  # the draft has the key, so there is no prompt
    assert draft()["coordinator"] == coordinator
    study = written_study(remote, "admin")
    signed = remote.json(*remote.at("admin", "publish", study, "r.bin", *folder))["published"]
    assert [("roster" in each, "study" in each) for each in signed] == [(True, False), (False, True)]
    assert remote(*remote.at("admin", "publish", "r.json")).code == 1
    assert remote(*remote.at("admin", "publish", "nowhere.bin")).code == 1
    Path("cut.bin").write_bytes(Path("r.bin").read_bytes()[:-1])
    assert "64 bytes wanted" in remote(*remote.at("admin", "publish", "cut.bin")).error
    Path("other.bin").write_bytes(ErasureRequest(bytes(32)).to_bytes())
    assert "ErasureRequest" in remote(*remote.at("admin", "publish", "other.bin")).error
    remote("admin", "roster", "r.json", "--coordinator", KEYS[9], *folder)
    assert remote(*publish, "--token", TOKEN).error


def test_publishing_warns_of_a_roster_that_no_run_can_start_with(remote: Cli) -> None:
    remote("admin", "new", "admin")
    folder = ("--folder", "admin")

    def publish(*members: int) -> list[str]:
        words = [word for place in members for word in ("--member", f"m{place}={KEYS[place]}")]
        remote.json(*remote.at("admin", "roster", "r.json", *words, *folder))
        warnings: list[str] = remote.operate("admin", "publish", "r.bin")["warnings"]
        return warnings

    assert publish(0, 1) == []  # there is no study yet
    study = written_study(remote, "admin")
    [few] = remote.json(*remote.at("admin", "publish", study, *folder))["warnings"]
    assert ("2 members" in few, "members_min" in few) == (True, True)
    assert publish(2, 3) == []
    [many] = publish(4)
    assert ("5 members" in many, "members_max" in many) == (True, True)
    said = remote(*remote.at("admin", "publish", study, *folder))
    assert (said.code, "WARNING" in said.err) == (0, True)


def test_a_study_key_of_its_own(remote: Cli) -> None:
    federation = remote.json("admin", "new", "admin")["federation"]
    lead = remote.json("admin", "new", "lead")["federation"]
    words = ("--folder", "admin", "--study-key", lead)
    remote.json(*remote.at("admin", "roster", "r.json", *NEW[2:], *words))
    remote.operate("admin", "publish", "r.bin")
    ours = written_study(remote, "admin")
    assert remote(*remote.at("admin", "publish", ours, "--token", TOKEN), "--json").values["cause"]
    theirs = written_study(remote, "lead", "--federation", federation)
    assert federation in remote(*remote.at("admin", "publish", theirs, "--folder", "lead")).error
    assert remote.operate("admin", "publish", theirs)["federation"] == federation


def written_study(cli: Cli, folder: str, *more: object) -> Path:
    path = cli.folder / f"{folder}.toml"
    words = ("--extractor", EXTRACTOR, "--dim", 4, "--members", 4, "--class", "a", "--class", "b")
    cli.json("admin", "study", "new", path, *words, "--why-not-listable", "simulated features")
    cli.json("admin", "study", "check", path)
    return Path(cli.json("admin", "study", "sign", path, "--folder", folder, *more)["study"])


def test_a_roster_rolled_back(remote: Cli) -> None:
    remote("admin", "new", "admin")
    remote(*remote.at("admin", "roster", "old.json", *NEW[2:], "--folder", "admin"))
    Path("new.json").write_text(Path("old.json").read_text())
    remote("admin", "roster", "new.json", "--member", f"c={KEYS[3]}", "--folder", "admin")
    remote.operate("admin", "publish", "new.bin")
    refused = remote(*remote.at("admin", "publish", "old.bin", "--token", TOKEN), "--json")
    assert refused.values["cause"] == "roster-rollback"


def test_identities(cli: Cli) -> None:
    made = cli.json("member", "new", "a", "--member", "hospital-a")
    assert cli.json("member", "new", "a", "--member", "hospital-a") == made
    assert cli("member", "new", "a", "--member", "hospital-b").code == 1
    secret = Path("a/identity.key").read_text()
    Path("a/identity.key").write_text(secret[:40])
    damaged = cli("member", "new", "a", "--member", "hospital-a", "--json")
    assert damaged.code == 1
    assert secret[:40] not in damaged.out


def test_a_pin_stays(cli: Cli) -> None:
    assert "64 hex digits" in cli("member", "new", "c", "--member", "hospital-c", "--admin-key", "12").error
    assert not Path("c").exists()
    words = ("member", "new", "a", "--member", "hospital-a", "--admin-key")
    cli.json(*words, KEYS[1])
    cli.json(*words, KEYS[1])
    assert cli(*words, KEYS[2]).code == 1
    assert cli(*words, "abc").code == 1
