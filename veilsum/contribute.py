"""A member's part from the command line: enrol, wait for a round, mask, upload, help to decrypt, verify."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from client_sdk import Identity, Member, Policy, Records, Result, Wanted
from client_sdk.member import PATIENCE_S
from client_sdk.offer import Statistics
from client_sdk.progress import Progress, Step
from client_sdk.store import Store
from client_sdk.supply import Maker
from protocol.cost import upload_bytes
from protocol.errors import Misuse
from protocol.member.attempting import Attempting
from protocol.rest import RoundView
from protocol.trust import TRUST
from veilsum import names
from veilsum.asking import promised
from veilsum.console import clock, note
from veilsum.features import checked_features, of_file, split
from veilsum.pinning import pin
from veilsum.rare import rare_classes
from veilsum.remote import certificate, changes, naming, operator, trust


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What a member's command was asked to do; Misuse where an id is none.

    Attributes:
        policy: what the member insists on.
        features: None to send what was made before, and to help to decrypt.
        questions: wait for a round that asks one of these; empty for any.
        held_share: of the records, kept back by their digests.
    """

    folder: Path
    url: str
    policy: Policy
    labels: Path | None
    lineage: str
    normalise: bool
    cohort: str
    features: Path | None
    ca: Path | None = None
    round_id: str | None = None
    questions: frozenset[str] = frozenset()
    held_share: float = 0.0
    transcript: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "cohort", names.cohort_id(self.cohort))
        if self.round_id is not None:
            object.__setattr__(self, "round_id", names.round_id(self.round_id))


def run(errand: Errand, output: Path) -> tuple[Result, dict[str, Any]]:
    """Take part in a round and save the verified result; the result, and a summary of it.

    Raises:
        PeerFault, ClientError, CalibrationError, Misuse: as the SDK; each says what to do next.
    """
    # What can be wrong here is found out before anybody waits.
    maker = None if errand.features is None else _maker(errand, errand.features)
    identity = Identity.load(errand.folder)
    if maker is None:
        errand = replace(errand, round_id=errand.round_id or _made(errand, identity))
    output.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (
        naming(errand.url),
        Member(
            errand.url,
            identity,
            None,
            errand.policy,
            progress=teller(),
            verify=trust(errand.ca),
            cert=certificate(),
            transcripts=errand.transcript,
        ) as member,
    ):
        view = _named_round(errand)
        quorum = member.enrol(errand.cohort)
        pin(identity.folder, errand.policy.federation.hex())  # whose roster names this member
        note(f"Enrolled with {quorum.members} members; {quorum.survivors_min} must stay for a sum.")
        view = view or _next_round(errand, member, identity)
        result = member.contribute(view.round, maker, lineage=errand.lineage)
    result.save(output)
    return result, summary(result, output)


def _maker(errand: Errand, path: Path) -> Maker:
    """Makes the statistics that a round's signed terms ask for; what is wrong with the records is said of their file."""
    loaded = checked_features(path, errand.labels, normalise=errand.normalise)
    (features, labels), _ = split(*loaded, errand.held_share)
    if not len(labels):
        raise Misuse(f"{errand.held_share} of the records held out leaves none: hold out a smaller share")
    records = Records(features, labels, normalise=errand.normalise)

    def make(wanted: Wanted) -> Statistics:
        with of_file(path):
            return records(wanted)

    return make


def _made(errand: Errand, identity: Identity) -> str:
    """The round that this member has made its upload for; Misuse where there is none."""
    held = Store(identity.folder).held(bytes.fromhex(errand.cohort))
    if held is None or not isinstance(held.phase, Attempting) or not held.phase.uploads:
        raise Misuse("nothing was made that waits to be sent: pass --features")
    return held.round_id


def summary(result: Result, output: Path) -> dict[str, Any]:
    """What a member's command prints about a result."""
    record = result.record
    return {
        "round": record.round,
        "trust": TRUST,
        "counted": result.counted,
        "transcript": _transcript(result),
        "survivors": list(result.survivors),
        "evicted": list(record.evicted),
        "dropped": list(record.dropped),
        "rare_classes": rare_classes(record.withheld, record.rare),
        "withheld": list(record.withheld),
        "records": record.records,
        "ridge": record.solution.ridge,
        "condition": record.solution.condition,
        "effective_dof": record.solution.dof,
        "chosen_by": record.solution.chosen_by,
        **promised(record.noise),
        "weights": [] if result.weights_file is None else list(result.weights.shape),
        "documents": [view.name for view in record.documents],
        "upload_bytes": upload_bytes(result.evidence.attempt, result.evidence.member)
        if result.counted
        else 0,
        "saved": str(output),
    }


