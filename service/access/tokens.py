"""Operators' tokens. Only their hashes are stored."""

import hashlib
import hmac
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from service.http.callers import Caller, Role
from service.http.problems import not_found
from service.storage.database import Database
from service.storage.tables import tokens
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.rest import NewToken, Scope, TokenRequest, TokenView
from veilsum.system.files import write_durably

CONFIGURED_NAME = "configured"
"""Id of the token that `VEILSUM_OPERATOR_TOKEN` sets."""
MIN_CHARACTERS = 16
"""Minimum length of a configured token; generated tokens have 51 characters."""
FIRST_OPERATOR_NAME = "first token"
FIRST_OPERATOR_FILE = "operator.token"
"""The first token's private file in the data folder."""
_CONFIGURED_CALLER = Caller(Role.OPERATOR, CONFIGURED_NAME, scopes=frozenset({Scope.ADMIN}))


class Tokens:
    """The tokens of one coordinator.

    `hash_configured` is the hash of a token that is set from outside and may do everything. The first token is left in `folder` if there is no
    terminal.
    """

    def __init__(
        self, database: Database, now: Callable[[], float], configured: str | None, folder: Path
    ) -> None:
        self._database, self._now, self._folder, self._configured = database, now, folder, configured

    async def create_first_token(self) -> None:
        """Draw a first token and hand it over once, unless one exists or is configured."""
        if self._configured is not None:
            return

        def draw(connection: Connection) -> None:
            # Two replicas that start together draw one.
            self._database.lock_alone(connection, "token")
            if connection.execute(select(tokens.c.id).limit(1)).first() is not None:
                return
            made, secret = self._draw_token(FIRST_OPERATOR_NAME, {Scope.ADMIN}, None)
            connection.execute(insert(tokens).values(made))
            self._hand_over(secret)  # before the commit, or a crash between would lose it

        await self._database.write(draw)

    def _hand_over(self, secret: str) -> None:
        """Show a token on a terminal only: service managers and containers keep stderr, where others can read it."""
        if sys.stderr.isatty():
            shown = f"Operator token (shown only this once): {secret}"
        else:
            path = self._folder / FIRST_OPERATOR_FILE
            write_durably(path, f"{secret}\n".encode())
            shown = f"Operator token: in {path.absolute()}; move it to a safe place"
        sys.stderr.write(shown + "\n")
        sys.stderr.flush()

    async def authenticate_token(self, token: str) -> Caller:
        """Return the token's owner. Raises PeerFault(unauthorised) if it is unknown, revoked or expired."""
        digest = _hash_token(token)
        if self._configured is not None and hmac.compare_digest(digest, self._configured):
            return _CONFIGURED_CALLER
        return (await self._find_stored(tokens.c.sha256 == digest))[0]

    async def find_in_force(self, token: str) -> tuple[Caller, str]:
        """Return the owner of the token with this id, and its SHA-256. Raises PeerFault(unauthorised) if it is no longer in force."""
        if token == CONFIGURED_NAME and self._configured is not None:
            return _CONFIGURED_CALLER, self._configured
        return await self._find_stored(tokens.c.id == token)

    async def _find_stored(self, which: ColumnElement[bool]) -> tuple[Caller, str]:
        row = await self._database.read_row(select(tokens).where(which))
        if row is None:
            raise unauthorised_fault()
        for when, what in ((row.revoked_s, "was revoked"), (row.expires_s, "has expired")):
            if when is not None and self._now() >= when:
                raise PeerFault(Cause.UNAUTHORISED, f"token {row.id} {what}: ask its issuer for another")
        with self._database.quarantine.quarantine_errors(f"token {row.id}"):
            scopes = frozenset(map(Scope, row.scopes.split()))
        return Caller(Role.OPERATOR, row.id, row.federation or "", scopes), row.sha256

    async def create_token(self, request: TokenRequest) -> NewToken:
        """Make a token. Its secret is not stored."""
        made, secret = self._draw_token(request.name, request.scopes, self._now() + request.lifetime_s)
        made["federation"] = request.federation

        def store(connection: Connection) -> TokenView:
            connection.execute(insert(tokens).values(made))
            return _token_view(connection.execute(select(tokens).where(tokens.c.id == made["id"])).one())

        view = await self._database.write(store)
        return NewToken(**view.model_dump(), secret=secret)

    async def list_tokens(self) -> tuple[TokenView, ...]:
        """Return every token, oldest first."""
        views = list[TokenView]()
        for row in await self._database.read_rows(select(tokens).order_by(tokens.c.created_s, tokens.c.id)):
            with self._database.quarantine.skip_errors(f"token {row.id}"):
                views.append(_token_view(row))
        return tuple(views)

    async def revoke_token(self, token: str, by: Caller) -> TokenView:
        """Revoke a token; idempotent. Raises PeerFault: not-found, or conflict for the caller's own."""
        if token == by.name:
            raise PeerFault(
                Cause.CONFLICT,
                "a token can't revoke itself: make another with the scope 'admin', and use that",
            )

        def store(connection: Connection) -> TokenView:
            unrevoked = (tokens.c.id == token) & tokens.c.revoked_s.is_(None)
            connection.execute(update(tokens).where(unrevoked).values(revoked_s=self._now()))
            row = connection.execute(select(tokens).where(tokens.c.id == token)).first()
            if row is None:
                raise not_found("token")
            return _token_view(row)

        return await self._database.write(store)

    def _draw_token(
        self, name: str, scopes: Iterable[Scope], expires_s: float | None
    ) -> tuple[dict[str, Any], str]:
        secret = "veilsum_" + secrets.token_urlsafe(32)
        made = {
            "id": secrets.token_hex(4),
            "sha256": _hash_token(secret),
            "name": name,
            "scopes": " ".join(sorted(scopes)),
            "created_s": self._now(),
            "expires_s": expires_s,
        }
        return made, secret


def hash_configured(token: SecretStr | None) -> str | None:
    """Return the hash of the configured token; None if unset or empty. Raises Misuse for one that is short, or that no header carries."""
    text = token.get_secret_value().strip() if token is not None else ""
    if 0 < len(text) < MIN_CHARACTERS:
        raise Misuse(
            f"VEILSUM_OPERATOR_TOKEN has {len(text)} characters, at least {MIN_CHARACTERS} are needed: "
            "`openssl rand -hex 32` makes a token"
        )
    if not (text.isascii() and text.isprintable()):
        raise Misuse(
            "VEILSUM_OPERATOR_TOKEN: expected one line of ASCII characters; `openssl rand -hex 32` makes a token"
        )
    return _hash_token(text) if text else None


def unauthorised_fault() -> PeerFault:
    return PeerFault(
        Cause.UNAUTHORISED, "no valid operator's token: send one as 'Authorization: Bearer <token>'"
    )


def _token_view(row: Row[Any]) -> TokenView:
    return TokenView(
        token=row.id,
        name=row.name,
        scopes=tuple(map(Scope, row.scopes.split())),
        federation=row.federation,
        created_s=row.created_s,
        expires_s=row.expires_s,
        revoked_s=row.revoked_s,
    )


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
