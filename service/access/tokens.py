"""Operators' tokens: what each may do and for how long. Only hashes are kept."""

import hashlib
import hmac
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import Row, insert, select, update

from protocol.access import NewToken, Scope, TokenRequest, TokenView
from protocol.causes import Cause
from protocol.errors import PeerFault
from service.access.callers import Caller, Kind
from service.problems import not_found
from service.storage.database import Database
from service.storage.folder import write_durably
from service.storage.tables import tokens

CONFIGURED = "configured"
"""Id of the token that `VEILSUM_OPERATOR_TOKEN` sets."""
FIRST = "first token"
FILE = "operator.token"
"""In the data folder, its owner's alone."""


class Tokens:
    """The tokens of one coordinator.

    Args:
        database: where they are kept.
        now: Unix time in seconds.
        configured: one that is set from outside and may do everything.
        folder: where the first one is left for whoever runs the coordinator, if nobody sits at a terminal.
    """

    def __init__(
        self, database: Database, now: Callable[[], float], configured: SecretStr | None, folder: Path
    ) -> None:
        self._database, self._now, self._folder = database, now, folder
        # An empty variable is an unset one: else everybody who sends an empty token would be the operator.
        text = configured.get_secret_value().strip() if configured is not None else ""
        self._configured = _hash(text) if text else None

    async def start(self) -> None:
        """Draw the first token, hand it over once, and keep its hash, where there is none and none is configured."""
        if self._configured is not None:
            return
        async with self._database.transaction() as connection:
            await self._database.alone(connection, "token")  # two replicas that start together draw one
            if (await connection.execute(select(tokens.c.id).limit(1))).first() is not None:
                return
            made, secret = self._made(FIRST, {Scope.ADMIN}, None)
            await connection.execute(insert(tokens).values(made))
            self._hand_over(secret)  # before the commit, or a crash between would lose it

    def _hand_over(self, secret: str) -> None:
        """Once, and to people: what a service manager or a container reads of stderr is kept, and others read it."""
        if sys.stderr.isatty():
            shown = f"Operator token (shown only this once): {secret}"
        else:
            path = self._folder / FILE
            write_durably(path, f"{secret}\n".encode())
            shown = f"Operator token: in {path.absolute()}; move it to where you keep it"
        sys.stderr.write(shown + "\n")
        sys.stderr.flush()

    async def caller(self, token: str) -> Caller:
        """Whose token this is; PeerFault(unauthorised) for nobody's, one that was revoked, or has expired."""
        digest = _hash(token)
        if self._configured is not None and hmac.compare_digest(digest, self._configured):
            return Caller(Kind.OPERATOR, CONFIGURED, scopes=frozenset({Scope.ADMIN}))
        async with self._database.reading() as connection:
            row = (await connection.execute(select(tokens).where(tokens.c.sha256 == digest))).first()
        return self._caller(row)

    async def standing(self, token: str) -> tuple[Caller, str]:
        """Whoever has the token of this id, and its SHA-256; PeerFault(unauthorised) where it is in force no more."""
        if token == CONFIGURED and self._configured is not None:
            return Caller(Kind.OPERATOR, CONFIGURED, scopes=frozenset({Scope.ADMIN})), self._configured
        async with self._database.reading() as connection:
            row = (await connection.execute(select(tokens).where(tokens.c.id == token))).first()
        caller = self._caller(row)
        assert row is not None
        return caller, row.sha256

    def _caller(self, row: Row[Any] | None) -> Caller:
        if row is None:
            raise unauthorised()
        for when, what in ((row.revoked_s, "was revoked"), (row.expires_s, "has expired")):
            if when is not None and self._now() >= when:
                raise PeerFault(Cause.UNAUTHORISED, f"token {row.id} {what}: ask whoever made it for another")
        return Caller(Kind.OPERATOR, row.id, scopes=frozenset(map(Scope, row.scopes.split())))

    async def create(self, request: TokenRequest) -> NewToken:
        """A new token, shown this once."""
        made, secret = self._made(request.name, request.scopes, self._now() + request.lifetime_s)
        async with self._database.transaction() as connection:
            await connection.execute(insert(tokens).values(made))
            row = (await connection.execute(select(tokens).where(tokens.c.id == made["id"]))).one()
        return NewToken(**_view(row).model_dump(), secret=secret)

    async def views(self) -> tuple[TokenView, ...]:
        """Every token, oldest first."""
        async with self._database.reading() as connection:
            stored = await connection.execute(select(tokens).order_by(tokens.c.created_s, tokens.c.id))
            return tuple(map(_view, stored))

    async def revoke(self, token: str, by: Caller) -> TokenView:
        """End a token now; again changes nothing. PeerFault: not-found; conflict for the caller's own."""
        if token == by.name:
            raise PeerFault(
                Cause.CONFLICT,
                "a token can't revoke itself: make another with the scope 'admin', and use that",
            )
        async with self._database.transaction() as connection:
            unrevoked = (tokens.c.id == token) & tokens.c.revoked_s.is_(None)
            await connection.execute(update(tokens).where(unrevoked).values(revoked_s=self._now()))
            row = (await connection.execute(select(tokens).where(tokens.c.id == token))).first()
        if row is None:
            raise not_found("token")
        return _view(row)

    def _made(
        self, name: str, scopes: Iterable[Scope], expires_s: float | None
    ) -> tuple[dict[str, Any], str]:
        secret = "veilsum_" + secrets.token_urlsafe(32)
        made = {
            "id": secrets.token_hex(4),
            "sha256": _hash(secret),
            "name": name,
            "scopes": " ".join(sorted(scopes)),
            "created_s": self._now(),
            "expires_s": expires_s,
        }
        return made, secret


def unauthorised() -> PeerFault:
    """Refuse a request without a token, or with nobody's."""
    return PeerFault(
        Cause.UNAUTHORISED, "this takes an operator's token: send 'Authorization: Bearer <token>'"
    )


def _view(row: Row[Any]) -> TokenView:
    return TokenView(
        token=row.id,
        name=row.name,
        scopes=tuple(map(Scope, row.scopes.split())),
        created_s=row.created_s,
        expires_s=row.expires_s,
        revoked_s=row.revoked_s,
    )


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
