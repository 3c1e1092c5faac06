"""Parties that may be blamed when an attempt ends under an honest coordinator, and what its transcript must show."""

from collections.abc import Collection

import numpy as np

from tests.support.simulator import Federation, Outcome, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Ended, Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.replay import COORDINATOR_PARTY, replay_transcript

DISPUTES = {Cause.EDGE_DISAGREEMENT, Cause.BOX_REFUSED}
"""Causes that name two parties. One is false, and nobody can tell which."""
ABSENCE = {Cause.QUORUM_LOST, Cause.SURVIVORS_TOO_FEW, Cause.COUNT_MISMATCH}
"""Causes that name members that didn't answer, which is not a wrong."""


def check_end(
    federation: Federation,
    outcome: Outcome,
    liars: Collection[str],
    tampered: Collection[str] = (),
    late: Collection[str] = (),
) -> str:
    """Check that the sum is exact or the end clean; return a description of the end.

    Args:
        federation: its state after the attempt.
        outcome: how it ended.
        liars: members that may be blamed for anything.
        tampered: members whose messages were changed in transit: refusing such a message names its sender.
        late: members whose message of an earlier attempt arrived in this one. It is refused to its sender, who did nothing wrong.

    Raises:
        AssertionError: if the sum is wrong, an end has no fault, or an honest party is blamed.
    """
    phase = of(Ended, outcome.phase)
    check_named(outcome.fault, {*liars, *tampered})
    for who, fault in outcome.faults:
        if who == "coordinator":
            check_named(fault, {*liars, *tampered, *(late if fault.cause == Cause.WRONG_CONTEXT else ())})
    if isinstance(phase, Recovered):
        assert outcome.total is not None
        assert outcome.fault is None
        assert set(phase.evicted) <= set(liars), f"{phase.evicted} were evicted"
        assert phase.summed_members == tuple(m for m in outcome.survivors if m not in phase.evicted)
        exact = np.sum([federation.vectors_now[member] for member in phase.summed_members], axis=0)
        assert np.array_equal(outcome.total, exact), f"the sum over {phase.summed_members} is not exact"
        ending = f"recovered{' after evictions' if phase.evicted else ''}"
    else:
        assert outcome.total is None
        assert outcome.fault is not None, f"an attempt ended {phase.name} without a fault"
        ending = f"{phase.name}: {outcome.fault.cause.value}"
    check_transcript(federation, liars, tampered)
    return ending


def check_named(fault: PeerFault | None, liars: Collection[str]) -> None:
    """Check that a fault names only liars, both sides of a dispute, or silent members."""
    if fault and fault.cause not in DISPUTES | ABSENCE:
        strangers = set(fault.parties) - {*liars, "operator"}
        assert not strangers, f"{fault} names {sorted(strangers)}"


def check_transcript(federation: Federation, liars: Collection[str], tampered: Collection[str] = ()) -> None:
    """Check that replaying the transcript finds liars and disputes, and nothing else.

    A decryptor refuses a proposal that was changed in transit, which is a dispute with the coordinator.
    """
    verdict = replay_transcript(federation.transcript, federation.roster.federation)
    for finding in verdict.findings:
        named = set(finding.parties)
        if COORDINATOR_PARTY in named and finding.is_dispute:
            assert named & {*liars, *tampered}, f"an honest decryptor refused what it was shown: {finding}"
        elif finding.is_dispute:
            assert named & set(liars), f"a dispute among honest members: {finding}"
        else:
            assert named <= set(liars), f"the transcript names {finding}"
