"""The admin's folder: its signing key, and the roster as a file that people edit and the admin signs."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from client_sdk.errors import first_fault
from client_sdk.files import make_private, sync_folder
from protocol.codec import Reader
from protocol.errors import Misuse
from protocol.identity import SigningKey
from protocol.messages import Entry, Roster
from protocol.rest import Hex32, MemberId

_KEY = "admin.key"


def create_admin(folder: Path) -> SigningKey:
    """Draw the admin's key into a folder of mode 0700; an existing key is never overwritten."""
    make_private(folder)
    try:
        descriptor = os.open(folder / _KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise Misuse(f"{folder} holds an admin's key already: choose another folder") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return load_admin(folder)


def load_admin(folder: Path) -> SigningKey:
    """The admin's key; Misuse where it is missing, damaged or readable by others."""
    path = folder / _KEY
    if not path.is_file():
        raise Misuse(f"{folder} holds no admin's key: make one with `veilsum admin new {folder}`")
    if path.stat().st_mode & 0o077:
        raise Misuse(f"{path} is readable by others: chmod 600 {path}")
    seed = path.read_bytes()
    if len(seed) != 32:
        raise Misuse(f"{path} is damaged: it has {len(seed)} bytes, not 32; restore it from your backup")
    return SigningKey(seed)


class Draft(BaseModel):
    """A roster before it is signed, as its JSON file holds it; keys and digests in hexadecimal.

    Attributes:
        withhold: whether classes that few members hold are kept out of every sum; to publish them is the admin's to sign.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[int, Field(ge=1, lt=1 << 64, strict=True)]
    coordinator: Hex32
    members: dict[MemberId, Hex32] = {}
    decryptors: list[MemberId] = []
    extractors: list[Hex32] = []
    readers: list[MemberId] = []
    withhold: bool = True

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a draft; Misuse names what is wrong with the file."""
        if not path.is_file():
            raise Misuse(f"{path} does not exist: write it with `veilsum admin roster {path}`")
        try:
            return cls.parse(json.loads(path.read_text("utf-8"), object_pairs_hook=_unique), str(path))
        except ValueError as error:
            raise Misuse(f"{path} is not a roster's draft: {error}") from error

    @classmethod
    def parse(cls, values: Any, what: str) -> Self:
        """A draft from its fields; Misuse names the first that is wrong."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise Misuse(f"{what}: {first_fault(error, 'the whole')}") from error

    def save(self, path: Path) -> None:
        """Write the draft, whole or not at all."""
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(self.model_dump_json(indent=2) + "\n", "utf-8")
        fresh.replace(path)

    def sign(self, admin: SigningKey) -> Roster:
        """The signed roster; Misuse or PeerFault where the draft is not a valid one."""
        roster = Roster.make(
            admin,
            version_number=self.version,
            federation=admin.public,
            coordinator=bytes.fromhex(self.coordinator),
            members=tuple(Entry(name, bytes.fromhex(key)) for name, key in sorted(self.members.items())),
            decryptors=tuple(sorted(set(self.decryptors))),
            extractors=tuple(sorted({bytes.fromhex(digest) for digest in self.extractors})),
            readers=tuple(sorted(set(self.readers))),
            withhold=int(self.withhold),
        )
        roster.validate()
        return Roster.decode_fields(Reader(roster.encode_fields()))


def revised(
    draft: Draft | None,
    *,
    coordinator: str | None,
    members: Sequence[str],
    remove: Sequence[str],
    extractors: Sequence[str],
    decryptors: Sequence[str],
    readers: Sequence[str],
    withhold: bool | None = None,
) -> Draft:
    """A draft with these changes, its version raised if they are any; the first version where there is none.

    Raises:
        Misuse: an entry that is not ID=PUBLICKEY, an id given twice or unknown, a key or digest that is none.
    """
    named = _entries(members)
    before: dict[str, Any] = draft.model_dump() if draft else {"version": 0, "members": {}}
    if not (coordinator or draft):
        raise Misuse("a roster names its coordinator's key: pass --coordinator or --url")
    strangers = set(remove) - (set(before["members"]) | set(named))
    if strangers:
        raise Misuse(f"--remove {', '.join(sorted(strangers))}: no such member in the draft")

    def listed(name: str, added: Sequence[str]) -> list[str]:
        there = [item for item in (*before.get(name, ()), *added) if item not in remove]
        return list(dict.fromkeys(there))

    after = {
        "version": before["version"],
        "coordinator": coordinator or before["coordinator"],
        "members": {
            name: key for name, key in sorted({**before["members"], **named}.items()) if name not in remove
        },
        "decryptors": listed("decryptors", decryptors),
        "extractors": listed("extractors", extractors),
        "readers": listed("readers", readers),
        "withhold": before.get("withhold", True) if withhold is None else withhold,
    }
    if after != before:
        after["version"] += 1
    return Draft.parse(after, "the roster")


def _entries(members: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for entry in members:
        name, found, key = entry.partition("=")
        if not found:
            raise Misuse(f"--member {entry}: write ID=PUBLICKEY")
        if name in named:
            raise Misuse(f"--member {name} stands twice")
        named[name] = key
    return named


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):  # JSON would quietly keep the last: for a member, another key
        twice = sorted({name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1})
        raise ValueError(f"{', '.join(twice)} stands twice")
    return values
