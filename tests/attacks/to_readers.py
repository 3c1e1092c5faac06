"""A coordinator signs records that do not follow from what was signed, shows false proofs, and hears helpers who disagree."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.messages import HelperCounted, HelperSums
from tests.attacks.base import Attack
from tests.protocol.forging import again
from tests.vectors import helping, stage_helping
from tests.vectors.results import HELPERS, OTHER, Doctoring, read

Json = dict[str, Any]
RECORDS, DISAGREEING = "records doctored", "helpers that disagree"


@dataclass(frozen=True)
class Recorded(Attack):
    """A signed record of a vector's round, or a proof beside it, that does not follow."""

    doctoring: Doctoring

    def run(self) -> PeerFault:
        """Show it to who took part."""
        try:
            read(self.doctoring.case["input"])
        except PeerFault as fault:
            return fault
        raise AssertionError(f"{self.name}: it was believed")


def changed(**changes: Any) -> Callable[[Json], Json]:
    return lambda body: body | changes


def fewer(body: Json) -> Json:
    return body | {"survivors": body["survivors"][1:]}


def misnamed(body: Json) -> Json:
    first, *others = body["survivors"]
    return body | {"survivors": [first | {"digest": OTHER}, *others]}


def rare(**changes: Any) -> Callable[[Json], Json]:
    return lambda body: body | {"rare": body["rare"] | changes}


DISPUTED = {"cause": "edge-disagreement", "parties": ["member-1", "member-4"]}
MEMBERS: tuple[tuple[str, str, int, Callable[[Json], Json]], ...] = (
    ("of the other mode", "complete", 0, changed(mode="helpers")),
    ("under another round's name", "complete", 0, changed(round=OTHER[:16])),
    ("of another federation", "complete", 0, changed(federation=OTHER)),
    ("of another cohort", "complete", 0, changed(cohort=OTHER)),
    ("of another context", "complete", 0, changed(context=OTHER)),
    ("with another end", "complete", 0, changed(closing=OTHER)),
    ("of other terms", "complete", 0, changed(terms=OTHER)),
    ("of another extractor", "complete", 0, changed(extractor=OTHER)),
    ("of another statistic", "complete", 0, changed(statistic="ffc")),
    ("of a larger cohort", "complete", 0, changed(members=7)),
    ("with a survivor less", "complete", 0, fewer),
    ("with another upload of a survivor", "complete", 0, misnamed),
    ("that drops whom no dispute costs its place", "complete", 0, changed(dropped=["member-4"])),
    ("whose dispute drops nobody", "complete", 0, changed(disputes=[DISPUTED])),
    ("with somebody evicted who is not proved false", "complete", 0, changed(evicted=["member-1"])),
    ("that keeps who was proved false", "evicted", 0, changed(evicted=[])),
    ("that withholds what the terms do not", "complete", 0, changed(withheld=[1])),
    ("that publishes what the terms withhold", "indicator", 1, changed(withheld=[])),
    ("without counts", "indicator", 1, changed(rare=None)),
    ("of counts that leave other classes below the floor", "indicator", 1, rare(holders=[4, 4, 4, 4, 4])),
    ("with another floor", "indicator", 1, rare(floor=1)),
    ("of another indicator round", "indicator", 1, rare(indicator=OTHER)),
    ("of more records than the terms admit", "complete", 0, changed(records=10**12)),
    ("of weights that are none", "complete", 0, changed(weights_sha256=OTHER)),
    ("of a document that is none", "complete", 0, changed(documents=[{"name": "lda", "sha256": OTHER}])),
)  # fmt: skip
CLIENTS: tuple[tuple[str, Callable[[Json], Json]], ...] = (
    ("of the other mode", changed(mode="members")),
    ("with another end", changed(closing=OTHER)),
    ("of more clients", changed(members=7)),
    ("with a survivor less", fewer),
    ("with another upload of the client", misnamed),
    ("that evicts a client", changed(evicted=["client-1"])),
    ("in which a client is outvoted", changed(outvoted=["client-1"])),
    ("in which two helpers are outvoted", changed(outvoted=["helper-0", "helper-1"])),
    ("of more records than the terms admit", changed(records=10**12)),
    ("of other weights", changed(weights_sha256=OTHER)),
)
PROOFS: tuple[tuple[str, Callable[[HelperCounted], HelperCounted]], ...] = (
    ("for another upload", lambda c: replace(c, survivor=replace(c.survivor, digest=bytes(32)))),
    ("at another place", lambda c: replace(c, place=1)),
    ("in a set below n_min", lambda c: replace(c, count=3)),
    ("without its path", lambda c: replace(c, path=())),
    ("under another root", lambda c: replace(c, root=bytes(32))),
)


def records() -> list[Attack]:
    """All are refused as result-mismatch."""
    doctored = [
        Doctoring(f"a record {name}", "§4.8", round_, number, body) for name, round_, number, body in MEMBERS
    ]
    doctored += [Doctoring(f"a helpers' record {name}", "H12", HELPERS, 0, body) for name, body in CLIENTS]
    doctored += [
        Doctoring(f"a proof of counting {name}", "H7", HELPERS, 0, counted=proof) for name, proof in PROOFS
    ]
    named = ("coordinator",)
    return [
        Recorded(each.name, each.clause, RECORDS, Cause.RESULT_MISMATCH, named, each) for each in doctored
    ]


@dataclass(frozen=True)
class Disagreeing(Attack):
    """Helpers return sums of which no two are believed.

    Attributes:
        attempt: of the helpers' round.
        orders: by helper in order, which of its true lists of digests stand where.
    """

    attempt: int
    orders: tuple[tuple[int, int, int], ...]

    @property
    def place(self) -> int:
        """How much of the log the coordinator has heard: up to the first sums."""
        return stage_helping.first(self.attempt, HelperSums)

    @property
    def answers(self) -> tuple[HelperSums, ...]:
        """What the helpers return."""
        federation = helping.played()[0]
        return tuple(
            again(sums, federation.keys[sums.member], digests=tuple(sums.digests[at] for at in order))
            for order, sums in zip(self.orders, stage_helping.true_sums(self.attempt), strict=True)
        )

    def run(self) -> PeerFault:
        """Return them; why the attempt ends."""
        phase = stage_helping.coordinator_at(self.attempt, self.place)
        for sums in self.answers:
            phase = phase.receive(sums, 0.0)
        if phase.name != "lost":
            raise AssertionError(f"{self.name}: it ended with {phase}")
        fault: PeerFault = phase.fault
        return fault


def disagreements() -> list[Attack]:
    """The digests of helper-0 are those of seeds 1, 2 and 3; of helper-1 of 0, 2 and 3; and so on."""
    cause, true = Cause.HELPER_DISAGREEMENT, (0, 1, 2)
    return [
        Disagreeing("two holders of a seed return different sums", "H8", DISAGREEING, cause, ("helper-0", "helper-2"), 2, ((1, 0, 2), true, true)),
        Disagreeing("three holders of a seed return three sums", "H8", DISAGREEING, cause, ("helper-0", "helper-1", "helper-3"), 1, ((2, 0, 1), (1, 0, 2), true, true)),
        Disagreeing("two helpers are outvoted, each on another seed", "H8", DISAGREEING, cause, ("helper-0", "helper-1"), 1, ((2, 1, 2), (2, 1, 2), true, true)),
    ]  # fmt: skip


def attacks() -> list[Attack]:
    """All of them."""
    return [*records(), *disagreements()]
