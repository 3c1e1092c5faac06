"""What anybody may see of a cohort and of a round."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from fastapi.sse import format_sse_event

from protocol.attempt import Attempt
from protocol.coordinator import CoordinatorPhase, Erasing
from protocol.cost import plan_of
from protocol.messages import Manifest
from protocol.parameters import Quorum
from protocol.rest import Problem, QuorumView, RoundView
from service.phases import shown_state, survivors_of, whole_uploads
from service.preflight import terms_view

Timeline = tuple[tuple[str, float], ...]
"""The states a round was in, each with its beginning in Unix time."""


@dataclass(frozen=True)
class Shown:
    """A round's view at one version, and its bytes, made once for all who ask.

    Attributes:
        version: of the round.
        view: what anybody may see.
    """

    version: int
    view: RoundView

    @cached_property
    def json(self) -> bytes:
        """The view."""
        return self.view.model_dump_json().encode()

    @cached_property
    def event(self) -> bytes:
        """The view as a server-sent event."""
        return format_sse_event(data_str=self.json.decode(), event="round", id=str(self.version))


def quorum_view(manifest: Manifest) -> QuorumView:
    """The numbers that a cohort lives by."""
    quorum = Quorum.of(manifest)
    return QuorumView(
        members=quorum.members,
        colluders=quorum.colluders,
        decryptors=quorum.decryptors,
        decryptor_colluders=quorum.decryptor_colluders,
        survivors_min=quorum.survivors_min,
        threshold=quorum.threshold,
        members_may_miss=quorum.members_may_miss,
        decryptors_may_miss=quorum.decryptors_may_miss,
        neighbours=manifest.degree,
        window_dropped_max=manifest.window_dropped_max,
        loss=manifest.loss,
        caution=quorum.caution(),
    )


def round_view(
    round_id: str,
    attempt: Attempt,
    phase: CoordinatorPhase,
    *,
    end: str | None,
    version: int,
    deadline_s: float | None,
    fault: Problem | None,
    timeline: Timeline,
    transcript: bytes | None,
    holders: tuple[int, ...] = (),
) -> RoundView:
    """A round in a phase, or at its end by that name."""
    quorum, opening = attempt.quorum, attempt.opening
    return RoundView.model_validate(
        {
            "round": round_id,
            "federation": attempt.roster.federation.hex(),
            "cohort": attempt.manifest.cohort.hex(),
            "context": attempt.context.hex(),
            "sequence": opening.sequence,
            "attempt": opening.attempt,
            "members": attempt.members,
            "survivors_min": quorum.survivors_min,
            "threshold": quorum.threshold,
            "state": end or shown_state(phase),
            "ended": end is not None,
            "version": version,
            "deadline_s": deadline_s,
            "uploaded": whole_uploads(attempt, phase),
            "waiting_for": () if end else phase.waiting_for(),
            "survivors": survivors_of(phase),
            "evicted": getattr(phase, "evicted", ()),
            "reported": phase.silent if isinstance(phase, Erasing) else (),
            "reports_min": attempt.quorum.erasures_min,
            "holders": holders,
            "fault": fault.model_dump() if fault else None,
            # A clock that was set back makes no phase shorter than nothing.
            "phase_seconds": {
                name: round(max(0.0, until - since), 6) for (name, since), (_, until) in pairwise(timeline)
            },
            "terms": terms_view(opening.terms, attempt.manifest),
            "cost": plan_of(attempt).sentence,
            "transcript": transcript.hex() if transcript else None,
        }
    )
