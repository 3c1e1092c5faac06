"""Questions answered from one's own records in one process: the operator's part, a member's and the coordinator's in turn.

>>> ffc = alone("ffc", Wish(64, 10), [(features, labels)])
>>> alone("rff", Wish(64, 10), [(features, labels)], earlier=ffc.earlier).answer.head
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibration.errors import CalibrationError
from calibration.lattice import SumsLattice
from calibration.questions import ask, kind, question
from calibration.questions.base import Answer, Earlier, Question, Summed, Wish

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from calibration.rows import Array

_CONTEXT = b"veilsum calibration alone".ljust(32, b"\0")
_SUM_BITS = 62  # of int64: a finer step than float64 sums of as many records have
_PIECE = 1 << 20
_FFC = ("ffc", "ffc-bias")


@dataclass(frozen=True, eq=False)
class Alone:
    """A question, what was summed for it, and what follows."""

    question: Question
    statistics: Any
    answer: Answer

    @property
    def earlier(self) -> Earlier:
        """As another question rests on it."""
        return Earlier(self.question.name, self.statistics, self.answer.head)


def chain(name: str, *, bias: bool = False) -> tuple[str, ...]:
    """The questions that lead to one, in the order of their rounds, itself last.

    Raises:
        CalibrationError: no such question; one that exists under noise alone; a bias where its head has none.
    """
    asked = kind(name)
    if not asked.exact:
        raise CalibrationError(f"a {name} round exists under noise alone")
    if name in _FFC:
        return ("ffc-bias" if bias else name,)
    if bias:
        raise CalibrationError(f"a {name} head takes no bias; that of ffc does")
    return (*asked.may_rest_on[:1], name)


def asked_alone(name: str, wish: Wish, earlier: Earlier | None = None) -> Question:
    """The question as a round would ask it; CalibrationError as `ask`."""
    asked = ask(name, wish, earlier)
    return question(name, asked.layout, _CONTEXT, asked.material)


def alone(
    name: str,
    wish: Wish,
    batches: Iterable[tuple[Array, Array]],
    *,
    earlier: Earlier | None = None,
    ridges: Sequence[float] = (),
    normalise: bool = False,
) -> Alone:
    """Ask, sum and answer, as a round of one member would, of which nobody hears; exact, without noise.

    Args:
        name: of the question.
        wish: what is asked.
        batches: features (n, dim) and labels (n,), each as `FFCStatistics.update`.
        earlier: what it rests on, over the same records.
        ridges: λ; empty for the solver's own.
        normalise: accept rows of any length.

    Raises:
        CalibrationError: as `ask`, for the records, and where nothing follows from them.
    """
    asked = asked_alone(name, wish, earlier)
    finest = SumsLattice(SumsLattice.bits_max)
    accumulator = asked.accumulator(finest, normalise=normalise)
    for features, labels in batches:
        accumulator.update(features, labels)
    lattice = SumsLattice.for_ring(_SUM_BITS, max(accumulator.records, 1), 1)
    gathering, start = asked.gathering(lattice), 0
    for piece in accumulator.pieces(lattice, _PIECE):
        gathering.take(start, piece)
        start += len(piece)
    summed = Summed(lattice, 1, tuple(ridges))
    statistics = asked.gathered(gathering, summed)
    return Alone(asked, statistics, asked.answer(statistics, summed))
