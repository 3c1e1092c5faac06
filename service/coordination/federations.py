"""Published documents of federations: rosters, studies, and the chain of attempts. They never change."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from sqlalchemy import Connection, Select, String, bindparam, delete, func, select

from service.coordination.cache import Recent
from service.http.metering import in_thread
from service.http.problems import not_found, storage_damaged
from service.storage.database import Database
from service.storage.faults import DamagedRowError, check_named
from service.storage.tables import cohorts, events, links, lost_contexts, rosters, rounds, studies, sums
from veilsum.protocol.attempt import check_study
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import HEX32_PATTERN, ROUND_PATTERN
from veilsum.protocol.messages import Chain, Link, Lost, Roster, Study
from veilsum.protocol.rest import FederationView, StudyView, round_name
from veilsum.protocol.study import DAY_S, ROUND_LIFETIME_MAX_S, Content, read_content, study_fault
from veilsum.protocol.tags import Tag, hash_fields

MAX_NUMBER = 1 << 48
"""Highest number of a roster: JSON readers keep integers up to 2⁵³."""
LINK_CACHE_MAX = 1 << 18
"""How many links of all chains are cached, decoded."""
ROSTER_CACHE_BYTES = 16 << 20
"""Stored bytes of the rosters that are cached. Parsed, they take seven times as much; one of 10,000 members has 400 KB and parses in 0.1 s."""
_ROSTER_OVERHEAD_BYTES = 2048
"""What a cached roster counts beyond its bytes."""
_FEDERATION_PARAMETER = bindparam("federation", type_=String())
_NEWEST_SQL = select(func.max(rosters.c.number)).where(rosters.c.federation == _FEDERATION_PARAMETER)
_VERSION_SQL = select(
    _NEWEST_SQL.scalar_subquery(),
    *(
        select(func.count())
        .select_from(table)
        .where(table.c.federation == _FEDERATION_PARAMETER)
        .scalar_subquery()
        for table in (cohorts, rounds, links, studies)
    ),
    # A study that was damaged may have been published again.
    select(func.max(studies.c.published_s))
    .where(studies.c.federation == _FEDERATION_PARAMETER)
    .scalar_subquery(),
)
_LINKS_SQL = (
    select(links.c.body)
    .where(links.c.federation == _FEDERATION_PARAMETER, links.c.position >= bindparam("known"))
    .order_by(links.c.position)
)


UNKNOWN_FEDERATION = "federation: compare the admin's key, which is its id, or publish its roster first"


def _parse_roster(federation: str, number: int, body: bytes) -> Roster:
    roster = Roster.from_bytes(body)
    roster.verify_admin(bytes.fromhex(federation))
    check_named(str(number), str(roster.number))
    return roster


def _is_study(name: str, body: bytes, keys: Collection[bytes]) -> bool:
    """Whether these are the bytes of this study, signed with one of the keys."""
    try:
        study = Study.from_bytes(body)
        return study.hash.hex() == name and any(has_signed(key, study) for key in keys)
    except PeerFault:
        return False


def names_of(roster: Roster) -> tuple[str, ...]:
    """Return a roster's members' ids, in order."""
    return tuple(entry.member for entry in roster.members)


class Federations:
    """All federations of one coordinator, whose public key every roster must name."""

    def __init__(self, database: Database, coordinator: bytes) -> None:
        self._database, self._coordinator = database, coordinator
        # Rosters that cohorts and rounds hold are shared, too.
        self._parsed = WeakValueDictionary[tuple[str, int], Roster]()
        self._used = Recent[tuple[str, int], Roster](ROSTER_CACHE_BYTES)
        self._locks = WeakValueDictionary[tuple[str, int], asyncio.Lock]()
        self._links = Recent[str, tuple[Link, ...]](LINK_CACHE_MAX)

    # Rosters

    async def put_roster(self, federation: str, roster: Roster) -> bool:
        """Store a roster, and return whether it is new. It replaces a stored one of its number that can't be read.

        Raises:
            PeerFault: wrong-federation, bad-signature; malformed if it names another coordinator's key, or a number above `MAX_NUMBER`;
                roster-rollback, or conflict with a stored one.
        """
        await in_thread(roster.verify_admin, bytes.fromhex(federation))
        if roster.coordinator != self._coordinator:
            raise PeerFault(
                Cause.MALFORMED,
                f"the roster names another coordinator's key; this one's is {self._coordinator.hex()}",
            )
        body, number = await in_thread(roster.to_bytes), roster.number
        if number > MAX_NUMBER:
            raise PeerFault(Cause.MALFORMED, f"roster {number}: the highest number is {MAX_NUMBER}")

        def store(connection: Connection) -> bool:
            self._database.lock_alone(connection, "rosters")
            own = rosters.c.federation == federation
            connection.execute(delete(rosters).where(own, rosters.c.body == body, rosters.c.number != number))
            newest = connection.execute(
                select(rosters.c.number, rosters.c.body).where(own).order_by(rosters.c.number.desc()).limit(1)
            ).one_or_none()
            if newest is not None and newest.body == body:
                return False
            if newest is not None and not self._is_lost_roster(connection, federation, number):
                if number < newest.number:
                    detail = f"roster {newest.number} is published; roster {number} is older"
                    raise PeerFault(Cause.ROSTER_ROLLBACK, detail)
                if number == newest.number:
                    detail = f"another roster is published under number {number}: raise the number"
                    raise PeerFault(Cause.CONFLICT, detail)
            row = {"federation": federation, "number": number, "body": body}
            self._database.put_row(connection, rosters, row)
            return True

        return await self._database.write(store)

    def _is_lost_roster(self, connection: Connection, federation: str, number: int) -> bool:
        """Whether this number was published, and what is stored of it can't be read."""
        own = rosters.c.federation == federation, rosters.c.number == number
        body = connection.execute(select(rosters.c.body).where(*own)).scalar_one_or_none()
        if body is None:
            used = cohorts.c.federation == federation, cohorts.c.roster_number == number
            return connection.execute(select(cohorts.c.id).where(*used).limit(1)).first() is not None
        try:
            _parse_roster(federation, number, body)
        except Exception:  # noqa: BLE001 - a damaged row fails anywhere
            return True
        return False

    async def check_known(self, federation: str) -> None:
        """Refuse a federation that no operator has created (unauthorised): any key could claim to be one."""
        query = select(rosters.c.number).where(rosters.c.federation == federation).limit(1)
        if await self._database.read_row(query) is None:
            raise PeerFault(
                Cause.UNAUTHORISED,
                "the coordinator does not know this federation: publish its first roster with an operator's token",
            )

    async def read_roster(self, federation: str, number: int | None = None) -> Roster:
        """Return the newest roster, or the one with this number. Raises PeerFault(not-found)."""
        if number is None:
            number = await self._database.read_value(_NEWEST_SQL.params(federation=federation))
        if number is None:
            raise not_found(UNKNOWN_FEDERATION)
        key = federation, number
        async with self._locks.setdefault(key, asyncio.Lock()):  # concurrent callers wait for the first
            found = self._parsed.get(key)
            if found is None:
                body = await self.roster_body(*key)
                with self._database.quarantine.quarantine_errors(
                    f"roster {number} of federation {federation}"
                ):
                    found = await in_thread(_parse_roster, federation, number, body)
                self._parsed[key] = found
                self._used.put_value(key, found, len(body) + _ROSTER_OVERHEAD_BYTES)
            else:
                self._used.get_value(key)
            return found

    async def roster_body(self, federation: str, number: int | None = None) -> bytes:
        """Return a roster's bytes, those of the newest without a number. Raises PeerFault(not-found)."""
        query = select(rosters.c.body).where(rosters.c.federation == federation)
        if number is not None:
            query = query.where(rosters.c.number == number)
        body: bytes | None = await self._database.read_value(query.order_by(rosters.c.number.desc()).limit(1))
        if body is None:
            raise not_found(UNKNOWN_FEDERATION)
        return body

    async def published_roster(self, federation: str) -> bytes:
        """Return the newest roster's bytes as the admin signed them. Raises PeerFault: not-found, storage-damaged."""
        roster = await self.read_roster(federation)
        body = await self.roster_body(federation, roster.number)
        with self._database.quarantine.quarantine_errors(
            f"roster {roster.number} of federation {federation}"
        ):
            check_named(roster.hash.hex(), (await in_thread(hash_fields, Tag.ROSTER, body)).hex())
        return body

    async def read_version(self, federation: str) -> tuple[float, ...]:
        """Return a version that changes with each published document of a federation. Raises PeerFault(not-found)."""
        [version] = await self._database.read_rows(_VERSION_SQL.params(federation=federation))
        if version[0] is None:
            raise not_found(UNKNOWN_FEDERATION)
        return tuple(version)

    async def list_ids(self) -> list[str]:
        """Return the ids of all federations, in order."""
        return sorted(await self._database.read_values(select(rosters.c.federation).distinct()))

    async def federation_view(self, federation: str) -> FederationView:
        roster = await self.read_roster(federation)
        own_cohorts = select(cohorts.c.id).where(cohorts.c.federation == federation)
        own_rounds = select(rounds.c.id).where(rounds.c.federation == federation)
        return FederationView(
            federation=federation,
            name=roster.name,
            roster=roster.number,
            members=names_of(roster),
            cohorts=await self._read_ids(own_cohorts.order_by(cohorts.c.counter), HEX32_PATTERN),
            rounds=await self._read_ids(own_rounds.order_by(rounds.c.number), ROUND_PATTERN),
        )

    async def _read_ids(self, query: Select[tuple[str]], pattern: str) -> tuple[str, ...]:
        """Read ids, less those that are damaged."""
        return tuple(each for each in await self._database.read_values(query) if re.fullmatch(pattern, each))

    # Studies

    async def put_study(self, federation: str, study: Study, now_s: float) -> bool:
        """Store a study, and return whether it is new. It replaces a stored one that can't be read.

        Raises:
            PeerFault: not-found; wrong-federation, bad-signature; study-refused if it breaks a rule, was revoked, has expired,
                expires too late, or rolls back its name.
        """
        roster = await self.read_roster(federation)
        content = await in_thread(check_study, roster, study)
        notes = content.notes
        refuse_expired(content, now_s)
        if notes.expires > now_s + ROUND_LIFETIME_MAX_S:
            raise study_fault(
                f"study {notes.name} expires more than {ROUND_LIFETIME_MAX_S // DAY_S} days ahead: sign it with an earlier date"
            )
        row = {
            "federation": federation,
            "hash": study.hash.hex(),
            "name": notes.name,
            "version": notes.version,
            "body": study.to_bytes(),
            "published_s": now_s,
        }
        own = studies.c.federation == federation
        known = select(studies.c.body, studies.c.name, studies.c.version).where(
            own, studies.c.hash == row["hash"]
        )
        same_version = select(studies.c.hash, studies.c.body).where(
            own, studies.c.name == notes.name, studies.c.version == notes.version
        )

        keys = [key async for key in self._list_study_keys(federation)]

        def store(connection: Connection) -> bool:
            self._database.lock_alone(connection, "studies")
            body, name, version = connection.execute(known).one_or_none() or (None, "", 0)
            used = cohorts.c.federation == federation, cohorts.c.study == row["hash"]
            if body is not None and not _is_study(study.hash.hex(), body, keys):
                self._database.put_row(connection, studies, row)
                return True
            if body is not None:
                if body != row["body"]:
                    raise study_fault(
                        f"version {notes.version} of {notes.name} is published with an earlier key's signature: "
                        f"sign it as version {notes.version + 1}"
                    )
                if (name, version) != (notes.name, notes.version):
                    self._database.put_row(connection, studies, row)
                return False
            for other in connection.execute(same_version).all():
                if not _is_study(other.hash, other.body, keys):  # it has lost its hash
                    connection.execute(delete(studies).where(own, studies.c.hash == other.hash))
            newest = _newest_study(connection, federation, notes.name)
            lost = connection.execute(select(cohorts.c.id).where(*used).limit(1)).first() is not None
            if not lost and newest is not None and newest[0] >= notes.version:
                which = "another study" if newest[0] == notes.version else "a later version"
                raise study_fault(
                    f"version {notes.version} of {notes.name}: {which} is published under version {newest[0]}; "
                    f"sign it as version {newest[0] + 1}"
                )
            self._database.add_row(connection, studies, row)
            self._database.announce_change(connection, federation)
            return True

        return await self._database.write(store)

    async def study_bodies(self, federation: str) -> Sequence[bytes]:
        """Return the bytes of all published studies."""
        return await self._database.read_values(
            select(studies.c.body).where(studies.c.federation == federation)
        )

    async def read_study(self, federation: str, study: str) -> Study:
        """Return a study. Raises PeerFault: not-found, storage-damaged."""
        query = select(studies.c.body).where(studies.c.federation == federation, studies.c.hash == study)
        body = await self._database.read_value(query)
        if body is None:
            raise not_found("study in this federation: publish it first")
        with self._database.quarantine.quarantine_errors(f"study {study} of federation {federation}"):
            found = Study.from_bytes(body)
            check_named(study, found.hash.hex())
            async for key in self._list_study_keys(federation):
                if has_signed(key, found):
                    return found
            raise storage_damaged("no roster names the key of its signature")

    async def _list_study_keys(self, federation: str) -> AsyncIterator[bytes]:
        """Yield the study keys of the federation's rosters, the newest first, less those that can't be read."""
        yield (await self.read_roster(federation)).study_key
        numbers = select(rosters.c.number).where(rosters.c.federation == federation)
        for number in await self._database.read_values(numbers.order_by(rosters.c.number.desc()).offset(1)):
            with suppress(DamagedRowError):
                yield (await self.read_roster(federation, number)).study_key

    async def check_current(self, roster: Roster, study: Study, now_s: float) -> Content:
        """Refuse a study that members would refuse: revoked, expired, signed by an earlier study key, or superseded by a published version."""
        try:
            content = await in_thread(check_study, roster, study)
        except PeerFault as fault:
            if fault.cause is not Cause.BAD_SIGNATURE:  # it was good when the study was published
                raise
            raise study_fault(
                f"roster {roster.number} names another study key than the one that signed this study: sign and publish it as a new version"
            ) from fault
        refuse_expired(content, now_s)
        newest = await self._database.read(
            lambda connection: _newest_study(connection, roster.federation.hex(), content.notes.name)
        )
        if newest is not None and newest[0] > content.notes.version:
            raise study_fault(
                f"version {newest[0]} of {content.notes.name} is published: open the cohort for that one, {newest[1]}"
            )
        return content

    async def study_views(self, federation: str) -> tuple[StudyView, ...]:
        """Return the public views of the published studies that can be read, oldest first. Raises PeerFault(not-found) for an unknown federation."""
        roster = await self.read_roster(federation)
        query = select(studies.c.hash, studies.c.body).where(studies.c.federation == federation)
        rows = await self._database.read_rows(
            query.order_by(studies.c.published_s, studies.c.name, studies.c.version)
        )

        def read() -> Iterator[StudyView]:
            for name, body in rows:
                with self._database.quarantine.skip_errors(f"study {name} of federation {federation}"):
                    yield _study_view(Study.from_bytes(body), roster)

        return await in_thread(lambda: tuple(read()))

    # Chains

    async def read_links(self, federation: str) -> tuple[Link, ...]:
        """Return the chain, a link for each closed attempt, oldest first. Only new links are read."""
        known = self._links.get_value(federation) or ()
        if new := await self._stored_links(federation, len(known)):
            with self._database.quarantine.quarantine_errors(f"chain of federation {federation}"):
                decoded = await in_thread(lambda: [Link.from_bytes(body) for body in new])
            known = (*known, *decoded)
            self._links.put_value(federation, known, len(known) + 1)
        return known

    async def chain_bytes(self, federation: str) -> bytes:
        """Return the Chain message without decoding it: links are stored in their wire format."""
        stored = await self._stored_links(federation)
        beginning = Chain(bytes.fromhex(federation), ()).to_bytes()[:-4]
        return b"".join((beginning, len(stored).to_bytes(4, "little"), *stored))

    async def _stored_links(self, federation: str, known: int = 0) -> Sequence[bytes]:
        return await self._database.read_values(_LINKS_SQL.params(federation=federation, known=known))

    # Attempts that this coordinator does not know

    async def put_lost(self, federation: str, lost: Lost, *, unreadable: bool = False) -> None:
        """Store the admin's Lost of an attempt that this coordinator does not know, so that its context is never opened.

        A live round that is `unreadable` is deleted: from then on the coordinator does not know it either.

        Storing it again changes nothing but a damaged row. Only members can check its latest end: they hold the opening.

        Raises:
            PeerFault: not-found, bad-signature; conflict if this coordinator knows the attempt.
        """
        await self.roster_body(federation)  # not-found for a stranger
        await in_thread(lost.verify, bytes.fromhex(federation), "admin")
        name = round_name(lost.context)
        row = {"federation": federation, "context": lost.context.hex(), "body": lost.to_bytes()}

        def store(connection: Connection) -> None:
            self._database.lock_alone(connection, lost_contexts.name)
            if unreadable:
                live = rounds.c.id == name, rounds.c.federation == federation, rounds.c.final.is_(None)
                connection.execute(delete(rounds).where(*live))
            if connection.execute(select(rounds.c.id).where(rounds.c.id == name)).first() is not None:
                raise PeerFault(Cause.CONFLICT, f"this coordinator knows round {name}: close it by that id")
            self._database.put_row(connection, lost_contexts, row)
            for table in (events, sums):
                connection.execute(delete(table).where(table.c.round == name))
            self._database.announce_change(connection, federation)

        await self._database.write(store)

    async def read_lost(self, federation: str, context: str) -> bytes | None:
        """Return the Lost of an attempt that this coordinator does not know; None if its admin has closed none."""
        query = select(lost_contexts.c.body)
        query = query.where(lost_contexts.c.federation == federation, lost_contexts.c.context == context)
        found: bytes | None = await self._database.read_value(query)
        if found is not None:
            with self._database.quarantine.quarantine_errors(
                f"Lost of context {context} in federation {federation}"
            ):
                await in_thread(check_lost, found, federation, context)
        return found


def has_signed(key: bytes, study: Study) -> bool:
    """Whether a study's signature is by this key."""
    with suppress(PeerFault):
        study.verify(key, "admin")
        return True
    return False


def check_lost(body: bytes, federation: str, context: str) -> None:
    """Refuse a stored Lost that is not the admin's, or of another context."""
    lost = Lost.from_bytes(body)
    check_named(context, lost.context.hex())
    lost.verify(bytes.fromhex(federation), "admin")


def refuse_expired(content: Content, now_s: float) -> None:
    """Raise PeerFault(study-refused) for a study that has expired."""
    if now_s >= content.notes.expires:
        raise study_fault(
            f"version {content.notes.version} of study {content.notes.name} has expired: "
            "sign and publish a new version with a later date"
        )


def _newest_study(connection: Connection, federation: str, name: str) -> tuple[int, str] | None:
    """Return the highest version of a study's name, and its hash."""
    query = select(studies.c.version, studies.c.hash).where(
        studies.c.federation == federation, studies.c.name == name
    )
    row = connection.execute(query.order_by(studies.c.version.desc()).limit(1)).one_or_none()
    return None if row is None else (row.version, row.hash)


def _study_view(study: Study, roster: Roster) -> StudyView:
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
