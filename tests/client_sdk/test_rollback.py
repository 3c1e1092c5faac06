"""A coordinator leaves one cohort waiting, and later ignores the rounds of another. Members' histories prevent this."""

from pathlib import Path
from typing import Any

from client_sdk import Result
from client_sdk.errors import PeerFault
from client_sdk.store import Store
from tests.support.answers import refused
from tests.support.consortium import WITHHOLDING, Consortium, hostile, unchanged
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause

QUESTION = {**WITHHOLDING, "withhold": {"margin": 1}, "members_min": 5}


def known(consortium: Consortium) -> set[Any]:
    """Return every member's ledger."""
    stores = (Store(consortium.folder / member) for member in consortium.ids)
    return {store.ledger.load_history() for store in stores}


def causes(results: dict[str, Any]) -> set[Any]:
    return {result.cause if isinstance(result, PeerFault) else type(result) for result in results.values()}


def test_what_a_count_was_made_of_is_shown_late(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, 5, question=QUESTION)
    first, second = consortium.enrol(), consortium.enrol()
    waiting = consortium.open_round(first)
    consortium.shows("GET .*/disclosure/.*", refused(Cause.WRONG_PHASE))
    assert causes(consortium.together(consortium.contributions(waiting))) == {Cause.WRONG_PHASE}
    consortium.on_answer = unchanged
    links = consortium.links()

    # All members are shown the counts late, and the sum is made in another cohort.
    consortium.together(consortium.contributions(waiting), stuck=lambda: False)
    everybody = consortium.open_round(second)
    assert causes(consortium.together(consortium.contributions(everybody))) == {Result}
    (before,) = {(each.head, each.length, each.settled) for each in known(consortium)}

    # The sum of all but one, under a history without the sum of all: their difference is one member's vector.
    with hostile(consortium, links=links, over=()):
        without = consortium.open_round(first)
    results = consortium.together(consortium.contributions(without, consortium.ids[:4]))
    assert causes(results) == {Cause.OUTCOME_MISSING}
    assert {(each.head, each.length, each.settled) for each in known(consortium)} == {before}
