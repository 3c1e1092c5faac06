"""A round of SDK clients and SDK helpers over the real coordinator; processes that die at every effect."""

import asyncio
from typing import Any

import numpy as np
import pytest

from client_sdk.client_result import ClientResult
from client_sdk.conversations import Conversations
from protocol.helpers.messages import HelperKind
from tests.client_sdk.helping.driver import People
from tests.service.helping.driver import HelperParty
from tests.service.serving import Server


async def helping(people: People, helper: str) -> int:
    return await people.run(helper, people.process(helper).serve(1))


async def opened(server: Server, party: HelperParty, cards: int = 4) -> str:
    """Open a round once the helpers' cards are in."""
    while len((await server.client.get(party.desk)).json()["cards"]) < cards:  # noqa: ASYNC110 - the server tells by polls alone
        await asyncio.sleep(0.02)
    return await party.open_round(server)


async def test_a_round_of_clients_and_helpers(server: Server, party: HelperParty, people: People) -> None:
    people.adopt(*party.ids, *party.helpers)
    await party.found(server)
    helpers = [asyncio.create_task(helping(people, helper)) for helper in party.helpers]
    round_id = await opened(server, party)
    for client in party.ids:
        speaking = people.process(client).speak(round_id, party.statistics(client), "main")
        acknowledged = await people.run(client, speaking)
        assert (acknowledged.whole, acknowledged.helpers) == (True, party.helpers)
        people.close(client)
    assert await asyncio.gather(*helpers) == [1, 1, 1, 1]
    assert (await server.until(round_id))["state"] == "done"
    record = await party.check_result(server, round_id)
    for client in party.ids[:2]:
        result = await people.run(client, people.process(client).outcome(round_id))
        assert (result.counted.count, result.record) == (12, record)
        folder = people.folder / f"copy of {client}"
        result.save(folder)
        loaded = ClientResult.load(folder)
        loaded.verify(party.admin.public)
        np.testing.assert_array_equal(loaded.weights, result.weights)
        assert (loaded.bias, repr(loaded)) == (None, f"<ClientResult of round {round_id}, one of 12 counted>")
        # Known already: nobody is asked.
        again = await people.run(client, people.process(client).outcome(round_id), 0)
        assert again.record == record
        people.close(client)


@pytest.mark.parametrize("before", [False, True])
async def test_a_client_that_dies_at_every_effect_uploads_the_same_bytes(
    server: Server, party: HelperParty, people: People, *, before: bool
) -> None:
    people.adopt("c-00")
    round_id = await party.begin(server)
    acknowledged = await people.crashing(
        "c-00",
        lambda process: process.speak(round_id, party.statistics("c-00"), "main"),
        before=before,
    )
    assert acknowledged.whole
    assert [len(bodies) for (member, _), bodies in people.sent.items() if member == "c-00"] == [1, 1, 1]
    # Once more, when everything is in: nothing changes.
    again = await people.run("c-00", people.process("c-00").speak(round_id, None, "main"))
    assert again == acknowledged
    for client in party.ids[1:]:
        await party.speak(server, round_id, client)
    assert (await party.play(server, round_id))["state"] == "done"
    result = await people.crashing("c-00", lambda process: process.outcome(round_id), before=before)
    assert result.counted.survivor.member == "c-00"
    late = await people.run("c-00", people.process("c-00").speak(round_id, None, "main"))
    assert not late.whole


def left(process: Conversations) -> int:
    """Attempts that a helper has still to see the end of."""
    phase = process.session.store.helper()
    standing: Any = getattr(phase, "standing", phase)
    return 1 - len(standing.history) if phase is not None else 1


@pytest.mark.parametrize("before", [False, True])
async def test_a_helper_that_dies_at_every_effect_says_everything_once(
    server: Server, party: HelperParty, people: People, *, before: bool
) -> None:
    people.adopt("h-0", "h-1")
    party.down = ("h-0", "h-1", "h-2")
    await party.found(server)
    dying = asyncio.create_task(
        people.crashing("h-0", lambda process: process.serve(left(process)), before=before)
    )
    living = asyncio.create_task(helping(people, "h-1"))
    await party.enrol(server)  # h-3
    round_id = await opened(server, party, 3)
    for client in party.ids:
        await party.speak(server, round_id, client)
    while not (await server.view(round_id))["ended"]:
        await party.serve(server, round_id, "h-3")
        await asyncio.sleep(0.02)
    assert await living == 1
    assert await dying == 1
    assert (await server.view(round_id))["state"] == "done"
    await party.check_result(server, round_id)
    said = {kind: len(bodies) for (member, kind), bodies in people.sent.items() if member == "h-0"}
    assert said[f"answer {HelperKind.RECEIPT.value}"] == said[f"answer {HelperKind.VOTE.value}"] == 1
    assert set(said.values()) == {1}
    # What it holds between attempts is no secret of the last one.
    phase = people.process("h-0").session.store.helper()
    assert phase is not None
    assert not people.open["h-0"].session.store.sums_spool().exists
