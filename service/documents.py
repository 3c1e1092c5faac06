"""What a round publishes, in storage: its transcript, its head, its sums and other documents.

They are named by what was signed, so a process that stalled while it ended the round can't replace the documents of another.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from service.problems import wrong_phase
from service.storage.blobs import Blobs
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.record import ResultRecord
from veilsum.protocol.rest import RoundView
from veilsum.protocol.transcript import Transcript

HEAD, SUMS, MATERIAL, EVICTIONS, DISCLOSURE = "head", "sums", "material", "evictions", "disclosure"
"""Names of what a round keeps beside the documents that its record names."""
TRANSCRIPTS = "transcripts"
"""In which each round that has ended has one."""


def document_name(name: str) -> str:
    """Under what name a round keeps a document that its record names."""
    return f"document-{name}"


@dataclass(frozen=True)
class Publication:
    """A finished sum: what is published, and the sum itself, which only the operator may read.

    Attributes:
        record: None for an indicator.
        holders: of an indicator, how many members hold each class.
    """

    record: ResultRecord | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    holders: tuple[int, ...] = ()


NOTHING = Publication()


class Documents:
    """One round's.

    Args:
        view: the round as it stands.

    Attributes:
        record: the signed result of a round that has ended; None where it has no head.
    """

    record: ResultRecord | None = None

    def __init__(self, blobs: Blobs, round_id: str, view: Callable[[], RoundView]) -> None:
        self._blobs, self._round, self._view = blobs, round_id, view

    def result(self) -> ResultRecord:
        """The signed record of a finished round; PeerFault(wrong-phase) where there is none."""
        self._check_done()
        if self.record is None:
            raise wrong_phase(
                f"round {self._round} is an indicator: its view has the counts, and it has no result"
            )
        return self.record

    def document(self, name: str) -> bytes:
        """The weights, the sums or another document of a finished round; PeerFault(wrong-phase) where there is none."""
        return b"".join(self.read_document(name)[1])

    def read_document(self, name: str) -> tuple[int, Iterator[bytes]]:
        """Its length and its bytes, piece by piece; PeerFault also storage-damaged if they are lost."""
        self._check_done()
        try:
            return self._blobs.read(self._document(name, self.record))
        except FileNotFoundError:
            if name in self._kept():
                raise self._lost(name) from None
            raise wrong_phase(f"round {self._round} keeps no {name}") from None

    def _kept(self) -> set[str]:
        """Names of what a finished round has for good."""
        if self.record is None:
            return {EVICTIONS}
        head = {HEAD} if self.record.head is not None else set[str]()
        return {SUMS, EVICTIONS, *head, *(document_name(each.name) for each in self.record.documents)}

    def _lost(self, name: str) -> PeerFault:
        return PeerFault(
            Cause.STORAGE_DAMAGED,
            f"the coordinator's storage has lost the {name} of round {self._round}; no member is at fault",
            ["coordinator"],
        )

    def _check_done(self) -> None:
        view = self._view()
        if view.state != "done":
            raise wrong_phase(f"the round is {view.state}" + (f": {view.fault.detail}" if view.fault else ""))

    def transcript(self) -> bytes:
        """The signed transcript's file; PeerFault as `read_transcript`."""
        return b"".join(self.read_transcript()[1])

    def read_transcript(self) -> tuple[int, Iterator[bytes]]:
        """Its length and its bytes, piece by piece; PeerFault: wrong-phase before the round has ended, storage-damaged if it is lost."""
        view = self._view()
        if view.transcript is None:
            raise wrong_phase(f"the round is {view.state}: its transcript is signed when it ends")
        try:
            return self._blobs.read(self._transcript(view.transcript))
        except FileNotFoundError:
            raise self._lost("transcript") from None

    def put(self, signed: Transcript, outcome: Publication) -> None:
        """Store the transcript, and what beside the record is published."""
        self._blobs.put(self._transcript(signed.head.hex()), signed.to_json().encode())
        for name, data in outcome.documents.items():
            self._blobs.put(self._document(name, outcome.record), data)

    def clear(self) -> None:
        """Remove documents of processes that did not end the round; without a result, everything except the transcript."""
        view = self._view()
        if view.state != "done":
            self._blobs.delete(f"results/{self._round}")
        for folder, kept in (("results", _mark(self.record)), (TRANSCRIPTS, (view.transcript or "")[:16])):
            for name in self._blobs.names(f"{folder}/{self._round}"):
                if not name.startswith(kept):
                    self._blobs.delete(f"{folder}/{self._round}/{name}")

    def _transcript(self, head: str) -> str:
        return f"{TRANSCRIPTS}/{self._round}/{head[:16]}"

    def _document(self, name: str, record: ResultRecord | None) -> str:
        return f"results/{self._round}/{_mark(record)}{name}"


def _mark(record: ResultRecord | None) -> str:
    """Before the names of a record's documents; an indicator has none, and its documents are whole numbers."""
    return f"{record.signature[:16]}-" if record is not None else ""
