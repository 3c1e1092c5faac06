"""A coordinator that lets a cohort wait, and later goes on as if the rounds of the other had never been: the history holds."""

from pathlib import Path
from typing import Any

from client_sdk import Result
from client_sdk.errors import PeerFault
from client_sdk.store import Store
from protocol.causes import Cause
from protocol.coordinator import Recovered
from tests.client_sdk.counting import Counting
from tests.client_sdk.federation import Federation


def known(federation: Federation) -> set[Any]:
    """Every member's ledger."""
    stores = (Store(federation.folder / member) for member in federation.ids)
    return {store.history() for store in stores}


def causes(results: dict[str, Any]) -> set[Any]:
    return {result.cause if isinstance(result, PeerFault) else type(result) for result in results.values()}


def test_what_an_indicator_round_was_made_of_is_shown_late(tmp_path: Path) -> None:
    counting = Counting(tmp_path, 8)
    coordinator = counting.coordinator
    first, second = counting.enrol(), counting.enrol()
    waiting = coordinator.open_indicator(first)
    disclosed = coordinator.shown
    coordinator.shown = {}
    solve = coordinator._solve

    def silent(entry: Any, phase: Recovered) -> None:
        solve(entry, phase)
        disclosed[waiting] = coordinator.shown.pop(waiting)

    coordinator._solve = silent  # type: ignore[method-assign]
    assert causes(counting.together(counting.contributions(waiting))) == {Cause.WRONG_PHASE}
    coordinator._solve = solve  # type: ignore[method-assign]
    links, history = coordinator.links, coordinator.history

    indicator = coordinator.open_indicator(second)
    counting.together(counting.contributions(indicator))
    everybody = coordinator.open_main(second, indicator, margin=1)
    assert causes(counting.together(counting.contributions(everybody))) == {Result}
    (before,) = {(each.head, each.length, each.settled) for each in known(counting)}

    # The sum of all but one, under a history without the sum of all: their difference is one member's vector.
    coordinator.shown[waiting] = disclosed[waiting]
    coordinator.links, coordinator.history = links, history
    coordinator.cohorts[first].place = (1, 0)
    without = coordinator.open_main(first, waiting, margin=1)
    results = counting.together(counting.contributions(without, counting.ids[:7]))
    assert causes(results) == {Cause.CHAIN_BROKEN}
    assert {(each.head, each.length, each.settled) for each in known(counting)} == {before}
    counting.close()
