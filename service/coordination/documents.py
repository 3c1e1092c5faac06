"""A round's documents in storage: transcript, head, sums and others.

Their names follow from what was signed, so a process that stalled while it ended the round can't replace another process's documents.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from service.http.problems import storage_damaged, wrong_phase
from service.storage.blobs import Blobs, DamagedBlobError
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView
from veilsum.protocol.transcript import Transcript

HEAD_DOCUMENT, SUMS_DOCUMENT, MATERIAL_DOCUMENT, EVICTIONS_DOCUMENT, DISCLOSURE_DOCUMENT = (
    "head",
    "sums",
    "material",
    "evictions",
    "disclosure",
)
"""Names of the files that a round stores besides the documents that its record names."""
TRANSCRIPT_NAME = "transcript"
"""The transcript's name among a round's digests."""
TRANSCRIPTS_FOLDER = "transcripts"
"""The folder with one folder for each ended round."""


def document_name(name: str) -> str:
    """Return the name under which a document of the record is stored."""
    return f"document-{name}"


@dataclass(frozen=True)
class Publication:
    """A finished sum: the published documents, and the sum itself, which only operators and readers may read.

    Attributes:
        record: None for a count.
        counts: the sums of a count.
    """

    record: ResultRecord | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    counts: tuple[int, ...] = ()


EMPTY_PUBLICATION = Publication()


@dataclass(frozen=True)
class Documents:
    """One round's.

    Attributes:
        view: the round's; only an ended round has documents.
        record: the signed result; None if it has no head.
        digests: SHA-256 of what was stored, by name; None for a round that ended before format 4.2.
    """

    blobs: Blobs
    round_id: str
    view: RoundView
    record: ResultRecord | None
    digests: Mapping[str, str] | None = None

    def require_record(self) -> ResultRecord:
        """Return the signed record. Raises PeerFault(wrong-phase) if the round has no record."""
        self._check_done()
        if self.record is None:
            raise wrong_phase(
                f"round {self.round_id} is a count: its view has the counts, and it has no result"
            )
        return self.record

    def fetch_document(self, name: str) -> bytes:
        """Return the weights, the sums or another document. Raises PeerFault(wrong-phase) if the round has no such document."""
        return b"".join(self.read_document(name)[1])

    def read_document(self, name: str) -> tuple[int, Iterator[bytes]]:
        """Return a document's length, and its bytes piece by piece.

        Raises:
            PeerFault: wrong-phase, or storage-damaged if it is lost or not as it was stored.
        """
        self._check_done()
        try:
            return self._read_blob(self._document_blob(name), name)
        except FileNotFoundError:
            raise wrong_phase(f"round {self.round_id} keeps no {name}") from None

    def _read_blob(self, blob: str, name: str) -> tuple[int, Iterator[bytes]]:
        """Read a blob that is to be kept. Raises FileNotFoundError if it was not to be."""
        digest = self.known_digests.get(name)
        try:
            if digest is None:
                return self.blobs.read(blob)
            return self.blobs.read_checked(blob, digest)
        except FileNotFoundError:
            if name not in self._kept_names:
                raise
            self.blobs.note_damage(blob)
            raise self._damage_fault(name) from None
        except DamagedBlobError:
            raise self._damage_fault(name) from None

    @property
    def known_digests(self) -> Mapping[str, str]:
        """SHA-256 of what it has published, as far as that was stored or is in its record."""
        if self.digests is not None:
            return self.digests
        if (record := self.record) is None:
            return {}
        head = {} if record.head is None else {HEAD_DOCUMENT: record.head}
        named = {document_name(each.name): each.sha256 for each in record.documents}
        return {SUMS_DOCUMENT: record.sums, **head, **named}

    @property
    def _kept_names(self) -> set[str]:
        """Names of what the round keeps for good: a disclosure is deleted once no member needs it."""
        unchecked = set[str]() if self.digests is not None else {EVICTIONS_DOCUMENT, TRANSCRIPT_NAME}
        return {*self.known_digests, *unchecked} - {DISCLOSURE_DOCUMENT}

    def list_blobs(self) -> Iterator[tuple[str, str | None]]:
        """Yield each blob that an ended round keeps, and its SHA-256 if that is known."""
        assert self.view.transcript is not None
        for name in sorted(self._kept_names):
            blob = self._document_blob(name)
            if name == TRANSCRIPT_NAME:
                blob = self._transcript_blob(self.view.transcript)
            yield blob, self.known_digests.get(name)

    def _damage_fault(self, name: str) -> PeerFault:
        return storage_damaged(
            f"the coordinator's storage has lost or changed the {name} of round {self.round_id}; no member is at fault. "
            "The operator can restore it from a backup"
        )

    def _check_done(self) -> None:
        if (view := self.view).state != "done":
            raise wrong_phase(f"the round is {view.state}" + (f": {view.fault.detail}" if view.fault else ""))

    def fetch_transcript(self) -> bytes:
        """Return the signed transcript's file. Raises as `read_transcript`."""
        return b"".join(self.read_transcript()[1])

    def read_transcript(self) -> tuple[int, Iterator[bytes]]:
        """Return its length, and its bytes piece by piece.

        Raises:
            PeerFault: wrong-phase before the round's end; storage-damaged if it is lost or not as it was stored.
        """
        if (head := self.view.transcript) is None:
            raise wrong_phase(f"the round is {self.view.state}: its transcript is signed when it ends")
        return self._read_blob(self._transcript_blob(head), TRANSCRIPT_NAME)

    def store_documents(self, signed: Transcript, documents: Mapping[str, bytes]) -> dict[str, str]:
        """Store the transcript and the published documents, and return their SHA-256 by name."""
        transcript = signed.to_json().encode()
        self.blobs.put(self._transcript_blob(signed.head.hex()), transcript)
        for name, data in documents.items():
            self.blobs.put(self._document_blob(name), data)
        stored = {TRANSCRIPT_NAME: transcript, **documents}
        return {name: hashlib.sha256(data).hexdigest() for name, data in stored.items()}

    def clear_leftovers(self) -> None:
        """Remove documents of processes that did not end the round; without a result, everything except the transcript."""
        if self.view.state != "done":
            self.blobs.delete(f"results/{self.round_id}")
        transcript = (self.view.transcript or "")[:16]
        for folder, kept in (("results", _record_prefix(self.record)), (TRANSCRIPTS_FOLDER, transcript)):
            for name in self.blobs.list_names(f"{folder}/{self.round_id}"):
                if not name.startswith(kept):
                    self.blobs.delete(f"{folder}/{self.round_id}/{name}")

    def _transcript_blob(self, head: str) -> str:
        return f"{TRANSCRIPTS_FOLDER}/{self.round_id}/{head[:16]}"

    def _document_blob(self, name: str) -> str:
        return f"results/{self.round_id}/{_record_prefix(self.record)}{name}"


def _record_prefix(record: ResultRecord | None) -> str:
    """Return the prefix of a record's documents; a count has no record."""
    return f"{record.signature[:16]}-" if record is not None else ""
