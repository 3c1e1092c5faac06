"""The messages of protocol versions 3 and 4 that a recorder reads: written from the pages' tables, for no other use.

A message or struct is a `SimpleNamespace` with its fields, and in `raw` the bytes that its fields stand in.
"""

import hashlib
from types import SimpleNamespace
from typing import Any

Fields = dict[str, str]
"""Types by field: `u8` to `u64`, `id`, `bytes`, a number of bytes, or the name of a struct or message; `*` for a list of them."""

_SHARED: dict[str, Fields] = {
    "Entry": {"member": "id", "key": "32"},
    "Roster": {
        "number": "u64",
        "name": "bytes",
        "federation": "32",
        "coordinator": "32",
        "study_key": "32",
        "members": "*Entry",
        "decryptors": "*id",
        "readers": "*id",
        "revoked": "*32",
        "signature": "64",
    },
    "Manifest": {
        "cohort": "32",
        "roster_hash": "32",
        "counter": "u64",
        "study": "32",
        "period": "id",
        "repeats": "32",
        "members": "*id",
        "cards_root": "32",
        "a_D": "u32",
        "n_min": "u32",
        "t": "u32",
        "degree": "u32",
        "D_max": "u32",
        "decryptors": "*id",
    },
    "Cards": {"manifest": "Manifest", "shown": "*Shown"},
    "Link": {
        "cohort": "32",
        "sequence": "u64",
        "attempt": "u8",
        "question": "32",
        "period": "id",
        "step": "id",
        "repeats": "32",
        "context": "32",
        "reason": "id",
        "survivors": "32",
    },
    "Opening": {
        "cohort": "32",
        "sequence": "u64",
        "attempt": "u8",
        "links": "*Link",
        "terms": "Terms",
        "signature": "64",
    },
    "Header": {
        "context": "32",
        "member": "id",
        "salt": "32",
        "chunk_root": "32",
        "commitment_root": "32",
        "box_root": "32",
        "signature": "64",
    },
    "Upload": {
        "header": "Header",
        "chunk_digests": "*32",
        "commitments": "*16",
        "share_rows": "*bytes",
        "boxes": "*bytes",
    },
    "Receipt": {
        "context": "32",
        "member": "id",
        "uploads": "32",
        "dealers": "*id",
        "complaints": "*id",
        "signature": "64",
    },
    "Survivor": {"member": "id", "digest": "32"},
    "Vote": {"context": "32", "member": "id", "outcome": "32", "signature": "64"},
    "Certificate": {"context": "32", "survivors": "*Survivor", "reason": "id", "votes": "*Vote"},
    "Reveal": {
        "context": "32",
        "member": "id",
        "outcome": "32",
        "evicted": "*id",
        "runs": "*bytes",
        "signature": "64",
    },
    "Study": {"federation": "32", "content": "bytes", "signature": "64"},
}

_OF_VERSION: dict[int, dict[str, Fields]] = {
    3: {
        "KeyCard": {
            "cohort": "32",
            "member": "id",
            "mask_key": "32",
            "box_key": "32",
            "nonce": "32",
            "expires": "u64",
            "signature": "64",
        },
        "Shown": {"card": "KeyCard", "path": "*32"},
        "Terms": {
            "step": "id",
            "count": "32",
            "withheld": "*u32",
            "evicted": "*id",
            "material": "32",
            "latest_end": "u64",
        },
    },
    4: {
        "KeyCard": {
            "cohort": "32",
            "member": "id",
            "x25519_key": "32",
            "mlkem_key_hash": "32",
            "nonce": "32",
            "expires": "u64",
            "serial": "u64",
            "signature": "64",
        },
        "Enrolment": {"card": "KeyCard", "mlkem_key": "1184"},
        "Shown": {"card": "KeyCard", "mlkem_key": "bytes", "path": "*32"},
        "Pairing": {"manifest": "32", "member": "id", "ciphertexts": "*1088", "signature": "64"},
        "Terms": {
            "step": "id",
            "count": "32",
            "rows": "32",
            "withheld": "*u32",
            "evicted": "*id",
            "material": "32",
            "latest_end": "u64",
        },
    },
}

TABLES = {version: _SHARED | own for version, own in _OF_VERSION.items()}

KINDS = {
    1: "Roster",
    2: "KeyCard",
    4: "Opening",
    5: "Upload",
    7: "Receipt",
    12: "Certificate",
    13: "Reveal",
    14: "Cards",
    25: "Study",
    26: "Enrolment",
    27: "Pairing",
}
MANIFEST_KIND = 3


class Reader:
    """Reads one message of a version from front to back."""

    def __init__(self, version: int, data: bytes) -> None:
        self._tables, self._data, self._at = TABLES[version], data, 2

    def read(self, kind: str) -> Any:
        if kind.startswith("*"):
            return [self.read(kind[1:]) for _ in range(self._integer(4))]
        if kind in self._tables:
            start = self._at
            fields = {name: self.read(each) for name, each in self._tables[kind].items()}
            return SimpleNamespace(**fields, raw=self._data[start : self._at])
        if kind.startswith("u"):
            return self._integer(int(kind[1:]) // 8)
        if kind == "id":
            return self._bytes(self._integer(1)).decode("ascii")
        return self._bytes(self._integer(4) if kind == "bytes" else int(kind))

    def _integer(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise ValueError("a message of the recording is truncated")
        self._at += size
        return found

    @property
    def left(self) -> int:
        return len(self._data) - self._at


def parse(version: int, data: bytes) -> tuple[str, Any] | None:
    """Return a message's name and fields; None for a message that holds nothing that a recorder needs."""
    if data[0] != version:
        raise ValueError(f"a message of version {data[0]} in a recording of version {version}")
    name = KINDS.get(data[1])
    if name is None or name not in TABLES[version]:
        return None
    reader = Reader(version, data)
    message = reader.read(name)
    if reader.left:
        raise ValueError(f"{reader.left} bytes follow a {name}")
    return name, message


def info(version: int, tag: str, *fields: bytes) -> bytes:
    """Encode a tag, then each field after its 8-byte length (wire: Hashes)."""
    head = b"veilsum/%d/%s\0" % (version, tag.encode())
    return head + b"".join(len(each).to_bytes(8, "little") + each for each in fields)


def hashed(version: int, tag: str, *fields: bytes) -> bytes:
    """Compute H(tag, fields…) of a version (wire: Hashes)."""
    return hashlib.sha256(info(version, tag, *fields)).digest()
