"""M1: members upload; a signed announcement precedes the chunks (wire: Uploads)."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator.base import CoordinatorPhase, Setting, Voiding
from veilsum.protocol.coordinator.checking import Checking
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    BOX_TAG_BYTES,
    COMMITMENT_BYTES,
    SHARE_BYTES,
    Message,
    SurvivorSet,
    Upload,
)
from veilsum.protocol.packing import Buffer
from veilsum.protocol.shelf import Announced, MemoryShelf, Shelf, Trees


@dataclass(frozen=True, repr=False)
class Collecting(CoordinatorPhase):
    """Waits for uploads.

    Attributes:
        stored: bit mask of the durably stored chunks, by member.
        whole_count: number of members with a complete upload.
    """

    name: ClassVar[str] = "collecting"
    announced: dict[str, Announced] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    whole_count: int = 0

    @classmethod
    def begin(
        cls, attempt: Attempt, now_s: float, earlier: tuple[SurvivorSet, ...] = (), shelf: Shelf | None = None
    ) -> "Collecting":
        """Open the attempt; `Setting` describes the arguments."""
        setting = Setting(attempt, earlier, MemoryShelf() if shelf is None else shelf)
        return cls(setting, setting.end_of_window(now_s, setting.windows.upload))

    def request_for(self, member: str) -> Message | None:
        """Return the opening, until the member's upload is complete."""
        place = self.attempt.manifest.member_places
        return self.attempt.opening if member in place and not self.has_upload(member) else None

    def waiting_for(self) -> tuple[str, ...]:
        """Return the members whose upload is incomplete."""
        all_chunks = self._all_chunks
        return tuple(member for member in self.attempt.members if self.stored.get(member) != all_chunks)

    def has_upload(self, member: str) -> bool:
        """Whether the member's announcement and all its chunks are stored."""
        return self.stored.get(member) == self._all_chunks

    @property
    def _all_chunks(self) -> int:
        return (1 << self.attempt.chunk_count) - 1

    def missing_chunks(self, member: str) -> tuple[int, ...]:
        """Return the indices of the missing chunks. Raises PeerFault(chunk-unknown) before the announcement."""
        self._announcement_of(member, 0)
        return tuple(i for i in range(self.attempt.chunk_count) if not self.stored[member] >> i & 1)

    def check_chunk(self, member: str, index: int, digest: bytes, packed: Buffer) -> None:
        """Refuse bytes that are not the announced chunk; call before storing them (UPLOAD-7, UPLOAD-8). `digest` is their SHA-256.

        Raises:
            PeerFault: chunk-unknown; chunk-mismatch for another digest or length.
        """
        announced = self._announcement_of(member, index).chunk_digest(index)
        if digest != announced or not self.attempt.is_chunk(index, packed):
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"chunk {index} has {len(packed)} bytes, and not the length and digest that {member} announced",
                [member],
            )

    def chunk_stored(self, member: str, index: int, now_s: float) -> CoordinatorPhase:
        """Record that a checked chunk is stored durably; idempotent."""
        self._announcement_of(member, index)
        stored = {**self.stored, member: self.stored[member] | 1 << index}
        count = self.whole_count + (stored[member] == self._all_chunks and not self.has_upload(member))
        phase = replace(self, stored=stored, whole_count=count)
        return phase.pass_deadline(now_s) if count == len(self.attempt.members) else phase

    def chunk_damaged(self, member: str, index: int) -> "Collecting":
        """Mark a damaged chunk as missing, so that the member sends it again."""
        stored = {**self.stored, member: self.stored[member] & ~(1 << index)}
        if stored == self.stored:
            return self
        return replace(self, stored=stored, whole_count=self.whole_count - self.has_upload(member))

    def _announcement_of(self, member: str, index: int) -> Announced:
        if member not in self.announced:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN, f"{member} has announced no upload in this attempt", [member]
            )
        if not 0 <= index < self.attempt.chunk_count:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN,
                f"chunk {index}: this upload has chunks 0 to {self.attempt.chunk_count - 1}",
                [member],
            )
        return self.announced[member]

    def _on_upload(self, upload: Upload, _now_s: float) -> CoordinatorPhase:
        """Admit an announcement after UPLOAD-1 to UPLOAD-6, in their order."""
        attempt, header = self.attempt, upload.header
        attempt.check_header(header)
        secrets, holders = 1 + attempt.manifest.degree, len(attempt.decryptors)
        boxes = [
            0 if d == header.member else SHARE_BYTES * secrets + BOX_TAG_BYTES for d in attempt.decryptors
        ]
        for what, got, expected in (
            ("chunk digests", len(upload.chunk_digests), attempt.chunk_count),
            ("secret commitments", len(upload.secret_commitments), secrets),
            (
                "bytes of share rows",
                list(map(len, upload.share_rows)),
                [COMMITMENT_BYTES * secrets] * holders,
            ),
            ("bytes of boxes", list(map(len, upload.boxes)), boxes),
        ):
            if got != expected:
                detail = f"{header.member}'s upload has {_format_size(got)} {what}, expected {_format_size(expected)}"
                raise PeerFault(Cause.UPLOAD_MISSHAPEN, detail, [header.member])
        trees = Trees.from_upload(upload)
        for what, root, signed in (
            ("chunk digests", Tree(upload.chunk_digests).root, header.chunk_root),
            ("commitments", trees.commitments.root, header.commitment_root),
            ("boxes", trees.boxes.root, header.box_root),
        ):
            if root != signed:
                detail = f"{header.member}'s {what} do not have the root that its header signs"
                raise PeerFault(Cause.UPLOAD_MISSHAPEN, detail, [header.member])
        known = self.announced.get(header.member)
        if known is not None:
            if known.header.digest != header.digest:
                raise PeerFault(
                    Cause.UPLOAD_CONFLICT, f"{header.member} has sent another upload before", [header.member]
                )
            return self
        shelf = self.setting.shelf
        shelf.store_announcement(upload, trees)
        kept = Announced(header, b"".join(upload.chunk_digests), shelf)
        announced = {**self.announced, header.member: kept}
        return replace(self, announced=announced, stored={**self.stored, header.member: 0})

    def go_on(self, now_s: float) -> CoordinatorPhase:
        """Continue with the complete uploads; void the attempt if there are too few."""
        attempt, all_chunks = self.attempt, self._all_chunks
        uploads = {m: self.announced[m] for m in attempt.members if self.stored.get(m) == all_chunks}
        if len(uploads) < attempt.survivors_min:
            missing = f"{count_noun(len(uploads), 'complete upload')}, {attempt.survivors_min} are needed"
            if begun := len(self.announced.keys() - uploads):
                missing += f"; {begun} more begun: is windows.upload too short for a line, or does a proxy limit bodies?"
            return Voiding.begin(
                self.setting, PeerFault(Cause.SURVIVORS_TOO_FEW, missing, self.waiting_for())
            )
        return Checking.begin(self.setting, now_s, uploads)

    handlers: ClassVar = {Upload: _on_upload}


def _format_size(size: int | list[int]) -> str:
    """Format a number, or the sum and count of a list of lengths."""
    return str(size) if isinstance(size, int) else f"{sum(size)} ({len(size)} of them)"
