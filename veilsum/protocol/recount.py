"""A member's recount of a count (wire: Counts)."""

from hashlib import sha256

import numpy as np
import numpy.typing as npt

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import Disclosed, Disclosure, Survivor, commitment_at
from veilsum.protocol.reveal_plan import due_secrets
from veilsum.protocol.unmasking import Unmasking


def recount_disclosure(
    attempt: Attempt, survivors: tuple[Survivor, ...], disclosure: Disclosure
) -> npt.NDArray[np.int64]:
    """Check a disclosed count in the order of COUNT-2 to COUNT-5, and count the holders of each class, (C,).

    `survivors` are S∖E, the certified survivors without the evicted dealers.

    Raises:
        PeerFault: disclosure-invalid, naming the entry's member.
    """
    attempt.check_context(disclosure.context, "coordinator")
    if tuple(Survivor.from_header(entry.header) for entry in disclosure.entries) != survivors:
        raise _disclosure_fault("the entries are not the certified survivors'")
    staying = {survivor.member for survivor in survivors}
    self_seeds, edge_seeds = dict[str, bytes](), dict[tuple[str, str], bytes]()
    for entry in disclosure.entries:
        _check_seeds(attempt, entry, staying, self_seeds, edge_seeds)
        _check_chunks(attempt, entry)
    unmasking = Unmasking(attempt, tuple(sorted(staying)), self_seeds, edge_seeds)
    return np.concatenate(
        [
            unmasking.sum_chunk(index, ((entry.member, entry.chunks[index]) for entry in disclosure.entries))
            for index in range(attempt.chunk_count)
        ]
    )


def _check_seeds(
    attempt: Attempt,
    entry: Disclosed,
    staying: set[str],
    self_seeds: dict[str, bytes],
    edge_seeds: dict[tuple[str, str], bytes],
) -> None:
    if not attempt.has_signed_commitments(entry.header, entry.commitments, entry.path):
        raise _disclosure_fault("the secrets' commitments are not those that were signed", entry)
    due = due_secrets(attempt, entry.member, staying)
    if [each.index for each in due] != [seed.index for seed in entry.seeds]:
        raise _disclosure_fault("other seeds are shown than the sum needs", entry)
    for each, shown in zip(due, entry.seeds, strict=True):
        if each.commit_to(attempt.context, shown.seed) != commitment_at(entry.commitments, each.index):
            raise _disclosure_fault(f"seed {each.index} is not the one committed to", entry)
        if each.lost is None:
            self_seeds[entry.member] = shown.seed
        else:
            edge_seeds[entry.member, each.lost] = shown.seed


def _check_chunks(attempt: Attempt, entry: Disclosed) -> None:
    # Check number and lengths first: a message has room for a million chunks, and hashing them takes half a second.
    if (
        not len(entry.chunks) == len(entry.chunk_digests) == attempt.chunk_count
        or not all(attempt.is_chunk(index, chunk) for index, chunk in enumerate(entry.chunks))
        or Tree(entry.chunk_digests).root != entry.header.chunk_root
        or tuple(sha256(chunk).digest() for chunk in entry.chunks) != entry.chunk_digests
    ):
        raise _disclosure_fault("the chunks are not those that were signed, or cannot be added up", entry)


def _disclosure_fault(why: str, entry: Disclosed | None = None) -> PeerFault:
    named = f"{entry.member}: {why}" if entry else why
    return PeerFault(Cause.DISCLOSURE_INVALID, named, ["coordinator"])
