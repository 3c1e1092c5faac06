"""A phase of the helpers' mode with what its driver keeps: announcements, and which chunks of them are stored.

A client announces a HelperUpload and a helper HelperSums; the chunks of both follow one by one. The phase inside hears of an
upload when the window closes, and of a helper's sums once each of their chunks lies here, from whichever holder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Freezing,
    HelperWindows,
    Lost,
    Summing,
)
from protocol.helpers.messages import Ended as EndedAttempt
from protocol.helpers.messages import HelperCertificate, HelperSums, HelperUpload
from protocol.messages import Message, Survivor
from service.announced import other_bytes
from service.problems import wrong_phase

Announcement = HelperUpload | HelperSums


@dataclass(frozen=True, repr=False)
class Kept:
    """A value: `receive`, `chunk_stored` and `expire` return the next one.

    Attributes:
        phase: the coordinator's.
        announced: by client, and by helper.
        stored: which of their chunks are durable, a bit each.
        whole_count: how many clients' uploads are whole.
        proposed: the set that helpers were shown, if they were: one of them may have signed it.
    """

    phase: CoordinatorPhase
    announced: Mapping[str, Announcement] = field(default_factory=dict)
    stored: Mapping[str, int] = field(default_factory=dict)
    whole_count: int = 0
    proposed: tuple[Survivor, ...] = ()

    @classmethod
    def begin(
        cls,
        attempt: HelperAttempt,
        windows: HelperWindows,
        opened_s: float,
        history: tuple[EndedAttempt, ...],
    ) -> "Kept":
        """Open the attempt."""
        return cls(Collecting.begin(attempt, windows, opened_s, history))

    @property
    def attempt(self) -> HelperAttempt:
        """Roster and opening."""
        return self.phase.attempt

    @property
    def name(self) -> str:
        """As the main mode names its phases: a certified set without a sum has failed, the admin's end is abandoned."""
        if isinstance(self.phase, Lost):
            return "failed" if isinstance(self.phase.closing, HelperCertificate) else "abandoned"
        return self.phase.name

    @property
    def deadline_s(self) -> float | None:
        """When the phase's time is up, in Unix time."""
        return self.phase.deadline_s

    @property
    def certificate(self) -> HelperCertificate | None:
        """What was certified, once something is."""
        if isinstance(self.phase, Summing):
            return self.phase.certificate
        closing = self.phase.closing if isinstance(self.phase, Ended) else None
        return closing if isinstance(closing, HelperCertificate) else None

    def waiting_for(self) -> tuple[str, ...]:
        """Helpers; while uploads come in nobody is named: whoever speaks, speaks."""
        return self.phase.waiting_for()

    # Messages and time

    def receive(self, message: Message, now_s: float) -> "Kept":
        """The phase after a client's or helper's message, or the admin's; the same again changes nothing."""
        if isinstance(message, HelperUpload) and isinstance(self.phase, Collecting):
            known = self.announced.get(message.member)
            assert not isinstance(known, HelperSums)
            self.phase.check_upload(message, known)
            return self if known else self._announce(message.member, message)
        if isinstance(message, HelperSums) and isinstance(self.phase, Summing):
            self.phase.receive(message, now_s)  # refused now where it breaks a rule, taken once it is whole
            known_sums = self.announced.get(message.member)
            if known_sums not in {None, message}:
                raise PeerFault(
                    Cause.CONFLICT, f"{message.member} has sent other sums before", [message.member]
                )
            return self if known_sums else self._announce(message.member, message).taken(now_s)
        return self._moved(self.phase.receive(message, now_s))

    def expire(self, now_s: float) -> "Kept":
        """The phase after its deadline: uploads that are whole are in, the others out."""
        if isinstance(self.phase, Collecting):
            uploads = (self.announced[client] for client in self.uploaded())
            return self._moved(self.phase.close((u for u in uploads if isinstance(u, HelperUpload)), now_s))
        return self._moved(self.phase.expire(now_s))

    def cancel(self, now_s: float, reason: str = "") -> "Kept":
        """The phase after the operator gave the attempt up."""
        return self._moved(self.phase.cancel(now_s, reason))

    def extend(self, deadline_s: float) -> "Kept":
        """The phase with more time."""
        return replace(self, phase=self.phase.extend(deadline_s))

    def _moved(self, after: CoordinatorPhase) -> "Kept":
        if after is self.phase:
            return self
        proposed = after.survivors if isinstance(after, Freezing) else self.proposed
        return replace(self, phase=after, proposed=proposed)

    def _announce(self, owner: str, message: Announcement) -> "Kept":
        announced = {**self.announced, owner: message}
        return replace(self, announced=announced, stored={**self.stored, owner: 0})

    def taken(self, now_s: float) -> "Kept":
        """Hand the phase every helper's sums that are whole now."""
        kept = self
        for helper, sums in self.announced.items():
            if isinstance(sums, HelperSums) and not self.missing_chunks(helper):
                kept = kept._moved(kept.phase.receive(sums, now_s))
        return kept

    # Chunks

    def uploaded(self) -> tuple[str, ...]:
        """Clients whose upload is whole, in order."""
        whole, clients = self._whole, self.attempt.clients
        return tuple(sorted(u for u, bits in self.stored.items() if bits == whole and u in clients))

    def is_whole(self, client: str) -> bool:
        """Whether a client's announcement and all its chunks are stored."""
        return self.stored.get(client) == self._whole

    @property
    def _whole(self) -> int:
        return (1 << self.attempt.chunks) - 1

    def missing_chunks(self, owner: str) -> tuple[int, ...]:
        """What is still to come: of a client's chunks, or of a helper's, those that no holder has sent alike.

        Raises:
            PeerFault: chunk-unknown before the announcement; wrong-phase for a client once the window has closed.
        """
        announced = self._announcement(owner)
        if isinstance(announced, HelperUpload):
            return tuple(i for i in range(self.attempt.chunks) if not self.stored[owner] >> i & 1)
        seeds, chunks = self.attempt.seeds_of(owner), self.attempt.chunks
        return tuple(
            place * chunks + index
            for place, seed in enumerate(seeds)
            for index in range(chunks)
            if self.holder(seed, index, announced.digests[place][index]) is None
        )

    def holder(self, seed: int, index: int, digest: bytes) -> tuple[str, int] | None:
        """Where a chunk of a seed's sum is stored: helper and place in its announcement; None where it is not."""
        for helper, sums in self._sums():
            seeds = self.attempt.seeds_of(helper)
            if seed not in seeds:
                continue
            place = seeds.index(seed)
            flat = place * self.attempt.chunks + index
            if sums.digests[place][index] == digest and self.stored[helper] >> flat & 1:
                return helper, flat
        return None

    def _sums(self) -> Iterator[tuple[str, HelperSums]]:
        for owner in self.attempt.present:
            if isinstance(sums := self.announced.get(owner), HelperSums):
                yield owner, sums

    def check_chunk(self, owner: str, index: int, digest: bytes, packed: bytes) -> None:
        """Refuse a chunk that its owner's announcement does not hold, or that cannot be added up; call it before storing the bytes."""
        announced, attempt = self._announcement(owner), self.attempt
        if isinstance(announced, HelperUpload):
            assert isinstance(self.phase, Collecting)
            self.phase.check_chunk(announced, index, digest, packed)
            return
        signed = digest_of(announced, index, attempt.chunks)
        if signed is None:
            raise PeerFault(
                Cause.CHUNK_UNKNOWN,
                f"chunk {index}: a helper's sums have chunks 0 to {len(announced.digests) * attempt.chunks - 1}",
                [owner],
            )
        attempt.check_chunk(owner, index % attempt.chunks, digest, packed, signed)

    def chunk_stored(self, owner: str, index: int, now_s: float) -> "Kept":
        """A chunk that passed `check_chunk` is durable; with the last one the round moves on."""
        bits = self.stored[owner] | 1 << index
        kept = replace(self, stored={**self.stored, owner: bits})
        if not isinstance(self.phase, Collecting):
            return kept.taken(now_s)
        kept = replace(kept, whole_count=self.whole_count + (bits == self._whole != self.stored[owner]))
        return kept.expire(now_s) if kept.whole_count == len(self.attempt.clients) else kept

    def is_stored(self, owner: str, index: int, digest: bytes) -> bool:
        """Whether this chunk is in; PeerFault(conflict) where it is in with another digest."""
        announced = self.announced.get(owner)
        if announced is None or not self.stored[owner] >> index & 1:
            return False
        if digest_of(announced, index, self.attempt.chunks) != digest:
            raise other_bytes(owner, index)
        return True

    def _announcement(self, owner: str) -> Announcement:
        announced = self.announced.get(owner)
        if announced is None:
            raise PeerFault(Cause.CHUNK_UNKNOWN, f"{owner} has announced nothing in this attempt", [owner])
        if isinstance(announced, HelperUpload) and not isinstance(self.phase, Collecting):
            raise wrong_phase(f"the round is {self.name} and takes no uploads")
        return announced


def digest_of(announced: Announcement, index: int, chunks: int) -> bytes | None:
    """What was announced of chunk `index`; a helper's three sums stand one after the other. None where there is none."""
    if isinstance(announced, HelperUpload):
        return announced.chunk_digests[index] if 0 <= index < chunks else None
    place, chunk = divmod(index, chunks)
    return announced.digests[place][chunk] if 0 <= place < len(announced.digests) else None
