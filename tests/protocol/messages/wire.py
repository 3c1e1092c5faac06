"""What stands in several messages, as an object beside its bytes."""

import hashlib

from protocol.messages import Survivor, UploadHeader

CONTEXT = b"\xc7" * 32

HEADER = UploadHeader(
    context=CONTEXT,
    member="ann",
    lineage=b"\x11" * 8,
    records=b"\x4e" * 8,
    salt=b"\x5a" * 32,
    chunk_root=b"\x01" * 32,
    commitment_root=b"\x02" * 32,
    box_root=b"\x03" * 32,
    signature=b"\x5e" * 64,
)
HEADER_HEX = "".join(
    (
        "c7" * 32,  # context
        "03616e6e",  # member: "ann"
        "11" * 8,  # lineage
        "4e" * 8,  # records
        "5a" * 32,  # salt
        "01" * 32,  # chunk_root
        "02" * 32,  # commitment_root
        "03" * 32,  # box_root
        "5e" * 64,  # signature
    )
)

SURVIVOR = Survivor(member="ann", lineage=b"\x11" * 8, records=b"\x4e" * 8, digest=b"\xd9" * 32)
SURVIVOR_HEX = "".join(
    (
        "03616e6e",  # member: "ann"
        "11" * 8,  # lineage
        "4e" * 8,  # records
        "d9" * 32,  # digest
    )
)


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/3/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()
