"""A member's records, made into what a round asks for: which classes it holds first, then its statistics without the rare ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from calibration import ClassIndicator, FeaturesLattice, FFCStatistics, indicator_classes
from calibration.errors import CalibrationError
from calibration.layout import Layout
from calibration.layouts import ffc_dimensions
from client_sdk.errors import Misuse, PeerFault
from client_sdk.offer import Offer, Statistics, terms_lattice
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.messages import Family


@dataclass(frozen=True)
class Wanted:
    """What a round's signed terms ask to be summed.

    Attributes:
        classes: C.
        dim: features, without the bias; None in an indicator round, which takes statistics of any.
        bias: whether a constant feature stands last.
        lattice: to accumulate integers on; None for float64.
        withheld: classes to leave out, because few members hold them.
    """

    classes: int
    dim: int | None = None
    bias: bool = False
    lattice: FeaturesLattice | None = None
    withheld: tuple[int, ...] = ()

    @classmethod
    def of(cls, attempt: Attempt) -> "Wanted":
        """Read the terms; PeerFault(terms-refused) for a layout of anything else."""
        terms = attempt.opening.terms
        bias = terms.statistic == "ffc-bias"
        try:
            layout = Layout.from_bytes(terms.layout)
            if terms.family == Family.INDICATOR:
                return cls(indicator_classes(layout))
            dim, classes = ffc_dimensions(layout, bias=bias)
        except CalibrationError as error:
            raise PeerFault(Cause.TERMS_REFUSED, str(error), ["coordinator"]) from error
        lattice = terms_lattice(attempt)
        return cls(
            classes, dim, bias, lattice if isinstance(lattice, FeaturesLattice) else None, terms.withheld
        )


Maker: TypeAlias = Callable[[Wanted], Statistics]
"""Makes the statistics that a round asks for; the same records each time."""


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """Features and labels from which a member makes whatever a round asks for; pass it to `contribute`.

    Attributes:
        features: (n, dim), as `FFCStatistics.update` takes them.
        labels: (n,) integers.
        normalise: accept rows of any length.
    """

    features: Any
    labels: Any
    normalise: bool = False

    def __call__(self, wanted: Wanted) -> FFCStatistics:
        """The statistics; CalibrationError where the records do not fit."""
        dim = self.features.shape[1] if wanted.dim is None else wanted.dim
        statistics = FFCStatistics(
            dim,
            wanted.classes,
            bias=wanted.bias,
            normalise=self.normalise,
            lattice=wanted.lattice,
            withheld=wanted.withheld,
        )
        statistics.update(self.features, self.labels)
        return statistics

    def __repr__(self) -> str:
        return f"<Records, {len(self.labels)} of them>"


@dataclass(frozen=True, repr=False, eq=False)
class Supply:
    """What a member brings, under a lineage's name.

    Attributes:
        maker: makes statistics of its records; or always offers these.
        name: the lineage's.
        key: under which the ledger's tags are made.
    """

    maker: Maker | Offer
    name: str
    key: bytes

    @classmethod
    def of(cls, source: Statistics | Maker, lineage: str, key: bytes) -> "Supply":
        """Take a member's statistics, or what makes them.

        Raises:
            Misuse: the lineage has no name.
            RecordsNotTracked: the statistics keep no digest of their records.
        """
        if not lineage:
            raise Misuse("a lineage needs a name, such as the data set's and its year's")
        return cls(source if callable(source) else Offer.of(source, lineage, key), lineage, key)

    def offer(self, attempt: Attempt) -> Offer:
        """What goes into this round; Misuse where the statistics cannot say which classes they hold, and as the maker."""
        counting = attempt.opening.terms.family == Family.INDICATOR
        made = (
            self.maker
            if isinstance(self.maker, Offer)
            else Offer.of(self.maker(Wanted.of(attempt)), self.name, self.key)
        )
        return replace(made, statistics=_indicator(made.statistics)) if counting else made


def _indicator(statistics: Statistics) -> ClassIndicator:
    if isinstance(statistics, ClassIndicator):
        return statistics
    if not isinstance(statistics, FFCStatistics):
        raise Misuse(
            "this round counts how many members hold each class, and these statistics cannot say: pass FFCStatistics, or Records"
        )
    return statistics.indicator()
