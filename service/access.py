"""Who may do what: the coordinator's own key, and the operator's token."""

import hashlib
import hmac
import secrets
import sys
from pathlib import Path

from pydantic import SecretStr
from sqlalchemy import insert, select

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from service.storage.database import Database
from service.storage.folder import write_durably
from service.storage.tables import tokens


def load_key(path: Path) -> SigningKey:
    """The coordinator's signing key; made at first start, readable by its owner alone.

    Raises:
        Misuse: the file is readable by others, or is not a key.
    """
    if not path.exists():
        # Whole or not at all: rosters will name this key.
        write_durably(path, secrets.token_bytes(32))
    if path.stat().st_mode & 0o077:
        raise Misuse(f"{path} is readable by others: chmod 600 {path}")
    seed = path.read_bytes()
    if len(seed) != 32:
        raise Misuse(f"{path} is not a coordinator's key: it has {len(seed)} bytes, not 32; restore it")
    return SigningKey(seed)


async def token_hash(database: Database, configured: SecretStr | None) -> str:
    """SHA-256 of the operator's token: the configured one, the stored one, or one drawn now and printed once."""
    # An empty variable is an unset one: else everybody who sends an empty token would be the operator.
    if configured is not None and configured.get_secret_value().strip():
        return _hash(configured.get_secret_value().strip())
    async with database.transaction() as connection:
        stored = (await connection.execute(select(tokens.c.sha256).limit(1))).scalar_one_or_none()
        if stored is not None:
            return str(stored)
        token = "veilsum_" + secrets.token_urlsafe(32)
        await connection.execute(insert(tokens).values(sha256=_hash(token)))
        # To the terminal, once, never to the log; before the commit, or a crash between would lose it.
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
