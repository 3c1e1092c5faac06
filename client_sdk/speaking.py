"""A client's part in a round with mask helpers: it speaks once, and may look later whether it was counted (helpers H5, H7).

    speak ──▶ roster, mode, opening, policy, ledger ──▶ seal, mask into the spool ──▶ evidence and state kept ──▶ upload
    outcome ──▶ the round's end ──▶ proof that this very upload was certified ──▶ record and weights, verified

The upload's bytes are kept before the first of them leaves, and never change; its seeds are never kept. Whoever is
interrupted before begins again with fresh ones.
"""

from dataclasses import dataclass
from functools import partial

from client_sdk.client_result import ClientEvidence, ClientResult
from client_sdk.effects import Flow, compute
from client_sdk.errors import Misuse, NoResult, PeerFault, fault_in
from client_sdk.offer import Offer, check_consistent
from client_sdk.progress import Progress, Step
from client_sdk.session import Session
from client_sdk.upload import check_same, fill, send
from protocol.causes import Cause
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Client
from protocol.helpers.messages import HelperCertificate, HelperCounted, parse_shown
from protocol.rest import RoundView


@dataclass(frozen=True)
class Acknowledgement:
    """What a client has when it has spoken.

    Attributes:
        round_id: the round.
        whole: whether the coordinator has said that it holds every chunk; False where the round had moved on before it could.
        upload_bytes: what was uploaded, chunks alone.
        helpers: who takes the masks off.
    """

    round_id: str
    whole: bool
    upload_bytes: int
    helpers: tuple[str, ...]


def speak(session: Session, round_id: str, offer: Offer | None) -> Flow[Acknowledgement]:
    """Contribute to a round with helpers; begun already, send what is missing: the same bytes.

    Args:
        session: the client.
        round_id: 16 hexadecimal digits.
        offer: what to sum; None to send again what was made.

    Raises:
        Misuse: the round is among members, or was made from other statistics.
        PeerFault: the coordinator broke a rule, or the policy refuses the round.
        ClientError: state damaged, or coordinator unreachable.
    """
    folder = session.store.results(round_id)
    if ClientEvidence.saved_in(folder):
        evidence = ClientEvidence.load(folder)
        if offer is not None:
            check_same(evidence.upload, offer, evidence.attempt.opening.terms)
        _answered(session, evidence)
    else:
        evidence = yield from _sealed(session, round_id, offer)
    attempt, whole = evidence.attempt, True
    try:
        yield from send(session, round_id, attempt.manifest.cohort, evidence.upload)
    except PeerFault as fault:
        if fault.cause is not Cause.WRONG_PHASE:
            raise
        whole = False
        detail = "the round has moved on; its end will show whether this upload is counted"
        session.report(Progress(Step.UPLOADING, detail=detail))
    session.store.spool(attempt.manifest.cohort).clear()
    size = sum(attempt.ring.packed_bytes(attempt.chunk_elements(index)) for index in range(attempt.chunks))
    return Acknowledgement(round_id, whole, size, attempt.present)


