"""What a round's terms say of its noise: from it and the manifest each side derives the same mechanism.

Members sign these bytes. The shares follow from n, n_min and a, which the manifest fixes: nobody is told how much noise to add.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calibration import canonical
from calibration.errors import CalibrationError
from calibration.lattice import FeaturesLattice, Lattice
from calibration.privacy.accountant import gdp_epsilon
from calibration.privacy.mechanism import Mechanism, default_weight
from calibration.privacy.sensitivity import (
    Neighbours,
    ffc_sensitivity,
    gradient_sensitivity,
    mean_sensitivity,
)

if TYPE_CHECKING:
    from calibration.layout import Layout

_MECHANISM = "discrete-gaussian"
_MU_MIN, _MU_MAX = 1e-6, 100.0


@dataclass(frozen=True)
class NoiseTerms:
    """The differential privacy of one round's sum.

    Attributes:
        mu: μ of Gaussian DP, what the sum promises at the most.
        weight: w of U against V.
        delta: δ at which people are shown ε; it changes nothing.
        neighbours: which data sets must be hard to tell apart.
        nonnegative: whether no feature is below 0, which a smaller sensitivity of replacement rests on.

    Raises:
        CalibrationError: a number outside its domain.
    """

    mu: float
    weight: float
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    nonnegative: bool = False

    def __post_init__(self) -> None:
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

    def sensitivity(self, layout: Layout) -> float:
        """Δ for one record of (V, wU), or of a round of means or gradients.

        Raises:
            CalibrationError: features that are never negative, but centred or mapped to random ones, which makes them so.
        """
        mapped = any(layout.parameter(name) is not None for name in ("centre", "bandwidth"))
        if self.nonnegative and mapped:
            raise CalibrationError("centred and random features are below 0, too: leave nonnegative out")
        blocks = [block.name for block in layout.blocks]
        if blocks == ["G"]:
            return gradient_sensitivity(self.neighbours)
        if blocks == ["z"]:
            return mean_sensitivity(self.neighbours, nonnegative=self.nonnegative)
        return ffc_sensitivity(self.weight, neighbours=self.neighbours, nonnegative=self.nonnegative)

    @property
    def epsilon(self) -> float:
        """ε at δ of μ."""
        return gdp_epsilon(self.mu, self.delta)

    def mechanism(
        self, layout: Layout, lattice: Lattice, *, members: int, survivors_min: int, colluders: int
    ) -> Mechanism:
        """The mechanism of a cohort.

        Args:
            layout: of the round.
            lattice: of the round.
            members: n.
            survivors_min: n_min, the manifest's.
            colluders: a, the manifest's.

        Raises:
            CalibrationError: a lattice of real numbers, or as `Mechanism`.
        """
        if not isinstance(lattice, FeaturesLattice):
            raise CalibrationError("noise is added to integers: the round needs the features lattice")
        return Mechanism(
            layout,
            lattice,
            self.weight,
            self.sensitivity(layout),
            self.mu,
            members,
            survivors_min,
            colluders,
        )

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
                **unknown,
            } if not unknown and math.isfinite(mu):
                terms = cls(mu, weight, delta, Neighbours(neighbours), nonnegative)
            case _:
                raise CalibrationError("the noise is of a mechanism that this release does not know")
        if terms.to_bytes() != encoded:
            raise CalibrationError("the noise is not canonically encoded; write it with NoiseTerms.to_bytes")
        return terms
