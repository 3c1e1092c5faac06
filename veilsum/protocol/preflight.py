"""JSON models of a preflight: the round that would be opened now."""

from veilsum.protocol.rest import Hex32, SpecView, View

NAMED = 10
"""Maximum names listed in a sentence."""


class DecryptorsView(View):
    """Liveness of decryptors, from their recent authenticated requests.

    Attributes:
        decryptors: number of decryptors.
        needed: t, the number that a round needs to end.
        within_s: window in seconds. A request counts from its signing time, by the signer's clock.
        heard: number of decryptors that made a request in the window.
        silent: ids of the others, in order.
    """

    decryptors: int
    needed: int
    within_s: float
    heard: int
    silent: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Summarise in words, naming at most the first `NAMED` silent decryptors."""
        names, more = ", ".join(self.silent[:NAMED]), len(self.silent) - NAMED
        others = f" and {more} more" if more > 0 else ""
        return (
            f"{self.heard} of {self.decryptors} decryptors heard from within {self.within_s:g} s, {self.needed} needed"
            + (f"; not: {names}{others}" if names else "")
        )


class PreflightView(View):
    """A round that could be opened now; a preflight opens and stores nothing.

    Attributes:
        members: number of members to sum.
        cost: estimated traffic, storage and computation of all parties.
        decryptors: liveness of the decryptors.
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
