"""The admin's pinned key, the studies in force, and those that this identity approved."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.cli.names import public_key
from veilsum.protocol.errors import Misuse
from veilsum.system.files import write_durably

if TYPE_CHECKING:
    from veilsum.protocol.rest import StudyView

PIN_FILE = "admin-key"
APPROVALS_FILE = "approvals.json"


def pin_admin_key(folder: Path, key: str) -> None:
    """Pin the admin's public key in an identity's folder. Raises Misuse if another key is pinned."""
    given = find_admin_key(folder, key)
    if not (folder / PIN_FILE).exists():
        write_durably(folder / PIN_FILE, f"{given}\n".encode())


def find_admin_key(folder: Path, given: str | None) -> str:
    """Return the admin's public key, given or pinned. Raises Misuse if it is missing, or if the two differ."""
    path = folder / PIN_FILE
    kept = public_key(path.read_text("utf-8", "replace").strip()) if path.exists() else None
    key = kept if given is None else public_key(given)
    if key is None:
        raise Misuse(
            f"no admin key is pinned in {folder}: pass --admin-key with the key that the admin gave you"
        )
    if kept not in {None, key}:
        raise Misuse(
            f"{path} pins another admin key, {kept}: a federation keeps its admin; make another identity for another federation"
        )
    return key


def newest_studies(published: "Iterable[StudyView]") -> "Iterator[StudyView]":
    """Return the newest version of each published study, unless it is revoked or expired."""
    newest: dict[str, StudyView] = {}
    for view in published:
        if view.name not in newest or view.version > newest[view.name].version:
            newest[view.name] = view
    return (each for each in newest.values() if not each.revoked and each.expires_s > time.time())


def read_approvals(folder: Path) -> dict[str, str]:
    """Read the names of studies approved before, by approval digest. Raises Misuse if the file is damaged."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - commands start sooner without it

    from veilsum.protocol.forms import Hex32  # noqa: PLC0415

    path = folder / APPROVALS_FILE
    try:
        return TypeAdapter(dict[Hex32, str]).validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as error:
        raise Misuse(f"{path} is damaged: remove it, then approve the studies again") from error
