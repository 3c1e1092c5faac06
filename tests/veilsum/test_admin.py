import json
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import Roster
from tests.veilsum.cli import EXTRACTOR, TOKEN, Cli

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
    cli("admin", "roster", "r.json", *NEW)
    sign = ("admin", "sign", "r.json", "--folder", "admin")
    assert "make one with `veilsum admin new admin`" in cli(*sign).error
    cli("admin", "new", "admin")
    key = Path("admin/admin.key")
    key.chmod(0o640)
    assert "chmod 600 admin/admin.key" in cli(*sign).error
    key.chmod(0o600)
    key.write_bytes(b"short")
    assert "it has 5 bytes, not 32" in cli(*sign).error


def test_every_change_raises_the_version(cli: Cli) -> None:
    def roster(*words: object) -> int:
        return int(cli.json("admin", "roster", "r.json", *words)["version"])

    assert roster(*NEW) == 1
    assert roster() == 1
    assert roster(*NEW) == 1
    assert roster("--member", f"c={KEYS[3]}", "--decryptor", "c", "--reader", "c", "--reader", "a") == 2
    assert roster("--extractor", EXTRACTOR, "--extractor", EXTRACTOR) == 3
    assert draft()["extractors"] == [EXTRACTOR]
    assert roster("--decryptor", "c") == 3
    assert roster("--remove", "c") == 4
    assert (sorted(draft()["members"]), draft()["decryptors"], draft()["readers"]) == (["a", "b"], [], ["a"])
    assert roster("--member", f"b={KEYS[4]}") == 5
    assert draft()["members"]["b"] == KEYS[4]
    assert roster("--coordinator", KEYS[8]) == 6


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--member", "c"), "--member c: write ID=PUBLICKEY"),
        (("--member", "c=zz"), "the roster: members.c: "),
        (("--member", f"C={KEYS[1]}"), "the roster: members.C.[key]: "),
        (("--member", f"c={KEYS[1]}", "--member", f"c={KEYS[2]}"), "--member c stands twice"),
        (("--remove", "z"), "--remove z: no such member"),
        (("--extractor", "abc"), "the roster: extractors.0: "),
        (("--coordinator", "abc"), "the roster: coordinator: "),
    ],
)
def test_a_change_that_is_refused_changes_nothing(words: tuple[str, ...], expected: str, cli: Cli) -> None:
    cli("admin", "roster", "r.json", *NEW)
    before = Path("r.json").read_text()
    assert cli("admin", "roster", "r.json", *words).error.startswith(expected)
    assert Path("r.json").read_text() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is not a roster's draft"),
        ("[]", "the whole: "),
        ('{"version": 1}', "coordinator: Field required"),
        (f'{{"version": "1", "coordinator": "{KEYS[1]}"}}', "version: "),
        (f'{{"version": 0, "coordinator": "{KEYS[1]}"}}', "version: "),
        (f'{{"version": 1, "coordinator": "{KEYS[1]}", "member": {{}}}}', "member: "),
        (
            f'{{"version": 1, "coordinator": "{KEYS[1]}", "members": {{"a": "{KEYS[1]}", "a": "{KEYS[2]}"}}}}',
            "a stands twice",
        ),
    ],
)
def test_a_file_that_is_no_draft(text: str, expected: str, cli: Cli) -> None:
    Path("r.json").write_text(text)
    for words in (("roster", "r.json"), ("sign", "r.json", "--folder", "admin")):
        error = cli("admin", *words).error
        assert error.startswith("r.json")
        assert expected in error


def test_a_draft_that_does_not_exist(cli: Cli) -> None:
    assert "r.json does not exist" in cli("admin", "sign", "r.json", "--folder", "admin").error
    assert "pass --coordinator or --url" in cli("admin", "roster", "r.json").error


