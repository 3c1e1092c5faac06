"""How a study is signed, and how a member checks one before it looks at anything else."""

from dataclasses import dataclass

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Study
from veilsum.protocol.study import DAY_S, LIFETIME_MAX_S, Content, Question, refused
from veilsum.study.promise import check_noise


@dataclass(frozen=True)
class Seen:
    """What a member remembers of a study's name: the highest version, and its digest."""

    version: int
    digest: bytes


def sign(content: Content, federation: bytes, key: SigningKey, now_s: float) -> Study:
    """Sign a study for a federation.

    Raises:
        Misuse: it has expired, or expires so late that every member would refuse it; its noise does not fit its smallest cohort.
    """
    check_signable(content, now_s)
    return Study.make(key, federation=federation, content=content.to_bytes())


def check_signable(content: Content, now_s: float) -> None:
    """Refuse a study that every member would refuse; raises as `sign`."""
    try:
        check_expiry(content, now_s)
        check_smallest(content.question)
    except PeerFault as fault:
        raise Misuse(fault.detail) from fault


def read(
    study: Study,
    *,
    federation: bytes,
    study_key: bytes,
    now_s: float,
    revoked: frozenset[bytes] = frozenset(),
    seen: Seen | None = None,
) -> Content:
    """Check a study as a member does, in the page's order (protocol 3, §4.1).

    Args:
        study: as it was shown.
        federation: the pinned admin key.
        study_key: the roster's.
        now_s: the member's own clock, Unix time.
        revoked: digests that the roster revokes.
        seen: what this member remembers of the study's name.

    Raises:
        PeerFault: wrong-federation, bad-signature, or study-refused.
    """
    if study.federation != federation:
        raise PeerFault(Cause.WRONG_FEDERATION, "the study is for another federation than the one pinned")
    study.verify(study_key, "admin")
    content = Content.from_bytes(study.content)
    if study.hash in revoked:
        raise refused("the roster revokes this study")
    check_expiry(content, now_s)
    version = content.notes.version
    if seen is not None and (
        version < seen.version or (version == seen.version and study.hash != seen.digest)
    ):
        raise refused(
            f"version {version} of {content.notes.name} is shown, and version {seen.version} was seen with other bytes"
        )
    return content


def check_smallest(question: Question) -> None:
    """Refuse noise that does not fit the smallest cohort of the study (weak-parameters)."""
    quorum = question.smallest.quorum
    check_noise(question, quorum.members, quorum.survivors_min)


def check_expiry(content: Content, now_s: float) -> None:
    """Refuse a study that has expired, or that expires more than 90 days ahead (study-refused)."""
    expires_s = content.notes.expires
    if now_s >= expires_s:
        raise refused(f"study {content.notes.name} has expired: sign a new version with a later date")
    if expires_s - now_s > LIFETIME_MAX_S:
        raise refused(
            f"study {content.notes.name} expires in {(expires_s - now_s) / DAY_S:.0f} days, at most {LIFETIME_MAX_S // DAY_S} are allowed"
        )
