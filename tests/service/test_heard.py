"""Who has to certify a round is known to be there, or not, before it opens: by requests that were let in, and by nothing else."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError

from client_sdk import AsyncMember, Identity, Policy
from client_sdk.surroundings import Surroundings
from client_sdk.transport import AsyncDriver
from protocol.identity import SigningKey
from protocol.preflight import DecryptorsView
from protocol.request_signature import Target, sign_request
from service import heard
from service.access.nonces import FORGET_EVERY_S, signer_of
from service.storage.tables import nonces
from tests.service.asking import Consortium
from tests.service.declared import Checking
from tests.service.driver import SIX, Party
from tests.service.serving import Server, running, served
from tests.service.signing import KEYS
from tests.veilsum import cli as commands

ON_BOTH = True
LONG_S = 900.0
"""Longer than a preflight looks back, in which everybody was silent."""


@pytest.fixture
async def silent(server: Server, formed: Party) -> Party:
    """All have enrolled, and were not heard from since."""
    server.clock.ahead_s += LONG_S
    return formed


def request_of(party: Party, **changes: Any) -> dict[str, Any]:
    return {"dim": 4, "classes": 3, "extractor": party.extractor.hex(), "chunk_elements": 8, **changes}


async def shown(server: Server, party: Party, **changes: Any) -> DecryptorsView:
    path = f"/v1/cohorts/{party.cohort}/rounds/preflight"
    answer = await server.client.post(path, json=request_of(party, **changes))
    assert answer.status_code == 200, answer.text
    return DecryptorsView.model_validate(answer.json()["decryptors"])


async def waits(server: Server, party: Party, member: str) -> None:
    """As a member does that waits for a round."""
    async with server.signing(member, KEYS[member]) as client:
        assert (await client.get(f"/v1/cohorts/{party.cohort}")).status_code == 200


def signed(party: Party, who: str, key: SigningKey, created_s: float, **changes: Any) -> dict[str, str]:
    """The headers of a look at the cohort."""
    target = Target("GET", "coordinator", f"/v1/cohorts/{party.cohort}")
    return sign_request(key, who, target, b"", created_s=created_s, nonce=os.urandom(16), **changes)


async def test_a_preflight_names_who_was_not_heard_from(server: Server, formed: Party) -> None:
    everybody = await shown(server, formed)
    assert (everybody.decryptors, everybody.heard, everybody.silent) == (6, 6, ())
    assert everybody.needed == server.coordinator.cohorts[formed.cohort].formed().threshold
    assert everybody.within_s == heard.LOOK_BACK_S == 600
    server.clock.ahead_s += LONG_S
    assert (await shown(server, formed)).silent == SIX
    assert (await shown(server, formed, heard_within_s=2 * LONG_S)).silent == ()
    await waits(server, formed, "m-4")
    await waits(server, formed, "m-1")
    seen = await shown(server, formed)
    assert (seen.heard, seen.silent) == (2, ("m-0", "m-2", "m-3", "m-5"))


async def test_what_is_kept_of_a_signer_whose_nonces_are_forgotten_counts(
    server: Server, silent: Party
) -> None:
    database, forgets = server.coordinator.database, server.app.state.gate._nonces
    async with database.transaction() as connection:  # the database's clock is right, and the test's is ahead
        await connection.execute(update(nonces).values(expires_s=nonces.c.expires_s - LONG_S))
    forgets._looked_s -= FORGET_EVERY_S
    await waits(server, silent, "m-4")
    async with database.reading() as connection:
        rows = select(nonces.c.signer, func.count(), func.max(nonces.c.nonce)).group_by(nonces.c.signer)
        left = {signer: (count, newest) for signer, count, newest in await connection.execute(rows)}
    assert left[signer_of(silent.federation, "m-0")] == (1, "")
    assert (await shown(server, silent)).silent == tuple(each for each in SIX if each != "m-4")
    later = await shown(server, silent, heard_within_s=2 * LONG_S + 60)
    assert later.silent == ()


@pytest.mark.parametrize(
    ("lifetime_s", "ahead_s", "counts_s"),
    [
        (60, 0, 600),  # as the SDK signs: exactly
        (60, 50, 650),  # a clock that is ahead adds what it is
        (60, -50, 550),
        (300, 0, 840),  # and who signs for longer, the difference
        (1, 0, 541),
    ],
)
async def test_how_exact_that_is(
    server: Server, silent: Party, lifetime_s: int, ahead_s: float, counts_s: float
) -> None:
    headers = signed(silent, "m-0", KEYS["m-0"], server.clock() + ahead_s, lifetime_s=lifetime_s)
    async with server.anonymous() as client:
        assert (await client.get(f"/v1/cohorts/{silent.cohort}", headers=headers)).status_code == 200
    before_s = server.clock.ahead_s
    for after_s, there in ((counts_s - 5, True), (counts_s + 5, False)):
        server.clock.ahead_s = before_s + after_s
        assert ("m-0" not in (await shown(server, silent)).silent) == there


async def test_what_proves_no_member_is_answered_as_anybody_and_heard_from_nobody(
    server: Server, silent: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = f"/v1/cohorts/{silent.cohort}", server.clock()
    once = signed(silent, "m-0", KEYS["m-0"], now_s - LONG_S + 30)
    server.clock.ahead_s -= LONG_S
    async with server.anonymous() as client:
        assert (await client.get(path, headers=once)).status_code == 200
        server.clock.ahead_s += LONG_S
        own = signed(silent, "m-0", KEYS["m-0"], now_s)
        bare = await client.get(path)
        nothing = [
            signed(silent, "m-0", KEYS["m-1"], now_s),
            signed(silent, "m-0", KEYS["m-0"], now_s - 200),
            signed(silent, "m-0", KEYS["m-0"], now_s + 200),
            signed(silent, "m-0", KEYS["m-0"], now_s, lifetime_s=301),
            signed(silent, "m-9", KEYS["m-0"], now_s),
            signed(silent, "admin", silent.admin, now_s),
            {**own, "signature": own["signature"].swapcase()},
            {**own, "host": "elsewhere"},
            {"signature-input": "x", "signature": ""},
            once,  # too late, and sent before
        ]
        for headers in nothing:
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.json()) == (200, bare.json()), headers
        assert (await client.get(f"{path}?after=-1", headers=own)).status_code == 200
        with monkeypatch.context() as broken:
            broken.setattr(server.coordinator.database, "transaction", _full)
            assert (await client.get(path, headers=own)).status_code == 200
        assert (await shown(server, silent)).silent == SIX
        missing = await client.get(f"/v1/cohorts/{'0' * 64}", headers=own)
        assert (missing.status_code, missing.json()["cause"]) == (404, "not-found")
        assert (await client.get("/v1/cohorts/none", headers=own)).status_code == 400
        # What holds, counts once.
        assert (await client.get(path, headers=own)).status_code == 200
        assert "m-0" not in (await shown(server, silent)).silent
        server.clock.ahead_s += 100
        assert (await client.get(path, headers=own)).status_code == 200  # again, and still in time
        server.clock.ahead_s += 505
        assert (await shown(server, silent)).silent == SIX
    listed = (await server.client.get("/v1/audit", params={"limit": 1000})).json()["entries"]
    assert not any("GET" in entry["action"] or entry["who"] == "member m-9" for entry in listed)


def _full(*_: object) -> Any:
    raise OperationalError("", {}, Exception("disk full"))


async def test_a_member_of_another_federation_is_nobody_here(server: Server, silent: Party) -> None:
    other = Party(("m-0", "m-1", "m-2"), admin_seed=b"b" * 32)
    other.keys["m-0"] = SigningKey(b"o" * 32)
    await other.found(server)
    headers = signed(silent, "m-0", other.keys["m-0"], server.clock())
    async with server.anonymous() as client:
        assert (await client.get(f"/v1/cohorts/{silent.cohort}", headers=headers)).status_code == 200
    assert (await shown(server, silent)).silent == SIX


async def test_looks_leave_no_entry_in_the_log(server: Server, silent: Party) -> None:
    async def entries() -> int:
        page = (await server.client.get("/v1/audit", params={"limit": 1000})).json()
        return len(page["entries"])

    before = await entries()
    await waits(server, silent, "m-0")
    assert await entries() == before


async def test_a_round_that_asks_for_them_is_opened_where_enough_are_there(
    server: Server, silent: Party
) -> None:
    needed = server.coordinator.cohorts[silent.cohort].formed().threshold
    for member in SIX[1:needed]:
        await waits(server, silent, member)
    path = f"/v1/cohorts/{silent.cohort}/rounds"
    request = request_of(silent, heard_within_s=120)
    refused = await server.client.post(path, json=request)
    assert (refused.status_code, refused.json()["cause"]) == (422, "terms-refused")
    absent = ", ".join(("m-0", *SIX[needed:]))
    assert refused.json()["detail"] == (
        f"{needed - 1} of 6 decryptors heard from within 120 s, {needed} needed; not: {absent}: "
        "start their `veilsum member join`, or leave heard_within_s out"
    )
    assert (await server.client.post(f"{path}/preflight", json=request)).json() == refused.json()
    assert (await server.client.get(f"/v1/cohorts/{silent.cohort}")).json()["rounds"] == []
    # Without it, it is told and not held against the round.
    assert (await shown(server, silent)).heard == needed - 1
    await waits(server, silent, "m-0")
    assert (await shown(server, silent, heard_within_s=120)).heard == needed
    opened = await server.client.post(path, json=request)
    assert opened.status_code == 201, opened.text
    view = await silent.play(server, opened.json()["round"])
    assert view["state"] == "done"


async def test_who_is_silent_keeps_no_round_from_opening_that_does_not_ask(
    server: Server, silent: Party
) -> None:
    assert (await shown(server, silent)).heard == 0
    assert (await silent.try_round(server)).status_code == 201


async def test_a_member_of_the_sdk_that_waits_is_heard_from(server: Server, tmp_path: Path) -> None:
    consortium = await Consortium(tmp_path, server).begin()
    server.clock.ahead_s += LONG_S
    path = f"/v1/cohorts/{consortium.cohort}/rounds/preflight"
    request = {"dim": 4, "classes": 3, "extractor": (b"e" * 32).hex()}

    async def silent() -> list[str]:
        found: list[str] = (await server.client.post(path, json=request)).json()["decryptors"]["silent"]
        return found

    assert await silent() == list(consortium.ids)
    driver = AsyncDriver("http://coordinator", transport=httpx.ASGITransport(Checking(server.app)))
    async with AsyncMember(
        "http://coordinator",
        Identity.load(tmp_path / "m-2"),
        None,
        Policy(admin_key=consortium.admin.public),
        surroundings=Surroundings(now_s=server.clock),
        driver=driver,
    ) as member:
        seen = await member.cohort(consortium.cohort)
        assert (seen.state, seen.rounds) == ("formed", ())
        assert await silent() == ["m-0", "m-1", "m-3"]
        waiting = asyncio.create_task(member.cohort(consortium.cohort, seen.version))
        opened = await consortium.open_round()
        assert (await waiting).rounds == (opened,)


async def test_a_join_that_waits_is_heard_from_again_and_again(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    del stores
    for name in [name for name in os.environ if name.startswith("VEILSUM_")]:
        monkeypatch.delenv(name)
    token = commands.TOKEN
    async with (
        running(tmp_path / "data", operator_token=token, max_wait_s=1.0) as server,
        served(server) as url,
    ):
        cli = commands.Cli(tmp_path, url)
        c = await asyncio.to_thread(commands.Consortium, cli)
        everybody = {signer_of(c.admin, member) for member in c.members}
        joining = [c.join(member) for member in c.members]
        await asyncio.to_thread(c.formed)
        database = server.coordinator.database
        # More often than enrolling asks.
        for _ in range(4):
            async with database.transaction() as connection:
                await connection.execute(delete(nonces))
            async with asyncio.timeout(120):
                heard_from = set[str]()
                while heard_from != everybody:
                    await asyncio.sleep(0.05)
                    async with database.reading() as connection:
                        heard_from = set((await connection.execute(select(nonces.c.signer))).scalars())
        terms = ("--dim", commands.DIM, "--classes", commands.CLASSES, "--extractor", commands.EXTRACTOR)
        opening = cli.at("operator", "round", "open", c.cohort, *terms, "--grace-s", 0.05, "--token", token)
        said = await asyncio.to_thread(cli, *opening, "--dry-run")
        assert "3 of 3 decryptors heard from within 600 s, 2 needed\n" in said.out
        opened = await asyncio.to_thread(cli, *opening, "--heard-within", 60)
        assert opened.code == 0, opened
        ended = [await asyncio.wrap_future(each) for each in joining]
        assert [each.code for each in ended] == [0] * 3, ended
        async with database.transaction() as connection:
            await connection.execute(delete(nonces))
        said = await asyncio.to_thread(cli, *opening, "--dry-run")
        assert "0 of 3 decryptors heard from within 600 s, 2 needed; not: m0, m1, m2\n" in said.out
        assert "it would be opened\n" in said.out
        for more in (("--dry-run",), (), ("--json",)):
            refused = await asyncio.to_thread(cli, *opening, "--heard-within", 90, *more)
            assert refused.code == 1
            assert (
                "terms-refused: 0 of 3 decryptors heard from within 90 s, 2 needed; not: m0, m1, m2: "
                "start their `veilsum member join`, or leave --heard-within out"
            ) in (refused.values["error"] if "--json" in more else refused.error)
