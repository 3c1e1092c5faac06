"""A round's journal, when other processes write to it too."""

import json

import pytest

from service.coordination.journal import Event, Journal, RoundEnd, read_view
from service.storage import audit
from service.storage.faults import sealed
from tests.support.party import Party
from tests.support.serving import Server
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Erasure

pytestmark = pytest.mark.both_stores


async def test_a_process_ends_no_round_over_events_that_it_has_not_seen(
    server: Server, formed: Party
) -> None:
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    round_ = server.coordinator.catalogue.rounds[round_id]
    late = Journal(server.coordinator.database, server.coordinator.blobs, round_id)
    _, seen = await late.unseen()
    late.seen = len(seen)
    await formed.serve(server, round_id, "m-1")
    deed = audit.Deed(1.0, audit.COORDINATOR, "round ended")
    end = RoundEnd(round_.view(), Erasure(round_.attempt.context, ()), None)
    assert await late.end(end, b"link", deed) is None
    ended, unseen = await late.unseen()
    assert ended is None
    assert [json.loads(each.body) for each in unseen if each.kind == "chunk"] == [
        ["m-1", index] for index in range(len(formed.chunks["m-1"]))
    ]
    assert not await late.append([Event(1.0, "cancel", b"over them")])
    assert (await formed.play(server, round_id))["state"] == "done"
    assert not await late.append([Event(1.0, "cancel", b"after the end")])


async def test_the_view_of_another_round_is_damage(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    view = server.coordinator.catalogue.rounds[round_id].view()
    stored = sealed(view.model_dump_json())
    assert read_view(round_id, stored) == view
    with pytest.raises(PeerFault, match=f"holds {round_id}"):
        read_view("0" * 16, stored)
