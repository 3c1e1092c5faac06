"""What a round asks: from the operator's wish to the vector, and from the sum to a head.

    ask ──▶ layout, material       the coordinator, before the round opens; its members sign the layout
    accumulator ──▶ pieces         each member, from its records
    gathering, gathered, answer    the coordinator, from the sum: take it up, check it, solve it

A question is named by the terms' `statistic`; its layout says the rest. What is longer, such as the head that a second round
refines, is material: arrays that the coordinator publishes with the opening, and whose digest the layout holds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from calibration.errors import CalibrationError, LayoutMismatch
from calibration.head_file import form_of
from calibration.lattice import FeaturesLattice, SumsLattice
from calibration.layout import Layout, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from calibration.head import Head
    from calibration.privacy import Mechanism, NoiseTerms
    from calibration.privacy.sensitivity import Release
    from calibration.rows import Array, Floats, Integers
    from calibration.solution import Solution

RoundLattice = SumsLattice | FeaturesLattice
Arrays = dict[str, "NDArray[Any]"]

MATERIAL = "material"
"""A parameter that the service adds, as `RESTS_ON`: the digest of what was published of the round before."""


class Accumulator(Protocol):
    """A member's sums while its records come."""

    @property
    def records(self) -> int:
        """How many have come."""
        ...

    def update(self, features: Array, labels: Array) -> None:
        """Add a batch; nothing of it is added if anything about it is refused."""
        ...

    def pieces(self, lattice: Any, elements: int) -> Iterator[Integers]:
        """The vector in pieces of so many elements, in order."""
        ...


class Gathering(Protocol):
    """The sum while its pieces come."""

    def take(self, start: int, piece: Integers) -> None:
        """Elements of the centred sum, from `start` on; each comes once."""
        ...


@dataclass(frozen=True, eq=False)
class Wish:
    """What an operator asks for.

    Attributes:
        dim: features per record.
        classes: C.
        parameters: of the question, by name.
        noisy: whether members add noise to it.
    """

    dim: int
    classes: int
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    noisy: bool = False


@dataclass(frozen=True, eq=False)
class Earlier:
    """A finished round that another one rests on.

    Attributes:
        statistic: its question.
        statistics: what was pooled in it.
        head: what it ended in; None for a mean.
    """

    statistic: str
    statistics: Any
    head: Head | None


@dataclass(frozen=True, eq=False)
class Asked:
    """A wish made concrete.

    Attributes:
        layout: of the round.
        material: arrays that members need beside it.
    """

    layout: Layout
    material: Arrays = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Summed:
    """How a sum came about.

    Attributes:
        lattice: of the round.
        members: how many vectors were added.
        ridges: λ tried; empty for the solver's own.
        promised: whether the ring is wide enough that the weights are promised within 1e-6.
        mechanism: what was added to it as noise; None for an exact sum.
    """

    lattice: RoundLattice
    members: int
    ridges: tuple[float, ...] = ()
    promised: bool = False
    mechanism: Mechanism | None = None


REFUSED = "refused"
"""The note of a document that has no arrays, for no such thing follows from the round's sums."""


@dataclass(frozen=True, eq=False)
class Document:
    """Something published beside the head.

    Attributes:
        arrays: named, as safetensors hold them.
        notes: what they do not say, as JSON.
    """

    arrays: Arrays
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Answer:
    """What follows from a sum.

    Attributes:
        records: N; of a noisy sum the estimate tr V̂, rounded.
        head: None where the round is one of means.
        chosen_by: how λ or the head was found: "given", "gcv", "shrinkage", "gradient", "virtual features"; "" where there is none.
        solution: of ridge heads.
        grid: (G,) λ compared.
        errors: (G,) by that criterion.
        ridge: λ of the head; None where it has none.
        error_bound: how far rounding may have moved a weight at the most; None where no bound holds.
        documents: beside the head, by name.
    """

    records: int
    head: Head | None
    chosen_by: str = ""
    solution: Solution | None = None
    grid: Floats | None = None
    errors: Floats | None = None
    ridge: float | None = None
    error_bound: float | None = None
    documents: Mapping[str, Document] = field(default_factory=dict)


class Mapped:
    """An accumulator of features that are mapped first."""

    def __init__(self, inner: Accumulator, of: Any) -> None:
        self._inner, self._of = inner, of

    @property
    def records(self) -> int:
        """N."""
        return self._inner.records

    def update(self, features: Array, labels: Array) -> None:
        """Map, then add."""
        self._inner.update(self._of(features), labels)

    def pieces(self, lattice: RoundLattice, elements: int) -> Iterator[Integers]:
        """As the accumulator inside."""
        return self._inner.pieces(lattice, elements)


