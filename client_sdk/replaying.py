"""A round's transcript against what a member saw and signed itself: an auditor's check (docs/protocol.md §11)."""

from client_sdk.errors import PeerFault, mismatch
from client_sdk.evidence import Evidence
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Survivor
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.replay import COORDINATOR, Verdict, replay
from veilsum.protocol.transcript import Transcript


def replayed(raw: bytes, evidence: Evidence, record: ResultRecord) -> Verdict:
    """Replay a transcript, in this order.

    1. it can be read, and its head is the one that the record names (result-mismatch);
    2. roster, cards and opening hold, and are those of the evidence (result-mismatch);
    3. the coordinator signed it as it is (bad-signature);
    4. the certificate is for the outcome that this member was shown; those evicted, and the disputes that had members dropped,
       are the record's (result-mismatch);
    5. an upload of this member is noted as this member sent it, if it sent one and one is noted (own-upload-changed);
    6. the coordinator broke no rule (the first that it broke).

    The verdict names other parties at fault and disputes; the result already accounts for them under the rules.

    Args:
        raw: the transcript's file.
        evidence: verified; it holds the admin's key.
        record: verified.

    Raises:
        PeerFault: the first of these that does not hold, naming the coordinator.
    """
    transcript = Transcript.from_json(raw.decode(errors="replace"))
    if transcript.head.hex() != record.transcript:
        raise mismatch("the transcript is not the one that the record names")
    verdict = replay(transcript, evidence.roster.federation)
    if verdict.attempt.context != evidence.attempt.context:
        raise mismatch("the transcript is of another attempt")
    if not verdict.signed:
        raise PeerFault(Cause.BAD_SIGNATURE, "the coordinator did not sign the transcript", [COORDINATOR])
    if verdict.certificate is None or verdict.certificate.outcome != evidence.certificate.outcome:
        raise mismatch("the transcript tells of another outcome than this member was shown")
    if verdict.evicted != record.evicted:
        raise mismatch("the record names others as evicted than the transcript shows")
    if {(each.cause.value, each.parties) for each in verdict.disputes} != {
        (each.cause, each.parties) for each in record.disputes
    }:
        raise mismatch("the record tells of other disputes than the transcript shows")
    noted = verdict.uploads.get(evidence.member)
    if noted and evidence.own and (Survivor.of(noted.header),) != evidence.own:
        raise PeerFault(
            Cause.OWN_UPLOAD_CHANGED, "the transcript notes another upload of this member", [COORDINATOR]
        )
    for finding in verdict.findings:
        if finding.parties == (COORDINATOR,):
            raise PeerFault(
                finding.cause, f"the transcript shows that it broke a rule: {finding.detail}", [COORDINATOR]
            )
    return verdict
