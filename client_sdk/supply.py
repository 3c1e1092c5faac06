"""A member's records, made into what a round asks for: which classes it holds first, then its statistics without the rare ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from calibration import ClassIndicator, FeaturesLattice, FFCStatistics, SumsLattice, indicator_classes
from calibration.collected import Collected
from calibration.errors import CalibrationError, ShapeMismatch
from calibration.layout import Layout
from calibration.privacy import NoiseTerms
from calibration.questions import Question
from calibration.rows import as_features
from client_sdk.asked import contradiction, terms_lattice, terms_noise, terms_question
from client_sdk.errors import Misuse, PeerFault
from client_sdk.offer import Offer, Statistics, lineage_name, lineage_tag
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
        lattice: that a noisy round's integers are on; None for float64.
        withheld: classes to leave out, because few members hold them.
        question: what is asked; None for FFC or an indicator.
        noise: of the terms; None for an exact sum.
    """

    classes: int
    dim: int | None = None
    bias: bool = False
    lattice: FeaturesLattice | None = None
    withheld: tuple[int, ...] = ()
    question: Question | None = None
    noise: NoiseTerms | None = None

    @classmethod
    def of(cls, attempt: Attempt, material: bytes | None = None) -> "Wanted":
        """Read the terms; PeerFault(terms-refused) for those of no question."""
        terms = attempt.opening.terms
        if terms.family == Family.INDICATOR:
            try:
                return cls(indicator_classes(Layout.from_bytes(terms.layout)))
            except CalibrationError as error:
                raise PeerFault(Cause.TERMS_REFUSED, str(error), ["coordinator"]) from error
        asked, lattice = terms_question(attempt, material), terms_lattice(attempt)
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        return cls(asked.classes, asked.dim, asked.bias, own, terms.withheld, asked, terms_noise(terms))

    def collect(self, *, normalise: bool = False, dim: int | None = None) -> FFCStatistics | Collected:
        """Empty statistics as the round asks for them: `update` them with one's records, batch by batch.

        Args:
            normalise: accept rows of any length, as rounds under noise do in any case (`Collected`).
            dim: features per record, for an indicator round.

        Raises:
            CalibrationError: terms or material that do not fit the question; an indicator round without `dim`; statistics that
                this machine's memory does not hold.
        """
        try:
            return self._empty(normalise, dim)
        except MemoryError as error:
            raise ShapeMismatch(
                f"statistics of {self.classes} classes and {self.dim if dim is None else dim} features take more memory than "
                "this machine has: ask the operator whether the round is the one that was meant"
            ) from error

    def _empty(self, normalise: bool, dim: int | None) -> FFCStatistics | Collected:  # noqa: FBT001 - `collect` names it
        if self.question is not None:
            # Sums of real numbers are encoded as they leave: any sums lattice will do.
            lattice = self.lattice or SumsLattice()
            return Collected(
                self.question, lattice, withheld=self.withheld, normalise=normalise, noise=self.noise
            )
        size = self.dim if dim is None else dim
        if size is None:
            raise ShapeMismatch("this round asks which classes are held, of features of any size: pass dim")
        return FFCStatistics(
            size,
            self.classes,
            bias=self.bias,
            normalise=normalise,
            withheld=self.withheld,
        )


def check_collects(attempt: Attempt, material: bytes | None) -> None:
    """Refuse a round whose terms or material make no statistics, whatever the records (terms-refused)."""
    try:
        Wanted.of(attempt, material).collect()
    except CalibrationError as error:
        raise contradiction(str(error)) from error


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

    def __call__(self, wanted: Wanted) -> FFCStatistics | Collected:
        """The statistics; CalibrationError where the records do not fit."""
        own = self.features.shape[1] if wanted.dim is None else wanted.dim
        as_features(self.features, own)  # before statistics of a size that somebody else chose are made
        statistics = wanted.collect(normalise=self.normalise, dim=own)
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
        lineage_name(lineage)
        return cls(source if callable(source) else Offer.of(source, lineage, key), lineage, key)

    @property
    def lineage(self) -> bytes:
        """lin_u, the 8 bytes by which uploads name the lineage."""
        return lineage_tag(self.key, self.name)

    def offer(self, attempt: Attempt, material: bytes | None = None) -> Offer:
        """What goes into this round, given what the coordinator published beside its opening; Misuse where the statistics cannot say which classes they hold, and as the maker."""
        counting = attempt.opening.terms.family == Family.INDICATOR
        made = (
            self.maker
            if isinstance(self.maker, Offer)
            else Offer.of(self.maker(Wanted.of(attempt, material)), self.name, self.key)
        )
        return replace(made, statistics=_indicator(made.statistics)) if counting else made


def _indicator(statistics: Statistics) -> ClassIndicator:
    if isinstance(statistics, ClassIndicator):
        return statistics
    if not isinstance(statistics, FFCStatistics | Collected):
        raise Misuse(
            "this round counts how many members hold each class, and these statistics cannot say: pass FFCStatistics, or Records"
        )
    return statistics.indicator()
