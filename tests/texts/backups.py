"""Backups that no command restores."""

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from sqlalchemy import create_engine

from service.storage import migrating
from tests.support.cli import Cli
from veilsum.cli.backup import BACKUP_FORMAT, create_backup
from veilsum.protocol.identity import SigningKey

KEY, STRANGER = SigningKey(b"k" * 32), SigningKey(b"s" * 32)
Change = Callable[[Path, Path], object]
"""Makes of a backup, the first path, another, the second path."""


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
    archive: Path, into: Path, change: Mapping[str, bytes | None], signer: SigningKey | None = None
) -> Path:
    """Change, add or (None) remove entries of an archive; with a signer, sign it again with a matching manifest."""
    with ZipFile(archive) as old:
        contents = {**{entry.filename: old.read(entry) for entry in old.infolist()}, **change}
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


def entries(**change: bytes | None) -> Change:
    """Change entries, whose names have _ for a dot."""
    return partial(rewritten, change={name.replace("_", "."): content for name, content in change.items()})


def named(name: str) -> Change:
    return partial(rewritten, change={name: b"x"}, signer=KEY)


def raw(change: Callable[[bytes], bytes]) -> Change:
    return lambda archive, into: into.write_bytes(change(archive.read_bytes()))


def packed(archive: Path, into: Path) -> None:
    with ZipFile(archive) as old, ZipFile(into, "w", compression=ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))


def of_links(_: Path, into: Path) -> None:
    with tarfile.open(into, "w") as links:  # CVE-2025-4517 begins with these
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        links.addfile(link)


BACKUPS: dict[str, tuple[Change, SigningKey | None]] = {
    "another key in it": (entries(coordinator_key=b"x" * 32), None),
    "no key in it": (entries(coordinator_key=None), None),
    "a file too many": (entries(more=b"x"), None),
    "no manifest": (entries(manifest_json=None), None),
    "no signature": (entries(manifest_sig=None), None),
    "a signature of another size": (entries(manifest_sig=b"x"), None),
    "a manifest of another form": (entries(manifest_json=b"[]"), None),
    "the same, signed by nobody": (entries(manifest_json=b"[]"), KEY),
    "a manifest that is no text": (entries(manifest_json=b"\xff"), None),
    "another version": (entries(manifest_json=b'{"format": "veilsum-backup/9", "files": {}}'), None),
    "a file without a digest": (
        entries(manifest_json=b'{"format": "veilsum-backup/1", "files": {"a": 1}}'),
        None,
    ),
    "a manifest without files": (entries(manifest_json=b'{"format": "veilsum-backup/1", "files": {}}'), None),
    **{
        f"a file named {name!r}": (named(name), KEY)
        for name in ("../outside", "/tmp/outside", "a/../../outside", "a//b", ".hidden", "a\\b", "a\nb", "é")
    },
    "a file in nine folders": (named("a/" * 9 + "b"), KEY),
    "signed by a stranger": (
        partial(rewritten, change={"coordinator.key": STRANGER.seed}, signer=STRANGER),
        KEY,
    ),
    "another coordinator's": (entries(), STRANGER),
    "packed again": (packed, KEY),
    "cut": (raw(lambda content: content[:-30]), KEY),
    "one bit changed": (
        raw(lambda content: content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]),
        KEY,
    ),
    "links": (of_links, None),
    "no archive": (raw(lambda _: b"{}"), KEY),
}
"""What was done to a backup, and the key that its coordinator is known by, if any."""


def restore(cli: Cli, case: str) -> str:
    """Return why this backup isn't restored."""
    change, key = BACKUPS[case]
    if not Path("a.zip").exists():
        create_backup(small(Path("data")), Path("a.zip"))
    change(Path("a.zip"), Path("b.zip"))
    known = ["--coordinator-key", key.public.hex()] if key else ["--unauthenticated"]
    return cli("operator", "backup", "restore", "b.zip", "--data-dir", "new", *known).error


def explain_backups(cli: Cli) -> Iterator[str]:
    for case in BACKUPS:
        yield f"- {case}: {restore(cli, case)}"
