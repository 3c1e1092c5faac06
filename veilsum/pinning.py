"""The admin's public key as a member pinned it: once, beside the identity, so that no later command has to be told."""

from pathlib import Path

from client_sdk.files import write_durably
from protocol.errors import Misuse
from veilsum.names import admin_key

_FILE = "admin-key"


def pin(folder: Path, key: str) -> None:
    """Write it beside an identity, where it is not there yet.

    Raises:
        Misuse: it is no key, or another one is pinned already.
    """
    given = pinned(folder, admin_key(key))
    if not (folder / _FILE).exists():
        write_durably(folder / _FILE, f"{given}\n".encode())


def pinned(folder: Path, given: str | None) -> str:
    """The admin's key that is given, or else the one pinned; 64 hexadecimal digits.

    Raises:
        Misuse: there is neither, it is no key, or the two differ.
    """
    path = folder / _FILE
    kept = admin_key(path.read_text("utf-8").strip()) if path.exists() else None
    key = kept if given is None else admin_key(given)
    if key is None:
        raise Misuse(
            f"no admin's key is pinned in {folder}: pass --admin-key with the one that the admin gave you"
        )
    if kept not in {None, key}:
        raise Misuse(
            f"{path} pins another admin's key, {kept}: a federation keeps its admin; for another federation make another identity"
        )
    return key
