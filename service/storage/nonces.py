"""Nonces of signed requests that are accepted once: all processes together take each nonce once, until its request expires.

Expired nonces are deleted, and a wrong clock may be wrong about that: one that is ahead deletes nonces that are valid again once it is
set right, and one that is behind would take requests with nonces that were deleted long ago. So each signer has a row that says up to which
expiry its nonces were deleted, and requests that expire earlier are refused, whatever the clock says.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from service.storage.database import Database
from service.storage.tables import nonces
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

DELETE_EVERY_S = 60.0
CLOCK_SKEW_MAX_S = 60.0
"""Time that a nonce outlives its request, because another process's clock may be behind."""
_EXPIRY_MARK = ""
"""Marks the row with the expiry up to which a signer's nonces were deleted."""


@dataclass(frozen=True)
class Nonce:
    """One signer's nonce, and the Unix time in seconds at which its request expires."""

    signer: str
    nonce: str
    expires_s: float


class Nonces:
    """The nonces that all processes of one coordinator have used, in its database; `now` is in Unix time, `steady` in monotonic seconds."""

    def __init__(
        self, database: Database, now: Callable[[], float], steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._database, self._now, self._steady = database, now, steady
        self._looked_s = steady()

    async def use_nonce(self, nonce: Nonce) -> None:
        """Take a nonce. Raises PeerFault: request-replayed if it was used, clock-skew if its record may have been deleted."""
        forget = self._steady() >= self._looked_s + DELETE_EVERY_S
        if forget:
            self._looked_s = self._steady()
        deleted_until = select(nonces.c.expires_s).where(
            nonces.c.signer == nonce.signer, nonces.c.nonce == _EXPIRY_MARK
        )

        def take(connection: Connection) -> PeerFault | None:
            if forget:
                self._delete_expired(connection)
            is_new = self._database.add_row(connection, nonces, vars(nonce))
            # After the insert: another process may have deleted nonces meanwhile.
            until_s = connection.execute(deleted_until).scalar_one_or_none()
            if until_s is not None and nonce.expires_s <= until_s:
                return _late_fault(nonce)
            return None if is_new else _replayed_fault(nonce)

        if (fault := await self._database.write(take)) is not None:
            raise fault

    def _delete_expired(self, connection: Connection) -> None:
        self._database.lock_alone(connection, "nonces")
        clock_s = connection.execute(select(self._database.clock)).scalar_one()
        expired = nonces.c.expires_s < min(self._now(), clock_s) - CLOCK_SKEW_MAX_S
        of = select(nonces.c.signer).where(expired, nonces.c.nonce != _EXPIRY_MARK)
        gone = delete(nonces).where(expired, nonces.c.signer.in_(of))
        until_s = dict[str, float]()
        for row in connection.execute(gone.returning(nonces.c.signer, nonces.c.expires_s)):
            until_s[row.signer] = max(row.expires_s, until_s.get(row.signer, -math.inf))
        if until_s:
            rows = [vars(Nonce(signer, _EXPIRY_MARK, expires_s)) for signer, expires_s in until_s.items()]
            self._database.add_all(connection, nonces, rows)


def _replayed_fault(nonce: Nonce) -> PeerFault:
    return PeerFault(
        Cause.REQUEST_REPLAYED,
        f"{nonce.signer} has sent a request with this nonce before: use a new nonce for each request",
        [nonce.signer],
    )


def _late_fault(nonce: Nonce) -> PeerFault:
    return PeerFault(
        Cause.CLOCK_SKEW,
        f"this request may be a repeat: requests that {nonce.signer} signed later have expired and were forgotten. The coordinator's "
        "clock or the signing machine's is behind: synchronise both with NTP, and sign a new request",
        [nonce.signer],
    )
