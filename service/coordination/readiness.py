"""Readiness checks of this process for /readyz, cached for a moment."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from sqlalchemy import Connection, delete

from service.coordination.coordinator import Coordinator
from service.storage import audit, migrating
from service.storage.blobs import RemovedFolderError, in_blob_thread
from service.storage.clock import CLOCK_DIFFERENCE_MAX_S, CLOCK_STEP_STANDS_S, Clock
from service.storage.database import Database
from service.storage.faults import DamagedRowError
from service.storage.tables import tokens
from service.telemetry.logs import describe_error, log, name_reason
from service.telemetry.metrics import READY_GAUGE
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

Check = Callable[[], Awaitable[None]]

CHECKS_CACHED_S = 2.0
CHECK_TIMEOUT_S = 5.0


class NotReady(Exception):  # noqa: N818 - a state, not an error
    """A failed check, in words for the operator."""


class Readiness:
    """Checks by name: each raises NotReady with the reason, or another error if the check itself failed.

    An outcome is kept for `kept_s` seconds, and one check may take `patience_s`.
    """

    def __init__(
        self,
        checks: Mapping[str, Check],
        kept_s: float = CHECKS_CACHED_S,
        patience_s: float = CHECK_TIMEOUT_S,
    ) -> None:
        self.names = tuple(checks)
        self._checks, self._kept_s, self._patience_s = checks, kept_s, patience_s
        self._lock, self._until = asyncio.Lock(), -1.0
        self._missing: dict[str, str] = {}

    async def failed_checks(self) -> dict[str, str]:
        async with self._lock:
            if time.monotonic() >= self._until:
                reasons = await asyncio.gather(*map(self._run_check, self._checks))
                self._missing = {name: why for name, why in zip(self._checks, reasons, strict=True) if why}
                self._until = time.monotonic() + self._kept_s
                READY_GAUGE.set(not self._missing)
            return self._missing

    async def check_all(self) -> tuple[str, ...]:
        """Return the names of the checks. Raises PeerFault(unavailable) with all reasons if one failed."""
        if missing := await self.failed_checks():
            raise PeerFault(Cause.UNAVAILABLE, "; ".join(f"{name}: {why}" for name, why in missing.items()))
        return self.names

    async def _run_check(self, name: str) -> str:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._checks[name]()
        except NotReady as reason:
            return str(reason)
        except DamagedRowError as damaged:
            return damaged.detail
        except TimeoutError:
            return f"no answer within {self._patience_s:g} s"
        except Exception as error:  # noqa: BLE001 - any error makes the process unready
            log.warning("not ready", of=name, **describe_error(error))
            return f"{name_reason(error)}: the log says where"
        return ""


def checks_of(coordinator: Coordinator, now: Clock) -> dict[str, Check]:
    """Return the checks of a coordinator's process; `now` is its clock."""
    # One name per process: the next check deletes the blob of one that was cut off.
    name = f"readiness/{secrets.token_hex(8)}"

    async def process() -> None:
        if coordinator.polls.stopping:
            raise NotReady("the process is stopping")
        for task in coordinator.background:
            if task.done():
                raise NotReady(f"{task.get_name()} has ended: restart the process")

    async def migrations() -> None:
        found = await coordinator.database.read(migrating.current_format)
        if found != (newest := migrating.newest_format()):
            raise NotReady(f"the database has format {found}, this release works with {newest}")

    async def blobs() -> None:
        content = secrets.token_bytes(16)
        try:
            await in_blob_thread(coordinator.blobs.put, name, content)
        except RemovedFolderError as error:
            raise NotReady("their folder was removed: stop the coordinator, and restore a backup") from error
        try:
            if await in_blob_thread(coordinator.blobs.get, name) != content:
                raise NotReady("storage returned different bytes than were stored")
        finally:
            await in_blob_thread(coordinator.blobs.delete, name)

    return {
        "process": process,
        "database": partial(_check_database, coordinator.database),
        "migrations": migrations,
        "blobs": blobs,
        "clock": partial(_check_clock, coordinator.database, now),
    }


async def _check_database(database: Database) -> None:
    if database.damage:
        raise NotReady(
            f"its file is damaged ({database.damage[0]}): stop the coordinator, run `veilsum operator db check`, and restore a backup"
        )

    def probe(connection: Connection) -> None:
        # Deletes nothing, and needs what a change needs: the writer's lock and a commit.
        connection.execute(delete(tokens).where(tokens.c.sha256 == ""))
        # No change is acknowledged without its audit entry.
        undone = connection.begin_nested()
        audit.append_deeds(connection, database, [audit.Deed(0.0, audit.COORDINATOR_ACTOR, "readiness")])
        undone.rollback()

    try:
        await database.write(probe)
    except FileNotFoundError as error:
        raise NotReady(
            "its file was removed or replaced: stop the coordinator, and restore a backup"
        ) from error


async def _check_clock(database: Database, now: Clock) -> None:
    await now.read_clock(database)
    if now.step_s:
        raise NotReady(
            f"the database's clock stepped by {now.step_s:+.0f} s: deadlines stand still until the clock has been steady for "
            f"{CLOCK_STEP_STANDS_S / 60:.0f} minutes. Synchronise it with NTP, or restart the process to accept it now"
        )
    apart_s = now.difference_s
    if abs(apart_s) > CLOCK_DIFFERENCE_MAX_S:
        where = "ahead of" if apart_s > 0 else "behind"
        raise NotReady(
            f"this machine's clock is {abs(apart_s):.0f} s {where} the database's: synchronise both with NTP"
        )
