"""Two of six decryptors come after the proposal, and two who were prompt fall silent (protocol §4.5)."""

from pathlib import Path

from tests.service.pages.gallery import browser, words
from tests.support.party import Party
from tests.support.serving import Server, running
from tests.support.simulator import After
from veilsum.protocol.messages import Deliveries, Freeze, Message, parse


async def asked(server: Server, round_id: str, member: str) -> Message:
    answer = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
    assert answer.status_code == 200, answer.text
    return parse(answer.content)


async def test_they_sign_and_reveal_and_a_restart_between_changes_nothing(
    tmp_path: Path, party: Party
) -> None:
    prompt, late = party.ids[:4], party.ids[4:]
    async with running(tmp_path / "data") as server:
        await party.begin(server)
        round_id = await party.open_round(server)
        party.drop = dict.fromkeys(late, After.UPLOAD)
        await party.play_until(server, round_id, "freezing")
        party.drop = dict.fromkeys(prompt[:2], After.RECEIPT)
        assert isinstance(await asked(server, round_id, late[0]), Deliveries)
        async with browser(server) as visitor:
            page = words((await visitor.get(f"/rounds/{round_id}")).text)
        assert "m-0 4/4 done waiting later" in page
        assert "m-4 4/4 waiting waiting later" in page
        assert await party.serve(server, round_id, late[0])
        round_ = server.coordinator.rounds[round_id]
        assert round_.asked == round_.version  # it is asked anew: no poll of its waits for calm
    async with running(tmp_path / "data") as again:
        assert (await again.view(round_id))["waiting_for"] == list(party.ids)
        assert isinstance(await asked(again, round_id, late[0]), Freeze)
        assert isinstance(await asked(again, round_id, late[1]), Deliveries)
        view = await party.play(again, round_id)
        assert (view["state"], view["survivors"]) == ("done", list(party.ids))
        await party.check_result(again, round_id)
