"""Request authentication (docs/access.md): a member's or an admin's signature, or an operator's token."""

from dataclasses import dataclass

from client_sdk.environment import Environment
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import Target, sign_request

NONCE_BYTES = 16


@dataclass(frozen=True, repr=False)
class Signer:
    """Signs requests.

    Attributes:
        keyid: the member's id, or "admin".
        key: its long-term key.
        environment: clock, and randomness for nonces.
    """

    keyid: str
    key: SigningKey
    environment: Environment

    def make_headers(self, target: Target, body: bytes, digest: bytes) -> dict[str, str]:
        """Return the headers that sign one request. A retry needs new ones, because these expire.

        Args:
            target: of the request.
            body: its body.
            digest: SHA-256 of the body; b"" if it is not known.
        """
        return sign_request(
            self.key,
            self.keyid,
            target,
            body,
            created_s=self.environment.now_s(),
            nonce=self.environment.random_bytes(NONCE_BYTES),
            digest=digest,
        )

    def __repr__(self) -> str:
        return f"<Signer {self.keyid}>"


@dataclass(frozen=True, repr=False)
class Token:
    """Authenticates requests by an operator's token."""

    secret: str

    def make_headers(self, _target: Target, _body: bytes, _digest: bytes) -> dict[str, str]:
        """Return the header with the token."""
        return {"authorization": f"Bearer {self.secret}"}

    def __repr__(self) -> str:
        return "<Token>"