def _transcript(result: Result) -> str:
    if (verdict := result.verdict) is None:
        return "not fetched: pass --transcript, or get it by `veilsum operator round transcript`"
    named = sorted({party for each in verdict.findings if not each.dispute for party in each.parties})
    if named:
        return f"replayed: rules were broken by {', '.join(named)}; see `veilsum verify transcript.json`"
    return "replayed: nobody broke a rule"


def _named_round(errand: Errand) -> RoundView | None:
    if errand.round_id is None:
        return None
    with operator(errand.url, ca=errand.ca, patience_s=PATIENCE_S) as client:
        view = client.round(errand.round_id)
    if view.cohort != errand.cohort:
        raise Misuse(f"round {view.round} is of another cohort: pass --cohort {view.cohort}")
    if not _asked(errand, view):
        raise Misuse(f"round {view.round} is none{_of(errand.questions)}: leave --round out, or name another")
    return view


def _next_round(errand: Errand, member: Member, identity: Identity) -> RoundView:
    """The cohort's newest, if it is still to finish, to collect or to be followed by the one it counted for; else the next.

    The member itself waits, so that an operator sees that it is there.
    """
    with operator(errand.url, ca=errand.ca, patience_s=PATIENCE_S) as client:
        cohorts = changes(lambda after: member.cohort(errand.cohort, after))
        while True:
            rounds = next(cohorts).rounds
            newest = client.round(rounds[-1]) if rounds else None
            if (
                newest is not None
                and _asked(errand, newest)
                and (not newest.ended or _uncollected(newest, identity))
            ):
                return newest
            note(f"Waiting for the operator to open a round{_of(errand.questions)}.")


def cohort_of(folder: Path, url: str, policy: Policy, round_id: str | None, ca: Path | None) -> str:
    """The cohort of the round that is named, or else of the one that this member stopped in; without either, the federation's newest.

    Raises:
        Misuse: it has none yet.
        PeerFault: the coordinator does not know the round, or the federation.
    """
    with operator(url, ca=ca, patience_s=PATIENCE_S) as client:
        if round_id is not None:
            return client.round(names.round_id(round_id)).cohort
        identity = Identity.load(folder)
        for cohort, held in Store(identity.folder).cohorts():
            if isinstance(held.phase, Attempting):
                view = client.round(held.round_id)
                if not view.ended or _uncollected(view, identity):
                    return cohort.hex()
        cohorts = client.federation(policy.federation.hex()).cohorts
    if not cohorts:
        raise Misuse("the federation has no cohort yet: wait until its operator has opened one")
    return cohorts[-1]


def current_round(errand: Errand) -> RoundView | None:
    """The round that the errand would take part in now; None while there is none."""
    named = _named_round(errand)
    if named is not None:
        return named
    with operator(errand.url, ca=errand.ca, patience_s=PATIENCE_S) as client:
        rounds = client.cohort(errand.cohort).rounds
        newest = client.round(rounds[-1]) if rounds else None
    return newest if newest is not None and not newest.ended and _asked(errand, newest) else None


def _asked(errand: Errand, view: RoundView) -> bool:
    """Whether it asks what the errand waits for; counts of the classes' holders come before anything."""
    return not errand.questions or (
        view.terms is not None and view.terms.statistic in {*errand.questions, "indicator"}
    )


def _of(questions: frozenset[str]) -> str:
    return f" of {' or '.join(sorted(questions))}" if questions else ""


def _uncollected(view: RoundView, identity: Identity) -> bool:
    """Whether it ended well while this member, which is in its sum, was away; an indicator round leads on to the next."""
    folder = Store(identity.folder).results(view.round)
    return view.state == "done" and identity.member in view.survivors and not Result.saved_in(folder)


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
