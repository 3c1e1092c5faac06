"""Canary packs: public documents that published studies name by their SHA-256."""

import hashlib
from collections.abc import Iterator, Sequence

from service.http.problems import not_found, storage_damaged
from service.storage.blobs import Blobs, DamagedBlobError
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Study
from veilsum.protocol.study import read_content
from veilsum.study.canaries import CanaryPack

CANARIES_FOLDER = "canaries"


def pack_blob(federation: str, pack: str) -> str:
    """Return the name under which a pack is stored."""
    return f"{CANARIES_FOLDER}/{federation}/{pack}"


def check_pack(content: bytes, pack: str, studies: Sequence[bytes]) -> None:
    """Refuse bytes that are not the pack that one of a federation's published studies names.

    Raises:
        PeerFault: malformed-request for other bytes; not-found if no study names the pack; malformed or study-refused if it is no pack, or
            does not fit the study.
    """
    if hashlib.sha256(content).hexdigest() != pack:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the path names another pack than the body")
    contents = [read_content(Study.from_bytes(each).content) for each in studies]
    naming = [each for each in contents if each.rehearsal is not None and each.rehearsal.pack == pack]
    if not naming:
        raise not_found(f"study that names canary pack {pack}: publish it first")
    try:
        found = CanaryPack.from_bytes(content)
        for each in naming:
            found.check_question(each.question)
    except Misuse as error:
        raise PeerFault(Cause.MALFORMED, str(error), ["admin"]) from error


def read_pack(blobs: Blobs, federation: str, pack: str) -> tuple[int, Iterator[bytes]]:
    """Return a pack's length, and its bytes piece by piece. Raises PeerFault: not-found, storage-damaged."""
    try:
        return blobs.read_checked(pack_blob(federation, pack), pack)
    except FileNotFoundError:
        raise not_found(
            "canary pack in this federation: have the admin publish it, `veilsum admin publish STUDY.bin PACK.zip`"
        ) from None
    except DamagedBlobError:
        raise storage_damaged(
            f"the coordinator's storage has changed canary pack {pack}; the admin can publish it again"
        ) from None
