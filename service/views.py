"""What anybody may see of a cohort and of a round."""

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

from fastapi.sse import format_sse_event

from service.phases import shown_state, survivors_of, whole_uploads
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import CoordinatorPhase, Erasing
from veilsum.protocol.cost import plan_of
from veilsum.protocol.messages import NO_CONTEXT, Manifest
from veilsum.protocol.quorum import Quorum
from veilsum.protocol.rest import NoiseView, Problem, QuorumView, RoundView, SpecView
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Question
from veilsum.study.promise import promise

Timeline = tuple[tuple[str, float], ...]
"""The states a round was in, each with its beginning in Unix time."""


@dataclass(frozen=True)
class RenderedView:
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


def quorum_view(manifest: Manifest, question: Question) -> QuorumView:
    """The numbers that a cohort lives by."""
    quorum = Quorum.of(manifest, question)
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
        caution=quorum.caution(),
    )


def noise_view(spec: RoundSpec) -> NoiseView | None:
    """What a step's noise promises; None for an exact step."""
    return NoiseView.model_validate(asdict(promise(spec))) if spec.noisy else None


def spec_view(attempt: Attempt) -> SpecView:
    """What a round sums, in words."""
    spec, terms = attempt.spec, attempt.terms
    question, notes = spec.question, spec.content.notes
    return SpecView(
        study=spec.study.hex(),
        name=notes.name,
        version=notes.version,
        period=spec.period,
        step=spec.step,
        statistics=tuple(statistic.kind for statistic in question.statistics),
        dim=question.dim,
        classes=len(question.classes),
        elements=spec.elements,
        ring_bits=spec.ring_bits,
        withheld=spec.withheld,
        indicator=None if terms.indicator == NO_CONTEXT else terms.indicator.hex(),
        latest_end_s=terms.latest_end_s,
        noise=noise_view(spec),
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
            "survivors_min": attempt.survivors_min,
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
            "spec": spec_view(attempt),
            "cost": plan_of(attempt).sentence,
            "transcript": transcript.hex() if transcript else None,
        }
    )
