"""Who may be named for the end of an attempt under an honest coordinator, and how its transcript must read."""

from collections.abc import Collection

import numpy as np

from tests.support.simulator import Federation, Outcome, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Ended, Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.replay import COORDINATOR, replay

DISPUTES = {Cause.EDGE_DISAGREEMENT, Cause.BOX_REFUSED}
"""One of two is false: nobody can tell which."""
ABSENCE = {Cause.QUORUM_LOST, Cause.SURVIVORS_TOO_FEW, Cause.INDICATOR_MISMATCH}
"""Names who did not answer, which loses no one their name."""


def check_end(
    federation: Federation,
    outcome: Outcome,
    liars: Collection[str],
    tampered: Collection[str] = (),
    late: Collection[str] = (),
) -> str:
    """The sum is exact, or the end is clean; in words, how it ended.

    Args:
        federation: after the attempt.
        outcome: how it ended.
        liars: who may be named for anything.
        tampered: whose messages were changed on their way: refusing one names its sender.
        late: whose message of an earlier attempt came in this one: it is refused to its sender, who did nothing wrong.

    Raises:
        AssertionError: another sum, an end without a fault, or an honest party that is named as false.
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
        assert phase.summed == tuple(m for m in outcome.survivors if m not in phase.evicted)
        exact = np.sum([federation.vectors_now[member] for member in phase.summed], axis=0)
        assert np.array_equal(outcome.total, exact), f"the sum over {phase.summed} is not exact"
        ending = f"recovered{' after evictions' if phase.evicted else ''}"
    else:
        assert outcome.total is None
        assert outcome.fault is not None, f"an attempt ended {phase.name} without a fault"
        ending = f"{phase.name}: {outcome.fault.cause.value}"
    check_transcript(federation, liars, tampered)
    return ending


def check_named(fault: PeerFault | None, liars: Collection[str]) -> None:
    """A fault names liars, or both sides of a dispute, or who was silent."""
    if fault and fault.cause not in DISPUTES | ABSENCE:
        strangers = set(fault.parties) - {*liars, "operator"}
        assert not strangers, f"{fault} names {sorted(strangers)}"


def check_transcript(federation: Federation, liars: Collection[str], tampered: Collection[str] = ()) -> None:
    """Whoever replays the transcript finds liars and disputes, and nothing else.

    A decryptor that was shown a proposal that was changed on its way refuses it, and disputes with the coordinator.
    """
    verdict = replay(federation.transcript, federation.roster.federation)
    for finding in verdict.findings:
        named = set(finding.parties)
        if COORDINATOR in named and finding.dispute:
            assert named & {*liars, *tampered}, f"an honest decryptor refused what it was shown: {finding}"
        elif finding.dispute:
            assert named & set(liars), f"a dispute among honest members: {finding}"
        else:
            assert named <= set(liars), f"the transcript names {finding}"
