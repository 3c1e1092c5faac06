"""Files that survive a power cut."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from veilsum.system import files
from veilsum.system.files import make_durably, make_private, write_durably, write_together


def test_a_write_replaces_the_file_whole_and_closes_it_to_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"older and longer")
    path.chmod(0o644)
    write_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write_durably(tmp_path / "a", b"old")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os if fails == "fsync" else Path, fails, full)
    with pytest.raises(OSError, match="no space left"):
        write_together(tmp_path, {"a": b"new", "b": b"new", "whole": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 19) + 4097])
@pytest.mark.parametrize("how", ["directly", "short", "refused", "refused at once", "unknown"])
def test_a_long_file_is_the_same_however_the_file_system_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, how: str
) -> None:
    real = os.write

    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "an alignment that it does not take")

    def short(descriptor: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", real)
        return real(descriptor, data[:4096])

    match how:
        case "short":
            monkeypatch.setattr(os, "write", short)
        case "refused":
            monkeypatch.setattr(os, "write", refused)
        case "refused at once":
            monkeypatch.setattr(fcntl, "fcntl", lambda *given: refused() if given[-1] & os.O_DIRECT else 0)
        case "unknown":
            monkeypatch.setattr(files, "_DIRECT_FLAG", 0)
    content = np.random.default_rng(size).bytes(size)
    write_durably(tmp_path / "file", memoryview(content))
    assert (tmp_path / "file").read_bytes() == content


def test_a_full_disk_is_reported_also_where_a_long_file_is_written_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left") as caught:
        write_durably(tmp_path / "file", bytes(1 << 20))
    assert caught.value.filename == str(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_files_written_together_are_there_before_the_last_and_none_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    beside, sync = files._written_beside, files.sync_folder

    def written(path: Path, data: bytes | memoryview) -> Path:
        done.append(f"+{path.name}")
        return beside(path, data)

    def synced(folder: Path) -> None:
        done.append(", ".join(sorted(path.name for path in folder.iterdir())))
        sync(folder)

    monkeypatch.setattr(files, "_written_beside", written)
    monkeypatch.setattr(files, "sync_folder", synced)
    write_together(tmp_path, {"a": b"1", "b": b"2", "gone": None, "whole": b"3"})
    assert done == ["+a", "+b", "a, b", "+whole", "a, b, whole"]
    done.clear()
    (tmp_path / "a").chmod(0o644)
    write_together(tmp_path, {"a": b"1", "b": None, "whole": b"3"})
    assert done == ["+a", "a, whole"]
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    done.clear()
    write_together(tmp_path, {"a": b"1", "whole": b"4"})
    assert done == ["a, whole", "+whole", "a, whole"]
    assert (tmp_path / "whole").read_bytes() == b"4"


def test_the_first_of_several_writers_makes_a_file(tmp_path: Path) -> None:
    assert [make_durably(tmp_path / "key", content) for content in (b"first", b"second")] == [True, False]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"key": b"first"}


def test_a_file_in_a_folder_s_place_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o644)
    before = path.stat().st_mode
    with pytest.raises(FileExistsError):
        make_private(path)
    assert path.stat().st_mode == before
