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
        return Sealing(self.attempt, self.member, self.ready.pairs, random_bytes)

    def uploaded(self, upload: Upload, own_shares: SecretBytes) -> Step:
        """Take what `Sealing.finish` returned; the effect is the upload's announcement.

        Raises:
            Misuse: it was sealed for another attempt or member.
        """
        if (upload.header.context, upload.header.member) != (self.attempt.context, self.member):
            raise Misuse("the upload was sealed for another attempt or member")
        return Uploaded(self.ready, self.opening, (upload,), own_shares), (upload,)


class Uploaded(Receiving):
    """The upload is made; its bytes never change again."""

    kind: ClassVar[int] = PhaseKind.UPLOADED

    def outbox(self) -> tuple[Upload, ...]:
        """The announcement; the driver sends the chunks that it kept."""
        return self.uploads
