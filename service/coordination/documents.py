"""A round's documents in storage: transcript, head, sums and others.

Their names follow from what was signed, so a process that stalled while it ended the round can't replace another process's documents.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from service.http.problems import wrong_phase
from service.storage.blobs import Blobs
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView
from veilsum.protocol.transcript import Transcript

HEAD, SUMS, MATERIAL, EVICTIONS, DISCLOSURE = "head", "sums", "material", "evictions", "disclosure"
"""Names of the files that a round stores besides the documents that its record names."""
TRANSCRIPTS = "transcripts"
"""The folder with one folder for each ended round."""


def document_name(name: str) -> str:
    """Return the name under which a document of the record is stored."""
    return f"document-{name}"


@dataclass(frozen=True)
class Publication:
    """A finished sum: the published documents, and the sum itself, which only operators and readers may read.

    Attributes:
        record: None for an indicator.
        holders: of an indicator, how many members hold each class.
    """

    record: ResultRecord | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    holders: tuple[int, ...] = ()


NOTHING = Publication()


@dataclass(frozen=True)
class Documents:
    """One round's.

    Attributes:
        view: the round's; only an ended round has documents.
        record: the signed result; None if it has no head.
    """

    blobs: Blobs
    round_id: str
    view: RoundView
    record: ResultRecord | None

    def result(self) -> ResultRecord:
        """Return the signed record. Raises PeerFault(wrong-phase) if the round has no record."""
        self._check_done()
        if self.record is None:
            raise wrong_phase(
                f"round {self.round_id} is an indicator: its view has the counts, and it has no result"
            )
        return self.record

    def document(self, name: str) -> bytes:
        """Return the weights, the sums or another document. Raises PeerFault(wrong-phase) if the round has no such document."""
        return b"".join(self.read_document(name)[1])

    def read_document(self, name: str) -> tuple[int, Iterator[bytes]]:
        """Return a document's length, and its bytes piece by piece. Raises PeerFault: wrong-phase, or storage-damaged if it is lost."""
        self._check_done()
        try:
            return self.blobs.read(self._document(name))
        except FileNotFoundError:
            if name in self._kept():
                raise self._lost(name) from None
            raise wrong_phase(f"round {self.round_id} keeps no {name}") from None

    def _kept(self) -> set[str]:
        """Names of the files that a finished round keeps."""
        if self.record is None:
            return {EVICTIONS}
        head = {HEAD} if self.record.head is not None else set[str]()
        return {SUMS, EVICTIONS, *head, *(document_name(each.name) for each in self.record.documents)}

    def _lost(self, name: str) -> PeerFault:
        return PeerFault(
            Cause.STORAGE_DAMAGED,
            f"the coordinator's storage has lost the {name} of round {self.round_id}; no member is at fault",
            ["coordinator"],
        )

    def _check_done(self) -> None:
        if (view := self.view).state != "done":
            raise wrong_phase(f"the round is {view.state}" + (f": {view.fault.detail}" if view.fault else ""))

    def transcript(self) -> bytes:
        """Return the signed transcript's file. Raises as `read_transcript`."""
        return b"".join(self.read_transcript()[1])

    def read_transcript(self) -> tuple[int, Iterator[bytes]]:
        """Return its length, and its bytes piece by piece. Raises PeerFault: wrong-phase before the round's end, storage-damaged if it is lost."""
        if (head := self.view.transcript) is None:
            raise wrong_phase(f"the round is {self.view.state}: its transcript is signed when it ends")
        try:
            return self.blobs.read(self._transcript(head))
        except FileNotFoundError:
            raise self._lost("transcript") from None

    def put(self, signed: Transcript, documents: Mapping[str, bytes]) -> None:
        """Store the transcript and the published documents."""
        self.blobs.put(self._transcript(signed.head.hex()), signed.to_json().encode())
        for name, data in documents.items():
            self.blobs.put(self._document(name), data)

    def clear(self) -> None:
        """Remove documents of processes that did not end the round; without a result, everything except the transcript."""
        if self.view.state != "done":
            self.blobs.delete(f"results/{self.round_id}")
        transcript = (self.view.transcript or "")[:16]
        for folder, kept in (("results", _mark(self.record)), (TRANSCRIPTS, transcript)):
            for name in self.blobs.names(f"{folder}/{self.round_id}"):
                if not name.startswith(kept):
                    self.blobs.delete(f"{folder}/{self.round_id}/{name}")

    def _transcript(self, head: str) -> str:
        return f"{TRANSCRIPTS}/{self.round_id}/{head[:16]}"

    def _document(self, name: str) -> str:
        return f"results/{self.round_id}/{_mark(self.record)}{name}"


def _mark(record: ResultRecord | None) -> str:
    """Return the prefix of a record's documents; an indicator has no record."""
    return f"{record.signature[:16]}-" if record is not None else ""
