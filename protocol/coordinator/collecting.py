"""M1: uploads come in, each announced and signed as a whole before its chunks follow (protocol §4.4)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, ClassVar

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator.base import CoordinatorPhase, Setting, Windows, added
from protocol.coordinator.checking import Checking
from protocol.coordinator.voiding import Voiding
from protocol.errors import PeerFault
from protocol.merkle import Tree
from protocol.messages import COMMITMENT_BYTES, SHARE_BYTES, Message, Upload
from protocol.sealing import commitment_tree

BOX_TAG_BYTES = 16


@dataclass(frozen=True, repr=False)
class Collecting(CoordinatorPhase):
    """Waits for uploads.

    Attributes:
        uploads: announcements by member.
        stored: indices of the chunks that are durably stored, by member.
    """

    name: ClassVar[str] = "collecting"
    uploads: dict[str, Upload] = field(default_factory=dict)
    stored: dict[str, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def begin(cls, attempt: Attempt, windows: Windows, now_s: float) -> "Collecting":
        """Open the attempt."""
        return cls(Setting(attempt, windows), now_s + windows.upload_s)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], CoordinatorPhase]]:
        """Announcements; chunks are told by `chunk_stored`."""
        return {Upload: self._upload}

    def request_for(self, member: str) -> Message | None:
        """The opening, until the member's upload is whole."""
        return self.attempt.opening if member in self.attempt.members and not self.whole(member) else None

    def waiting_for(self) -> tuple[str, ...]:
        """Members whose upload is not whole."""
        return tuple(member for member in self.attempt.members if not self.whole(member))

    def whole(self, member: str) -> bool:
        """Whether the member's announcement and all its chunks are stored."""
        return len(self.stored.get(member, ())) == self.attempt.chunks

    def missing_chunks(self, member: str) -> tuple[int, ...]:
        """Indices of the chunks still to come; PeerFault(chunk-unknown) before the announcement."""
        self._announced(member, 0)
        return tuple(i for i in range(self.attempt.chunks) if i not in self.stored[member])

    def check_chunk(self, member: str, index: int, digest: bytes, size_bytes: int) -> None:
        """Refuse a chunk that the member's announcement does not hold; call it before storing the bytes."""
        self._announced(member, index)
        expected = self.attempt.ring.packed_bytes(self.attempt.chunk_elements(index))
        if size_bytes != expected or digest != self.uploads[member].chunk_digests[index]:
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"chunk {index} has {size_bytes} bytes of {expected}, or not the digest that was announced",
                [member],
            )

    def chunk_stored(self, member: str, index: int, now_s: float) -> CoordinatorPhase:
        """A chunk that passed `check_chunk` is durably stored; again without effect."""
        self._announced(member, index)
        stored = {**self.stored, member: self.stored[member] | {index}}
        phase = replace(self, stored=stored)
        # Only a last chunk can be the one that everybody waited for.
        return phase.expire(now_s) if phase.whole(member) and not phase.waiting_for() else phase

    def _announced(self, member: str, index: int) -> None:
        if member not in self.uploads:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN, f"{member} has announced no upload in this attempt", [member]
            )
        if not 0 <= index < self.attempt.chunks:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN,
                f"chunk {index}: this upload has chunks 0 to {self.attempt.chunks - 1}",
                [member],
            )

    def _upload(self, upload: Upload, _now_s: float) -> CoordinatorPhase:
        """Admit an announcement, in this order (protocol §4.4).

        1. its header is a cohort member's, of this context, and signed (check_header);
        2. it has as many chunks, commitments, rows and boxes as the manifest and terms ask for, each of its length;
        3. the signed roots are those of what it carries;
        4. it is the member's first in this attempt, or the very same again (upload-conflict).
        """
        attempt, header = self.attempt, upload.header
        attempt.check_header(header)
        secrets, holders = 1 + attempt.neighbour_count, len(attempt.decryptors)
        boxes = [
            0 if d == header.member else SHARE_BYTES * secrets + BOX_TAG_BYTES for d in attempt.decryptors
        ]
        if (
            len(upload.chunk_digests) != attempt.chunks
            or len(upload.secret_commitments) != secrets
            or [len(row) for row in upload.share_rows] != [COMMITMENT_BYTES * secrets] * holders
            or [len(box) for box in upload.boxes] != boxes
        ):
            raise PeerFault(
                Cause.UPLOAD_MISSHAPEN, f"{header.member}'s upload misses its shape", [header.member]
            )
        roots = (
            Tree.of(upload.chunk_digests).root,
            commitment_tree(upload.secret_commitments, upload.share_rows).root,
            Tree.of(upload.boxes).root,
        )
        if roots != (header.chunk_root, header.commitment_root, header.box_root):
            raise PeerFault(
                Cause.UPLOAD_MISSHAPEN, f"{header.member}'s upload misses its roots", [header.member]
            )
        uploads = added(self.uploads, header.member, upload, Cause.UPLOAD_CONFLICT)
        if uploads is None:
            return self
        stored = {**self.stored, header.member: frozenset[int]()}
        return replace(self, uploads=uploads, stored=stored)

    def expire(self, now_s: float) -> CoordinatorPhase:
        """Go on with the uploads that are whole: too few of them, or two ends that disagree, end the attempt."""
        attempt = self.attempt
        uploads = {m: self.uploads[m] for m in attempt.members if self.whole(m)}
        if len(uploads) < attempt.quorum.survivors_min:
            missing = f"{len(uploads)} uploads are whole, n_min is {attempt.quorum.survivors_min}"
            return Voiding.begin(
                self.setting, now_s, PeerFault(Cause.SURVIVORS_TOO_FEW, missing, self.waiting_for())
            )
        for low, high in combinations(uploads, 2):
            # Both ends of an edge derive the same seed from true cards and one context, and commit to it alike.
            if _edge(attempt, uploads[low], high) != _edge(attempt, uploads[high], low):
                return Voiding.begin(
                    self.setting, now_s, PeerFault(Cause.EDGE_DISAGREEMENT, parties=(low, high))
                )
        return Checking.begin(self.setting, now_s, uploads)


def _edge(attempt: Attempt, upload: Upload, peer: str) -> bytes:
    return upload.secret_commitments[attempt.secret_index(upload.header.member, peer)]
