"""A client's side of this mode: it trusts a roster, answers an opening once, and may check that it was counted.

    Client ──opening, own vector──▶ Spoken ──counted (or not)──▶ the next opening, by `Spoken.client`

There is no key phase: a client needs the roster and one opening, and is gone after its upload.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import U64, Digest, Headed, Id, Key, Nested
from protocol.errors import Misuse, PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HelperCounted, HelperUpload
from protocol.helpers.sealing import HelperSealing
from protocol.messages.roster import Roster


class ClientKind(IntEnum):
    """The second byte of a stored client; helpers' phases stand below."""

    CLIENT = 48
    SPOKEN = 49


class Client(Headed):
    """Between attempts.

    Attributes:
        member: its id in the roster.
        federation: the admin's key, as pinned.
        roster_version: the highest version accepted; `roster_hash` names that roster.
        counter: the least counter that it still answers: one upload for each, ever.
    """

    version: ClassVar[int] = 1
    kind: ClassVar[int] = ClientKind.CLIENT

    member: Id
    federation: Key
    roster_version: U64
    roster_hash: Digest
    counter: U64

    @classmethod
    def start(cls, member: str, federation: bytes, roster: Roster) -> "Client":
        """A new client under the admin's key that it pins; raises as `trust`."""
        return cls(member, federation, 0, bytes(32), 0).trust(roster)

    def trust(self, roster: Roster) -> "Client":
        """Accept the admin's roster.

        Raises:
            PeerFault: wrong-federation, bad-signature, roster-rollback; unknown-member where it does not name this
                client, or names it a helper.
        """
        roster.verify_admin(self.federation, version_seen=self.roster_version)
        roster.key_of(self.member)
        if self.member in roster.helpers:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{self.member} is a helper and no client", [self.member])
        return replace(self, roster_version=roster.version_number, roster_hash=roster.hash)

    def seal(
        self, attempt: HelperAttempt, now_s: float, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> HelperSealing:
        """Check an opening and begin the upload with fresh secrets.

        1. it is read with the roster that this client trusts (wrong-cohort);
        2. it passes `HelperAttempt.check`;
        3. this client has not answered it, nor a later one (wrong-sequence).

        What its terms ask for is the caller's policy.
        """
        if attempt.roster.hash != self.roster_hash:
            raise PeerFault(Cause.WRONG_COHORT, "the opening comes with another roster than the one trusted")
        attempt.check(now_s)
        if attempt.manifest.counter < self.counter:
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"attempt {attempt.manifest.counter}: this client has answered {self.counter - 1}",
                ["coordinator"],
            )
        return HelperSealing(attempt, self.member, random_bytes)

    def spoken(self, attempt: HelperAttempt, upload: HelperUpload) -> "Spoken":
        """The client once its upload is made: stored before the announcement leaves.

        Raises:
            Misuse: it was sealed for another attempt or client.
        """
        if (upload.header.context, upload.member) != (attempt.context, self.member):
            raise Misuse("the upload was sealed for another attempt or client")
        return Spoken(replace(self, counter=attempt.manifest.counter + 1), upload)


class Spoken(Headed):
    """The upload's bytes never change again; no secret is left.

    Attributes:
        client: who takes the next opening.
        upload: sent again as it is, with the chunks that the driver kept.
    """

    version: ClassVar[int] = 1
    kind: ClassVar[int] = ClientKind.SPOKEN

    client: Annotated[Client, Nested(Client)]
    upload: Annotated[HelperUpload, Nested(HelperUpload)]

    def check_counted(self, attempt: HelperAttempt, counted: HelperCounted) -> None:
        """Accept only proof that this very upload was certified; see `HelperAttempt.check_counted`."""
        attempt.check_counted(counted, self.upload.header.survivor)
