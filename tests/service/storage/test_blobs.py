import os
from collections.abc import Callable
from pathlib import Path

import pytest

from service.storage.blobs import Blobs, FileBlobs, RemovedFolderError
from veilsum.protocol.errors import Misuse


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record operations on the disk, in order."""
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def name_of(descriptor: int) -> str:
        return Path(f"/proc/self/fd/{descriptor}").readlink().name

    def record_fsync(descriptor: int) -> None:
        name = name_of(descriptor)
        calls.append("fsync file" if name.startswith(".") else f"fsync folder {name}")
        fsync(descriptor)

    def record_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    return calls


def test_a_blob_is_durable_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    calls = recorded(monkeypatch)
    blobs.put("uploads/r/m/0", b"chunk")
    expected = ["fsync file", "rename", *(f"fsync folder {f}" for f in ("m", "r", "uploads", "blobs"))]
    assert calls == expected
    calls.clear()
    blobs.put("uploads/r/m/1", b"chunk")
    assert calls == expected[:3]  # the folders' own names are there
    assert blobs.get("uploads/r/m/0") == b"chunk"
    # What is removed and made again is not there any more.
    blobs.put("uploads/r/mn/0", b"chunk")
    blobs.delete("uploads/r/m")
    for member, synced in (("m", expected[2:4]), ("mn", ["fsync folder mn"])):
        calls.clear()
        blobs.put(f"uploads/r/{member}/0", b"chunk")
        assert calls == ["fsync file", "rename", *synced]
    blobs.delete("uploads")
    calls.clear()
    blobs.put("uploads/r/m/0", b"chunk")
    assert calls == expected


def test_who_finds_a_folder_made_by_another_syncs_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread may not have reached its fsync."""
    blobs = FileBlobs(tmp_path / "blobs")
    (tmp_path / "blobs" / "uploads" / "r").mkdir(parents=True)
    calls = recorded(monkeypatch)
    blobs.put("uploads/r/0", b"chunk")
    assert calls == ["fsync file", "rename", *(f"fsync folder {f}" for f in ("r", "uploads", "blobs"))]


def test_new_folders_are_durable_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    blobs = FileBlobs(tmp_path / "data" / "blobs")
    assert calls == [f"fsync folder {tmp_path.name}", "fsync folder data"]
    blobs.put("r/m/0", b"x")
    modes = {
        path: (tmp_path / path).stat().st_mode & 0o777 for path in ("data", "data/blobs", "data/blobs/r/m/0")
    }
    assert modes == {"data": 0o700, "data/blobs": 0o700, "data/blobs/r/m/0": 0o600}


def test_a_failed_put_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FileBlobs(tmp_path)
    blobs.put("r/1", b"before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("r/1", "r/2"):
        with pytest.raises(OSError, match="No space"):
            blobs.put(name, b"after")
    monkeypatch.undo()
    assert blobs.get("r/1") == b"before"
    assert blobs.list_names("r") == ("1",)


@pytest.mark.parametrize(
    "use",
    [Blobs.get, Blobs.read, Blobs.delete, Blobs.list_names, lambda blobs, name: blobs.put(name, b"")],
    ids=["get", "read", "delete", "list", "put"],
)
def test_a_folder_that_is_away_has_neither_lost_nor_deleted_anything(
    tmp_path: Path, use: Callable[[Blobs, str], object]
) -> None:
    """A disk was unmounted, and comes back with all blobs."""
    folder = tmp_path / "blobs"
    blobs = FileBlobs(folder)
    blobs.put("r/1", b"x")
    folder.rename(tmp_path / "away")
    for name in ("r/1", "r"):
        with pytest.raises(RemovedFolderError):
            use(blobs, name)
    folder.mkdir()
    with pytest.raises(RemovedFolderError):
        use(blobs, "r/1")
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    assert blobs.get("r/1") == b"x"


def test_a_damaged_blob_that_is_deleted_is_damaged_no_more(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    for name in ("r/1", "r/2", "rs/1"):
        blobs.note_damage(name)
    blobs.delete("r/1")
    assert list(blobs.damaged) == ["r/2", "rs/1"]
    blobs.delete("r")
    assert list(blobs.damaged) == ["rs/1"]


@pytest.mark.parametrize(
    "name", ["", "/", "a//b", "../a", "a/..", "a/.b", ".", "a/b\0", "a\\b", "a b", "ä", "a/" + "b" * 129]
)
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    blobs = FileBlobs(tmp_path)
    for use in (blobs.get, blobs.delete, blobs.list_names, lambda name: blobs.put(name, b"")):
        with pytest.raises(Misuse, match="of a blob"):
            use(name)


def test_deleting_takes_a_blob_or_a_folder_or_nothing_and_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path)
    for name in ("r/1", "r/2", "s/1"):
        blobs.put(name, b"x")
    calls = recorded(monkeypatch)
    blobs.delete("r/1")
    assert blobs.list_names("r") == ("2",)
    blobs.delete("r")
    assert calls == ["fsync folder r", f"fsync folder {tmp_path.name}"]
    blobs.delete("r")
    assert blobs.list_names("r") == ()
    assert blobs.get("s/1") == b"x"
    with pytest.raises(FileNotFoundError):
        blobs.get("r/2")
