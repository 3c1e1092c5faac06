"""Ends without a result: VOID, sums that never come or disagree, and what the admin closes."""

import hashlib

from protocol.helpers.helper import Standing
from protocol.helpers.messages import HelperLost, HelperSums, HelperVote
from protocol.messages import Message
from tests.service.helping.driver import HelperParty
from tests.service.serving import OCTETS, Server


async def test_too_few_uploads_end_void(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    party.down = party.ids[9:]
    view = await party.play(server, round_id)
    assert (view["state"], view["fault"]["cause"]) == ("voided", "survivors-too-few")
    assert (await server.client.get(f"/v1/rounds/{round_id}/result")).json()["cause"] == "wrong-phase"
    assert (await server.client.get(f"/v1/rounds/{round_id}/requests/c-00")).status_code == 204
    await party.hear(server, round_id)
    assert all(isinstance(phase, Standing) and len(phase.history) == 1 for phase in party.phases.values())
    await server.tidy(round_id)
    assert server.coordinator.blobs.names("uploads") == ()


async def test_a_cancelled_round_is_void(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    cancelled = await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "a test"})
    assert cancelled.json()["state"] == "voiding"
    view = await party.play(server, round_id)
    assert (view["state"], view["fault"]["detail"]) == ("voided", "a test")
    again = await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "a test"})
    assert again.json()["cause"] == "wrong-phase"


async def test_a_certified_set_without_sums_has_failed_and_counts_as_opened(
    server: Server, party: HelperParty
) -> None:
    round_id = await party.begin(server)
    await party.play(server, round_id, "summing")
    party.down = party.helpers[:3]
    view = await party.play(server, round_id)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "quorum-lost")
    assert len(view["survivors"]) == 30
    party.down = ()
    await party.hear(server, round_id)
    assert all(isinstance(p, Standing) and len(p.opened()) == 1 for p in party.phases.values())


async def test_two_holders_that_disagree_end_the_round(server: Server, party: HelperParty) -> None:
    def lie(sender: str, message: Message) -> Message:
        if sender != "h-1" or not isinstance(message, HelperSums):
            return message
        attempt = server.coordinator.rounds[round_id].attempt
        zero = hashlib.sha256(bytes(attempt.ring.packed_bytes(attempt.chunk_elements(0)))).digest()
        digests = ((zero, *message.digests[0][1:]), *message.digests[1:])
        return HelperSums.make(
            party.keys["h-1"],
            context=message.context,
            member="h-1",
            outcome=message.outcome,
            digests=digests,
        )

    party.tamper, party.down = lie, ("h-3",)
    round_id = await party.begin(server)
    view = await party.play(server, round_id)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "helper-disagreement")
    assert view["fault"]["parties"] == ["h-1", "h-2"]


async def test_the_admin_closes_what_helpers_cannot(server: Server, party: HelperParty) -> None:
    """Two signed the set and the two others are gone for good: neither the set nor VOID can be certified."""
    round_id = await party.begin(server)
    await party.play(server, round_id, "freezing")
    party.down = party.helpers[2:]
    view = await party.play(server, round_id)
    assert (view["state"], view["deadline_s"]) == ("freezing", None)
    refused = await party.try_round(server)
    assert refused.json()["cause"] == "conflict"
    assert "veilsum round lost" in refused.json()["detail"]
    attempt = server.coordinator.rounds[round_id].attempt
    forged = HelperLost.make(
        party.keys["h-0"], context=attempt.context, family="exact", floor=attempt.manifest.floor, sets=()
    )
    posted = await server.client.post(
        f"/v1/rounds/{round_id}/lost", content=forged.to_bytes(), headers=OCTETS
    )
    assert posted.json()["cause"] == "bad-signature"
    closed = await party.lost(server, round_id)
    assert closed.status_code == 200, closed.text
    view = await server.until(round_id)
    assert (view["state"], view["ended"]) == ("abandoned", True)
    # What was signed counts as opened, for those who were away too.
    party.down = ()
    await party.hear(server, round_id)
    assert all(isinstance(p, Standing) and len(p.opened()) == 1 for p in party.phases.values())
    await party.enrol(server)
    following = await party.open_round(server)
    assert (await party.play(server, following))["state"] == "done"


async def test_a_vote_for_the_set_bars_its_helper_from_void(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    await party.play(server, round_id, "freezing")
    party.down = party.helpers[1:]
    await party.serve(server, round_id, "h-0")
    cancelled = await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "a test"})
    assert (cancelled.json()["state"], cancelled.json()["waiting_for"]) == ("voiding", ["h-1", "h-2", "h-3"])
    view = await party.play(server, round_id)
    assert (view["state"], view["deadline_s"]) == ("voiding", None)
    # The admin's word must hold the set that h-0 signed, though the phase that showed it is over.
    unsigned = HelperLost.from_bytes((await server.client.get(f"/v1/rounds/{round_id}/reports")).content)
    assert [len(opened.survivors) for opened in unsigned.sets] == [30]
    party.down = ()
    for helper in party.helpers[1:]:
        await party.serve(server, round_id, helper)
    assert (await server.until(round_id))["state"] == "voided"
    vote = party.phases["h-1"].outbox()
    assert vote == () or isinstance(vote[0], HelperVote)
