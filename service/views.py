"""What anybody may see of a cohort and of a round."""

from itertools import pairwise

from protocol.attempt import Attempt
from protocol.coordinator import Collecting, CoordinatorPhase, Lost
from protocol.messages import Certificate, Manifest
from protocol.parameters import Quorum
from protocol.rest import Problem, QuorumView, RoundView
from service.preflight import terms_view

Timeline = tuple[tuple[str, float], ...]
"""The states a round was in, each with its beginning in Unix time."""


def quorum_view(manifest: Manifest) -> QuorumView:
    """The numbers that a cohort lives by."""
    quorum = Quorum.of(manifest)
    return QuorumView(
        members=quorum.members,
        colluders=quorum.colluders,
        survivors_min=quorum.survivors_min,
        threshold=quorum.threshold,
        members_may_miss=quorum.members_may_miss,
        decryptors_may_miss=quorum.decryptors_may_miss,
        caution=quorum.caution(),
    )


def round_view(
    round_id: str,
    attempt: Attempt,
    phase: CoordinatorPhase,
    *,
    state: str,
    ended: bool,
    version: int,
    deadline_s: float | None,
    fault: Problem | None,
    timeline: Timeline,
    holders: tuple[int, ...] = (),
) -> RoundView:
    """A round in a phase."""
    quorum, opening = attempt.quorum, attempt.opening
    return RoundView.model_validate(
        {
            "round": round_id,
            "federation": attempt.roster.federation.hex(),
            "cohort": attempt.manifest.cohort.hex(),
            "context": attempt.context.hex(),
            "sequence": opening.sequence,
            "attempt": opening.attempt,
            "state": state,
            "ended": ended,
            "version": version,
            "deadline_s": deadline_s,
            "members": attempt.members,
            "survivors_min": quorum.survivors_min,
            "threshold": quorum.threshold,
            "uploaded": whole_uploads(attempt, phase),
            "waiting_for": () if ended else phase.waiting_for(),
            "survivors": _survivors(phase),
            "evicted": getattr(phase, "evicted", ()),
            "reported": tuple(sorted(phase.reports)) if isinstance(phase, Lost) else (),
            "holders": holders,
            "fault": fault.model_dump() if fault else None,
            # A clock that was set back makes no phase shorter than nothing.
            "phase_seconds": {
                name: round(max(0.0, until - since), 6) for (name, since), (_, until) in pairwise(timeline)
            },
            "terms": terms_view(opening.terms),
        }
    )


def whole_uploads(attempt: Attempt, phase: CoordinatorPhase) -> tuple[str, ...]:
    """Members whose upload is whole, as far as the phase still knows."""
    if isinstance(phase, Collecting):
        return tuple(member for member in attempt.members if phase.whole(member))
    uploads = getattr(phase, "uploads", None)
    return tuple(uploads) if uploads is not None else _survivors(phase)


def _survivors(phase: CoordinatorPhase) -> tuple[str, ...]:
    certificate: Certificate | None = getattr(phase, "certificate", None)
    return tuple(s.member for s in certificate.survivors) if certificate is not None else ()
