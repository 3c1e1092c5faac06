"""M1: the attempt is open; the member masks its vector, or is too late and only helps to decrypt."""

import os
from collections.abc import Callable
from typing import ClassVar

from protocol.codec import SecretBytes
from protocol.errors import Misuse
from protocol.member.base import PhaseKind, Step
from protocol.member.receiving import Receiving
from protocol.messages import Upload
from protocol.sealing import Sealing


class Opened(Receiving):
    """Context and keys stand, nothing has been sent."""

    kind: ClassVar[int] = PhaseKind.OPENED

    def seal(self, random_bytes: Callable[[int], bytes] = os.urandom) -> Sealing:
        """Begin this member's upload with fresh secrets."""
        return Sealing(self.attempt, self.member, self.ready.masks, self.ready.boxes, random_bytes)

    def uploaded(self, upload: Upload, own_shares: SecretBytes) -> Step:
        """Take what `Sealing.finish` returned; the effect is the upload's announcement.

        Raises:
            Misuse: it was sealed for another attempt or member.
            PeerFault: outcome-missing or chain-broken where it has since taken part in an attempt that the opening's
                links do not hold.
        """
        if (upload.header.context, upload.header.member) != (self.attempt.context, self.member):
            raise Misuse("the upload was sealed for another attempt or member")
        # Of two cohorts that are open at once neither's links hold the other's end (protocol §4.3, clauses 4 and 5).
        history = self.history.check(self.opening, self.attempt.context)
        ready = self.ready.knowing(history.entered(self.attempt))
        return Uploaded(ready, self.opening, (upload,), own_shares), (upload,)


class Uploaded(Receiving):
    """The upload is made; its bytes never change again."""

    kind: ClassVar[int] = PhaseKind.UPLOADED

    def outbox(self) -> tuple[Upload, ...]:
        """The announcement; the driver sends the chunks that it kept."""
        return self.uploads