def _sealed(session: Session, round_id: str, offer: Offer | None) -> Flow[ClientEvidence]:
    """Check everything that a client can, then make the upload; nothing of it has left yet."""
    if offer is None:
        raise Misuse(f"nothing was made for round {round_id} yet: pass the statistics")
    roster = yield from session.roster()
    view = yield from session.round(round_id)
    session.check_mode(view, "helpers")
    known = session.store.client() or Client.start(session.member, session.policy.federation, roster)
    client = known.trust(roster)
    attempt = HelperAttempt(roster, (yield from session.coordinator.helper_opening(round_id)))
    now_s = session.surroundings.now_s()
    sealing = client.seal(attempt, now_s, session.surroundings.random_bytes)
    session.policy.check_helpers(attempt, now_s)
    check_consistent(attempt)
    if view.context != attempt.context.hex():
        raise PeerFault(
            Cause.WRONG_CONTEXT,
            "the coordinator computes another context from this opening: it holds another roster or history than this client "
            "was shown",
            ["coordinator"],
        )
    offer.check(attempt, session.member)
    family = attempt.family.value
    lineages = session.store.lineages
    yield from compute(
        partial(lineages.check, offer, family, attempt.context, session.policy, attempt.helper_keys)
    )
    spool = session.store.spool(attempt.manifest.cohort)
    yield from fill(session, attempt, sealing, spool, offer.statistics)
    upload = sealing.finish(
        session.key, lineage=offer.lineage, records_tag=offer.records, records=offer.statistics.records
    )
    spool.seal()
    evidence = ClientEvidence(session.member, roster, attempt.opening, upload)
    # The ledger and the chunks first, then what stands for the upload: it is accounted for, and can always be sent whole.
    yield from compute(partial(lineages.use, offer, family, attempt.context, attempt.helper_keys))
    evidence.save(session.store.results(round_id))
    _answered(session, evidence)
    return evidence


def _answered(session: Session, evidence: ClientEvidence) -> None:
    """Remember durably that this opening is answered; done twice it comes to the same."""
    known = session.store.client() or Client.start(session.member, session.policy.federation, evidence.roster)
    if known.counter <= evidence.attempt.manifest.counter:
        spoken = known.trust(evidence.roster).spoken(evidence.attempt, evidence.upload)
        session.store.hold_client(spoken.client)


def outcome(session: Session, round_id: str) -> Flow[ClientResult]:
    """Wait for a round's end, and verify that this client was counted, and the result.

    Raises:
        NoResult: the round ended without a sum, or its sum is without this client.
        Misuse: this client has not spoken in it.
        PeerFault: what is shown proves nothing.
    """
    folder = session.store.results(round_id)
    if ClientResult.saved_in(folder):
        return session.verified(ClientResult.load, folder)
    if not ClientEvidence.saved_in(folder):
        raise Misuse(f"this client has not spoken in round {round_id}")
    evidence = ClientEvidence.load(folder)
    view = yield from session.round(round_id)
    while not view.ended:
        session.report(
            Progress(Step.WAITING, phase=view.state, waiting_for=view.waiting_for, until_s=view.deadline_s)
        )
        asked_s, before = session.surroundings.monotonic_s(), view.version
        view = yield from session.round(round_id, before)
        if view.version == before:
            yield from session.unhurried(asked_s)
    read = partial(parse_shown, clients=len(evidence.attempt.clients))
    message, _ = yield from session.coordinator.request(round_id, session.member, read=read)
    if not isinstance(message, HelperCounted):
        yield from _not_counted(session, evidence, view)
    assert isinstance(message, HelperCounted)
    evidence.attempt.check_counted(message, evidence.upload.header.survivor)
    if view.state != "done":
        raise NoResult(round_id, view.state, fault_in(view))
    session.report(Progress(Step.VERIFYING, phase=view.state))
    record = yield from session.coordinator.result(round_id)
    result = ClientResult(evidence, message, record, (yield from session.coordinator.weights(round_id)))
    result.verify(session.policy.federation)
    result.save(folder)
    session.report(Progress(Step.DONE, phase=view.state, done=message.count, total=len(view.members)))
    return result


def _not_counted(session: Session, evidence: ClientEvidence, view: RoundView) -> Flow[None]:
    """What was not certified was not opened: the ledger lets the records go, on the helpers' word alone; always NoResult."""
    closing = yield from session.coordinator.helpers_closing(evidence.attempt.context)
    if isinstance(closing, HelperCertificate):
        evidence.attempt.check_certificate(closing)
        if session.member not in closing.places:
            session.store.lineages.release(evidence.attempt.context)
    if view.state == "done":
        fault = PeerFault(
            Cause.WRONG_PHASE, "its upload was not whole in time, or a helper could not open its box"
        )
        raise NoResult(view.round, "missed", fault)
    raise NoResult(view.round, view.state, fault_in(view))
