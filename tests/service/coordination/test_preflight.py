"""The preflight shows the round that would be opened, without opening it, and gives the same refusals."""

import pytest
from sqlalchemy import func, select

from service.storage import tables
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol.rest import PreflightView


async def kept(server: Server) -> dict[str, int]:
    """Return the rows of every table except the audit log, which has all of an operator's requests."""
    names = [table for table in tables.metadata.sorted_tables if table.name not in {"audit", "audit_head"}]
    return {
        table.name: await server.coordinator.database.read_value(select(func.count()).select_from(table))
        for table in names
    }


async def test_what_is_said_beforehand_is_what_is_opened(server: Server, formed: Party) -> None:
    await server.coordinator.last_heard.write_notes()  # of members' requests so far
    before = await kept(server)
    path = f"/v1/cohorts/{formed.cohort}/rounds"
    answer = await server.client.post(f"{path}/preflight", json={})
    assert answer.status_code == 200, answer.text
    said = PreflightView.model_validate(answer.json())
    assert await kept(server) == before
    assert (await server.cohort(formed.cohort))["rounds"] == []

    opened = (await server.client.post(path, json={})).json()
    assert said.spec.model_dump(mode="json") == {
        **opened["spec"],
        "latest_end_s": pytest.approx(opened["spec"]["latest_end_s"], abs=5),
    }
    assert (said.cost, said.survivors_min) == (opened["cost"], opened["survivors_min"])
    assert (said.sequence, said.attempt, said.members) == (0, 0, len(opened["members"]))
    assert (said.cohort, said.federation) == (formed.cohort, formed.federation)
    assert refusal(await server.client.post(f"{path}/preflight", json={})) == (409, "conflict")


async def test_what_would_be_refused_is_refused_as_it_would_be(server: Server, formed: Party) -> None:
    path, request = f"/v1/cohorts/{formed.cohort}/rounds", {"lifetime_s": 1}
    foreseen = await server.client.post(f"{path}/preflight", json=request)
    assert foreseen.json()["cause"] == "terms-refused"
    assert foreseen.json() == (await server.client.post(path, json=request)).json()
