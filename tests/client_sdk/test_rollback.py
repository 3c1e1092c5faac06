"""A coordinator that lets a cohort wait, and later goes on as if the rounds of the other had never been: the history holds."""

from pathlib import Path
from typing import Any

from client_sdk import Result
from client_sdk.errors import PeerFault
from client_sdk.store import Store
from tests.support.federation import WITHHOLDING, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered

QUESTION = {**WITHHOLDING, "withhold": {"margin": 1}, "members_min": 6}


def known(federation: Federation) -> set[Any]:
    """Every member's ledger."""
    stores = (Store(federation.folder / member) for member in federation.ids)
    return {store.ledger.history() for store in stores}


def causes(results: dict[str, Any]) -> set[Any]:
    return {result.cause if isinstance(result, PeerFault) else type(result) for result in results.values()}


def test_what_an_indicator_was_made_of_is_shown_late(tmp_path: Path) -> None:
    federation = Federation(tmp_path, 8, question=QUESTION)
    coordinator = federation.coordinator
    first, second = federation.enrol(), federation.enrol()
    waiting = coordinator.open_round(first)
    disclosed: dict[str, bytes] = {}
    solve = coordinator._solve

    def silent(entry: Any, phase: Recovered) -> None:
        solve(entry, phase)
        disclosed[waiting], entry.disclosure = entry.disclosure, b""

    coordinator._solve = silent  # type: ignore[method-assign]
    assert causes(federation.together(federation.contributions(waiting))) == {Cause.WRONG_PHASE}
    coordinator._solve = solve  # type: ignore[method-assign]
    links = coordinator.links

    # Everybody is shown the counts late, and the sum of all is made in another cohort.
    coordinator.rounds[waiting].disclosure = disclosed[waiting]
    federation.together(federation.contributions(waiting), stuck=lambda: False)
    everybody = coordinator.open_round(second)
    assert causes(federation.together(federation.contributions(everybody))) == {Result}
    (before,) = {(each.head, each.length, each.settled) for each in known(federation)}

    # The sum of all but one, under a history without the sum of all: their difference is one member's vector.
    coordinator.links = links
    coordinator.cohorts[first].place = (1, 0)
    without = coordinator.open_round(first, step="sum")
    results = federation.together(federation.contributions(without, federation.ids[:7]))
    assert causes(results) == {Cause.OUTCOME_MISSING}
    assert {(each.head, each.length, each.settled) for each in known(federation)} == {before}
