"""The coordinator's description of a round, and the record of its result (analysis: Results)."""

import hashlib
import math
from typing import Any

from veilsum.calibration.answer import Answer
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.disputes import vertex_cover
from veilsum.protocol.messages import NO_CONTEXT, Certificate
from veilsum.protocol.opening_rules import count_contexts
from veilsum.protocol.record import DisputeView, DocumentView, ResultRecord, SolutionView, SurvivorView
from veilsum.protocol.rest import SpecView, round_name
from veilsum.study.promise import promise_noise
from veilsum.study.result_files import Files, digest_of


def spec_view(attempt: Attempt) -> SpecView:
    """Describe a round's step."""
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
        count=_hex_or_none(terms.count),
        rows=_hex_or_none(terms.rows),
        latest_end_s=terms.latest_end_s,
        noise=promise_noise(spec),
    )


def _hex_or_none(context: bytes) -> str | None:
    return None if context == NO_CONTEXT else context.hex()


def counts_before(attempt: Attempt) -> tuple[str, ...]:
    """Return the contexts of all certified counts of an attempt's question before it, oldest first: what they tell adds up."""
    own = [link for link in attempt.opening.links if link.question == attempt.question.digest]
    return tuple(context.hex() for context in count_contexts(own))


def record_history(attempt: Attempt, certificate: Certificate) -> dict[str, Any]:
    """Return the fields of a result's record that follow from its certified attempt."""
    spec = attempt.spec
    return {
        "round": round_name(attempt.context),
        "context": attempt.context.hex(),
        "federation": attempt.roster.federation.hex(),
        "study": spec.study.hex(),
        "name": spec.content.notes.name,
        "version": spec.content.notes.version,
        "period": spec.period,
        "step": spec.step,
        "cohort": attempt.manifest.cohort.hex(),
        "terms": attempt.terms.hash.hex(),
        "survivors_hash": certificate.survivors_hash.hex(),
        "withheld": spec.withheld,
        "survivors": tuple(
            SurvivorView(member=each.member, digest=each.digest.hex()) for each in certificate.survivors
        ),
    }


def record_of(
    recovered: Recovered,
    found: Answer,
    made: Files,
    sums: str,
    transcript: bytes,
    holders: tuple[int, ...],
    reached: tuple[int, ...],
) -> ResultRecord:
    """Build the unsigned record of a result.

    `sums` is the SHA-256 of the sum's file in hexadecimal, and `transcript` the transcript's head. `holders` and `reached` are the sums of
    the counts that the terms name.
    """
    attempt = recovered.attempt
    return ResultRecord(
        **record_history(attempt, recovered.certificate),
        disputes=tuple(
            DisputeView.model_validate({"cause": dispute.cause.value, "parties": dispute.parties})
            for dispute in recovered.disputes
        ),
        dropped=tuple(sorted(vertex_cover(attempt.context, recovered.disputes, attempt.quorum.colluders))),
        evicted=recovered.evicted,
        holders=holders,
        reached=reached,
        counts=counts_before(attempt),
        rows=found.records,
        noise=promise_noise(attempt.spec),
        head=digest_of(made.head),
        sums=sums,
        documents=tuple(
            DocumentView(name=name, sha256=hashlib.sha256(content).hexdigest())
            for name, content in sorted(made.documents.items())
        ),
        error_bound=found.error_bound,
        solution=solution_view(found),
        transcript=transcript.hex(),
    )


def solution_view(found: Answer) -> SolutionView:
    """Describe how the head was computed, as in records."""
    solution = found.solution
    errors = () if found.errors is None else found.errors.tolist()
    more: dict[str, Any] = {}
    if solution is not None:
        condition = solution.condition if math.isfinite(solution.condition) else None
        more = {
            "dof": solution.dof,
            "condition": condition,
            "residual": solution.residual,
            "rank": solution.rank,
        }
    return SolutionView(
        chosen_by=found.chosen_by,
        ridge=found.ridge,
        grid=() if found.grid is None else tuple(found.grid.tolist()),
        errors=tuple(error if math.isfinite(error) else None for error in errors),
        empty_classes=() if found.head is None else found.head.empty_classes,
        **more,
    )
