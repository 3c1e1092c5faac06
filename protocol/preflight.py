"""What a round would be if it were opened now, as JSON says it."""

from typing import Literal

from protocol.rest import Hex32, TermsView, View

NAMED = 10
"""Names of a list in a sentence."""


class OutlookView(View):
    """What a noisy round's head is expected to lose against the exact one's, where `records_max` records come.

    Attributes:
        verdict: good up to 4 points in the median, weak up to 10, hopeless beyond; that one is refused unless the request insists.
        median_loss: in points of accuracy.
        worst_loss: the most that was measured.
    """

    verdict: Literal["good", "weak", "hopeless"]
    median_loss: float
    worst_loss: float


class DecryptorsView(View):
    """Which decryptors were heard from lately, by requests that they signed and were let in with.

    Attributes:
        decryptors: how many there are.
        needed: how many of them a round's end takes, t.
        within_s: how many seconds back was looked. A request counts from when it was signed, by the signer's clock.
        heard: how many were heard from.
        silent: who was not, in order.
    """

    decryptors: int
    needed: int
    within_s: float
    heard: int
    silent: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """In words, with the first names of a long list."""
        names, more = ", ".join(self.silent[:NAMED]), len(self.silent) - NAMED
        others = f" and {more} more" if more > 0 else ""
        return (
            f"{self.heard} of {self.decryptors} decryptors heard from within {self.within_s:g} s, {self.needed} needed"
            + (f"; not: {names}{others}" if names else "")
        )


class PreflightView(View):
    """A round that could be opened now; nothing was opened, and nothing is kept of it.

    Attributes:
        members: how many there are to sum.
        counts_first: whether the coordinator opens it only after a round that counts how many members hold each class; its terms then
            name no class withheld.
        cost: what everybody would send, store and compute, as estimated from sizes alone.
        outlook: None for an exact sum, and for questions whose loss nobody has measured.
        decryptors: who of them seems to be there.
    """

    federation: Hex32
    cohort: Hex32
    sequence: int
    attempt: int
    members: int
    survivors_min: int
    counts_first: bool
    terms: TermsView
    cost: str
    outlook: OutlookView | None
    decryptors: DecryptorsView
