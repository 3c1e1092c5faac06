"""Whoever sends a request."""

from dataclasses import dataclass
from enum import StrEnum

from protocol.access import Scope


class Kind(StrEnum):
    """What somebody is to this coordinator."""

    ANYBODY = "anybody"
    MEMBER = "member"
    ADMIN = "admin"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Caller:
    """Whoever sends a request.

    Attributes:
        kind: what it is.
        name: a member's id, a token's id, or who an issuer says it is; empty for anybody.
        federation: a member's or an admin's, in hexadecimal.
        scopes: what an operator may do.
    """

    kind: Kind
    name: str = ""
    federation: str = ""
    scopes: frozenset[Scope] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.kind in {Kind.MEMBER, Kind.OPERATOR} else str(self.kind)

    def may(self, scope: Scope) -> bool:
        """Whether an operator may do this."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


ANYBODY = Caller(Kind.ANYBODY)
