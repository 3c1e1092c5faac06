"""Read, replay and describe a transcript for `veilsum verify`, offline (analysis: Transcripts)."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from client_sdk import Identity
from client_sdk.evidence import Evidence
from client_sdk.store import Store
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Erasure, Lost, Survivor
from veilsum.protocol.replay import Finding, Verdict, replay_transcript
from veilsum.protocol.rest import MAX_TRANSCRIPT_BYTES, round_name
from veilsum.protocol.transcript import Transcript

_NO_TRANSCRIPT = frozenset(
    {
        Cause.UNKNOWN_VERSION,
        Cause.UNKNOWN_MESSAGE,
        Cause.TRUNCATED,
        Cause.LEFT_OVER_BYTES,
        Cause.OVERSIZED,
        Cause.MALFORMED,
    }
)


class NotATranscript(Misuse):
    """The file holds no transcript."""


def upload_of(verdict: Verdict, member: str) -> dict[str, Any]:
    """Describe whether a member's upload was counted, and why."""
    return {
        "member": member,
        "counted": verdict.counts_upload(member),
        "upload": verdict.upload_standing(member).value,
    }


def own_upload(verdict: Verdict, folder: Path) -> dict[str, Any]:
    """Describe whether the upload that this identity sent was counted, checked against the identity's own evidence.

    Raises:
        PeerFault: the transcript has another key for this member, or the header in the evidence belongs to another attempt.
    """
    identity = Identity.load(folder)
    if verdict.attempt.roster.key_of(identity.member) != identity.key.public:
        raise PeerFault(
            Cause.WRONG_FEDERATION,
            f"the transcript's {identity.member} has another key than this identity: the transcript is of another federation, or "
            "forged; pass --admin-key to find out",
        )
    values = upload_of(verdict, identity.member)
    kept = Store(identity.folder).result_folder(round_name(verdict.attempt.context))
    header = Evidence.load(kept).header if Evidence.saved_in(kept) else None
    if header is not None:
        verdict.attempt.check_header(header)
        noted = verdict.uploads.get(identity.member)
        if noted is None or Survivor.from_header(header) != Survivor.from_header(noted.header):
            values |= {"counted": False, "upload": "not counted: the transcript does not hold this upload"}
    return values


def read_transcript(path: Path) -> Transcript:
    """Read a transcript's file. Raises NotATranscript if it can't be read or is not a transcript."""
    try:
        if path.exists() and not path.is_file():
            raise NotATranscript(f"{path} is not a file")
        if path.stat().st_size > MAX_TRANSCRIPT_BYTES:
            raise NotATranscript(
                f"{path} is not a transcript: it is longer than {MAX_TRANSCRIPT_BYTES} bytes"
            )
        return Transcript.from_json(path.read_bytes().decode(errors="replace"))
    except OSError as error:
        raise NotATranscript(f"{path} can't be read: {error.strerror or error}") from error
    except PeerFault as fault:
        raise NotATranscript(f"{path} is not a transcript: {fault}") from fault


def verdict_on(path: Path, pinned: bytes | None) -> Verdict:
    """Replay a transcript against the pinned admin key; None trusts the key in the roster.

    Raises:
        NotATranscript: the file is not a transcript.
        PeerFault: roster, study, cards or opening are invalid, so nothing can be replayed.
    """
    transcript = read_transcript(path)
    try:
        return replay_transcript(transcript, pinned)
    except PeerFault as fault:
        if fault.cause in _NO_TRANSCRIPT:
            raise NotATranscript(
                f"{path} is not a transcript: {fault.cause.value}: {fault.detail}"
            ) from fault
        raise


def values_of(verdict: Verdict) -> dict[str, Any]:
    """Convert a verdict to JSON values for scripts."""
    attempt = verdict.attempt
    return {
        "round": round_name(attempt.context),
        "context": attempt.context.hex(),
        "study": attempt.content.notes.name,
        "version": attempt.content.notes.version,
        "period": attempt.spec.period,
        "step": attempt.spec.step,
        "federation": attempt.roster.federation.hex(),
        "cohort": attempt.manifest.cohort.hex(),
        "sequence": attempt.opening.sequence,
        "attempt": attempt.opening.attempt,
        "members": len(attempt.members),
        "outcome": _describe_outcome(verdict),
        "survivors": list(verdict.survivors),
        "evicted": list(verdict.evicted),
        "signed": verdict.signed,
        "kept": verdict.is_faultless,
        "findings": [{**asdict(each), "dispute": each.is_dispute} for each in verdict.findings],
        "refusals": [{"member": each.member, "cause": each.cause} for each in verdict.refusals],
    }


def verdict_lines(verdict: Verdict, path: Path) -> dict[str, Any]:
    """Convert a verdict to names and values for people."""
    values = values_of(verdict)
    shown = {
        "study": f"{values['study']}, version {values['version']}, period {values['period']}, step {values['step']}",
        "round": f"{values['round']}: round {values['sequence']}, attempt {values['attempt']} of its cohort",
        "federation": values["federation"],
        "outcome": values["outcome"],
    }
    if verdict.survivors:
        shown["survivors"] = (
            f"{len(verdict.survivors)} of {values['members']}: {', '.join(verdict.survivors)}"
        )
    if verdict.evicted:
        shown["evicted"] = verdict.evicted
    if not verdict.signed:
        shown["signed"] = (
            f"no: {path.name} was changed, or the coordinator never signed it. It proves what members signed, and nothing "
            "against the coordinator"
        )
    shown["rules_broken"] = "none" if verdict.is_faultless else "see below"
    return shown


def verdict_rows(verdict: Verdict) -> dict[str, list[dict[str, Any]]]:
    """Return tables for people: broken rules, disputes, and refusals, which prove nothing."""
    return {
        "Broken rules": [_finding_row(each) for each in verdict.findings if not each.is_dispute],
        "Disputes: one of the two parties is wrong": [
            _finding_row(each) for each in verdict.findings if each.is_dispute
        ],
        "Refusals (claims, not proofs)": [
            {"who": each.member, "cause": each.cause} for each in verdict.refusals
        ],
    }


def _describe_outcome(verdict: Verdict) -> str:
    if isinstance(verdict.closing, Lost):
        return "lost: closed by the admin"
    if isinstance(verdict.closing, Erasure):
        return f"void: erased, by {len(verdict.closing.reports)} reports"
    if verdict.certificate is None:
        return "none"
    if verdict.certificate.is_void:
        return f"void: {verdict.certificate.reason}"
    return "certified" if verdict.revealed else "certified, and too few revealed for a sum"


def _finding_row(finding: Finding) -> dict[str, Any]:
    where = "whole transcript" if finding.entry is None else f"entry {finding.entry}"
    return {
        "who": " or ".join(finding.parties),
        "cause": finding.cause,
        "seen": finding.detail,
        "where": where,
    }
