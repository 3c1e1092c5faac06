"""The drill: a round, a backup, the machine is lost, and a restored coordinator shows and signs the same."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from service.storage.folder import lock_folder
from tests.support.cli import Cli
from tests.support.party import Party
from tests.support.serving import Server, running
from tests.texts.backups import BACKUPS, KEY, STRANGER, restore, rewritten, small
from veilsum.cli.backup import create_backup, restore_backup
from veilsum.protocol.errors import Misuse
from veilsum.study.progress import RESTORED_ADVICE


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


@pytest.mark.parametrize("case", BACKUPS)
def test_what_is_not_restored_leaves_nothing_behind(
    case: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it isn't stands in tests/texts."""
    monkeypatch.chdir(cli.folder)
    error = restore(cli, case)
    assert error
    assert "\n" not in error
    assert {path.name for path in Path().iterdir()} == {"a.zip", "b.zip", "data"}


def test_a_backup_is_its_coordinators_own(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    assert create_backup(small(tmp_path / "data"), archive)["coordinator_key"] == KEY.public.hex()
    forged = rewritten(archive, tmp_path / "b.zip", {"coordinator.key": STRANGER.seed}, STRANGER)
    assert not restore_backup(forged, tmp_path / "forged", None)["authenticated"]
    assert restore_backup(archive, tmp_path / "mine", KEY.public)["authenticated"]


def test_the_operators_token_stays_out(tmp_path: Path) -> None:
    data, archive = small(tmp_path / "data"), tmp_path / "a.zip"
    (data / "operator.token").write_text("veilsum_canary")
    create_backup(data, archive)
    assert "operator.token" not in ZipFile(archive).namelist()
    assert b"veilsum_canary" not in archive.read_bytes()


def test_a_full_disk_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "a.zip"
    create_backup(small(tmp_path / "data"), archive)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    before = {*tmp_path.rglob("*")}
    with pytest.raises(Misuse, match="100 left"):
        restore_backup(archive, tmp_path / "new", KEY.public)
    assert {*tmp_path.rglob("*")} == before


def test_a_backup_needs_the_key_that_signs_it(tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    (data / "coordinator.key").unlink()
    with pytest.raises(Misuse):
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
    with pytest.raises(Misuse):
        create_backup(data, tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with lock_folder(data):
        pass  # not locked by any process


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
    with pytest.raises(Misuse, match="data folder"):
        create_backup(Path(), Path("monday.zip"))
    create_backup(Path(), Path("../monday.zip"))


def test_a_folder_that_is_a_link_is_not_left_out(tmp_path: Path) -> None:
    data, disk = small(tmp_path / "data"), tmp_path / "disk"
    disk.mkdir()
    (disk / "head").write_bytes(b"weights")
    (data / "blobs").symlink_to(disk)
    with pytest.raises(Misuse, match="blobs"):
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
    before = Path("a.zip").read_bytes()
    assert "a.zip" in cli("operator", "backup", "create", "a.zip", "--data-dir", data).error
    assert Path("a.zip").read_bytes() == before
    assert cli("operator", "backup", "restore", "a.zip", "--data-dir", data, *signed).error
    new = tmp_path / "new"
    restored = cli("operator", "backup", "restore", "a.zip", "--data-dir", new, *signed, "--json")
    assert restored.values["files"] == 2
    assert RESTORED_ADVICE in restored.err
    assert (new / "coordinator.key").read_bytes() == b"k" * 32
    assert cli("operator", "backup", "create", "b.zip", "--data-dir", tmp_path).error
    unsaid = cli("operator", "backup", "restore", "a.zip", "--data-dir", "other")
    assert "--unauthenticated" in unsaid.error
