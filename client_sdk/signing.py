"""Requests signed with a member's identity (docs/access.md)."""

from dataclasses import dataclass

from client_sdk.surroundings import Surroundings
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import Target, sign_request

NONCE_BYTES = 16


@dataclass(frozen=True, repr=False)
class Signer:
    """In whose name requests are sent.

    Attributes:
        keyid: the member's id, or "admin".
        key: its long-term key.
        surroundings: clock, and randomness for nonces.
    """

    keyid: str
    key: SigningKey
    surroundings: Surroundings

    def headers(self, target: Target, body: bytes) -> dict[str, str]:
        """The headers that sign one request as it is sent now; anew for each time it is sent."""
        return sign_request(
            self.key,
            self.keyid,
            target,
            body,
            created_s=self.surroundings.now_s(),
            nonce=self.surroundings.random_bytes(NONCE_BYTES),
        )

    def __repr__(self) -> str:
        return f"<Signer {self.keyid}>"
