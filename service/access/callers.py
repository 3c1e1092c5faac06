"""Who sends a request."""

from dataclasses import dataclass
from enum import StrEnum

from veilsum.protocol.access import Scope


class Role(StrEnum):
    """What a caller is to this coordinator."""

    ANYBODY = "anybody"
    MEMBER = "member"
    ADMIN = "admin"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Caller:
    """Who sends a request.

    Attributes:
        role: what it is.
        name: a member's id, a token's id, or who an issuer says it is; empty for anybody.
        federation: a member's or an admin's, or the only one that an operator's token works for, in hexadecimal.
        scopes: what an operator may do.
    """

    role: Role
    name: str = ""
    federation: str = ""
    scopes: frozenset[Scope] = frozenset()

    def __str__(self) -> str:
        return f"{self.role} {self.name}" if self.role in {Role.MEMBER, Role.OPERATOR} else str(self.role)

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


STRANGER = Caller(Role.ANYBODY)
