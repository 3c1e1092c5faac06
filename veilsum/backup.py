"""A coordinator's data folder as one file, and back: the work behind `veilsum operator backup`."""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from protocol.errors import Misuse
from service.storage.folder import FolderLock, fsync_folder, make_folder

FORMAT = "veilsum-backup/1"
_DATABASE, _LOCK, _MANIFEST = "coordinator.sqlite3", "coordinator.lock", "manifest.json"


def create(data_dir: Path, archive: Path) -> dict[str, Any]:
    """Write everything of a stopped coordinator's folder to a new file, mode 0600: its signing key is in it.

    Raises:
        Misuse: no such folder, a coordinator runs on it, its database is damaged, or the archive exists.
    """
    if not (data_dir / _DATABASE).is_file():
        raise Misuse(f"{data_dir} is no coordinator's data folder: it has no {_DATABASE}")
    with FolderLock(data_dir):
        _settle(data_dir / _DATABASE)
        files = sorted(path for path in data_dir.rglob("*") if path.is_file() and path.name != _LOCK)
        digests = {str(path.relative_to(data_dir)): _digest_of(path) for path in files}
        manifest = json.dumps({"format": FORMAT, "files": digests}, indent=1).encode()
        with _new(archive) as file, tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo(_MANIFEST)
            entry.size, entry.mode = len(manifest), 0o600
            tar.addfile(entry, io.BytesIO(manifest))
            for path in files:
                tar.add(path, str(path.relative_to(data_dir)))
    return {"archive": str(archive), "files": len(files), "bytes": archive.stat().st_size}


def restore(archive: Path, data_dir: Path) -> dict[str, Any]:
    """Make a data folder of a backup, checked file by file before it has its name.

    Raises:
        Misuse: the folder exists, or the archive is no whole backup.
    """
    if data_dir.exists():
        raise Misuse(f"{data_dir} exists: a backup is never restored over anything; name a new folder")
    make_folder(data_dir.parent)
    scratch = data_dir.with_name(f".{data_dir.name}.{os.urandom(6).hex()}")
    make_folder(scratch)
    try:
        _unpack(archive, scratch)
        files = _checked(archive, scratch)
        _settle(scratch / _DATABASE)
        for path in scratch.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            _fsync(path)
        fsync_folder(scratch)
        scratch.rename(data_dir)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    fsync_folder(data_dir.parent)
    return {"data_dir": str(data_dir), "files": len(files)}


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive, "r:") as tar:
            tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise Misuse(f"{archive} is no readable backup: {error}") from error


def _checked(archive: Path, folder: Path) -> dict[str, str]:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        files: dict[str, str] = manifest["files"]
        known = manifest["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misuse(
            f"{archive} is no backup of ours: it has no {_MANIFEST} that says what is in it"
        ) from error
    if not known:
        raise Misuse(
            f"{archive} is of another format than {FORMAT}: restore it with the version that made it"
        )
    (folder / _MANIFEST).unlink()
    there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    odd = sorted(files.keys() ^ there.keys()) or [
        name for name in files if _digest_of(there[name]) != files[name]
    ]
    if odd or _DATABASE not in files:
        raise Misuse(
            f"{archive} is damaged: {', '.join(odd[:5]) or _DATABASE} is missing, changed or too much"
        )
    return files


def _settle(database: Path) -> None:
    """Move what its log holds into the database, and check that it is whole."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            [(word,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        raise Misuse(f"{database} is damaged: {error}") from error
    if word != "ok":
        raise Misuse(f"{database} is damaged: {word}")


@contextmanager
def _new(archive: Path) -> Iterator[BinaryIO]:
    """A file that has its name only once it is whole and on the disk; nothing is replaced."""
    if archive.exists():
        raise Misuse(f"{archive} exists: give every backup its own name")
    temporary = archive.with_name(f".{archive.name}.{os.urandom(6).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(archive)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_folder(archive.absolute().parent)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
