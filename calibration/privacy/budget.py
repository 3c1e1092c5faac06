"""How much privacy a data set has left: one budget of μ², charged by upload, never by ε.

Rounds over the same records compose as √Σμ², so the budget B is spent when Σμ² = B². The object is a value: each operation
gives a new one, and whoever keeps it writes it down before the upload leaves.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from calibration import canonical
from calibration.errors import BudgetMismatch, BudgetSpent
from calibration.privacy.accountant import compose, gdp_epsilon

_VERSION = 1
_ROUNDING = 1e-12  # of B²: three charges of B/√3 are within budget
_CONTEXT = re.compile(r"[0-9a-f]{64}")
_NAME_MAX = 64


@dataclass(frozen=True)
class Charge:
    """What one attempt cost.

    Attributes:
        context: of the attempt, 32 bytes: one upload is ever made under it.
        mu: μ of that round's noise.
        refunded: a VOID certificate shows that no sum was opened.
    """

    context: bytes
    mu: float
    refunded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "mu", float(self.mu)
        )  # an int would be written as one, and refused when read
        if len(self.context) != 32:
            raise BudgetMismatch(
                f"a charge names its attempt by the 32 bytes of its context, not {len(self.context)}"
            )
        if not (math.isfinite(self.mu) and self.mu > 0):
            raise BudgetMismatch(
                f"a charge has a positive, finite μ, not {self.mu!r}; exact rounds have no budget"
            )


@dataclass(frozen=True)
class Budget:
    """The ledger of one lineage's noisy rounds.

    Attributes:
        lineage: the data set's name, 1 to 64 characters.
        mu_max: B, what all rounds together may reach.
        delta: δ at which people are shown ε.
        charges: in the order they were made.

    Raises:
        BudgetMismatch: a field outside its domain, or two charges of one attempt.
    """

    lineage: str
    mu_max: float
    delta: float
    charges: tuple[Charge, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu_max", float(self.mu_max))  # as above
        if not 1 <= len(self.lineage) <= _NAME_MAX:
            raise BudgetMismatch(f"a lineage has a name of 1 to {_NAME_MAX} characters, not {self.lineage!r}")
        if not (math.isfinite(self.mu_max) and self.mu_max > 0 and 0 < self.delta < 1):
            raise BudgetMismatch(
                f"a budget has a positive, finite μ and a δ between 0 and 1; got {self.mu_max!r}, {self.delta!r}"
            )
        if len({charge.context for charge in self.charges}) != len(self.charges):
            raise BudgetMismatch("an attempt is charged once")

    @property
    def mu(self) -> float:
        """√Σμ² of what was charged and not refunded."""
        return compose(charge.mu for charge in self.charges if not charge.refunded)

    @property
    def mu_left(self) -> float:
        """The largest single charge that is still within budget; 0 once it is spent."""
        return math.sqrt(max(0.0, self.mu_max**2 - self.mu**2))

    @property
    def epsilon(self) -> float:
        """ε at `delta` of all that was charged and not refunded."""
        return gdp_epsilon(self.mu, self.delta)

    def charge(self, context: bytes, mu: float) -> Budget:
        """The budget after an upload of μ under `context`; the same one if that was charged before.

        Raises:
            BudgetSpent: Σμ² would exceed B²; nothing may be uploaded.
            BudgetMismatch: another μ under the same context, or one that was refunded: it is closed.
        """
        made = Charge(context, mu)
        known = self._find(context)
        if known is not None:
            if known != made:
                raise BudgetMismatch(
                    f"this attempt was charged μ = {known.mu:g}{', and refunded' if known.refunded else ''}: "
                    "one upload is made under a context"
                )
            return self
        after = replace(self, charges=(*self.charges, made))
        if after.mu**2 > self.mu_max**2 * (1 + _ROUNDING):
            raise BudgetSpent(
                f"{self.lineage} has spent μ = {self.mu:.4g} of {self.mu_max:.4g} and can't take another {mu:.4g}; "
                f"a round of μ ≤ {self.mu_left:.4g} would fit",
                mu_left=self.mu_left,
            )
        return after

    def refund(self, context: bytes) -> Budget:
        """The budget once a certificate of VOID for `context` has been verified; nothing else gives anything back.

        Raises:
            BudgetMismatch: that attempt was never charged.
        """
        known = self._find(context)
        if known is None:
            raise BudgetMismatch("an attempt that was never charged can't be refunded")
        refunded = replace(known, refunded=True)
        return replace(
            self, charges=tuple(refunded if charge is known else charge for charge in self.charges)
        )

    def _find(self, context: bytes) -> Charge | None:
        return next((charge for charge in self.charges if charge.context == context), None)

    def to_bytes(self) -> bytes:
        """The one canonical encoding: ASCII JSON, keys sorted, no spaces; floats come back to the last bit."""
        content = {
            "charges": [
                {"context": charge.context.hex(), "mu": charge.mu, "refunded": charge.refunded}
                for charge in self.charges
            ],
            "delta": self.delta,
            "lineage": self.lineage,
            "mu_max": self.mu_max,
            "version": _VERSION,
        }
        return canonical.encoded(content)

    @classmethod
    def from_bytes(cls, encoded: bytes) -> Budget:
        """The budget that `to_bytes` wrote.

        Raises:
            BudgetMismatch: any other bytes.
        """
        content = canonical.decoded(encoded, "budget", BudgetMismatch)
        match content:
            case {
                "charges": [*charges],
                "delta": float(delta),
                "lineage": str(lineage),
                "mu_max": float(mu_max),
                "version": 1,
                **unknown,
            } if not unknown:
                budget = cls(lineage, mu_max, delta, tuple(_parse_charge(charge) for charge in charges))
            case _:
                raise BudgetMismatch(
                    f"a budget of version {_VERSION} has other keys or types than these bytes"
                )
        if budget.to_bytes() != encoded:
            raise BudgetMismatch("the bytes are not the canonical encoding; write them with Budget.to_bytes")
        return budget


def _parse_charge(content: Any) -> Charge:
    match content:
        case {"context": str(context), "mu": float(mu), "refunded": bool(refunded), **unknown} if not unknown:
            if _CONTEXT.fullmatch(context):
                return Charge(bytes.fromhex(context), mu, refunded)
    raise BudgetMismatch(f"not a charge: {str(content)[:100]}")
