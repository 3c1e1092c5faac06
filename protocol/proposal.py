"""Which survivors are proposed, and what anybody can check of them: decryptors, coordinator, auditors (protocol §4.5, §4.6)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.errors import PeerFault
from protocol.messages import NO_CONTEXT, Receipt, Survivor, SurvivorSet, deliveries_hash, survivors_hash
from protocol.opening_rules import earlier_context, link_of
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
    earlier: Sequence[SurvivorSet],
) -> tuple[dict[str, Announced], tuple[Dispute, ...]]:
    """The survivors to propose, and the disputes that had members dropped (protocol §4.5).

    Args:
        attempt: gives context and threshold.
        uploads: the whole ones, in order of member.
        receipts: by decryptor; they cover all of those.
        disputes: those of `disputes_among` these that are `contested`.
        earlier: the certified set that the attempt rests on, if it rests on one.
    """
    clean = _clean(receipts)
    vouched = {
        member: Survivor.of(upload.header)
        for member, upload in uploads.items()
        if clean[member] >= attempt.quorum.threshold
    }
    counted = _as_counted(attempt, vouched, earlier)
    staying = _undisputed(attempt, counted, disputes)
    if disputes and not _may_be_proposed(attempt, staying, earlier):
        # A member that stands in no sum has nothing to lose by a lie: its word counts only where it costs no sum.
        disputes = tuple(each for each in disputes if counted.keys() >= {*each.parties})
        staying = _undisputed(attempt, counted, disputes)
    return {member: uploads[member] for member in staying}, disputes


def _undisputed(
    attempt: Attempt, staying: dict[str, Survivor], disputes: Sequence[Dispute]
) -> dict[str, Survivor]:
    """Without a cover of these disputes."""
    dropped = vertex_cover(attempt.context, disputes, attempt.quorum.colluders)
    return {member: each for member, each in staying.items() if member not in dropped}


def _may_be_proposed(
    attempt: Attempt, staying: Mapping[str, Survivor], earlier: Sequence[SurvivorSet]
) -> bool:
    try:
        check_proposal(attempt, tuple(staying.values()), earlier)
    except PeerFault:
        return False
    return True


def _as_counted(
    attempt: Attempt, staying: dict[str, Survivor], earlier: Sequence[SurvivorSet]
) -> dict[str, Survivor]:
    """Without members that the indicator did not count: it counted S∖E (protocol §8.3)."""
    if attempt.repeats or attempt.terms.indicator == NO_CONTEXT:
        return staying
    counted = _counted(attempt, earlier)
    return {member: each for member, each in staying.items() if member in counted}


def _counted(attempt: Attempt, earlier: Sequence[SurvivorSet]) -> set[str]:
    """The indicator's S∖E."""
    certified = (each.member for opened in earlier for each in opened.survivors)
    return set(certified).difference(attempt.terms.evicted)


def check_proposal(attempt: Attempt, survivors: tuple[Survivor, ...], earlier: Sequence[SurvivorSet]) -> None:
    """Check survivors as far as no one needs to have been dealt their uploads, in this order (protocol §4.6).

    1. members in order, at least n_min of them; 2. no window lost too many; 3. with `repeats`, `earlier` is the repeated attempt's set, and
    the survivors are its members; 6. of a sum under an indicator, `earlier` is the indicator's set, and the survivors are members that
    it counted, of whom at most the margin is missing; otherwise `earlier` is empty.

    Args:
        attempt: what they are proposed for; its opening was checked.
        survivors: as proposed.
        earlier: the certified set that the attempt rests on, if it rests on one.

    Raises:
        PeerFault: survivors-invalid, survivors-too-few, window-exceeded, malformed, repeat-mismatch, indicator-mismatch.
    """
    attempt.check_survivors(survivors)
    members = {survivor.member for survivor in survivors}
    attempt.check_windows(members)
    context = earlier_context(attempt)
    if bool(earlier) != (context != NO_CONTEXT):
        raise PeerFault(
            Cause.MALFORMED,
            "the set that the attempt rests on is missing, or shown for no reason",
            ["coordinator"],
        )
    if not earlier:
        return
    link, cause = link_of(attempt.opening.links, context), _mismatch(attempt)
    if link is None or survivors_hash(context, earlier[0].survivors) != link.survivors:
        raise PeerFault(
            cause, "the set that the attempt rests on is not the one that was certified", ["coordinator"]
        )
    if attempt.repeats:
        _check_same(members, {each.member for each in earlier[0].survivors})
    else:
        _check_counted(attempt, members, _counted(attempt, earlier))


def _mismatch(attempt: Attempt) -> Cause:
    return Cause.REPEAT_MISMATCH if attempt.repeats else Cause.INDICATOR_MISMATCH


def _check_same(members: set[str], repeated: set[str]) -> None:
    if members != repeated:
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "a repeated run sums exactly the members of the attempt that it repeats",
            sorted(members ^ repeated),
        )


def _check_counted(attempt: Attempt, members: set[str], counted: set[str]) -> None:
    withhold = attempt.question.withhold
    assert withhold is not None
    if strangers := members - counted:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH, "survivors that the indicator did not count", sorted(strangers)
        )
    if len(counted - members) > withhold.margin:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"{len(counted - members)} members that the indicator counted are missing, at most {withhold.margin} may be",
            sorted(counted - members),
        )
