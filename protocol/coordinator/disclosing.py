"""The indicator round is opened to all members, so that each recounts it for itself (protocol §8.2)."""

from collections.abc import Callable

from protocol.coordinator.ended import Recovered
from protocol.due import due_secrets
from protocol.errors import Misuse
from protocol.messages import Disclosed, Disclosure, Seed


def disclose(recovered: Recovered, chunks: Callable[[str, int], bytes]) -> Disclosure:
    """Show what the sum of an indicator round was made of.

    Whoever was evicted is left out, and members must have seen `recovered.evictions` before.

    Args:
        recovered: the round.
        chunks: a survivor's packed chunk, by its index.

    Raises:
        Misuse: of any other round this would open every member's vector.
    """
    attempt = recovered.attempt
    if not attempt.spec.indicator:
        raise Misuse("only an indicator is disclosed")
    entries = []
    for member in recovered.summed:
        upload, indices = recovered.uploads[member], range(attempt.chunks)
        committed, due = upload.committed, due_secrets(attempt, member, recovered.summed)
        entries.append(
            Disclosed(
                header=upload.header,
                commitments=committed.commitments,
                path=committed.path,
                chunk_digests=tuple(upload.chunk_digest(index) for index in indices),
                chunks=tuple(chunks(member, index) for index in indices),
                seeds=tuple(
                    Seed(
                        each.index,
                        recovered.self_seeds[member]
                        if each.lost is None
                        else recovered.edge_seeds[member, each.lost],
                    )
                    for each in due
                ),
            )
        )
    return Disclosure(attempt.context, tuple(entries))
