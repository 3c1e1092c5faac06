"""Which survivors are proposed, and what anybody can check of them: decryptors, coordinator, auditors (protocol §4.5, §4.6)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from protocol.attempt import Attempt, group_floor
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.errors import PeerFault
from protocol.ledger import LedgerFault, Opened, alone, check_forks, check_ledger, mixed, opened_sets
from protocol.messages import NO_INDICATOR, Family, Past, Receipt, Survivor, deliveries_hash
from protocol.narrowing import Narrowing
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
    # Of those who committed alone: a cohort of thousands has millions of edges, be there one upload.
    committed = {member: upload.committed for member, upload in sorted(uploads.items())}
    neighbours = {member: attempt.neighbours(member) for member in committed}
    for low, one in committed.items():
        for index, high in enumerate(neighbours[low], start=1):
            other = committed.get(high) if high > low else None
            if other and one.entry(index) != other.entry(1 + bisect_left(neighbours[high], low)):
                yield Dispute(Cause.EDGE_DISAGREEMENT, low, high)


def covers(receipt: Receipt, uploads: Mapping[str, Announced]) -> bool:
    """Whether a receipt is for exactly these uploads, less its sender's own."""
    dealers = [dealer for dealer in uploads if dealer != receipt.member]
    digests = (uploads[dealer].header.digest for dealer in dealers)
    return sorted(receipt.dealers + receipt.complaints) == dealers and receipt.uploads == deliveries_hash(
        receipt.context, digests
    )


def contested(
    attempt: Attempt, receipts: Mapping[str, Receipt], disputes: Iterable[Dispute]
) -> tuple[Dispute, ...]:
    """Without complaints about dealers of whose shares `t` honest decryptors vouch, whoever lies (protocol §4.5)."""
    held = attempt.quorum.threshold + attempt.quorum.decryptor_colluders
    clean = _clean(receipts)
    return tuple(each for each in disputes if each.cause is not Cause.BOX_REFUSED or clean[each.one] < held)


def _clean(receipts: Mapping[str, Receipt]) -> Counter[str]:
    """How many clean receipts each dealer has."""
    clean = Counter(dealer for receipt in receipts.values() for dealer in receipt.dealers)
    clean.update(receipts.keys())  # a decryptor keeps its own share
    return clean


def starved(
    attempt: Attempt, uploads: Mapping[str, Announced], receipts: Mapping[str, Receipt]
) -> tuple[str, ...]:
    """Dealers that the receipts so far leave out, with fewer than `t` clean ones, whatever cover is dropped (protocol §4.5)."""
    clean = _clean(receipts)
    return tuple(dealer for dealer in uploads if clean[dealer] < attempt.quorum.threshold)


def settle(
    attempt: Attempt,
    uploads: Mapping[str, Announced],
    receipts: Mapping[str, Receipt],
    disputes: tuple[Dispute, ...],
    history: Sequence[Past],
) -> tuple[dict[str, Announced], tuple[Dispute, ...]]:
    """The survivors to propose, and the disputes that had members dropped (protocol §4.5).

    Args:
        attempt: gives context and threshold.
        uploads: the whole ones, in order of member.
        receipts: by decryptor; they cover all of those.
        disputes: those of `disputes_among` these that are `contested`.
        history: how each attempt ended that the opening's links name.

    Raises:
        PeerFault: chain-broken where the history is not that of the links.
    """
    opened, clean = opened_sets(attempt.opening.links, history), _clean(receipts)
    vouched = {
        member: Survivor.of(upload.header)
        for member, upload in uploads.items()
        if clean[member] >= attempt.quorum.threshold
    }
    counted = _as_counted(attempt, vouched, history)
    staying = _undisputed(attempt, counted, disputes, opened)
    if disputes and not _may_be_proposed(attempt, staying, history):
        # Who stands in no sum has nothing to lose by a lie: its word counts only where it costs no sum.
        base = _undisputed(attempt, counted, (), opened)
        disputes = tuple(each for each in disputes if base.keys() >= {*each.parties})
        staying = _undisputed(attempt, base, disputes, opened)
    return {member: uploads[member] for member in staying}, disputes


def _undisputed(
    attempt: Attempt, staying: dict[str, Survivor], disputes: Sequence[Dispute], opened: Sequence[Opened]
) -> dict[str, Survivor]:
    """Without a cover of these disputes, as far as the ledger allows."""
    dropped = vertex_cover(attempt.context, disputes, attempt.quorum.colluders)
    return _as_the_ledger_allows(attempt, _without(staying, dropped), opened)


def _may_be_proposed(attempt: Attempt, staying: Mapping[str, Survivor], history: Sequence[Past]) -> bool:
    try:
        check_proposal(attempt, tuple(staying.values()), history)
    except PeerFault:
        return False
    return True


def _as_counted(
    attempt: Attempt, staying: dict[str, Survivor], history: Sequence[Past]
) -> dict[str, Survivor]:
    """Without those whom the indicator round did not count with these records: it counted S∖E (protocol §9)."""
    if attempt.terms.indicator == NO_INDICATOR:
        return staying
    counted = _records(_counted(attempt, history))
    return {member: each for member, each in staying.items() if _records([each]) <= counted}


