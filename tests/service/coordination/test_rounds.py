from typing import Any

import pytest

from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol.rest import STATE_HEADER

"""Vectors that `test_sums.py` lacks: with a constant, with random features, and with several statistics."""
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ffc with a constant": ({"constant": True}, {"publish": ["lda", "ncm", "pooled", "posterior"]}),
    "random features": ({"statistics": [{"kind": "random-features", "size": 8, "bandwidth": 1.0}]}, {}),
    "both": ({"statistics": [{"kind": "ffc"}, {"kind": "random-features", "size": 8, "bandwidth": 1.0}]}, {}),
}


@pytest.mark.parametrize("name", STUDIES)
async def test_a_whole_round_publishes_the_plain_sum(server: Server, name: str) -> None:
    question, after = STUDIES[name]
    party = Party(FOUR, question=question, after=after)
    round_id = await party.begun(server)
    view = await party.play(server, round_id)
    assert (view["state"], view["survivors"]) == ("done", list(party.ids))
    assert list(view["phase_seconds"]) == ["collecting", "checking", "freezing", "revealing", "recovered"]
    record = await party.check_result(server, round_id)
    kinds = [each["kind"] for each in question.get("statistics", [{"kind": "ffc"}])]
    assert [each["name"] for each in record["documents"]] == sorted([*kinds[1:], *after.get("publish", [])])
    assert (record["name"], record["period"], record["step"]) == ("study", "period-0", "sum")
    assert party.heard() == set(party.ids)


async def test_a_voided_attempt_names_its_cause_and_is_followed_by_the_next_attempt(
    server: Server, formed: Party
) -> None:
    round_id = await formed.open_round(server)
    for member in formed.ids[:-1]:
        await formed.serve(server, round_id, member)
    cancelled = await server.cancel(round_id, "wrong data")
    assert (cancelled.json()["state"], cancelled.json()["ended"]) == ("voiding", False)
    view = await formed.play(server, round_id)
    assert (view["state"], view["survivors"]) == ("voided", [])
    assert (view["fault"]["cause"], view["fault"]["detail"]) == ("cancelled", "wrong data")
    assert (await server.client.get(f"/v1/rounds/{round_id}/result")).status_code == 409
    following = await formed.open_round(server)
    assert [(await server.view(following))[k] for k in ("sequence", "attempt")] == ["1", 0]
    assert (await formed.play(server, following))["state"] == "done"
    await formed.check_result(server, following)
    assert refusal(await formed.try_round(server)) == (409, "already-summed")


async def test_an_answer_after_the_end_changes_nothing(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    view = await formed.play(server, round_id)
    phase = formed.phases["m-0"]
    reveals = phase.messages_to_resend()
    for reveal in reveals:
        late = await server.client.post(f"/v1/rounds/{round_id}/answers", content=reveal.to_bytes())
        assert (late.status_code, late.headers[STATE_HEADER]) == (200, "done")
        assert late.json() == (await server.client.get(f"/v1/rounds/{round_id}/result")).json()
    assert await server.view(round_id) == view
    upload = await server.client.get(f"/v1/rounds/{round_id}/uploads/m-0")
    assert upload.json() == {"member": "m-0", "chunks": len(formed.chunks["m-0"]), "missing": []}