def test_signing(cli: Cli) -> None:
    admin = cli.json("admin", "new", "admin")["federation"]
    cli(
        "admin",
        "roster",
        "r.json",
        *NEW,
        "--extractor",
        EXTRACTOR,
        "--decryptor",
        "b",
        "--decryptor",
        "a",
    )
    said = cli("admin", "sign", "r.json", "--folder", "admin")
    assert "Not published: run again with --publish" in said.err
    signed = Roster.from_bytes(Path("r.bin").read_bytes())
    signed.verify_admin(bytes.fromhex(admin))
    assert (signed.version_number, signed.decryptors) == (1, ("a", "b"))
    same = ("admin", "sign", "r.json", "--folder", "admin", "--output", "r.json")
    assert "is the draft itself" in cli(*same).error
    assert draft()["version"] == 1


@pytest.mark.parametrize(
    ("words", "cause"),
    [(("--member", f"c={KEYS[1]}"), "duplicate"), (("--decryptor", "z"), "unknown-member")],
)
def test_what_a_signature_does_not_cover_up(words: tuple[str, ...], cause: str, cli: Cli) -> None:
    cli("admin", "new", "admin")
    cli("admin", "roster", "r.json", *NEW, *words)
    assert cli("admin", "sign", "r.json", "--folder", "admin", "--json").values["cause"] == cause
    assert not Path("r.bin").exists()


def test_publishing(remote: Cli) -> None:
    remote("admin", "new", "admin")
    words = ("admin", "roster", "r.json", *NEW[2:])
    remote.json(*remote.at(*words))
    coordinator = draft()["coordinator"]
    assert coordinator != KEYS[9]
    publish = remote.at("admin", "sign", "r.json", "--folder", "admin", "--publish")
    assert "unauthorised: a new federation takes the operator's token" in remote(*publish).error
    assert remote.operate(*publish[:-2])["published"] is True
    remote("admin", "roster", "r.json", "--member", f"c={KEYS[3]}", "--url", "http://127.0.0.1:9")
    assert draft()["coordinator"] == coordinator  # known already: nobody is asked
    assert remote(*publish).code == 0  # a newer roster carries the admin's signature: no token
    remote("admin", "roster", "r.json", "--member", f"d={KEYS[4]}")
    remote("admin", "sign", "r.json", "--folder", "admin", "--output", "handed-over.bin")
    said = remote.operate("admin", "publish", "handed-over.bin")
    assert (said["version"], said["members"]) == (3, len(draft()["members"]))
    assert "is no signed roster" in remote(*remote.at("admin", "publish", "r.json")).error
    assert remote(*remote.at("admin", "publish", "nowhere.bin")).code == 1
    remote("admin", "roster", "r.json", "--coordinator", KEYS[9])
    assert "names another coordinator's key" in remote(*publish, "--token", TOKEN).error


def test_a_roster_rolled_back(remote: Cli) -> None:
    remote("admin", "new", "admin")
    remote(*remote.at("admin", "roster", "old.json", *NEW[2:]))
    Path("new.json").write_text(Path("old.json").read_text())
    remote("admin", "roster", "new.json", "--member", f"c={KEYS[3]}")
    sign = ("--folder", "admin", "--publish")
    remote.operate("admin", "sign", "new.json", *sign)
    refused = remote(*remote.at("admin", "sign", "old.json", *sign))
    assert "roster-rollback" in refused.error


def test_identities(cli: Cli) -> None:
    made = cli.json("member", "new", "a", "--member", "hospital-a")
    assert cli.json("member", "show", "a") == made
    assert "fingerprint" in cli("member", "show", "a").out
    again = cli("member", "new", "a", "--member", "hospital-a").error
    assert "see it with `veilsum member show`, or choose another folder" in again
    assert "is no member id" in cli("member", "new", "b", "--member", "Hospital B").error
    assert "make one with `veilsum member new`" in cli("member", "show", "b").error
    Path("a/identity.key").chmod(0o644)
    assert "chmod 600" in cli("member", "show", "a").error
    Path("a/identity.key").chmod(0o600)
    secret = Path("a/identity.key").read_text()
    Path("a/identity.key").write_text(secret[:40])
    damaged = cli("member", "show", "a", "--json")
    assert "is damaged" in damaged.values["error"]
    assert secret[:40] not in damaged.out
