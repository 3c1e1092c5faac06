"""The drill: a round, a backup, the machine is lost, and a restored coordinator shows and signs the same."""

import hashlib
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from sqlalchemy import create_engine

from service.storage import migrating
from service.storage.folder import DataFolderLock
from tests.support.cli import Cli
from tests.support.party import Party
from tests.support.serving import Server, running
from veilsum.cli.backup import BACKUP_FORMAT, create_backup, restore_backup
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey


async def shown(server: Server, party: Party, round_id: str) -> tuple[bytes, bytes, str]:
    """Return the signed record, the weights, and the signer."""
    record = await server.client.get(f"/v1/rounds/{round_id}/result")
    weights = await server.client.get(f"/v1/rounds/{round_id}/result/weights")
    assert (record.status_code, weights.status_code) == (200, 200)
    return record.content, weights.content, str((await server.view(round_id))["state"])


async def test_a_restored_coordinator_goes_on(tmp_path: Path) -> None:
    party = Party(("a", "b", "c"))
    data, archive = tmp_path / "data", tmp_path / "monday.zip"
    async with running(data) as server:
        await party.begin(server)
        round_id = await party.done(server)
        await server.tidy(round_id)
        before = await shown(server, party, round_id)
        with pytest.raises(Misuse, match="another coordinator"):
            create_backup(data, archive)
    made = create_backup(data, archive)
    assert made["bytes"] == archive.stat().st_size
    assert archive.stat().st_mode & 0o777 == 0o600
    restored = tmp_path / "other" / "machine"
    assert restore_backup(archive, restored, bytes.fromhex(made["coordinator_key"]))["files"] == made["files"]
    assert {path.stat().st_mode & 0o077 for path in restored.rglob("*")} == {0}
    async with running(restored) as server:
        assert await shown(server, party, round_id) == before
        await party.done(server)


KEY = SigningKey(b"k" * 32)
STRANGER = SigningKey(b"s" * 32)


def small(folder: Path) -> Path:
    """Make a data folder with a database and a key."""
    folder.mkdir(mode=0o700)
    with create_engine(f"sqlite:///{folder / 'coordinator.sqlite3'}").begin() as connection:
        migrating.upgrade_tables(connection)
    connection.engine.dispose()
    (folder / "coordinator.key").write_bytes(KEY.seed)
    (folder / "coordinator.key").chmod(0o600)
    return folder


def rewritten(
    archive: Path, into: Path, change: dict[str, bytes | None], signer: SigningKey | None = None
) -> Path:
    """Change, add or (None) remove entries of an archive; with a signer, sign it again with a matching manifest."""
    with ZipFile(archive) as old:
        contents = {entry.filename: old.read(entry) for entry in old.infolist()} | change
    if signer is not None:
        files = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in contents.items()
            if content is not None and not name.startswith("manifest.")
        }
        manifest = json.dumps({"format": BACKUP_FORMAT, "files": files}).encode()
        signature = signer.sign(hashlib.sha256(BACKUP_FORMAT.encode() + b"\0" + manifest).digest())
        contents |= {"manifest.json": manifest, "manifest.sig": signature}
    with ZipFile(into, "w") as new:
        for name, content in contents.items():
            if content is not None:
                new.writestr(ZipInfo(name), content)
    return into


