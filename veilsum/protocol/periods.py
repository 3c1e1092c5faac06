"""The kinds of periods: which rows a run adds up (periods)."""

from enum import StrEnum

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault


class PeriodKind(StrEnum):
    """Which rows a run adds up, by the prefix of its period."""

    DATA = "data"
    """A member's records, less those held out."""
    REHEARSAL = "rehearsal"
    """The study's canaries: every step of a data period, which spends nothing."""
    JUDGE = "judge"
    """Counts of how heads do on held-out records."""


_RESERVED_KINDS = (PeriodKind.REHEARSAL, PeriodKind.JUDGE)


def kind_of_period(period: str) -> PeriodKind:
    """Return a period's kind: `rehearsal-…`, `judge-…`, and data for every other name."""
    return next((kind for kind in _RESERVED_KINDS if period.startswith(f"{kind}-")), PeriodKind.DATA)


def check_period_name(period: str) -> PeriodKind:
    """Return a period's kind. Raises PeerFault(terms-refused) if the name is almost that of a rehearsal or judge."""
    kind = kind_of_period(period)
    if kind is PeriodKind.DATA and period.startswith(_RESERVED_KINDS):
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"period {period}: names that begin with {' or '.join(_RESERVED_KINDS)} are reserved for rehearsal-NAME and judge-NAME; "
            "choose another name",
            ["coordinator"],
        )
    return kind
