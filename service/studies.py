"""The studies that a federation has published: every version of each, and which of them may be used."""

import asyncio

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from service.federations import Federations
from service.problems import not_found
from service.storage.database import Database
from service.storage.tables import studies
from veilsum.protocol.attempt import check_study
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Roster, Study
from veilsum.protocol.rest import StudyView
from veilsum.protocol.study import DAY_S, LIFETIME_MAX_S, Content, read_content, refused


class Studies:
    """All studies of one coordinator.

    Args:
        database: their rows.
        federations: whose rosters name the study key.
    """

    def __init__(self, database: Database, federations: Federations) -> None:
        self._database, self._federations = database, federations

    async def put(self, federation: str, study: Study, now_s: float) -> bool:
        """Store a study; whether it is new.

        Raises:
            PeerFault: not-found; wrong-federation, bad-signature; study-refused where it breaks a rule, was revoked, has expired,
                expires too late, or rolls back its name.
        """
        roster = await self._federations.roster(federation)
        content = await asyncio.to_thread(check_study, roster, study)
        notes = content.notes
        refuse_expired(content, now_s)
        if notes.expires > now_s + LIFETIME_MAX_S:
            raise refused(
                f"study {notes.name} expires more than {LIFETIME_MAX_S // DAY_S} days ahead: sign it with an earlier date"
            )
        row = {
            "federation": federation,
            "hash": study.hash.hex(),
            "name": notes.name,
            "version": notes.version,
            "body": study.to_bytes(),
            "published_s": now_s,
        }
        async with self._database.transaction() as connection:
            await self._database.alone(connection, "studies")
            known = select(studies.c.body).where(
                studies.c.federation == federation, studies.c.hash == row["hash"]
            )
            if (body := (await connection.execute(known)).scalar_one_or_none()) is not None:
                if body != row["body"]:
                    raise refused(
                        f"version {notes.version} of {notes.name} is published with an earlier key's signature: "
                        f"sign it as version {notes.version + 1}"
                    )
                return False
            newest = await _newest(connection, federation, notes.name)
            if newest is not None and newest[0] >= notes.version:
                which = "another study" if newest[0] == notes.version else "a later version"
                raise refused(
                    f"version {notes.version} of {notes.name}: {which} is published under version {newest[0]}; "
                    f"sign it as version {newest[0] + 1}"
                )
            await self._database.add(connection, studies, row)
            await self._database.announce(connection, federation)
        return True

    async def body(self, federation: str, study: str) -> bytes:
        """A study's bytes; PeerFault(not-found)."""
        query = select(studies.c.body).where(studies.c.federation == federation, studies.c.hash == study)
        async with self._database.reading() as connection:
            found: bytes | None = (await connection.execute(query)).scalar_one_or_none()
        if found is None:
            raise not_found("study in this federation: publish it first")
        return found

    async def study(self, federation: str, study: str) -> Study:
        """A study; PeerFault(not-found)."""
        return Study.from_bytes(await self.body(federation, study))

    async def check_current(self, roster: Roster, study: Study, now_s: float) -> Content:
        """Refuse a study that members would refuse: revoked, expired, or superseded by a published version.

        Raises:
            PeerFault: study-refused.
        """
        content = await asyncio.to_thread(check_study, roster, study)
        refuse_expired(content, now_s)
        async with self._database.reading() as connection:
            newest = await _newest(connection, roster.federation.hex(), content.notes.name)
        if newest is not None and newest[0] > content.notes.version:
            raise refused(
                f"version {newest[0]} of {content.notes.name} is published: open the cohort for that one, {newest[1]}"
            )
        return content

    async def views(self, federation: str) -> tuple[StudyView, ...]:
        """What anybody may see, in the order of publication; PeerFault(not-found) where there is no such federation."""
        roster = await self._federations.newest(federation)
        query = select(studies.c.body).where(studies.c.federation == federation)
        async with self._database.reading() as connection:
            ordered = query.order_by(studies.c.published_s, studies.c.name, studies.c.version)
            bodies = (await connection.execute(ordered)).scalars().all()
        return await asyncio.to_thread(
            lambda: tuple(_view(Study.from_bytes(body), roster) for body in bodies)
        )


def refuse_expired(content: Content, now_s: float) -> None:
    """PeerFault(study-refused) for a study that has expired."""
    if now_s >= content.notes.expires:
        raise refused(
            f"version {content.notes.version} of study {content.notes.name} has expired: "
            "sign and publish a new version with a later date"
        )


async def _newest(connection: AsyncConnection, federation: str, name: str) -> tuple[int, str] | None:
    """Highest version of a name, and its hash."""
    query = select(studies.c.version, studies.c.hash).where(
        studies.c.federation == federation, studies.c.name == name
    )
    row = (await connection.execute(query.order_by(studies.c.version.desc()).limit(1))).one_or_none()
    return None if row is None else (row.version, row.hash)


def _view(study: Study, roster: Roster) -> StudyView:
    content = read_content(study.content)
    try:
        study.verify(roster.study_key, "admin")
        revoked = study.hash in roster.revoked
    except PeerFault:
        revoked = True
    return StudyView(
        study=study.hash.hex(),
        name=content.notes.name,
        version=content.notes.version,
        question=content.question.digest.hex(),
        approval=content.approval.hex(),
        expires_s=content.notes.expires,
        revoked=revoked,
    )
