"""What would be opened, without opening it: the round that comes is the one that was said, and refusals are the same."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from protocol.access import Scope
from protocol.preflight import PreflightView
from service.storage import tables
from tests.service.asking import CLASSES, DIM, EXTRACTOR, Consortium
from tests.service.counting import Counting
from tests.service.declared import client_of
from tests.service.driver import Party
from tests.service.serving import Server

CAUSES = pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"extractor": "00" * 32}, "terms-refused"),
        ({"records_max": 1}, "terms-refused"),
        ({"ring_bits": 8}, "terms-refused"),
        ({"statistic": "no-question"}, "terms-refused"),
        ({"exceptions": ["02"]}, "truncated"),
    ],
)


def request_of(party: Party, **changes: Any) -> dict[str, Any]:
    return {"dim": 4, "classes": 3, "extractor": party.extractor.hex(), "chunk_elements": 8, **changes}


async def kept(server: Server) -> dict[str, int]:
    """Rows of every table but the audit log, which has each request that an operator sends."""
    names = [table for table in tables.metadata.sorted_tables if table.name not in {"audit", "audit_head"}]
    async with server.coordinator.database.reading() as connection:
        return {
            table.name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in names
        }


async def test_what_is_said_beforehand_is_what_is_opened(server: Server, formed: Party) -> None:
    before = await kept(server)
    path = f"/v1/cohorts/{formed.cohort}/rounds"
    answer = await server.client.post(f"{path}/preflight", json=request_of(formed))
    assert answer.status_code == 200, answer.text
    said = PreflightView.model_validate(answer.json())
    assert await kept(server) == before
    assert (await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()["rounds"] == []

    opened = (await server.client.post(path, json=request_of(formed))).json()
    assert said.terms.model_dump(mode="json") == {
        **opened["terms"],
        "latest_end_s": pytest.approx(opened["terms"]["latest_end_s"], abs=5),
    }
    assert (said.cost, said.survivors_min) == (opened["cost"], opened["survivors_min"])
    assert (said.sequence, said.attempt, said.members) == (0, 0, len(opened["members"]))
    assert (said.cohort, said.federation) == (formed.cohort, formed.federation)
    assert (said.counts_first, said.outlook) == (False, None)
    beside = await server.client.post(f"{path}/preflight", json=request_of(formed))
    assert (beside.status_code, beside.json()["cause"]) == (409, "conflict")


@CAUSES
async def test_what_would_be_refused_is_refused_as_it_would_be(
    server: Server, formed: Party, changes: dict[str, Any], cause: str
) -> None:
    path, request = f"/v1/cohorts/{formed.cohort}/rounds", request_of(formed, **changes)
    foreseen = await server.client.post(f"{path}/preflight", json=request)
    assert foreseen.json()["cause"] == cause
    assert foreseen.json() == (await server.client.post(path, json=request)).json()


async def test_it_takes_the_scope_that_opens_rounds(server: Server, formed: Party) -> None:
    made = await server.client.post("/v1/tokens", json={"name": "reads", "scopes": [Scope.READ]})
    path = f"/v1/cohorts/{formed.cohort}/rounds/preflight"
    async with client_of(server.app, {"authorization": f"Bearer {made.json()['secret']}"}) as reader:
        answer = await reader.post(path, json=request_of(formed))
    assert (answer.status_code, answer.json()["cause"]) == (403, "forbidden")


async def test_what_noise_would_leave_of_a_head_is_told(server: Server, tmp_path: Path) -> None:
    consortium = await Consortium(tmp_path, server).begin()
    path = f"/v1/cohorts/{consortium.cohort}/rounds/preflight"
    values: dict[str, Any] = {"dim": DIM, "classes": CLASSES, "extractor": EXTRACTOR.hex()}

    async def outlook(**changes: Any) -> Any:
        answer = await server.client.post(path, json={**values, **changes})
        assert answer.status_code == 200, answer.text
        return answer.json()["outlook"]

    hopeless: dict[str, Any] = {"noise": {"epsilon": 0.5, "insist": True}}
    few = await outlook(**hopeless)
    assert few["verdict"] == "hopeless"
    assert few["worst_loss"] >= few["median_loss"] > 10
    many = await outlook(**hopeless, records_max=1 << 30)
    assert (many["verdict"], many["median_loss"] <= 4) == ("good", True)
    assert await outlook(**hopeless, statistic="mean") is None


async def test_where_counts_are_missing_it_says_so_and_what_would_follow(server: Server) -> None:
    party = Counting(tuple(f"m-{index}" for index in range(6)), classes=5)
    await party.begin(server)
    path = f"/v1/cohorts/{party.cohort}/rounds"

    async def foreseen(**changes: Any) -> PreflightView:
        request = request_of(party, **{"classes": 5, **changes})
        answer = await server.client.post(f"{path}/preflight", json=request)
        assert answer.status_code == 200, answer.text
        return PreflightView.model_validate(answer.json())

    said, count = await foreseen(), await foreseen(statistic="indicator", dim=None)
    assert (said.counts_first, said.terms.indicator, said.terms.withheld) == (True, None, ())
    assert (count.counts_first, count.terms.statistic, count.terms.elements) == (False, "indicator", 5)
    assert (await server.client.post(path, json=request_of(party, classes=5))).status_code == 422
    indicator = await party.count(server)
    counted = await foreseen()
    assert (counted.counts_first, counted.terms.withheld) == (False, (2, 3, 4))
    assert counted.terms.indicator == (await server.view(indicator))["context"]
    assert counted.cost == said.cost
    # What was counted are other classes: they would be counted again.
    assert (await foreseen(classes=4)).counts_first