def _counted(attempt: Attempt, history: Sequence[Past]) -> list[Survivor]:
    """The indicator round's S∖E, as the chain and the terms have them."""
    evicted = {*attempt.terms.evicted}
    return [
        each
        for past in history
        if past.context == attempt.terms.indicator
        for opened in past.sets
        for each in opened.survivors
        if each.member not in evicted
    ]


def _records(survivors: Iterable[Survivor]) -> set[tuple[str, bytes, bytes]]:
    return {(each.member, each.lineage, each.records) for each in survivors}


def _as_the_ledger_allows(
    attempt: Attempt, staying: dict[str, Survivor], opened: Sequence[Opened]
) -> dict[str, Survivor]:
    """Without members whose columns of this very sum would stand alone: newcomers to a lineage's rounds, or its abusers."""
    staying = _without(staying, mixed(opened, opened_by(attempt, tuple(staying.values()))))
    proposal = opened_by(attempt, tuple(staying.values()))
    if proposal.family == Family.NOISY:
        return staying
    groups = Narrowing(opened, proposal, attempt.opening.exceptions)
    while group := groups.smallest():
        # Only members whose columns of this very sum stand alone can be dropped from it.
        if not (staying.keys() >= {*group.members} and attempt.context in group.rounds):
            return _without_abusers(attempt, staying, opened)
        staying = _without(staying, group.members)
        groups.leave(group.members)
    try:
        check_forks(opened, opened_by(attempt, tuple(staying.values())), attempt.manifest.colluders)
    except LedgerFault:
        return _without_abusers(attempt, staying, opened)
    return staying


def _without_abusers(
    attempt: Attempt, staying: dict[str, Survivor], opened: Sequence[Opened]
) -> dict[str, Survivor]:
    """An older group is named, which this sum touches by an old lineage: without all who stand alone in it, if that mends it."""
    proposal = opened_by(attempt, tuple(staying.values()))
    left = _without(staying, alone(opened, proposal, attempt.opening.exceptions))
    if not 0 < len(staying) - len(left) <= attempt.manifest.colluders:
        return staying  # there are none, or more than can be false
    try:
        _check_ledger(attempt, tuple(left.values()), opened)
    except PeerFault:
        return staying
    return left


def _without(staying: dict[str, Survivor], dropped: Collection[str]) -> dict[str, Survivor]:
    return {member: each for member, each in staying.items() if member not in dropped}


def opened_by(attempt: Attempt, survivors: tuple[Survivor, ...]) -> Opened:
    """What a sum of this attempt over these survivors opens."""
    family, floor = attempt.opening.terms.family.value, group_floor(attempt.manifest)
    return Opened(attempt.context, family, floor, survivors)


def _check_ledger(attempt: Attempt, survivors: tuple[Survivor, ...], opened: Sequence[Opened]) -> None:
    proposal = opened_by(attempt, survivors)
    check_ledger(opened, proposal, attempt.opening.exceptions)
    if proposal.family != Family.NOISY:
        check_forks(opened, proposal, attempt.manifest.colluders)


def check_survivors(attempt: Attempt, survivors: tuple[Survivor, ...], history: Sequence[Past]) -> None:
    """Check survivors as far as whoever holds the history can, in this order (protocol §4.6, clauses 1 to 4).

    Args:
        attempt: what they are proposed for.
        survivors: as proposed.
        history: how each attempt ended that the opening's links name.

    Raises:
        PeerFault: survivors-invalid, survivors-too-few, window-exceeded, chain-broken, lineage-mixed, ledger-refused.
    """
    attempt.check_survivors(survivors)
    attempt.check_windows({survivor.member for survivor in survivors})
    _check_ledger(attempt, survivors, opened_sets(attempt.opening.links, history))


def check_proposal(attempt: Attempt, survivors: tuple[Survivor, ...], history: Sequence[Past]) -> None:
    """Check survivors as far as anybody can who was not dealt their uploads: clauses 1 to 4, and 7 by the chain.

    Raises:
        PeerFault: as `check_survivors` and `check_counted`.
    """
    check_survivors(attempt, survivors, history)
    if attempt.terms.indicator != NO_INDICATOR:
        check_counted(attempt, survivors, _counted(attempt, history))


def check_counted(attempt: Attempt, survivors: Iterable[Survivor], counted: Iterable[Survivor]) -> None:
    """Refuse survivors that an indicator round did not count, or that leave out too many whom it did (protocol §4.6, clause 7).

    Args:
        attempt: a main round.
        survivors: as proposed.
        counted: the indicator round's S∖E.

    Raises:
        PeerFault: indicator-mismatch, naming those.
    """
    here, there, margin = _records(survivors), _records(counted), attempt.terms.margin
    if here - there:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            "survivors were not in the indicator round with these records",
            sorted(member for member, *_ in here - there),
        )
    if len(there - here) > margin:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"{len(there - here)} of the indicator round are missing, at most {margin} may be",
            sorted(member for member, *_ in there - here),
        )
