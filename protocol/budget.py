"""What a federation's noisy rounds have spent of its privacy budget, as JSON says it."""

from protocol.rest import Hex32, RoundId, View


class BudgetView(View):
    """What all noisy rounds of a federation together may say of one record.

    Attributes:
        mu: √Σμ² over the rounds.
        epsilon: ε at δ that follows from it; None where it is beyond all meaning.
        mu_budget: what the operator allows; None for no limit. A member's own ledger may allow less.
        rounds: those that count, oldest first.
    """

    federation: Hex32
    mu: float
    epsilon: float | None
    delta: float
    mu_budget: float | None
    rounds: tuple[RoundId, ...]