class Whole:
    """A sum that is kept as it comes: 8 bytes an element."""

    def __init__(self, elements: int) -> None:
        self.total = np.zeros(elements, np.int64)

    def take(self, start: int, piece: Integers) -> None:
        """Keep a piece."""
        self.total[start : start + len(piece)] = piece


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """One question, with what its round fixes.

    Attributes:
        name: the terms' `statistic`.
        title: what it is for, in a few words.
        rests_on: questions one of which an earlier round must have answered; empty where it needs none.
        may_rest_on: questions that can help.
        domains: its parameters, each with the type it takes and its default; None for none.
        exact: whether its sum may be exact; what depends on a head that the coordinator shows, or serves one that does, exists under
            noise alone.
        has_head: whether its round ends in a head.
        combines: whether sums of several rounds add up.
        learns: what the coordinator sees, in words.
        layout: as the terms hold it.
        context: of the attempt; seeds follow from it.
        material: as published; empty on the coordinator before the round opens.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    learns: ClassVar[str]
    rests_on: ClassVar[tuple[str, ...]] = ()
    may_rest_on: ClassVar[tuple[str, ...]] = ()
    domains: ClassVar[Mapping[str, tuple[type, Scalar | None]]] = {}
    exact: ClassVar[bool] = True
    has_head: ClassVar[bool] = True
    combines: ClassVar[bool] = False

    layout: Layout
    context: bytes = b""
    material: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    @abstractmethod
    def ask(cls, wish: Wish, earlier: Earlier | None) -> Asked:
        """The layout and the material of a round.

        Args:
            wish: whose parameters `parse` has passed.
            earlier: the round that it rests on; None for none.

        Raises:
            CalibrationError: a wish that can't be fulfilled, with what could.
        """

    @property
    def blocks(self) -> Layout:
        """The layout's blocks alone."""
        return Layout(self.layout.blocks)

    @property
    def dim(self) -> int:
        """Features per record, without the bias."""
        return self._number("dim")

    @property
    def classes(self) -> int:
        """C."""
        return self._number("classes")

    @property
    def bias(self) -> bool:
        """Whether a constant feature stands last."""
        return bool(self.layout.parameter("bias"))

    @property
    @abstractmethod
    def noisy(self) -> bool:
        """Whether the layout is one for noise."""

    @property
    def roundings(self) -> float:
        """How often each member rounds, at the most, what an entry of the sums is made of that are solved in the end."""
        return 1.0

    @property
    def directed(self) -> bool:
        """Whether rows are scaled to length 1, so that one of zeros is no record."""
        return True

    @abstractmethod
    def accumulator(self, lattice: RoundLattice, *, normalise: bool) -> Accumulator:
        """An empty one, of this lattice; `normalise` accepts rows of any length.

        Raises:
            CalibrationError: a layout or material that does not fit the question.
        """

    def gathering(self, lattice: RoundLattice) -> Gathering:
        """An empty one."""
        del lattice
        return Whole(self.layout.elements)

    @abstractmethod
    def gathered(self, gathering: Any, summed: Summed) -> Any:
        """The pooled statistics, checked.

        Raises:
            SumCheckFailed: honest members' sums fulfil what this one does not.
            CalibrationError: a layout or material that does not fit the question.
        """

    @abstractmethod
    def answer(self, statistics: Any, summed: Summed) -> Answer:
        """Solve; CalibrationError where nothing follows from the statistics."""

    @abstractmethod
    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """What a noisy round of these terms releases, and how far a record moves it.

        Raises:
            CalibrationError: features that are said never to be negative, but mapped to ones that are.
        """

    @property
    def goes_on(self) -> bool:
        """Whether its terms announce another round of the same question."""
        return False

    @property
    def rows(self) -> int:
        """Size of the ridge system that λ is chosen for; 0 where the round has none."""
        return 0

    def takes(self, layout: Layout) -> bool:
        """Whether statistics of this layout can go into the round."""
        return layout == self.layout

    def widens(self, other: Question) -> bool:
        """Whether sums of `other` add to this question's: the same, of as many classes or fewer."""
        return (
            self.combines
            and (other.name, other.dim, other.bias) == (self.name, self.dim, self.bias)
            and other.classes <= self.classes
        )

    def widened(self, other: Question, vector: Integers) -> Integers:
        """A sum of `other` as one of this question's: later classes stand last, and it knows none of their records.

        Args:
            other: that `widens` has passed.
            vector: (other.layout.elements,) int64.
        """
        narrow = other.blocks.unflatten(vector)
        grown = {
            block.name: np.pad(
                narrow[block.name],
                [(0, most - size) for most, size in zip(block.shape, narrow[block.name].shape, strict=True)],
            )
            for block in self.layout.blocks
        }
        return self.blocks.flatten(grown)

    def check_head(self, head: Head) -> None:
        """Refuse a head of other dimensions or of another kind than the round ends in (LayoutMismatch)."""
        expected = "linear, with a bias" if self.bias else "linear, without a bias"
        if (kind := form_of(head)["kind"]) != "linear":
            raise LayoutMismatch(f"the head is of the kind {kind}, the terms ask for one that is {expected}")
        self._check_size(head)
        if (head.bias is None) == self.bias:
            seen = "without" if head.bias is None else "with"
            raise LayoutMismatch(f"the head is {seen} a bias, the terms ask for one that is {expected}")

    def _check_size(self, head: Head) -> None:
        if (head.dim, head.classes) != (self.dim, self.classes):
            raise LayoutMismatch(
                f"the head takes {head.dim} features to {head.classes} classes, the terms ask for {self.dim} and {self.classes}"
            )

    def _number(self, name: str) -> int:
        value = self.layout.parameter(name)
        if type(value) is not int or not 1 <= value <= 1 << 32:
            raise LayoutMismatch(
                f"{name} is {value!r} in the terms of a {self.name} round: a whole number from 1"
            )
        return value

    def _real(self, name: str) -> float:
        value = self.layout.parameter(name)
        if type(value) not in {int, float} or not 0 < float(value or 0) < math.inf:
            raise LayoutMismatch(f"{name} is {value!r} in the terms of a {self.name} round: a number above 0")
        return float(value)  # type: ignore[arg-type]

    def _array(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Material of a shape, of which None stands for any; LayoutMismatch."""
        array = self.material.get(name)
        fits = array is not None and len(array.shape) == len(shape)
        if (
            array is None
            or not fits
            or any(s not in {None, d} for s, d in zip(shape, array.shape, strict=True))
        ):
            seen = None if array is None else array.shape
            raise LayoutMismatch(f"the material's {name} has shape {seen}; a {self.name} round needs {shape}")
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise LayoutMismatch(f"the material's {name} is not finite float64")
        return array

    def _integers(self, lattice: RoundLattice) -> FeaturesLattice | None:
        """The lattice of a noisy round; None for that of an exact one; LayoutMismatch where the layout is not for it."""
        own = lattice if isinstance(lattice, FeaturesLattice) else None
        if self.noisy != (own is not None):
            raise LayoutMismatch(
                f"a {self.name} round with this layout is {'noisy' if self.noisy else 'exact'}: it does not go on the {lattice.name} lattice"
            )
        return own

    def _expect(self, layout: Layout) -> None:
        """LayoutMismatch unless the blocks are these."""
        if layout.blocks != self.layout.blocks:
            raise LayoutMismatch(f"the layout is not that of a {self.name} round with these parameters")


def check_sign(noise: NoiseTerms, *, mapped: bool) -> None:
    """Refuse terms of features that are never negative, where a map makes them so (CalibrationError)."""
    if noise.nonnegative and mapped:
        raise CalibrationError("centred and random features are below 0, too: leave nonnegative out")


def parse(question: type[Question], given: Mapping[str, Any]) -> dict[str, Scalar]:
    """A question's parameters with their defaults; those that are None are left out.

    Raises:
        CalibrationError: a parameter that it does not have, or of another type.
    """
    values: dict[str, Any] = {}
    for name in given.keys() - question.domains.keys():
        known = ", ".join(sorted(question.domains)) or "none"
        raise CalibrationError(f"a {question.name} round has no parameter {name}; it has {known}")
    for name, (form, default) in question.domains.items():
        value: Any = given.get(name, default)
        if form is float and type(value) is int:
            value = float(value)
        if value is None:
            continue
        if type(value) is not form:
            raise CalibrationError(f"{name} of a {question.name} round is {form.__name__}, not {value!r}")
        values[name] = value
    return values


def total_of(gathering: Gathering) -> Integers:
    """What a `Whole` has gathered."""
    assert isinstance(gathering, Whole)
    return gathering.total
