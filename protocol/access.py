"""What operators and the coordinator say to each other about access, as JSON: tokens and their scopes."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from protocol.rest import Model, View

LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$"
YEAR_S = 366 * 86_400.0


class Scope(StrEnum):
    """What an operator may do; `admin` includes the others."""

    READ = "read"
    """Sums, and the audit log."""
    ROUNDS = "rounds"
    """Cohorts, rounds, combinations."""
    FEDERATIONS = "federations"
    """Found a federation, and pass on its rosters."""
    ADMIN = "admin"
    """Tokens, and everything above."""


class TokenRequest(Model):
    """A new token.

    Attributes:
        name: for whom or what, for people.
        lifetime_s: seconds until it expires.
    """

    name: Annotated[str, Field(pattern=LABEL_PATTERN)]
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    lifetime_s: Annotated[float, Field(gt=0, le=YEAR_S)] = 90 * 86_400.0


class TokenView(View):
    """A token as it may be shown: everything but itself.

    Attributes:
        token: its id, which the audit log names too.
        expires_s: Unix time in seconds; None for the first one, which lasts until it is revoked.
        revoked_s: when it was revoked, if it was.
    """

    token: str
    name: str
    scopes: tuple[Scope, ...]
    created_s: float
    expires_s: float | None
    revoked_s: float | None


class NewToken(TokenView):
    """A token when it is made.

    Attributes:
        secret: goes into `Authorization: Bearer …`; shown this once.
    """

    secret: str


class TokenList(View):
    """Every token that was ever made."""

    tokens: tuple[TokenView, ...]
