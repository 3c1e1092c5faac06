"""A member's evidence of a closed attempt: enough to check its result and its transcript, without secrets."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from client_sdk.errors import PeerFault
from client_sdk.files import read_part
from client_sdk.policy import check_admin
from veilsum.protocol.attempt import Attempt, check_manifest, check_study
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Id, Many, Struct
from veilsum.protocol.member import Closed
from veilsum.protocol.messages import Certificate, Manifest, Opening, Roster, Study, Survivor, UploadHeader
from veilsum.protocol.opening_rules import check_opening
from veilsum.protocol.record import ResultRecord, mismatch_fault
from veilsum.system.files import make_folder, write_durably

if TYPE_CHECKING:
    from veilsum.protocol.replay import Verdict

EVIDENCE_FILE = "evidence.bin"


class Evidence(Struct):
    """The signed history of one attempt, as this member saw it.

    Attributes:
        member: the member that kept it.
        own: this member as the certificate should name it, if it uploaded; at most one.
        headers: its upload's header as it signed it, at most one: beside the certificate it shows others whether the upload was
            counted.
    """

    member: Id
    roster: Roster
    study: Study
    manifest: Manifest
    opening: Opening
    certificate: Certificate
    own: Annotated[tuple[Survivor, ...], Many(Survivor, 1)]
    headers: Annotated[tuple[UploadHeader, ...], Many(UploadHeader, 1)] = ()

    @classmethod
    def of_closed(cls, closed: Closed, headers: tuple[UploadHeader, ...]) -> "Evidence":
        """Collect the evidence of a closed phase; `headers` are of the member's own upload, at most one."""
        ready = closed.ready
        history = ready.roster, ready.study, ready.manifest, closed.opening, closed.certificate
        return cls(ready.member, *history, closed.own_survivor, headers)

    @cached_property
    def attempt(self) -> Attempt:
        """Roster, study, manifest and opening as one."""
        return Attempt(self.roster, self.study, self.manifest, self.opening)

    @property
    def ends_run(self) -> bool:
        """Whether the run ends with this attempt's step."""
        return self.attempt.repeats or self.attempt.spec.ends_run

    @property
    def header(self) -> UploadHeader | None:
        """The upload's header; None if it sent none."""
        return self.headers[0] if self.headers else None

    def verify(self, admin_key: bytes | str | None = None) -> None:
        """Check the history again, in this order.

        1. the roster is the admin's (wrong-federation, bad-signature);
        2. the study is of its study key, and breaks no rule (`check_study`);
        3. the manifest follows from both (`check_manifest`), and this member stands in it (manifest-mismatch);
        4. the opening is what members may open under that study (`check_opening`);
        5. the certificate has t valid votes on its outcome (`check_certificate`);
        6. it does not name another upload of this member than the one that it sent and signed (own-upload-changed,
           bad-signature).

        Args:
            admin_key: the pinned key, 32 bytes or hexadecimal; None trusts the key that the roster names.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        check_admin(self.roster, admin_key)
        check_study(self.roster, self.study)
        check_manifest(self.roster, self.study, self.manifest)
        if self.member not in self.manifest.members:
            raise PeerFault(Cause.MANIFEST_MISMATCH, f"{self.member} is not in this cohort", [self.member])
        check_opening(self.attempt)
        self.attempt.check_certificate(self.certificate)
        named = tuple(each for each in self.certificate.survivors if each.member == self.member)
        if named not in {(), self.own}:
            raise PeerFault(Cause.OWN_UPLOAD_CHANGED, "the certificate names another upload of this member")
        if self.header is not None:
            self.attempt.check_header(self.header)
            if (Survivor.from_header(self.header),) != self.own:
                raise PeerFault(Cause.OWN_UPLOAD_CHANGED, "the header shown is not this member's own")

    def save(self, folder: Path) -> None:
        """Write evidence.bin durably."""
        make_folder(folder)
        write_durably(folder / EVIDENCE_FILE, self.encode())

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / EVIDENCE_FILE).exists()

    @classmethod
    def load(cls, folder: Path) -> "Evidence":
        """Read what `save` wrote.

        Raises:
            StateError: the file is missing or can't be parsed.
        """
        return read_part(folder / EVIDENCE_FILE, cls.from_bytes, of="evidence of a round")


def replay_with_evidence(raw: bytes, evidence: Evidence, record: ResultRecord) -> "Verdict":
    """Replay a transcript against what a member saw and signed itself (analysis: Transcripts), in this order.

    1. it can be read, and its head is the one that the record names (result-mismatch);
    2. roster, cards and opening hold, and are those of the evidence (result-mismatch);
    3. the certificate is for the outcome that this member was shown; those evicted, and the disputes that had members dropped,
       are the record's (result-mismatch);
    4. an upload of this member is noted as this member sent it, if it sent one and one is noted (own-upload-changed);
    5. the coordinator broke no rule (the first that it broke), and signed it as it is (bad-signature).

    The verdict names other parties at fault and disputes; the result already accounts for them under the rules.

    Args:
        raw: the transcript's file.
        evidence: verified; it holds the admin's key.
        record: verified.

    Raises:
        PeerFault: the first of these that does not hold, naming the coordinator.
    """
    from veilsum.protocol.replay import COORDINATOR_PARTY, replay_transcript  # noqa: PLC0415 - auditors alone need it
    from veilsum.protocol.transcript import Transcript  # noqa: PLC0415

    transcript = Transcript.from_json(raw.decode(errors="replace"))
    if transcript.head.hex() != record.transcript:
        raise mismatch_fault("the transcript does not match the record")
    verdict = replay_transcript(transcript, evidence.roster.federation)
    if verdict.attempt.context != evidence.attempt.context:
        raise mismatch_fault("the transcript belongs to another attempt")
    if verdict.certificate is None or verdict.certificate.outcome != evidence.certificate.outcome:
        raise mismatch_fault("the transcript's outcome differs from the one that this member was shown")
    if verdict.evicted != record.evicted:
        raise mismatch_fault("the record's evicted members differ from the transcript's")
    if {(each.cause.value, each.parties) for each in verdict.disputes} != {
        (each.cause, each.parties) for each in record.disputes
    }:
        raise mismatch_fault("the record's disputes differ from the transcript's")
    noted = verdict.uploads.get(evidence.member)
    if noted and evidence.own and (Survivor.from_header(noted.header),) != evidence.own:
        raise PeerFault(
            Cause.OWN_UPLOAD_CHANGED,
            "the transcript holds a different upload of this member",
            [COORDINATOR_PARTY],
        )
    for finding in verdict.findings:
        if finding.parties == (COORDINATOR_PARTY,):
            raise PeerFault(
                finding.cause,
                f"the transcript shows that it broke a rule: {finding.detail}",
                [COORDINATOR_PARTY],
            )
    return verdict
