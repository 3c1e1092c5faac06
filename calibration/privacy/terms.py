"""What a round's terms say of its noise: from it and the manifest each side derives the same mechanism.

Members sign these bytes. The shares follow from n, n_min and a, which the manifest fixes: nobody is told how much noise to add.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from calibration import canonical
from calibration.errors import CalibrationError
from calibration.lattice import FeaturesLattice, Lattice
from calibration.layout import RESTS_ON
from calibration.privacy.accountant import gdp_epsilon
from calibration.privacy.mechanism import Mechanism, default_weight
from calibration.privacy.sensitivity import Neighbours, Release, member_sensitivity

if TYPE_CHECKING:
    from calibration.layout import Layout, Scalar

_MECHANISM = "discrete-gaussian"
_MU_MIN, _MU_MAX = 1e-6, 100.0
NOISY_BITS = 12
"""Finest scale under noise: it hides what is finer, and 2^38 records stay within int64."""


class Released(Protocol):
    """A question, as far as noise goes."""

    @property
    def layout(self) -> Layout:
        """Of the round."""
        ...

    def released(self, noise: NoiseTerms, lattice: FeaturesLattice) -> Release:
        """Weights and sensitivity of its blocks."""
        ...


@dataclass(frozen=True)
class NoiseTerms:
    """The differential privacy of one round's sum.

    Attributes:
        mu: μ of Gaussian DP, what the sum promises at the most.
        weight: w of U against V.
        delta: δ at which people are shown ε; it changes nothing.
        neighbours: which data sets must be hard to tell apart.
        nonnegative: whether no feature is below 0, which a smaller sensitivity of replacement rests on.
        member_records: where a member as a whole is what neighbours differ in: as many records, all alike, as its vector is cut to
            (`MemberCut`). None where it is one record.

    Raises:
        CalibrationError: a number outside its domain.
    """

    mu: float
    weight: float
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    nonnegative: bool = False
    member_records: int | None = None

    def __post_init__(self) -> None:
        alike = self.member_records
        if alike is not None and (type(alike) is not int or not 1 <= alike < 2**32):
            raise CalibrationError(f"a member is cut to 1 record or more, below 2^32, not to {alike!r}")
        for name, least, most in (("mu", _MU_MIN, _MU_MAX), ("weight", 1e-3, 1e3)):
            value = getattr(self, name)
            if type(value) is not float or not least <= value <= most:
                raise CalibrationError(
                    f"{name} of a round's noise lies between {least:g} and {most:g}, not {value!r}"
                )
        if type(self.delta) is not float or not 0 < self.delta <= 0.5:
            raise CalibrationError(f"delta of a round's noise lies above 0 and up to 0.5, not {self.delta!r}")

    @classmethod
    def for_classes(cls, classes: int, mu: float, delta: float, **settings: Any) -> NoiseTerms:
        """With the weight that suits so many classes."""
        return cls(float(mu), float(default_weight(classes)), float(delta), **settings)

    @property
    def epsilon(self) -> float:
        """ε at δ of μ."""
        return gdp_epsilon(self.mu, self.delta)

    def mechanism(
        self, asked: Released, lattice: Lattice, *, members: int, survivors_min: int, colluders: int
    ) -> Mechanism:
        """The mechanism of a cohort.

        Args:
            asked: the round's question.
            lattice: of the round.
            members: n.
            survivors_min: n_min, the manifest's.
            colluders: a, the manifest's.

        Raises:
            CalibrationError: a lattice of real numbers, or a finer one than `NOISY_BITS`; as `Question.released` and `Mechanism`.
        """
        if not isinstance(lattice, FeaturesLattice):
            raise CalibrationError("noise is added to integers: the round needs the features lattice")
        if lattice.bits > NOISY_BITS:
            raise CalibrationError(
                f"noise on a lattice of {lattice.bits} bits: {NOISY_BITS} at most, so that no number of records leaves int64"
            )
        release = self.release(asked, lattice)
        return Mechanism(
            asked.layout,
            lattice,
            release.weight,
            release.sensitivity,
            self.mu,
            members,
            survivors_min,
            colluders,
            release.counts_weight,
        )

    def release(self, asked: Released, lattice: FeaturesLattice) -> Release:
        """Weights of the question's blocks, and Δ of what is protected: one of its records, or a member that is cut to `bound`."""
        own = asked.released(self, lattice)
        bound = self.bound(asked, lattice)
        return own if bound is None else replace(own, sensitivity=member_sensitivity(bound, self.neighbours))

    def bound(self, asked: Released, lattice: FeaturesLattice) -> float | None:
        """The weighted length that a member's vector is cut to, as long as its `member_records` can be; None where it is not cut."""
        if self.member_records is None:
            return None
        one = replace(self, neighbours=Neighbours.ADD_REMOVE)
        return self.member_records * asked.released(one, lattice).sensitivity

    def promise(self, mechanism: Mechanism) -> dict[str, Scalar | None]:
        """All that people are shown of a round's noise, by name, as records and heads hold it.

        It is this round's alone. Where it rests on another, `rests_on` names that one's context: a record that stands in both has what
        both promise together (`compose`).

        Args:
            mechanism: that `mechanism` has derived.
        """
        return {
            "mu": mechanism.mu_round,
            "epsilon": mechanism.epsilon(self.delta),
            "delta": self.delta,
            "published_epsilon": mechanism.published_epsilon(self.delta),
            "sigma": mechanism.sigma,
            "weight": self.weight,
            "neighbours": self.neighbours.value,
            "nonnegative": self.nonnegative,
            "shares": mechanism.honest,
            "member_records": self.member_records,
            "rests_on": mechanism.layout.parameter(RESTS_ON),
        }

    def to_bytes(self) -> bytes:
        """The one canonical encoding: ASCII JSON, keys sorted, no spaces."""
        content = {**asdict(self), "mechanism": _MECHANISM, "neighbours": self.neighbours.value}
        return canonical.encoded(content)

    @classmethod
    def from_bytes(cls, encoded: bytes) -> NoiseTerms:
        """What `to_bytes` wrote.

        Raises:
            CalibrationError: any other bytes.
        """
        content = canonical.decoded(encoded, "noise", CalibrationError)
        match content:
            case {
                "mechanism": "discrete-gaussian",
                "mu": float(mu),
                "weight": float(weight),
                "delta": float(delta),
                "neighbours": "add-remove" | "replace" as neighbours,
                "nonnegative": bool(nonnegative),
                "member_records": (int() | None) as most,
                **unknown,
            } if not unknown and math.isfinite(mu):
                terms = cls(mu, weight, delta, Neighbours(neighbours), nonnegative, most)
            case _:
                raise CalibrationError("the noise is of a mechanism that this release does not know")
        if terms.to_bytes() != encoded:
            raise CalibrationError("the noise is not canonically encoded; write it with NoiseTerms.to_bytes")
        return terms
