"""What a round would be if it were opened now, as JSON says it."""

from protocol.rest import Hex32, SpecView, View

NAMED = 10
"""Names of a list in a sentence."""


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
        cost: what everybody would send, store and compute, as estimated from sizes alone.
        decryptors: which of them were heard from lately.
    """

    federation: Hex32
    cohort: Hex32
    sequence: int
    attempt: int
    members: int
    survivors_min: int
    spec: SpecView
    cost: str
    decryptors: DecryptorsView
