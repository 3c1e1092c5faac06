"""Back up a coordinator's data folder to one file, and restore it, for `veilsum operator backup`.

The archive is a ZIP file. Its manifest lists every file with its size and SHA-256, and the coordinator's key signs the manifest. A restore
verifies it with the public key, which members have pinned, so only a holder of the key can forge or change a backup. The archive contains
the key, so a reader of one backup can sign another. It does not contain the operator's token, only the hash in the database. A signature
does not show which backup is the newest.

Before it writes anything, a restore checks the signature, every name, and that all sizes fit the archive and the disk. It creates only
regular files in new folders; an archive cannot request a link, a device or a mode.
"""

import hashlib
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import Field, ValidationError

from service.access.tokens import FIRST_OPERATOR_FILE
from service.settings import Settings
from service.storage.faults import reword_errors
from service.storage.folder import DATABASE_FILE, check_there, lock_folder
from service.storage.keys import key_of
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.forms import Hex32, in_words
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.rest import Model
from veilsum.system.files import is_unfinished, make_folder, sync_folder
from veilsum.system.key_files import COORDINATOR_KEY

BACKUP_FORMAT = "veilsum-backup/1"
_LOCK_FILE = "coordinator.lock"
_MANIFEST_FILE, _SIGNATURE_FILE = "manifest.json", "manifest.sig"
_MAX_MANIFEST_BYTES = 64 << 20
_PATH_PART = "[0-9A-Za-z][0-9A-Za-z._-]{0,254}"
Name = Annotated[str, Field(pattern=f"^{_PATH_PART}(/{_PATH_PART}){{0,7}}$")]


class _File(Model):
    bytes: Annotated[int, Field(ge=0)]
    sha256: Hex32


class _Manifest(Model):
    format: Literal["veilsum-backup/1"]
    files: dict[Name, _File]


def create_backup(data_dir: Path, archive: Path) -> dict[str, Any]:
    """Write a stopped coordinator's folder, including its signing key, to a new file of mode 0600.

    Raises:
        Misuse: the folder does not exist, or contains a link, a foreign file, a damaged database or no key; the coordinator is running;
            or the archive exists or is inside the folder.
    """
    check_there(data_dir)
    if archive.resolve().is_relative_to(data_dir.resolve()):
        raise Misuse(f"{archive} would be in the data folder, and in the next backup: choose another path")
    with lock_folder(data_dir):
        key = _load_key(data_dir)
        paths = list(_list_paths(data_dir))
        if link := next((path for path in paths if path.is_symlink()), None):
            raise Misuse(
                f"{link} is a link, and a backup holds only the folder's own files: mount a disk there instead"
            )
        _merge_wal(data_dir / DATABASE_FILE)
        files = {
            str(path.relative_to(data_dir)): path
            for path in sorted(paths)
            if path.is_file()
            and path.name not in {_LOCK_FILE, FIRST_OPERATOR_FILE}
            and not is_unfinished(path.name)
        }
        try:
            manifest = _Manifest(
                format="veilsum-backup/1",
                files={
                    name: _File(bytes=path.stat().st_size, sha256=_digest_of(path))
                    for name, path in files.items()
                },
            )
        except ValidationError as error:
            raise Misuse(
                f"{data_dir} holds a file that does not belong to a coordinator: {_first_error(error)}"
            ) from error
        text = manifest.model_dump_json().encode()
        with (
            _new_file(archive, f".veilsum-backup.{key.public.hex()[:16]}") as file,
            zipfile.ZipFile(file, "w") as made,
        ):
            made.writestr(zipfile.ZipInfo(_MANIFEST_FILE), text)
            made.writestr(zipfile.ZipInfo(_SIGNATURE_FILE), key.sign(_signed_digest(text)))
            for name, path in files.items():
                with (
                    path.open("rb") as source,
                    made.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry,
                ):
                    shutil.copyfileobj(source, entry)
    facts = {"archive": str(archive), "files": len(files), "bytes": archive.stat().st_size}
    facts["blobs"] = sum(name.startswith("blobs/") for name in files)
    return {**facts, "coordinator_key": key.public.hex()}