def refused(archive: Path, key: bytes | None, expected: str) -> None:
    """Check that a refused archive leaves nothing behind, and that the reason is one line."""
    before = set(archive.parent.rglob("*"))
    with pytest.raises(Misuse, match=expected) as caught:
        restore_backup(archive, archive.parent / "new", key)
    assert "\n" not in str(caught.value)
    assert set(archive.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"coordinator.key": b"x" * 32}, "damaged: 'coordinator.key'"),
        ({"coordinator.key": None}, "damaged: 'coordinator.key' is"),
        ({"more": b"x"}, "damaged: 'more' is"),
        ({"manifest.json": None}, "not a (veilsum backup|backup of format)"),
        ({"manifest.sig": None}, "not a (veilsum backup|backup of format)"),
        ({"manifest.sig": b"x"}, "wrong size"),
        ({"manifest.json": b"[]"}, "not a (veilsum backup|backup of format)"),
        ({"manifest.json": b"\xff"}, "not a (veilsum backup|backup of format)"),
        ({"manifest.json": b'{"format": "veilsum-backup/9", "files": {}}'}, "not a backup of format"),
        (
            {"manifest.json": b'{"format": "veilsum-backup/1", "files": {"a": 1}}'},
            "not a (veilsum backup|backup of format)",
        ),
        ({"manifest.json": b'{"format": "veilsum-backup/1", "files": {}}'}, "damaged"),
    ],
)
def test_a_damaged_backup_is_never_restored(
    change: dict[str, bytes | None], expected: str, tmp_path: Path
) -> None:
    archive = tmp_path / "a.zip"
    create_backup(small(tmp_path / "data"), archive)
    changed = rewritten(archive, tmp_path / "b.zip", change)
    refused(changed, None, expected)
    if "manifest.json" in change and change["manifest.json"] is not None:
        refused(changed, KEY.public, "was not signed by the coordinator")


