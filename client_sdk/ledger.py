"""What a member can say of its federation's ledger: what was opened, who stands with whom, and what would be refused next.

Two sums over sets that differ show the sum over the difference; the rule that forbids the small ones is protocol §8.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from client_sdk.errors import PeerFault
from client_sdk.lineages import Lineage
from client_sdk.store import Store
from protocol.attempt import colluders_assumed, group_floor
from protocol.causes import Cause
from protocol.ledger import READINGS, Opened, groups, opened_sets
from protocol.member import Closed, History, Ready
from protocol.member.attempting import Attempting
from protocol.messages import (
    EMPTY_CHAIN,
    LOST_REASON,
    NO_REASON,
    Family,
    Ledger,
    Link,
    Past,
    Roster,
    extend_chain,
)
from protocol.parameters import HONEST_MIN
from protocol.rest import round_name

READING_NAMES = ("by lineage", "by version")


@dataclass(frozen=True)
class Round:
    """A closed attempt.

    Attributes:
        ended: "sum", "void" or "lost".
        why: the reason of a VOID; "" otherwise.
        sets: how many members each set has that counts as opened.
        own: lineages of this member that stand in one of them, by name.
    """

    round_id: str
    family: str
    cohort: str
    sequence: int
    attempt: int
    ended: str
    why: str
    sets: tuple[int, ...]
    own: tuple[str, ...]


@dataclass(frozen=True)
class Grouped:
    """Columns of one family that stand in the same opened rounds and in no other.

    Attributes:
        reading: one of `READING_NAMES`.
        rounds: their ids.
        floor: the largest g of those rounds.
    """

    family: str
    reading: str
    members: tuple[str, ...]
    rounds: tuple[str, ...]
    floor: int


@dataclass(frozen=True)
class Account:
    """The ledger as this member sees it.

    Attributes:
        floor: g of the newest cohort, the fewest members of a group that the next round makes.
        rounds: oldest first; none without the coordinator's ledger.
        groups: in both readings.
        lineages: this member's own.
        spent: of those, by name, the ones that no exact round takes any more.
        waiting: rounds whose end this member has not been shown.
    """

    floor: int
    rounds: tuple[Round, ...]
    groups: tuple[Grouped, ...]
    lineages: tuple[Lineage, ...]
    spent: tuple[str, ...]
    waiting: tuple[str, ...]

    def refused_next(self) -> tuple[str, ...]:
        """What no honest decryptor, or this member, would take part in, in words."""
        return tuple(self._refused())

    def _refused(self) -> Iterator[str]:
        for round_id in self.waiting:
            yield f"any round, before this member is shown how round {round_id} ended"
        for name in self.spent:
            yield f"lineage {name} in an exact round: it was uploaded to one that the admin closed as lost"
        for group in dict.fromkeys(
            (g.family, g.members, g.floor) for g in self.groups if g.family != Family.NOISY
        ):
            family, members, left = group
            taken = max(left, self.floor)
            if len(members) < taken + left:
                part = "some but not all"
            else:
                part = f"fewer than {taken}, or all but fewer than {left},"
            yield f"a sum in {family} rounds over {part} of {', '.join(members)}"
        yield f"a sum with new lineages of fewer than {self.floor} members"


def account(store: Store, member: str, ledger: Ledger | None) -> Account:
    """Read the ledger.

    Args:
        store: this member's.
        member: its id.
        ledger: the coordinator's, which must go on from the chain that this member knows; None for what is here.

    Raises:
        PeerFault: wrong-federation or chain-broken.
    """
    history, lineages = store.history(), store.lineages.all()
    names = {lineage.tag: lineage.name for lineage in lineages}
    opened: tuple[Opened, ...] = ()
    rounds: tuple[Round, ...] = ()
    if ledger is not None:
        roster = store.roster()
        if roster is not None and ledger.federation != roster.federation:
            raise PeerFault(Cause.WRONG_FEDERATION, "the ledger is another federation's", ["coordinator"])
        check_chain(history, ledger.links)
        opened = opened_sets(ledger.links, ledger.history)
        rounds = tuple(
            _round(link, past, member, names) for link, past in zip(ledger.links, ledger.history, strict=True)
        )
    return Account(
        _floor(store),
        rounds,
        tuple(chain.from_iterable(_grouped(opened, family) for family in Family)),
        lineages,
        tuple(names[tag] for tag in history.spent if tag in names),
        tuple(round_name(entry.attempt.context) for entry in history.unsettled),
    )


def check_chain(history: History, links: Sequence[Link]) -> None:
    """Refuse links that do not go on from what a member knows (chain-broken)."""
    known = tuple(links[: history.length])
    if len(known) < history.length or extend_chain(EMPTY_CHAIN, known) != history.head:
        raise PeerFault(
            Cause.CHAIN_BROKEN, "the ledger does not begin with the rounds this member knows", ["coordinator"]
        )
    if not set(history.settled) <= set(links):
        raise PeerFault(
            Cause.CHAIN_BROKEN, "the ledger omits a round that this member knows", ["coordinator"]
        )


def _round(link: Link, past: Past, member: str, names: dict[bytes, str]) -> Round:
    ended = {NO_REASON: "sum", LOST_REASON: "lost"}.get(past.reason, "void")
    own = {
        names.get(survivor.lineage, "unknown")
        for each in past.sets
        for survivor in each.survivors
        if survivor.member == member
    }
    return Round(
        round_name(link.context),
        link.family,
        link.cohort.hex(),
        link.sequence,
        link.attempt,
        ended,
        past.reason if ended == "void" else "",
        tuple(len(each.survivors) for each in past.sets),
        tuple(sorted(own)),
    )


def _grouped(opened: Sequence[Opened], family: Family) -> Iterator[Grouped]:
    inside = [each for each in opened if each.family == family]
    for name, reading in zip(READING_NAMES, READINGS, strict=True):
        for group in groups(inside, reading):
            yield Grouped(
                family.value, name, group.members, tuple(map(round_name, group.rounds)), group.floor
            )


def _floor(store: Store) -> int:
    """G of the newest cohort that this member is in; the roster's default before it is in one."""
    manifests = [
        (held.phase if isinstance(held.phase, Ready) else held.phase.ready).manifest
        for _, held in store.cohorts()
        if isinstance(held.phase, Ready | Attempting | Closed)
    ]
    if manifests:
        return group_floor(max(manifests, key=lambda manifest: manifest.counter))
    roster: Roster | None = store.roster()
    return (colluders_assumed(roster) if roster is not None else 0) + HONEST_MIN
