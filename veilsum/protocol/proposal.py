"""Choose the survivors to propose, and check a proposal (wire: Survivors, wire: Votes)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.messages import Receipt, Survivor, SurvivorSet, deliveries_hash, survivors_hash
from veilsum.protocol.opening_rules import earlier_contexts, link_of
from veilsum.protocol.shelf import Announced


def disputes_among(
    attempt: Attempt, uploads: Mapping[str, Announced], receipts: Mapping[str, Receipt]
) -> tuple[Dispute, ...]:
    """Return a dispute for each edge whose ends committed differently, then for each complaint.

    Honest ends of an edge derive the same seed from the cards and the context.
    """
    # Look only at edges between members that committed: a cohort of thousands has millions of edges, even with one upload.
    committed = {member: upload.commitments for member, upload in sorted(uploads.items())}
    neighbours = {member: attempt.neighbours_of(member) for member in committed}
    disputes = []
    for low, one in committed.items():
        for index, high in enumerate(neighbours[low], start=1):
            other = committed.get(high) if high > low else None
            if other and one.commitment_to(index) != other.commitment_to(
                1 + bisect_left(neighbours[high], low)
            ):
                disputes.append(Dispute(Cause.EDGE_DISAGREEMENT, low, high))
    for receipt in receipts.values():
        disputes += [Dispute(Cause.BOX_REFUSED, dealer, receipt.member) for dealer in receipt.complaints]
    return tuple(disputes)


def covers_uploads(receipt: Receipt, uploads: Mapping[str, Announced]) -> bool:
    """Whether a receipt covers exactly these uploads, without its sender's own."""
    dealers = [dealer for dealer in uploads if dealer != receipt.member]
    digests = (uploads[dealer].header.digest for dealer in dealers)
    return sorted(receipt.dealers + receipt.complaints) == dealers and receipt.uploads == deliveries_hash(
        receipt.context, digests
    )


def contested_disputes(
    attempt: Attempt, receipts: Mapping[str, Receipt], disputes: Iterable[Dispute]
) -> tuple[Dispute, ...]:
    """Remove complaints about dealers for whose shares at least `t` honest decryptors vouch (wire: Survivors)."""
    held = attempt.quorum.threshold + attempt.quorum.decryptor_colluders
    clean = _count_clean_receipts(receipts)
    return tuple(each for each in disputes if each.cause is not Cause.BOX_REFUSED or clean[each.one] < held)


def _count_clean_receipts(receipts: Mapping[str, Receipt]) -> Counter[str]:
    clean = Counter(dealer for receipt in receipts.values() for dealer in receipt.dealers)
    clean.update(receipts.keys())  # a decryptor keeps its own share
    return clean


def below_receipt_threshold(
    attempt: Attempt, uploads: Mapping[str, Announced], receipts: Mapping[str, Receipt]
) -> tuple[str, ...]:
    """Return the dealers with fewer than `t` clean receipts so far, which no cover can keep (wire: Survivors)."""
    clean = _count_clean_receipts(receipts)
    return tuple(dealer for dealer in uploads if clean[dealer] < attempt.quorum.threshold)


def choose_survivors(
    attempt: Attempt,
    uploads: Mapping[str, Announced],
    receipts: Mapping[str, Receipt],
    disputes: tuple[Dispute, ...],
    earlier: Sequence[SurvivorSet],
) -> tuple[dict[str, Announced], tuple[Dispute, ...]]:
    """Choose the survivors to propose; also return the disputes that dropped members (wire: Survivors).

    `uploads` are the complete ones, ordered by member, and each receipt covers all of them. `disputes` are the `contested_disputes` ones of
    `disputes_among`.
    """
    clean = _count_clean_receipts(receipts)
    vouched = {
        member: Survivor.from_header(upload.header)
        for member, upload in uploads.items()
        if clean[member] >= attempt.quorum.threshold
    }
    counted = keep_counted(attempt, vouched, earlier)
    staying = _drop_cover(attempt, counted, disputes)
    if disputes and not may_be_proposed(attempt, staying.values(), earlier):
        # A member outside the sum loses nothing by lying, so its complaints count only if the sum survives them.
        disputes = tuple(each for each in disputes if counted.keys() >= {*each.parties})
        staying = _drop_cover(attempt, counted, disputes)
    return {member: uploads[member] for member in staying}, disputes