@pytest.mark.parametrize(
    "name",
    ["../outside", "/tmp/outside", "a/../../outside", "a//b", ".hidden", "a\\b", "a\nb", "a/" * 9 + "b", "é"],
)
def test_no_name_leads_outside_whoever_signed_it(name: str, tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    create_backup(small(tmp_path / "data"), archive)
    refused(rewritten(archive, tmp_path / "b.zip", {name: b"x"}, KEY), KEY.public, "another form")


def test_a_backup_is_its_coordinators_own(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    assert create_backup(small(tmp_path / "data"), archive)["coordinator_key"] == KEY.public.hex()
    forged = rewritten(archive, tmp_path / "b.zip", {"coordinator.key": STRANGER.seed}, STRANGER)
    refused(forged, KEY.public, "was not signed by the coordinator")
    refused(archive, STRANGER.public, "was not signed by the coordinator")
    assert not restore_backup(forged, tmp_path / "forged", None)["authenticated"]
    assert restore_backup(archive, tmp_path / "mine", KEY.public)["authenticated"]


def test_the_operators_token_stays_out(tmp_path: Path) -> None:
    data, archive = small(tmp_path / "data"), tmp_path / "a.zip"
    (data / "operator.token").write_text("veilsum_canary")
    create_backup(data, archive)
    assert "operator.token" not in ZipFile(archive).namelist()
    assert b"veilsum_canary" not in archive.read_bytes()


def test_only_whole_plain_files_are_read(tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    (data / "more").write_bytes(bytes(1 << 16))
    archive = tmp_path / "a.zip"
    create_backup(data, archive)
    packed = tmp_path / "packed.zip"
    with ZipFile(archive) as old, ZipFile(packed, "w", compression=ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    refused(packed, KEY.public, "damaged")
    (tmp_path / "cut.zip").write_bytes(archive.read_bytes()[:-30])
    refused(tmp_path / "cut.zip", KEY.public, "can't be read")
    flipped = bytearray(archive.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (tmp_path / "flipped.zip").write_bytes(flipped)
    refused(tmp_path / "flipped.zip", KEY.public, "damaged|can't be read")
    with tarfile.open(tmp_path / "links.tar", "w") as links:  # CVE-2025-4517 begins with these
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        links.addfile(link)
    refused(tmp_path / "links.tar", None, "can't be read")


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "a.zip"
    create_backup(small(tmp_path / "data"), archive)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    refused(archive, KEY.public, "needs .* bytes, and .* has 100 left")


def test_a_backup_needs_the_key_that_signs_it(tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    (data / "coordinator.key").unlink()
    with pytest.raises(Misuse, match="signed with the coordinator's key"):
        create_backup(data, tmp_path / "a.zip")
    assert not (data / "coordinator.key").exists()


def test_a_folder_that_cannot_be_read_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small(tmp_path / "data")
    (data / "blobs").mkdir()

    def denied(list_: Callable[[Path], Any], path: Path) -> Any:
        if Path(path).name == "blobs":
            raise PermissionError(13, "denied")
        return list_(path)

    for name in ("listdir", "scandir"):  # root may read everything
        monkeypatch.setattr(os, name, partial(denied, getattr(os, name)))
    with pytest.raises(PermissionError):
        create_backup(data, tmp_path / "a.zip")


def test_a_damaged_database_is_found_before_it_is_kept(tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    (data / "coordinator.sqlite3").write_bytes(b"junk" * 1000)
    with pytest.raises(Misuse, match="the database is damaged"):
        create_backup(data, tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    DataFolderLock(data).release()  # not locked by any process


def test_what_a_killed_command_left_goes_with_the_next(tmp_path: Path) -> None:
    data, kept = small(tmp_path / "data"), tmp_path / "kept"
    kept.mkdir()
    if (child := os.fork()) == 0:
        shutil.copyfileobj = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        create_backup(data, kept / "monday.zip")
    os.waitpid(child, 0)
    [left] = kept.iterdir()
    assert left.name != "monday.zip"
    create_backup(data, kept / "tuesday.zip")
    assert [path.name for path in kept.iterdir()] == ["tuesday.zip"]
    if (child := os.fork()) == 0:
        shutil.copyfileobj = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        restore_backup(kept / "tuesday.zip", kept / "new", None)
    os.waitpid(child, 0)
    assert len(list(kept.iterdir())) == 2
    restore_backup(kept / "tuesday.zip", kept / "new", None)
    assert {path.name for path in kept.iterdir()} == {"tuesday.zip", "new"}


def test_a_backup_never_holds_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small(tmp_path / "data"))
    with pytest.raises(Misuse, match="would lie in the data folder"):
        create_backup(Path(), Path("monday.zip"))
    create_backup(Path(), Path("../monday.zip"))


def test_a_folder_that_is_a_link_is_not_left_out(tmp_path: Path) -> None:
    data, disk = small(tmp_path / "data"), tmp_path / "disk"
    disk.mkdir()
    (disk / "head").write_bytes(b"weights")
    (data / "blobs").symlink_to(disk)
    with pytest.raises(Misuse, match="blobs is a link"):
        create_backup(data, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_commands_replace_nothing(cli: Cli, tmp_path: Path) -> None:
    data, signed = small(tmp_path / "data"), ("--coordinator-key", KEY.public.hex())
    made = cli.json("operator", "backup", "create", tmp_path / "a.zip", "--data-dir", data)
    assert (made["files"], made["blobs"]) == (2, 0)
    assert "in a bucket" in cli("operator", "backup", "create", "bare.zip", "--data-dir", data).err
    (data / "blobs").mkdir(exist_ok=True)
    (data / "blobs" / "head").touch()
    assert "bucket" not in cli("operator", "backup", "create", "whole.zip", "--data-dir", data).err
    assert (
        "exists: give every backup its own name"
        in cli("operator", "backup", "create", "a.zip", "--data-dir", data).error
    )
    assert (
        "never restored over anything"
        in cli("operator", "backup", "restore", "a.zip", "--data-dir", data, *signed).error
    )
    assert (
        cli.json("operator", "backup", "restore", "a.zip", "--data-dir", tmp_path / "new", *signed)["files"]
        == 2
    )
    assert (tmp_path / "new" / "coordinator.key").read_bytes() == b"k" * 32
    assert (
        "is not a coordinator's data folder"
        in cli("operator", "backup", "create", "b.zip", "--data-dir", tmp_path).error
    )
    unsaid = cli("operator", "backup", "restore", "a.zip", "--data-dir", "other")
    assert "--coordinator-key, or say --unauthenticated" in unsaid.error
    Path("c.zip").write_text(json.dumps({}))
    assert (
        "can't be read" in cli("operator", "backup", "restore", "c.zip", "--data-dir", "other", *signed).error
    )
