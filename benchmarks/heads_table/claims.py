"""What is promised of every head on real features, held against the result files."""

from collections.abc import Sequence
from statistics import mean, stdev

from benchmarks.accuracy import Claim
from benchmarks.heads_table.files import ResultFile
from benchmarks.heads_table.heads import Row

POINT = 100.0
DRAWN = "CCVR"  # heads retrained on random draws: the root that they apply is steep at 0, so a rounding shows


def claims_of(results: Sequence[ResultFile]) -> list[Claim]:
    """Each promise with its figure; none without results."""
    rows = [row for found in results for row in found.rows]
    exact = [row for row in rows if row.path == "secure" and row.epsilon is None]
    if not exact:
        return []
    closed = [row for row in exact if not row.head.startswith(DRAWN)]
    drawn = [row for row in exact if row.head.startswith(DRAWN)]
    claims = [
        Claim(
            "secure, exact",
            "masked sums that are not, bit for bit, the sums in the clear",
            sum(not row.same_sums for row in exact),
            0,
        ),
        Claim(
            "secure, exact",
            "max abs(W − W_plain) / max abs(W_plain), heads in closed form",
            _most(closed),
            1e-6,
        ),
        Claim(
            "secure, exact",
            "test records that both CCVR heads call the same, at least",
            min((row.agreement or 0.0 for row in drawn), default=0.0),
            0.97,
            at_least=True,
        ),
    ]
    drawn_leads = {cell: leads for cell, leads in leads_of(results).items() if cell[1] == "FFC"}
    strong = [mean(leads) for (_, _, epsilon), leads in drawn_leads.items() if epsilon <= 2]
    least = min(drawn_leads.values(), key=mean)
    claims += [
        Claim(
            "secure, ε ≤ 2",
            "points by which shrinkage beats AdaSSP, FFC, on average",
            mean(strong),
            2,
            at_least=True,
        ),
        Claim(
            "secure, any ε",
            f"the same, FFC, where it is least{_uncertain(least)}",
            mean(least),
            -0.5,
            at_least=True,
        ),
    ]
    for data in ("fashion-random", "fashion-cnn"):
        gain = gain_of(results, data)
        if gain is not None:
            claims.append(Claim(data, "points by which random features beat FFC", gain, 1, at_least=True))
    return claims


def leads_of(results: Sequence[ResultFile]) -> dict[tuple[str, str, float], list[float]]:
    """Points by which shrinkage is ahead of AdaSSP in each round, by data, head and ε."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for each in results:
        for row in each.rows:
            if row.epsilon is not None and row.adassp is not None:
                cell = (each.data, row.head, row.epsilon)
                found.setdefault(cell, []).append(POINT * (row.accuracy - row.adassp))
    return found


def _uncertain(values: Sequence[float]) -> str:
    return f" (standard error {stdev(values) / len(values) ** 0.5:.2f})" if len(values) > 1 else ""


def gain_of(results: Sequence[ResultFile], data: str) -> float | None:
    """Points by which random features beat FFC, the mean over seeds; None without results of both."""
    own = [
        {row.head: row.accuracy for row in found.rows if row.path == "secure" and row.epsilon is None}
        for found in results
        if found.data == data
    ]
    gains = [POINT * (each["random features"] - each["FFC"]) for each in own if "random features" in each]
    return mean(gains) if gains else None


def _most(rows: Sequence[Row]) -> float:
    return max((row.off_by or 0.0 for row in rows), default=0.0)
