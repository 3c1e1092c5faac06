"""The heads that a judgement shows to members: an operator stores them before the round."""

import hashlib

from service.http.problems import not_found, storage_damaged, terms_refused
from service.storage.blobs import Blobs, DamagedBlobError
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.study import Question
from veilsum.study.judging import read_shown

HEADS_FOLDER = "heads"


def heads_blob(cohort: str, heads: str) -> str:
    """Return the name under which a cohort's heads are stored."""
    return f"{HEADS_FOLDER}/{cohort}/{heads}"


def check_heads(content: bytes, heads: str, question: Question) -> None:
    """Refuse bytes that are not the heads of this SHA-256, or that members would refuse (malformed-request, terms-refused)."""
    if hashlib.sha256(content).hexdigest() != heads:
        raise PeerFault(Cause.MALFORMED_REQUEST, "the SHA-256 in the path is not the body's")
    if question.judge is None:
        raise terms_refused("the study has no question.judge: ask the admin for a version that has one")
    read_shown(question, content)


def read_heads(blobs: Blobs, cohort: str, heads: str) -> bytes:
    """Return a cohort's heads. Raises PeerFault: not-found, storage-damaged."""
    try:
        return b"".join(blobs.read_checked(heads_blob(cohort, heads), heads)[1])
    except FileNotFoundError:
        raise not_found("heads of this SHA-256 for the cohort: store them first") from None
    except DamagedBlobError:
        raise storage_damaged(
            f"the coordinator's storage has changed the heads {heads}; the operator can store them again"
        ) from None
