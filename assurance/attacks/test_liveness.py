"""Attempts of a coordinator or of absent members to make a run lose something, and how they fail (wire: Uploads, wire: Ends)."""

from dataclasses import replace

import numpy as np

from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Failed, Freezing, Recovered
from veilsum.protocol.messages import Freeze, Refusal, Vote


def test_counts_of_too_few_members_are_not_signed() -> None:
    """n_min = 4 members would suffice for a sum. With m = 5 their counts publish no class, and the counts would be final."""
    federation = Federation(5, margin=1)
    federation.reach(Freezing)
    request = of(Freeze, federation.phase.request_for("member-4"))
    _, (reply,) = federation.ask("member-4", replace(request, headers=request.headers[1:]))
    assert isinstance(reply, Refusal)
    assert reply.cause == "survivors-too-few"
    _, (reply,) = federation.ask("member-4", request)
    assert isinstance(reply, Vote)


def test_what_was_certified_and_not_revealed_is_summed_again_to_the_last_bit() -> None:
    """Three of seven decryptors vanish between vote and reveal. Without the admin, the same members give the same sum again."""
    federation = Federation(7, drop=dict.fromkeys(range(3), After.VOTE))
    vectors = federation.vectors("sum")
    failed = federation.run_round(vectors)
    assert isinstance(failed.phase, Failed)
    federation.drop = {}
    federation.tell_ending()
    federation.enrol("period-0", failed.phase.attempt.context)
    repeated = federation.run_round(vectors)
    assert isinstance(repeated.phase, Recovered)
    assert repeated.survivors == federation.ids
    assert repeated.total is not None
    assert (repeated.total == np.sum([*vectors.values()], axis=0)).all()