def restore_backup(archive: Path, data_dir: Path, coordinator: bytes | None) -> dict[str, Any]:
    """Restore a backup into a new data folder, which gets its name after every file is checked.

    `coordinator` is the public key that must have signed the archive; None skips the check.

    Raises:
        Misuse: the folder exists, or the archive is not a complete backup of this coordinator.
    """
    if data_dir.exists():
        raise Misuse(f"{data_dir} exists: choose a new folder; a restore never overwrites one")
    make_folder(data_dir.parent)
    scratch = data_dir.with_name(f".{data_dir.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)  # left by a restore that was killed
    try:
        with _open_archive(archive) as (made, text, signature):
            if coordinator is not None:
                _check_signed(archive, text, signature, coordinator)
            files = _check_files(archive, made, text, data_dir.parent)
            make_folder(scratch)
            for name, file in files.items():
                _extract_file(archive, made, name, file, scratch / name)
        _merge_wal(scratch / DATABASE_FILE)
        for path in scratch.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
            _sync_path(path)
        sync_folder(scratch)
        scratch.rename(data_dir)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    sync_folder(data_dir.parent)
    return {"data_dir": str(data_dir), "files": len(files), "authenticated": coordinator is not None}


def _list_paths(folder: Path) -> Iterator[Path]:
    """Yield all paths in a folder, recursively. Raises OSError for a folder that can't be read, which `rglob` would skip."""
    for path in folder.iterdir():
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _list_paths(path)


def _load_key(data_dir: Path) -> SigningKey:
    settings = Settings(data_dir=data_dir)
    if not settings.coordinator_key and not (data_dir / COORDINATOR_KEY).exists():
        raise Misuse(
            f"a backup is signed with the coordinator's key: {data_dir} has no {COORDINATOR_KEY}, and VEILSUM_COORDINATOR_KEY is not set"
        )
    return key_of(settings)


def _signed_digest(manifest: bytes) -> bytes:
    return hashlib.sha256(BACKUP_FORMAT.encode() + b"\0" + manifest).digest()


@contextmanager
def _open_archive(archive: Path) -> Iterator[tuple[zipfile.ZipFile, bytes, bytes]]:
    """Open an archive: the file, its manifest and the manifest's signature. Raises Misuse if it can't be read."""
    try:
        with zipfile.ZipFile(archive) as made:
            entries = {entry.filename: entry.file_size for entry in made.infolist()}
            if not {_MANIFEST_FILE, _SIGNATURE_FILE} <= entries.keys():
                raise Misuse(
                    f"{archive} is not a veilsum backup: it has no {_MANIFEST_FILE} with a {_SIGNATURE_FILE}"
                )
            if entries[_MANIFEST_FILE] > _MAX_MANIFEST_BYTES or entries[_SIGNATURE_FILE] != 64:
                raise Misuse(
                    f"{archive} is not a veilsum backup: its {_MANIFEST_FILE} or {_SIGNATURE_FILE} has a wrong size"
                )
            yield made, made.read(_MANIFEST_FILE), made.read(_SIGNATURE_FILE)
    # zipfile raises RuntimeError for encrypted entries and unknown compression
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise Misuse(f"{archive} can't be read: {error}") from error


def _check_signed(archive: Path, manifest: bytes, signature: bytes, coordinator: bytes) -> None:
    try:
        verify_signature(coordinator, signature, _signed_digest(manifest), "the coordinator")
    except PeerFault as error:
        raise Misuse(
            f"{archive} was not signed by the coordinator {coordinator.hex()}: it is another coordinator's, or was changed"
        ) from error


def _check_files(archive: Path, made: zipfile.ZipFile, text: bytes, disk: Path) -> Mapping[str, _File]:
    """Return the manifest's files. Raises Misuse unless the archive holds exactly these, and they fit on the disk."""
    try:
        files = _Manifest.model_validate_json(text).files
    except ValidationError as error:
        raise Misuse(f"{archive} is not a backup of format {BACKUP_FORMAT}: {_first_error(error)}") from error
    entries = [entry for entry in made.infolist() if entry.filename not in {_MANIFEST_FILE, _SIGNATURE_FILE}]
    there = {
        entry.filename: entry.file_size for entry in entries if entry.compress_type == zipfile.ZIP_STORED
    }
    listed = {name: file.bytes for name, file in files.items()}
    odd = sorted({name for name, _ in there.items() ^ listed.items()})
    if odd or len(entries) != len(there) or DATABASE_FILE not in files:
        raise Misuse(
            f"{archive} is damaged: {DATABASE_FILE if not odd else repr(odd[0])} is missing, changed or unexpected"
        )
    needed, free = sum(listed.values()), shutil.disk_usage(disk).free
    if needed > archive.stat().st_size:  # entries that overlap
        raise Misuse(f"{archive} is damaged: its files have {needed} bytes, more than the archive")
    if needed > free:
        raise Misuse(f"{archive} needs {needed} bytes, and {disk} has {free} left: make room")
    return files


def _extract_file(archive: Path, made: zipfile.ZipFile, name: str, file: _File, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with made.open(name) as source, path.open("xb") as target:
        shutil.copyfileobj(source, target)
    if (path.stat().st_size, _digest_of(path)) != (file.bytes, file.sha256):
        raise Misuse(f"{archive} is damaged: {name!r} was changed")


def _first_error(error: ValidationError) -> str:
    """Describe the first error on one line, with keys escaped, because they may be any text."""
    found = error.errors(include_url=False)[0]
    where = ".".join(map(repr, found["loc"])) or "its manifest"
    return f"{where}: {in_words(found)}"


def _merge_wal(database: Path) -> None:
    """Move the write-ahead log into the database, and check the database."""
    with reword_errors(), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [(word,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if word != "ok":
        raise Misuse(f"{database} is damaged: {word}")


@contextmanager
def _new_file(archive: Path, unfinished: str) -> Iterator[BinaryIO]:
    """Create a file that gets its name once it is complete and on the disk. Replaces an `unfinished` file that a killed backup left."""
    if archive.exists():
        raise Misuse(f"{archive} exists: choose another name for the backup")
    temporary = archive.with_name(unfinished)
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(archive)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(archive.absolute().parent)


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
