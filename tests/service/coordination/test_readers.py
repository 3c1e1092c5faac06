"""Permissions: operators and the roster's readers read sums; members, or anyone, read heads, as the study says."""

import pytest

from tests.support.party import FOUR, Party
from tests.support.serving import Server


async def finished(server: Server, party: Party, **roster: object) -> str:
    await party.begin(server)
    if roster:
        party.roster = party.make_roster(party.roster.coordinator, 2, **roster)
        await party.publish_roster(server, party.roster)
        await party.open_cohort(server)
        await party.enrol(server)
    return await party.done(server)


async def status(server: Server, party: Party, member: str, path: str) -> int:
    async with server.signing(member, party.keys[member]) as client:
        return (await client.get(path)).status_code


async def test_readers_read_the_sums_and_nobody_else_does(server: Server, party: Party) -> None:
    path = f"/v1/rounds/{await finished(server, party, readers=('m-1', 'm-2'))}/result/sums"
    assert [await status(server, party, member, path) for member in party.ids[1:4]] == [200, 200, 403]
    async with server.anonymous() as nobody:
        assert (await nobody.get(path)).status_code == 401
    assert (await server.client.get(path)).status_code == 200
    # Whom a newer roster does not list any more reads nothing, not even of rounds before it.
    newer = party.make_roster(party.roster.coordinator, 3, readers=("m-2", "m-3"))
    await party.publish_roster(server, newer)
    assert [await status(server, party, member, path) for member in party.ids[1:4]] == [403, 200, 403]


@pytest.mark.parametrize("readers", ["members", "anyone"])
async def test_a_head_is_for_whom_the_study_names(server: Server, readers: str) -> None:
    party = Party(FOUR, after={"readers": readers})
    path = f"/v1/rounds/{await finished(server, party)}/result/weights"
    assert await status(server, party, "m-3", path) == 200
    assert (await server.client.get(path)).status_code == 200
    async with server.anonymous() as nobody:
        assert (await nobody.get(path)).status_code == (200 if readers == "anyone" else 401)
