"""The drill: a round, a backup, the machine is lost, a restored coordinator shows and signs the same."""

import io
import json
import sqlite3
import tarfile
from pathlib import Path

import pytest

from protocol.errors import Misuse
from service.storage.folder import FolderLock
from tests.service.driver import Party
from tests.service.serving import Server, running
from tests.veilsum.cli import Cli
from veilsum.backup import create, restore


async def shown(server: Server, party: Party, round_id: str) -> tuple[bytes, bytes, str]:
    """The signed record, the weights, and who signed."""
    record = await server.client.get(f"/v1/rounds/{round_id}/result")
    weights = await server.client.get(f"/v1/rounds/{round_id}/result/weights")
    assert (record.status_code, weights.status_code) == (200, 200)
    return record.content, weights.content, str((await server.view(round_id))["state"])


async def test_a_restored_coordinator_goes_on(tmp_path: Path) -> None:
    party = Party(("a", "b", "c"))
    data, archive = tmp_path / "data", tmp_path / "monday.tar"
    async with running(data) as server:
        await party.begin(server)
        round_id = await party.open_round(server)
        assert (await party.play(server, round_id))["state"] == "done"
        await server.tidy(round_id)
        before = await shown(server, party, round_id)
        with pytest.raises(Misuse, match="another coordinator"):
            create(data, archive)
    made = create(data, archive)
    assert made["bytes"] == archive.stat().st_size
    assert archive.stat().st_mode & 0o777 == 0o600
    restored = tmp_path / "other" / "machine"
    assert restore(archive, restored)["files"] == made["files"]
    assert {path.stat().st_mode & 0o077 for path in restored.rglob("*")} == {0}
    async with running(restored) as server:
        assert await shown(server, party, round_id) == before
        again = await party.open_round(server)
        assert (await party.play(server, again))["state"] == "done"


def small(folder: Path) -> Path:
    """A data folder with a database and a file."""
    folder.mkdir()
    connection = sqlite3.connect(folder / "coordinator.sqlite3")
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    (folder / "coordinator.key").write_bytes(b"k" * 32)
    return folder


def rewritten(archive: Path, into: Path, change: dict[str, bytes | None]) -> Path:
    """The archive with entries changed, added, or (None) removed."""
    with tarfile.open(archive) as old, tarfile.open(into, "w") as new:
        contents = {entry.name: old.extractfile(entry).read() for entry in old}  # type: ignore[union-attr]
        for name, content in (contents | change).items():
            if content is not None:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                new.addfile(entry, io.BytesIO(content))
    return into


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"coordinator.key": b"x" * 32}, "damaged: coordinator.key is missing, changed or too much"),
        ({"coordinator.key": None}, "damaged: coordinator.key is"),
        ({"more": b"x"}, "damaged: more is"),
        ({"manifest.json": None}, "no backup of ours"),
        ({"manifest.json": b"[]"}, "no backup of ours"),
        ({"manifest.json": b'{"format": "veilsum-backup/9", "files": {}}'}, "of another format"),
        ({"../outside": b"x"}, "is no readable backup"),
    ],
)
def test_a_damaged_backup_is_never_restored(
    change: dict[str, bytes | None], expected: str, tmp_path: Path
) -> None:
    archive = tmp_path / "a.tar"
    create(small(tmp_path / "data"), archive)
    with pytest.raises(Misuse, match=expected):
        restore(rewritten(archive, tmp_path / "b.tar", change), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "a.tar", "b.tar"}


def test_a_damaged_database_is_found_before_it_is_kept(tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    (data / "coordinator.sqlite3").write_bytes(b"junk" * 1000)
    with pytest.raises(Misuse, match="is damaged: file is not a database"):
        create(data, tmp_path / "a.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    FolderLock(data).release()  # nobody holds it


def test_commands_replace_nothing(cli: Cli, tmp_path: Path) -> None:
    data = small(tmp_path / "data")
    made = cli.json("operator", "backup", "create", tmp_path / "a.tar", "--data-dir", data)
    assert made["files"] == 2
    assert (
        "exists: give every backup its own name"
        in cli("operator", "backup", "create", "a.tar", "--data-dir", data).error
    )
    assert (
        "never restored over anything"
        in cli("operator", "backup", "restore", "a.tar", "--data-dir", data).error
    )
    assert cli.json("operator", "backup", "restore", "a.tar", "--data-dir", tmp_path / "new")["files"] == 2
    assert (tmp_path / "new" / "coordinator.key").read_bytes() == b"k" * 32
    assert (
        "is no coordinator's data folder"
        in cli("operator", "backup", "create", "b.tar", "--data-dir", tmp_path).error
    )
    Path("c.tar").write_text(json.dumps({}))
    assert (
        "is no readable backup" in cli("operator", "backup", "restore", "c.tar", "--data-dir", "other").error
    )
