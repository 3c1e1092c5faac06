"""Whether a decryptor's refusal follows from what it was shown, as far as others can tell (protocol §11)."""

from collections.abc import Mapping, Sequence

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Receipt, Survivor, SurvivorSet
from protocol.proposal import check_proposal, covers
from protocol.shelf import Announced


def follows(
    cause: str,
    member: str,
    attempt: Attempt,
    proposal: Sequence[Survivor],
    uploads: Mapping[str, Announced],
    receipts: Mapping[str, Receipt],
    earlier: Sequence[SurvivorSet] = (),
) -> bool | None:
    """Whether a refusal's cause follows from the proposal that was noted; None where only its sender can know.

    What hangs on histories that the sender knows or on its policy is its own knowledge. A refusal does not name the proposal that it answers: where the cause does not follow from the one noted, its
    sender is false, or was shown another one.

    Args:
        cause: as the refusal states it.
        member: who refused.
        attempt: gives quorum and graph.
        proposal: the survivors proposed.
        uploads: the whole ones, in order of member.
        receipts: by decryptor.
        earlier: the certified set that was shown with the proposal.
    """
    if cause == Cause.SURVIVORS_TOO_FEW:
        return len(proposal) < attempt.quorum.survivors_min
    if cause == Cause.WINDOW_EXCEEDED:
        return _windows_exceeded(attempt, proposal)
    if cause in {Cause.MALFORMED, Cause.REPEAT_MISMATCH, Cause.INDICATOR_MISMATCH}:
        return _refused(attempt, proposal, earlier)
    if cause == Cause.OWN_UPLOAD_CHANGED:
        return any(each.member == member and not _shown(each, uploads) for each in proposal)
    if cause == Cause.SURVIVORS_INVALID and member in receipts:
        # Its own signature says which uploads it was delivered.
        shown = all(_shown(each, uploads) for each in proposal)
        return not (covers(receipts[member], uploads) and shown and _in_order(proposal))
    return None


def _shown(survivor: Survivor, uploads: Mapping[str, Announced]) -> bool:
    upload = uploads.get(survivor.member)
    return upload is not None and Survivor.of(upload.header) == survivor


def _windows_exceeded(attempt: Attempt, proposal: Sequence[Survivor]) -> bool:
    try:
        attempt.check_windows({each.member for each in proposal})
    except PeerFault:
        return True
    return False


def _refused(attempt: Attempt, proposal: Sequence[Survivor], earlier: Sequence[SurvivorSet]) -> bool:
    try:
        check_proposal(attempt, tuple(proposal), earlier)
    except PeerFault:
        return True
    return False


def _in_order(proposal: Sequence[Survivor]) -> bool:
    names = [each.member for each in proposal]
    return names == sorted({*names})
