"""More time for a phase: the coordinator's to give, within the end that members signed up to (protocol §4)."""

from protocol.causes import Cause
from protocol.errors import PeerFault


def extended(name: str, deadline_s: float | None, wanted_s: float, latest_end_s: int) -> float:
    """The deadline that a phase has after it was given time until `wanted_s`, in Unix time.

    Windows stand outside the terms, so that none of this changes a context; the terms' latest end, after which members have
    erased their keys, does not move. A deadline never comes nearer: members were told when it is.

    Raises:
        PeerFault: wrong-phase where the phase waits for no time; conflict where its deadline is later than wanted;
            terms-refused beyond the latest end.
    """
    if deadline_s is None:
        raise PeerFault(Cause.WRONG_PHASE, f"the attempt is {name} and waits for no time")
    if wanted_s < deadline_s:
        raise PeerFault(
            Cause.CONFLICT,
            f"the deadline is {deadline_s:.0f}, and comes no nearer: members were told; cancel instead",
        )
    if wanted_s >= latest_end_s:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"the terms end at {latest_end_s}, and members have erased their keys by then: open another attempt",
        )
    return wanted_s
