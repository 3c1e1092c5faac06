"""A coordinator keeps open objects in memory; ended ones are loaded on request."""

from pathlib import Path

from tests.service.conftest import done
from tests.support.party import Party
from tests.support.serving import Server, again


def asked(party: Party, round_id: str) -> list[str]:
    """Return all public views of a round, its cohort and its federation."""
    round_, federation = f"/v1/rounds/{round_id}", f"/v1/federations/{party.federation}"
    own = [
        round_,
        f"{round_}/opening",
        f"{round_}/requests/m-0",
        f"{round_}/transcript",
        f"{round_}/result",
        f"{round_}/result/weights",
    ]
    return [
        *own,
        f"/v1/cohorts/{party.cohort}",
        federation,
        f"{federation}/chain",
        f"{federation}/studies",
        f"/federations/{party.federation}",
    ]


async def test_a_start_takes_up_what_is_open_and_the_rest_is_found(
    server: Server, formed: Party, finished: str, tmp_path: Path
) -> None:
    party, first, second = formed, finished, await done(server, formed)
    assert server.coordinator.catalogue.open_objects() == []
    live = await party.open_round(server)
    seen = {path: (await server.client.get(path)).text for path in asked(party, first)}
    async with again(server, tmp_path / "again") as server:
        assert list(server.coordinator.catalogue.rounds.snapshot()) == [live]
        assert [thing.id for thing in server.coordinator.catalogue.open_objects()] == [party.cohort, live]
        metrics = (await server.client.get("/metrics")).text
        assert 'veilsum_rounds{state="done"} 2.0' in metrics
        assert 'veilsum_rounds{state="collecting"} 1.0' in metrics
        page = (await server.client.get("/")).text
        assert page.index(live) < page.index(second) < page.index(first)
        assert list(server.coordinator.catalogue.rounds.snapshot()) == [live], "none of these loads a round"
        for path, text in seen.items():
            assert (await server.client.get(path)).text == text, path
        await party.play_until(server, live, "checking")
