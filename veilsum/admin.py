"""The admin's folder: its signing key, and the roster as a file that people edit and the admin signs."""

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from protocol.codec import Reader
from protocol.errors import Misuse
from protocol.identity import SigningKey
from protocol.messages import Entry, Roster

_KEY = "admin.key"


def create_admin(folder: Path) -> SigningKey:
    """Draw the admin's key into a folder of mode 0700; an existing key is never overwritten."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(folder / _KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Misuse(f"{folder} holds an admin's key already: choose another folder") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
        file.flush()
        os.fsync(file.fileno())
    return load_admin(folder)


def load_admin(folder: Path) -> SigningKey:
    """The admin's key; Misuse where it is missing or readable by others."""
    path = folder / _KEY
    if not path.exists():
        raise Misuse(f"{folder} holds no admin's key: make one with `veilsum federation new {folder}`")
    if path.stat().st_mode & 0o077:
        raise Misuse(f"{path} is readable by others: chmod 600 {path}")
    return SigningKey(path.read_bytes())


@dataclass
class Draft:
    """A roster before it is signed, as its JSON file holds it; keys and digests in hexadecimal."""

    version: int
    coordinator: str
    members: dict[str, str] = field(default_factory=dict)
    decryptors: list[str] = field(default_factory=list)
    extractors: list[str] = field(default_factory=list)
    readers: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "Draft":
        """Read a draft; Misuse names what is wrong with the file."""
        try:
            return cls(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise Misuse(f"{path} is not a roster's draft: {error}") from error

    def save(self, path: Path) -> None:
        """Write the draft."""
        path.write_text(json.dumps(vars(self), indent=2) + "\n")

    def sign(self, admin: SigningKey) -> Roster:
        """The signed roster; Misuse or PeerFault where the draft is not a valid one."""
        roster = Roster.make(
            admin,
            version_number=self.version,
            federation=admin.public,
            coordinator=_key(self.coordinator, "the coordinator's key"),
            members=tuple(Entry(m, _key(key, f"{m}'s key")) for m, key in sorted(self.members.items())),
            decryptors=tuple(sorted(self.decryptors)),
            extractors=tuple(sorted(_key(digest, "an extractor's digest") for digest in self.extractors)),
            readers=tuple(sorted(self.readers)),
        )
        roster.validate()
        return Roster.decode_fields(Reader(roster.encode_fields()))


def _key(text: str, what: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise Misuse(f"{what} is not hexadecimal") from error
    if len(raw) != 32:
        raise Misuse(f"{what} has {len(raw)} bytes, not 32")
    return raw
