"""Uploads come in, each announced and signed as a whole before its chunks follow (helpers H5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.coordinator.base import CoordinatorPhase, HelperSetting, HelperWindows
from protocol.helpers.coordinator.checking import Checking
from protocol.helpers.coordinator.voiding import Voiding
from protocol.helpers.messages import HELPERS, Ended, HelperUpload
from protocol.merkle import Tree
from protocol.messages.base import Message
from protocol.packing import Buffer


@dataclass(frozen=True, repr=False)
class Collecting(CoordinatorPhase):
    """Judges uploads, and leaves keeping them to the driver: it is the same value for one client and for 100,000."""

    name: ClassVar[str] = "collecting"

    @classmethod
    def begin(
        cls, attempt: HelperAttempt, windows: HelperWindows, now_s: float, history: tuple[Ended, ...] = ()
    ) -> "Collecting":
        """Open the attempt, over this history."""
        return cls(HelperSetting(attempt, windows, history), now_s + windows.upload_s)

    def request_for(self, helper: str) -> Message | None:
        """The opening: it fixes the one context that the helper's box key will serve."""
        return self.attempt.opening if helper in self.attempt.present else None

    def check_upload(self, upload: HelperUpload, known: HelperUpload | None = None) -> None:
        """Admit an announcement, in this order.

        1. its header is a client's, of this context, and signed (`HelperAttempt.check_header`);
        2. it has as many chunks, commitments and boxes as terms and manifest ask for;
        3. the signed roots are those of what it carries (both upload-misshapen);
        4. it is the client's first, or the very same again (upload-conflict).

        Args:
            upload: what came.
            known: what the driver keeps of this client in this attempt.
        """
        attempt, header = self.attempt, upload.header
        attempt.check_header(header)
        counts = len(upload.chunk_digests), len(upload.commitments), len(upload.boxes)
        if counts != (attempt.chunks, HELPERS, len(attempt.present)):
            raise PeerFault(
                Cause.UPLOAD_MISSHAPEN, f"{upload.member}'s upload misses its shape", [upload.member]
            )
        lists = upload.chunk_digests, upload.commitments, upload.boxes
        if tuple(Tree.of(leaves).root for leaves in lists) != (
            header.chunk_root,
            header.seed_root,
            header.box_root,
        ):
            raise PeerFault(
                Cause.UPLOAD_MISSHAPEN, f"{upload.member}'s upload misses its roots", [upload.member]
            )
        if known not in {None, upload}:
            raise PeerFault(
                Cause.UPLOAD_CONFLICT, f"{upload.member} has announced another upload", [upload.member]
            )

    def check_chunk(self, upload: HelperUpload, index: int, digest: bytes, packed: Buffer) -> None:
        """Refuse a chunk that the client's announcement does not hold, or that cannot be added up; call it before storing the bytes."""
        attempt, client = self.attempt, upload.member
        if not 0 <= index < attempt.chunks:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN, f"chunk {index}: uploads have chunks 0 to {attempt.chunks - 1}", [client]
            )
        attempt.check_chunk(client, index, digest, packed, upload.chunk_digests[index])

    def close(self, uploads: Iterable[HelperUpload], now_s: float) -> CoordinatorPhase:
        """Go on with the uploads whose chunks are all stored, one a client; too few of them end the attempt."""
        whole = tuple(sorted(uploads, key=attrgetter("member")))
        least = self.attempt.manifest.survivors_min
        if len(whole) < least:
            few = f"{len(whole)} uploads are whole, n_min is {least}"
            return Voiding.begin(self.setting, now_s, PeerFault(Cause.SURVIVORS_TOO_FEW, few))
        return Checking.begin(self.setting, now_s, whole)