def _drop_cover(
    attempt: Attempt, staying: dict[str, Survivor], disputes: Sequence[Dispute]
) -> dict[str, Survivor]:
    dropped = vertex_cover(attempt.context, disputes, attempt.quorum.colluders)
    return {member: each for member, each in staying.items() if member not in dropped}


def may_be_proposed(attempt: Attempt, survivors: Iterable[Survivor], earlier: Sequence[SurvivorSet]) -> bool:
    """Whether `check_proposal` refuses nothing."""
    try:
        check_proposal(attempt, tuple(survivors), earlier)
    except PeerFault:
        return False
    return True


def keep_counted(
    attempt: Attempt, staying: dict[str, Survivor], earlier: Sequence[SurvivorSet]
) -> dict[str, Survivor]:
    """Drop members that one of the counts did not count; each counted S∖E (FREEZE-8)."""
    if not attempt.repeats:
        for counted in _counted_members(attempt, earlier):
            staying = {member: each for member, each in staying.items() if member in counted}
    return staying


def _counted_members(attempt: Attempt, earlier: Sequence[SurvivorSet]) -> list[set[str]]:
    """Return the S∖E of each count that the attempt rests on, oldest first."""
    evicted = attempt.terms.evicted
    return [{each.member for each in opened.survivors}.difference(evicted) for opened in earlier]


def check_proposal(attempt: Attempt, survivors: tuple[Survivor, ...], earlier: Sequence[SurvivorSet]) -> None:
    """Check survivors as far as possible without the delivered uploads, in the order of FREEZE-2 to FREEZE-9.

    Raises:
        PeerFault: survivors-invalid, survivors-too-few, window-exceeded, malformed, repeat-mismatch, count-mismatch.
    """
    attempt.check_survivors(survivors)
    members = {survivor.member for survivor in survivors}
    attempt.check_windows(members)
    contexts = earlier_contexts(attempt)
    if len(earlier) != len(contexts):
        raise PeerFault(
            Cause.MALFORMED,
            f"{len(earlier)} certified sets are shown, and the attempt rests on {len(contexts)}",
            ["coordinator"],
        )
    for context, opened in zip(contexts, earlier, strict=True):
        link = link_of(attempt.opening.links, context)
        if link is None or survivors_hash(context, opened.survivors) != link.survivors:
            raise PeerFault(
                Cause.REPEAT_MISMATCH if attempt.repeats else Cause.COUNT_MISMATCH,
                "a set that the attempt rests on is not the one that was certified",
                ["coordinator"],
            )
    if attempt.repeats:
        _check_same(members, {each.member for each in earlier[0].survivors})
    elif contexts:
        _check_counted(attempt, members, _counted_members(attempt, earlier))


def _check_same(members: set[str], repeated: set[str]) -> None:
    if members != repeated:
        raise PeerFault(
            Cause.REPEAT_MISMATCH,
            "a repeated run sums exactly the members of the attempt that it repeats",
            sorted(members ^ repeated),
        )


def _check_counted(attempt: Attempt, members: set[str], counted: Sequence[set[str]]) -> None:
    """Check the members against those of each count. The margin is for all that are missing of the first."""
    withhold = attempt.question.withhold
    assert withhold is not None
    if strangers := {each for each in members if any(each not in names for names in counted)}:
        raise PeerFault(Cause.COUNT_MISMATCH, "survivors that were not counted", sorted(strangers))
    if len(missing := counted[0] - members) > withhold.margin:
        raise PeerFault(
            Cause.COUNT_MISMATCH,
            f"{count_noun(len(missing), 'counted member')} missing, at most {withhold.margin} may be",
            sorted(missing),
        )
