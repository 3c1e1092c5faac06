"""Who is charged for a request."""

import pytest

from service.http.callers import Limits
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol import rest


async def test_time_and_bodies_are_charged_to_the_caller_and_a_probe_s_to_nobody(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: Limits = server.app.state.limits
    billed = record_calls(monkeypatch, limits, "account_for", lambda caller, _: caller.role)
    bodies = record_calls(monkeypatch, limits, "under_way", lambda caller, _, size: (caller.role, size))
    async with server.anonymous() as nobody, server.signing("m-0", formed.keys["m-0"]) as member:
        assert (await nobody.get(rest.HEALTH_PATH)).status_code == 200
        assert billed == []
        assert (await nobody.get(rest.COORDINATOR_PATH)).status_code == 200
        assert (await member.get(f"/v1/cohorts/{formed.cohort}")).status_code == 200
        assert (await nobody.get("/v1/tokens")).status_code == 401
        card = await member.put(f"/v1/cohorts/{formed.cohort}/cards/m-0", content=b"xyz")
        assert refusal(card) == (400, "unknown-version")
    assert billed == ["anybody", "member", "anybody", "member"]
    assert bodies == [("anybody", 0), ("member", 0), ("member", 3)]
