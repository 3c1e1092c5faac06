"""What the audit log says of a request: whose it was, what it named, and how it ended."""

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service.access.recording import outcome_of
from tests.support.clients import Signing, client_of
from tests.support.party import Party
from tests.support.serving import Server
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

LONGEST = "f" * 64


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PeerFault(Cause.CLOCK_SKEW, "x"), "clock-skew"),
        (RequestValidationError([]), "malformed-request"),
        (HTTPException(404), "malformed-request"),
        (ZeroDivisionError(), "unavailable"),
    ],
)
def test_a_failure_is_recorded_by_its_cause(error: Exception, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize("ahead_s", [-30.0, 30.0])
async def test_a_member_s_request_is_a_sign_of_life_of_its_signature_s_time_but_of_no_later_one(
    server: Server, formed: Party, ahead_s: float
) -> None:
    last_heard = server.coordinator.last_heard
    server.clock.ahead_s += 900.0
    auth = Signing(lambda: server.clock() + ahead_s, "m-0", formed.keys["m-0"])
    async with client_of(server.app, {}, auth) as member, server.anonymous() as nobody:
        for client in (member, nobody):
            assert (await client.get(f"/v1/cohorts/{formed.cohort}")).status_code == 200
    heard_s = await last_heard.read_times(formed.federation, ["m-0"])
    assert heard_s["m-0"] == pytest.approx(server.clock() + min(ahead_s, 0.0), abs=10.0)


async def test_an_entry_names_the_caller_s_federation_and_what_the_path_and_the_answer_name(
    server: Server, formed: Party
) -> None:
    before = (await server.audited()).head.number
    card, revoking = f"/v1/cohorts/{formed.cohort}/cards/m-0", "/v1/tokens/{}/revoke"
    assert (await server.client.put(card, content=b"x")).status_code == 400
    assert (await server.anonymous().put(card, content=b"x")).status_code == 401
    for name in (LONGEST, LONGEST, LONGEST.upper() + "x"):
        assert (await server.client.post(revoking.format(name))).status_code == 400
    token = {"name": "x", "scopes": ["sums"]}
    made = [await server.client.post("/v1/tokens", json=token) for _ in range(2)]
    assert [each.status_code for each in made] == [201, 201]
    entries = (await server.audited(after=before)).entries
    assert [(each.who, each.on, each.outcome) for each in entries] == [
        ("member m-0", f"federation={formed.federation} cohort={formed.cohort} member=m-0", "truncated"),
        ("operator configured", f"token={LONGEST}", "malformed-request"),
        ("operator configured", f"token={LONGEST.upper()}", "malformed-request"),
        *(("operator configured", f"token={each.json()['token']}", "done") for each in made),
    ]
