"""Sign studies, and check them as a member does before anything else."""

from collections.abc import Callable

from veilsum.protocol.attempt import check_study
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Roster, Study
from veilsum.protocol.study import DAY_S, ROUND_LIFETIME_MAX_S, Content, read_content, study_fault
from veilsum.study.forecast import check_head_possible
from veilsum.study.judging import check_judge_possible
from veilsum.study.promise import check_noise


def sign_study(content: Content, federation: bytes, key: SigningKey, now_s: float) -> Study:
    """Sign a study for a federation.

    Raises:
        Misuse: the study has expired, expires too late for members to accept, its noise does not fit its smallest cohort, no run of it
            can end in a head, or its judge could never state its figures.
    """
    check_signable(content, now_s)
    return Study.make_signed(key, federation=federation, content=content.to_bytes())


def check_signable(content: Content, now_s: float) -> None:
    """Refuse a study that every member would refuse, whose runs can't end in a head, or whose judge is of no use. Raises as `sign_study` does."""
    try:
        check_expiry(content, now_s)
        smallest = content.question.smallest.quorum
        check_noise(content.question, smallest.members, smallest.survivors_min)
        check_head_possible(content)
        check_judge_possible(content.question)
        _check_reason(content)
    except PeerFault as fault:
        raise Misuse(fault.detail) from fault


def read_study(study: Study, roster: Roster, now_s: float, seen: Callable[[str], Study | None]) -> Content:
    """Check a study as a member does, in the order of STUDY-1 to STUDY-6.

    `now_s` is Unix time by the member's own clock. `seen` looks up the newest study that the member has seen under a name.

    Raises:
        PeerFault: wrong-federation, bad-signature, or study-refused.
    """
    content = check_study(roster, study)
    check_expiry(content, now_s)
    notes, before = content.notes, seen(content.notes.name)
    if before is not None and before.hash != study.hash:
        version = read_content(before.content).notes.version
        if notes.version <= version:
            raise study_fault(
                f"version {notes.version} of {notes.name} is shown, and version {version} was seen with other bytes"
            )
    return content


def check_expiry(content: Content, now_s: float) -> None:
    """Refuse a study that has expired, or that expires more than 90 days ahead (study-refused)."""
    expires_s = content.notes.expires
    if now_s >= expires_s:
        raise study_fault(f"study {content.notes.name} has expired: sign a new version with a later date")
    if expires_s - now_s > ROUND_LIFETIME_MAX_S:
        raise study_fault(
            f"study {content.notes.name} expires in {(expires_s - now_s) / DAY_S:.0f} days, at most {ROUND_LIFETIME_MAX_S // DAY_S} are allowed"
        )


def _check_reason(content: Content) -> None:
    """Refuse an exact study whose author gives no reason why its inputs can't be listed (study-refused)."""
    if content.question.noise is None and not content.notes.why_not_listable.strip():
        raise study_fault(
            "notes.why_not_listable is blank: say why no list can hold every input; members read it"
        )
