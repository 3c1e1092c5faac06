"""A coordinator whose storage lost a member's announcement gets it again from that member's client."""

import pytest

from client_sdk.result import Result
from service.coordination.cache import ObjectCache
from tests.support.consortium import Consortium


@pytest.mark.parametrize("part", ["chunks", "answers"])
def test_members_finish_a_round_whose_coordinator_has_lost_an_announcement(
    consortium: Consortium, part: str
) -> None:
    """Each of them was cut off after its first such request; then the coordinator starts again."""
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    consortium.together(consortium.contributions(round_id), vanish=dict.fromkeys(consortium.ids, part))
    blobs, catalogue = (
        consortium.stage.server.coordinator.blobs,
        consortium.stage.server.coordinator.catalogue,
    )
    folder = f"events/{round_id}"
    names = blobs.list_names(folder)
    assert len(names) == len(consortium.ids)
    blobs.delete(f"{folder}/{names[0]}")
    catalogue.cohorts, catalogue.rounds = ObjectCache(), ObjectCache()  # as a process that starts
    results = consortium.together(consortium.contributions(round_id), consortium.leading_on(cohort))
    assert {type(each) for each in results.values()} == {Result}, results
    assert blobs.list_names(folder) == ()
