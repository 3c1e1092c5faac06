"""A member's part from the command line: enrol, wait for a round, mask, upload, help to decrypt, verify."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration import FeaturesLattice, FFCStatistics
from client_sdk import Identity, Member, Policy, Result
from client_sdk.progress import Progress, Step
from protocol.cost import upload_bytes
from protocol.rest import TermsView
from veilsum.console import clock, note
from veilsum.features import Features, Labels, read_features
from veilsum.remote import operator


@dataclass(frozen=True)
class Errand:
    """What a member's command was asked to do."""

    folder: Path
    url: str
    admin_key: str
    cohort: str
    features: Path
    labels: Path | None
    lineage: str
    normalise: bool
    round_id: str | None = None
    extractors: tuple[str, ...] = ()
    members_min: int = 3
    ca: Path | None = None


def run(errand: Errand, output: Path) -> dict[str, Any]:
    """Take part in a round and save the verified result; a summary of it.

    Raises:
        PeerFault, ClientError, CalibrationError, Misuse: as the SDK; each says what to do next.
    """
    features, labels = read_features(errand.features, errand.labels)  # before anybody waits for it
    policy = Policy(
        admin_key=errand.admin_key,
        members_min=errand.members_min,
        extractors=frozenset(errand.extractors) or None,
    )
    identity = Identity.load(errand.folder)
    verify = str(errand.ca) if errand.ca else True
    with Member(errand.url, identity, None, policy, progress=teller(), verify=verify) as member:
        quorum = member.enrol(errand.cohort)
        note(f"Enrolled with {quorum.members} members; {quorum.survivors_min} must stay for a sum.")
        round_id, terms = _round_of(errand)
        statistics = summarise(features, labels, terms, normalise=errand.normalise)
        result = member.contribute(round_id, statistics, lineage=errand.lineage)
    result.save(output)
    return summary(result, output)


def summarise(features: Features, labels: Labels, terms: TermsView, *, normalise: bool) -> FFCStatistics:
    """The statistics that a round's terms ask for. The SDK holds them against the signed terms again."""
    lattice = FeaturesLattice(terms.lattice_bits) if terms.lattice == FeaturesLattice.name else None
    statistics = FFCStatistics(
        terms.dim, terms.classes, bias=terms.bias, normalise=normalise, lattice=lattice
    )
    statistics.update(features, labels)
    return statistics


def summary(result: Result, output: Path) -> dict[str, Any]:
    """What a member's command prints about a result."""
    record = result.record
    return {
        "round": record.round,
        "counted": result.counted,
        "survivors": list(result.survivors),
        "records": record.records,
        "ridge": record.solution.ridge,
        "condition": record.solution.condition,
        "effective_dof": record.solution.dof,
        "noise": f"{record.noise}: an exact sum, without differential privacy",
        "weights": list(result.weights.shape),
        "upload_bytes": upload_bytes(result.evidence.attempt, result.evidence.member) if result.counted else 0,
        "saved": str(output),
    }


def _round_of(errand: Errand) -> tuple[str, TermsView]:
    """The round asked for, or the cohort's newest that has not ended, waited for if there is none yet."""
    with operator(errand.url, ca=errand.ca) as client:
        view = client.cohort(errand.cohort)
        while errand.round_id is None:
            for round_id in reversed(view.rounds):
                found = client.round(round_id)
                if not found.ended and found.terms is not None:
                    return round_id, found.terms
            note("Waiting for the operator to open a round.")
            view = client.cohort(errand.cohort, after=view.version)
        named = client.round(errand.round_id)
        assert named.terms is not None
        return errand.round_id, named.terms


def teller() -> Callable[[Progress], None]:
    """Tells progress on stderr, a line a change of what is done or waited for."""
    last: list[object] = [None]

    def tell(event: Progress) -> None:
        counting = event.step in {Step.MASKING, Step.UPLOADING}
        if counting and event.done != event.total:
            return
        if (event.step, event.phase, event.waiting_for, event.detail) == last[0]:
            return
        last[0] = (event.step, event.phase, event.waiting_for, event.detail)
        parts = [f"{event.step.value}{f' ({event.phase})' if event.phase else ''}"]
        if event.total:
            parts.append(f"{event.done} of {event.total}")
        if event.waiting_for:
            parts.append(f"waiting for {', '.join(event.waiting_for)}")
        if event.until_s is not None:
            parts.append(f"until {clock(event.until_s)}")
        if event.detail:
            parts.append(event.detail)
        note(", ".join(parts))

    return tell
