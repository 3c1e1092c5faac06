"""Whom the indicator round proved false it has not counted: the main round goes on without that dealer alone (protocol §9)."""

from typing import Any

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Recovered, Voided
from protocol.messages import Terms
from protocol.simulator import Federation, Vector, untampered
from tests.protocol.forging import false_dealers, other_secrets
from tests.protocol.transcripts import verdict

CLASSES = 4
FALSE = "member-0"


def evicting(**changes: Any) -> Federation:
    """Eight members (a = 2, g = 5, m = 6 with a margin of 1) after an indicator round that evicted the first of them."""
    federation = Federation(8, withhold=True, lineage=b"the same", **changes)
    false_dealers(federation, {FALSE: other_secrets})
    holding: dict[str, Vector] = {member: np.ones(CLASSES, np.int64) for member in federation.ids}
    federation.run_round(holding, federation.terms(CLASSES, statistic="indicator"))
    assert isinstance(federation.phase, Recovered)
    assert federation.phase.evicted == (FALSE,)
    federation.tamper = untampered
    federation.disclose()
    return federation


def main_terms(federation: Federation, **changes: Any) -> Terms:
    values = {"indicator": federation.phase.attempt.context, "margin": 1, "evicted": (FALSE,), **changes}
    return federation.terms(8, **values)


def test_a_dealer_evicted_from_the_indicator_round_is_left_out_of_the_main_one_alone() -> None:
    federation = evicting()
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.faults == ()
    assert outcome.survivors == federation.ids[1:]
    vectors = federation.vectors(8)
    np.testing.assert_array_equal(outcome.total, sum(vectors[member] for member in federation.ids[1:]))
    found = verdict(federation)
    assert (found.findings, found.kept) == ((), True)


def test_who_was_evicted_takes_nothing_of_the_margin() -> None:
    federation = evicting()
    outcome = federation.run_round(terms=main_terms(federation, margin=0))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[1:]


def test_a_coordinator_that_does_not_name_the_evicted_gets_no_signature() -> None:
    federation = evicting()
    outcome = federation.run_round(terms=main_terms(federation, evicted=()))
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.INDICATOR_MISMATCH


@pytest.mark.parametrize("evicted", [("member-0", "member-3"), ("member-3",)], ids="+".join)
def test_nobody_who_was_counted_can_be_named_evicted(evicted: tuple[str, ...]) -> None:
    federation = evicting()
    outcome = federation.run_round(terms=main_terms(federation, evicted=evicted))
    assert outcome.total is None
    said = "the terms name member-3 evicted, whom the indicator round counted"
    refused = {
        who
        for who, fault in outcome.faults
        if fault.detail == said and fault.cause is Cause.INDICATOR_MISMATCH
    }
    assert refused == set(federation.ids)
    assert federation.spool == {}
