"""Which survivors are proposed, and what anybody can check of them: decryptors, coordinator, auditors (protocol §4.5, §4.6)."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from protocol.attempt import Attempt, group_floor
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.errors import PeerFault
from protocol.ledger import LedgerFault, Opened, alone, check_forks, check_ledger, opened_sets
from protocol.messages import NO_INDICATOR, Family, Past, Receipt, Survivor, deliveries_hash
from protocol.shelf import Announced


def disputes_among(
    attempt: Attempt, uploads: Mapping[str, Announced], receipts: Mapping[str, Receipt]
) -> tuple[Dispute, ...]:
    """Edges whose two ends committed differently, then complaints.

    Both ends of an edge derive the same seed from true cards and one context.
    """
    boxes = (
        Dispute(Cause.BOX_REFUSED, dealer, receipt.member)
        for receipt in receipts.values()
        for dealer in receipt.complaints
    )
    return (*_edges_disputed(attempt, uploads), *boxes)


def _edges_disputed(attempt: Attempt, uploads: Mapping[str, Announced]) -> Iterator[Dispute]:
    # Members ascend, and so do anybody's neighbours: where an edge stands among the secrets of its higher end is how many
    # of that member's edges have come up, and no edge is looked up.
    met = dict.fromkeys(attempt.members, 0)
    for low in attempt.members:
        upload = uploads.get(low)
        for index, high in enumerate(attempt.neighbours(low), start=1):
            if high < low:
                continue
            met[high] += 1
            other = uploads.get(high)
            if upload and other and upload.commitment(index) != other.commitment(met[high]):
                yield Dispute(Cause.EDGE_DISAGREEMENT, low, high)


def covers(receipt: Receipt, uploads: Mapping[str, Announced]) -> bool:
    """Whether a receipt is for exactly these uploads, less its sender's own."""
    dealers = [dealer for dealer in uploads if dealer != receipt.member]
    digests = (uploads[dealer].header.digest for dealer in dealers)
    return sorted(receipt.dealers + receipt.complaints) == dealers and receipt.uploads == deliveries_hash(
        receipt.context, digests
    )


def settle(
    attempt: Attempt,
    uploads: Mapping[str, Announced],
    receipts: Mapping[str, Receipt],
    disputes: Sequence[Dispute],
    history: Sequence[Past],
) -> dict[str, Announced]:
    """The survivors to propose (protocol §4.5).

    Args:
        attempt: gives context and threshold.
        uploads: the whole ones, in order of member.
        receipts: by decryptor; they cover all of those.
        disputes: `disputes_among` these.
        history: how each attempt ended that the opening's links name.

    Raises:
        PeerFault: chain-broken where the history is not that of the links.
    """
    dropped = vertex_cover(attempt.context, disputes)
    clean = Counter(dealer for receipt in receipts.values() for dealer in receipt.dealers)
    clean.update(receipts.keys())  # a decryptor keeps its own share
    staying = {
        member: Survivor.of(upload.header)
        for member, upload in uploads.items()
        if member not in dropped and clean[member] >= attempt.quorum.threshold
    }
    staying = _as_counted(attempt, staying, history)
    staying = _as_the_ledger_allows(attempt, staying, opened_sets(attempt.opening.links, history))
    return {member: uploads[member] for member in staying}


def _as_counted(
    attempt: Attempt, staying: dict[str, Survivor], history: Sequence[Past]
) -> dict[str, Survivor]:
    """Without those whom the indicator round did not count with these records: it counted S∖E (protocol §9)."""
    terms = attempt.opening.terms
    if terms.indicator == NO_INDICATOR:
        return staying
    counted = {
        (each.member, each.lineage, each.records)
        for past in history
        if past.context == terms.indicator
        for opened in past.sets
        for each in opened.survivors
        if each.member not in terms.evicted
    }
    return {
        member: each
        for member, each in staying.items()
        if (each.member, each.lineage, each.records) in counted
    }


def _as_the_ledger_allows(
    attempt: Attempt, staying: dict[str, Survivor], opened: Sequence[Opened]
) -> dict[str, Survivor]:
    """Without members whose columns of this very sum would stand alone: newcomers to a lineage's rounds, or its abusers."""
    while staying:
        try:
            _check_ledger(attempt, tuple(staying.values()), opened)
        except LedgerFault as fault:
            # Only members whose columns of this very sum stand alone can be dropped from it.
            inside = staying.keys() >= set(fault.group.members) and attempt.context in fault.group.rounds
            if not inside:
                return _without_abusers(attempt, staying, opened)
            dropped: Collection[str] = fault.group.members
        except PeerFault as fault:
            dropped = fault.parties
        else:
            break
        staying = _without(staying, dropped)
    return staying


def _without_abusers(
    attempt: Attempt, staying: dict[str, Survivor], opened: Sequence[Opened]
) -> dict[str, Survivor]:
    """An older group is named, which this sum touches by an old lineage: without all who stand alone in it, if that mends it."""
    floor, exceptions = group_floor(attempt.manifest), attempt.opening.exceptions
    left = _without(staying, alone(opened, _proposal(attempt, tuple(staying.values())), floor, exceptions))
    if not 0 < len(staying) - len(left) <= attempt.manifest.colluders:
        return staying  # there are none, or more than can be false
    try:
        _check_ledger(attempt, tuple(left.values()), opened)
    except PeerFault:
        return staying
    return left


def _without(staying: dict[str, Survivor], dropped: Collection[str]) -> dict[str, Survivor]:
    return {member: each for member, each in staying.items() if member not in dropped}


def _proposal(attempt: Attempt, survivors: tuple[Survivor, ...]) -> Opened:
    return Opened(attempt.context, attempt.opening.terms.family.value, survivors)


def _check_ledger(attempt: Attempt, survivors: tuple[Survivor, ...], opened: Sequence[Opened]) -> None:
    proposal = _proposal(attempt, survivors)
    floor = group_floor(attempt.manifest)
    check_ledger(opened, proposal, floor, attempt.opening.exceptions)
    if proposal.family != Family.NOISY:
        check_forks(opened, proposal, attempt.manifest.colluders, floor)


def check_survivors(
    attempt: Attempt, survivors: tuple[Survivor, ...], history: Sequence[Past], signed: Sequence[Opened] = ()
) -> None:
    """Check survivors as far as whoever holds the history can, in this order (protocol §4.6, clauses 1 to 4).

    Args:
        attempt: what they are proposed for.
        survivors: as proposed.
        history: how each attempt ended that the opening's links name.
        signed: sets that count as opened beside it.

    Raises:
        PeerFault: survivors-invalid, survivors-too-few, window-exceeded, chain-broken, lineage-mixed, ledger-refused.
    """
    attempt.check_survivors(survivors)
    attempt.check_windows({survivor.member for survivor in survivors})
    _check_ledger(attempt, survivors, (*opened_sets(attempt.opening.links, history), *signed))
