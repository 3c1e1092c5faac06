"""Every question that a round can ask: adding one touches this package, and nothing else knows their names.

>>> ask("rff", Wish(64, 10, {"bandwidth": 0.5}))                       # the operator's side, before the round
>>> question("rff", layout).accumulator(lattice, normalise=False)      # a member
>>> question("rff", layout).answer(statistics, summed)                 # the coordinator, from the sum
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from calibration.errors import CalibrationError
from calibration.layout import RESTS_ON
from calibration.questions.base import (
    MATERIAL,
    REFUSED,
    Accumulator,
    Answer,
    Arrays,
    Asked,
    Document,
    Earlier,
    Gathering,
    Question,
    Summed,
    Wish,
    parse,
)
from calibration.questions.centring import MeanOfRecords
from calibration.questions.ffc import FFC, PUBLISHED, FFCBias
from calibration.questions.gaussian import CCVR
from calibration.questions.random_features import RandomFeatureRidge
from calibration.questions.refining import Refinement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from calibration.layout import Layout

QUESTIONS: Mapping[str, type[Question]] = MappingProxyType(
    {
        each.name: each
        for each in (
            FFC,
            FFCBias,
            RandomFeatureRidge,
            CCVR,
            MeanOfRecords,
            Refinement,
        )
    }
)
"""By the terms' `statistic`."""


def kind(statistic: str) -> type[Question]:
    """The question of that name; CalibrationError names those that there are."""
    try:
        return QUESTIONS[statistic]
    except KeyError:
        raise CalibrationError(f"no round asks {statistic!r}; it can ask {', '.join(QUESTIONS)}") from None


def question(
    statistic: str,
    layout: Layout,
    context: bytes = b"",
    material: Mapping[str, NDArray[Any]] | None = None,
) -> Question:
    """What a round's terms ask; CalibrationError for a statistic that is none."""
    return kind(statistic)(layout, context, material or {})


def ask(statistic: str, wish: Wish, earlier: Earlier | None = None) -> Asked:
    """The layout and material of a round.

    Raises:
        CalibrationError: no such question; parameters, or an earlier round, that it does not take or needs.
    """
    asked = kind(statistic)
    known = (*asked.rests_on, *asked.may_rest_on)
    if earlier is None and asked.rests_on:
        raise CalibrationError(
            f"a {statistic} round rests on one of {', '.join(asked.rests_on)}: name one that is done"
        )
    if earlier is not None and earlier.statistic not in known:
        needed = f"on one of {', '.join(known)}" if known else "on none"
        raise CalibrationError(f"a {statistic} round rests {needed}, not on {earlier.statistic}")
    if not (wish.noisy or asked.exact):
        raise CalibrationError(f"a {statistic} round exists under noise alone: ask for noise")
    parameters = parse(asked, wish.parameters)
    return asked.ask(Wish(wish.dim, wish.classes, parameters, wish.noisy), earlier)


__all__ = [
    "MATERIAL",
    "PUBLISHED",
    "QUESTIONS",
    "REFUSED",
    "RESTS_ON",
    "Accumulator",
    "Answer",
    "Arrays",
    "Asked",
    "Document",
    "Earlier",
    "Gathering",
    "Question",
    "Summed",
    "Wish",
    "ask",
    "kind",
    "question",
]
