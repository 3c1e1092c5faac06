"""Who may do what: the coordinator's own key, and the operator's token."""

import hashlib
import hmac
import os
import secrets
import sys
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy import insert, select

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from service.storage.database import Database
from service.storage.tables import tokens


def load_key(path: Path) -> SigningKey:
    """The coordinator's signing key; made at first start, readable by its owner alone.

    Raises:
        Misuse: the file is readable by others, or is not a key.
    """
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
    if path.stat().st_mode & 0o077:
        raise Misuse(f"{path} is readable by others: chmod 600 {path}")
    return SigningKey(path.read_bytes())


async def token_hash(database: Database, configured: SecretStr | None) -> str:
    """SHA-256 of the operator's token: the configured one, the stored one, or one drawn now and printed once."""
    if configured is not None:
        return _hash(configured.get_secret_value())
    async with database.transaction() as connection:
        stored = (await connection.execute(select(tokens.c.sha256).limit(1))).scalar_one_or_none()
        if stored is not None:
            return str(stored)
        token = "veilsum_" + secrets.token_urlsafe(32)
        await connection.execute(insert(tokens).values(sha256=_hash(token)))
    # To the terminal, once, and never to the log.
    sys.stderr.write(f"Operator token (shown only this once): {token}\n")
    sys.stderr.flush()
    return _hash(token)


def check_token(expected_hash: str, authorization: str | None) -> None:
    """Refuse a request without the operator's token."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(_hash(token.strip()), expected_hash):
        raise PeerFault(
            Cause.UNAUTHORISED, "this takes the operator's token: send 'Authorization: Bearer <token>'"
        )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
