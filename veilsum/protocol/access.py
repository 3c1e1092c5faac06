"""JSON models for operator tokens and their scopes."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from veilsum.protocol.rest import HEX32_PATTERN, Model, View

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$"
YEAR_S = 366 * 86_400.0


class Scope(StrEnum):
    """What an operator may do; `admin` includes the others."""

    SUMS = "sums"
    """Sums, and heads that are not public."""
    AUDIT = "audit"
    """The audit log."""
    ROUNDS = "rounds"
    """Cohorts, rounds, combinations."""
    FEDERATIONS = "federations"
    """Found a federation, and pass on its rosters."""
    ADMIN = "admin"
    """Tokens, and everything above."""


class TokenRequest(Model):
    """A new token.

    Attributes:
        name: a label for people.
        lifetime_s: seconds until it expires.
        federation: the only one it works for; None for all. A coordinator has one audit log and one list of tokens, so `audit` and
            `admin` are for all.
    """

    name: Annotated[str, Field(pattern=LABEL_PATTERN)]
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    lifetime_s: Annotated[float, Field(gt=0, le=YEAR_S)] = 90 * 86_400.0
    federation: Annotated[str, Field(pattern=HEX32_PATTERN)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.federation is not None and (wide := self.scopes & {Scope.AUDIT, Scope.ADMIN}):
            raise ValueError(f"scope {min(wide)} can't be limited to a federation")
        return self


class TokenView(View):
    """A token's public details, without its secret.

    Attributes:
        token: its id, as in the audit log.
        expires_s: Unix time in seconds; None for the first token, which lasts until it is revoked.
        revoked_s: Unix time of revocation; None if still valid.
    """

    token: str
    name: str
    scopes: tuple[Scope, ...]
    federation: str | None
    created_s: float
    expires_s: float | None
    revoked_s: float | None


class NewToken(TokenView):
    """A newly created token.

    Attributes:
        secret: goes into `Authorization: Bearer …`; shown only once.
    """

    secret: str


class TokenList(View):
    """All tokens ever created."""

    tokens: tuple[TokenView, ...]
