"""What a round asks of its mode: the seam between a round's journal, clock and chunks and the secure sum that it runs.

A round is its events whatever the mode. A mode reads them, begins the first phase, and says of a phase what may be done
with it; nothing here is stored, and nothing is shared between two rounds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt

from protocol import messages
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import (
    Certified,
    Collecting,
    CoordinatorPhase,
    Freezing,
    Lost,
    Recovered,
    Revealing,
    Windows,
    disclose,
)
from protocol.disputes import vertex_cover
from protocol.errors import Misuse, PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HelperCertificate, HelperLost
from protocol.identity import SigningKey
from protocol.messages import Certificate, Disclosure, Evictions, Message, Past, Survivor, Upload
from protocol.messages import Lost as LostMessage
from protocol.published import DisputeView
from protocol.rest import ModeName
from protocol.ring import Words
from protocol.tags import PROTOCOL_VERSION
from protocol.transcript import Transcript
from service import announced, ends
from service.views import member_fields

_SENT = frozenset(
    form.kind
    for form in (
        Upload,
        messages.Receipt,
        messages.Vote,
        messages.Refusal,
        messages.Reveal,
        messages.Report,
        LostMessage,
    )
)
"""Kinds of what a coordinator is sent in the members' mode."""

AnyAttempt = Attempt | HelperAttempt
AnyClosing = Certificate | LostMessage | HelperCertificate | HelperLost
Reader = Callable[[str, int], bytes]
"""A stored chunk, by its owner and index."""


class Phase(Protocol):
    """A phase of either mode: a value, whose answers are the next one."""

    @property
    def name(self) -> str:
        """As views show it."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """Unix time in seconds at which `expire` is due; None where it waits for no time."""
        ...

    def receive(self, message: Message, now_s: float) -> "Phase":
        """The phase after a message; PeerFault where it breaks a rule."""
        ...

    def waiting_for(self) -> tuple[str, ...]:
        """Whose answers would move it on."""
        ...

    def expire(self, now_s: float) -> "Phase":
        """The phase after its deadline."""
        ...

    def cancel(self, now_s: float, reason: str = "") -> "Phase":
        """The phase after the operator gave the attempt up."""
        ...

    def extend(self, deadline_s: float) -> "Phase":
        """The phase with time until then."""
        ...


class Collector(Phase, Protocol):
    """A phase that takes chunks."""

    def check_chunk(self, member: str, index: int, digest: bytes, packed: bytes) -> None:
        """Refuse a chunk that was not announced so, or cannot be added up; call it before storing the bytes."""
        ...

    def chunk_stored(self, member: str, index: int, now_s: float) -> Phase:
        """The phase once a chunk is durable."""
        ...

    def missing_chunks(self, member: str) -> tuple[int, ...]:
        """What is still to come of an announcement; PeerFault(chunk-unknown) before it."""
        ...


class Summands(Protocol):
    """A recovered phase as the solver sees it: what remains is arithmetic."""

    @property
    def attempt(self) -> AnyAttempt:
        """Roster and opening."""
        ...

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """The certified set."""
        ...

    @property
    def vectors(self) -> int:
        """How many members' vectors are in the sum."""
        ...

    @property
    def closing(self) -> bytes:
        """How the chain names the end."""
        ...

    @property
    def members(self) -> tuple[str, ...]:
        """Whose uploads are added up."""
        ...

    def unmask(self, index: int, total: Words, read: Reader) -> npt.NDArray[np.int64]:
        """Chunk `index` of the sum, from the masked one, which is overwritten; several threads may ask at once.

        Raises:
            PeerFault: a stored chunk is not what was announced.
        """
        ...

    def particulars(self) -> Mapping[str, Any]:
        """Fields of the record that only this mode fills."""
        ...

    def documents(self) -> Mapping[str, bytes]:
        """What is published beside weights and sums."""
        ...


class Mode(ABC):
    """One attempt in one mode.

    Attributes:
        name: as it stands in every view and record.
        noted: what the transcript begins with; None where none is kept, or no more.
        answers: messages that a party may send in answer to a request.
    """

    name: ClassVar[ModeName]
    answers: ClassVar[tuple[type[Message], ...]]
    late: ClassVar[tuple[type[Message], ...]]
    """Answers that come after the end: unread and without effect."""
    noted: Transcript | None = None

    @property
    @abstractmethod
    def attempt(self) -> AnyAttempt:
        """Roster and opening."""

    @abstractmethod
    def begin(self, opened_s: float) -> Phase:
        """The first phase."""

    @abstractmethod
    def parse(self, body: bytes) -> Message:
        """A message of this mode; PeerFault where it is none."""

    @abstractmethod
    def announcement(self, body: bytes) -> tuple[str, Message]:
        """What announces chunks, and whose they are; PeerFault where it is none."""

    @abstractmethod
    def lost(self, body: bytes) -> Message:
        """The admin's word that closes an attempt; PeerFault where it is none."""

    @abstractmethod
    def is_known(self, phase: Phase | None, message: Message) -> bool:
        """Whether this announces once more what is in already, after it could have been taken."""

    @abstractmethod
    def is_stored(self, phase: Phase | None, member: str, index: int, digest: bytes) -> bool:
        """Whether this chunk is in; PeerFault(conflict) where it is in with another digest."""

    @abstractmethod
    def collector(self, phase: Phase | None) -> Collector | None:
        """The phase, if it takes chunks."""

    @abstractmethod
    def uploaded(self, phase: Phase) -> tuple[str, ...]:
        """Members whose upload is whole."""

    def is_whole(self, phase: Phase, member: str) -> bool:
        """Whether nothing is missing of what this party announced."""
        return member in self.uploaded(phase)

    def chunks_of(self, member: str) -> int:
        """How many chunks this party sends."""
        del member
        return self.attempt.chunks

    @abstractmethod
    def summands(self, phase: Phase | None) -> Summands | None:
        """The phase, if only the coordinator's own arithmetic is missing."""

    @abstractmethod
    def fault(self, phase: Phase) -> PeerFault | None:
        """Why the phase ends the round without a sum to compute; None where it does not end it."""

    @abstractmethod
    def waits_for_admin(self, phase: Phase | None) -> bool:
        """Whether there can be no sum any more, and only the admin closes the attempt."""

    @abstractmethod
    def state(self, phase: Phase) -> str:
        """The phase as a view names it; an end is shown once it is kept, until then the round is on its way there."""

    @abstractmethod
    def check_asker(self, member: str) -> None:
        """Refuse somebody who is asked nothing in this attempt (unknown-member)."""

    @abstractmethod
    def request_for(self, phase: Phase | None, closing: AnyClosing | None, member: str) -> Message | None:
        """What this party has to answer now, or has to hear."""

    def asks_anew(self, before: Phase, after: Phase) -> bool:
        """Whether somebody is asked in the second phase, which follows on the first, what it was not asked before."""
        return before.name != after.name

    @abstractmethod
    def reports(self, phase: Phase) -> Message | None:
        """What the admin is to sign over an attempt that it may close, unsigned."""

    @abstractmethod
    def closing_of(self, phase: Phase) -> AnyClosing:
        """What closes an attempt that has ended."""

    @abstractmethod
    def closing_from(self, body: bytes) -> AnyClosing:
        """What `to_bytes` stored."""

    @abstractmethod
    def link(self, closing: AnyClosing) -> tuple[bytes, bytes] | None:
        """A row of the members' chain, link and past; None where the mode keeps another history."""

    def signed(self, transcript: Transcript) -> Transcript:
        """The transcript closed by the coordinator's signature; Misuse in a mode that keeps none."""
        raise Misuse(f"the mode '{self.name}' keeps no transcript of {len(transcript.entries)} entries")

    @abstractmethod
    def fields(self, phase: Phase) -> Mapping[str, Any]:
        """Fields of the view that depend on the mode."""


class PairedSummands:
    """M4 of the members' mode: the seeds are rebuilt (protocol §4.8)."""

    def __init__(self, recovered: Recovered) -> None:
        self._recovered = recovered
        self.attempt = recovered.attempt
        self.survivors = recovered.certificate.survivors
        self.vectors = len(recovered.summed)
        self.closing = recovered.past.closing

    @property
    def members(self) -> tuple[str, ...]:
        """The survivors that were not evicted."""
        return self._recovered.summed

    def unmask(self, index: int, total: Words, read: Reader) -> npt.NDArray[np.int64]:
        """By the rebuilt seeds."""
        del read
        # One for each call: ranges are unmasked side by side, and a stream of masks serves one thread.
        return self._recovered.unmasking().unmask(index, total)

    def particulars(self) -> Mapping[str, Any]:
        """Who was dropped, and why."""
        disputes = self._recovered.disputes
        return {
            "members": len(self.attempt.members),
            "disputes": tuple(
                DisputeView.model_validate({"cause": dispute.cause.value, "parties": dispute.parties})
                for dispute in disputes
            ),
            "dropped": tuple(
                sorted(vertex_cover(self.attempt.context, disputes, self.attempt.quorum.colluders))
            ),
            "evicted": self._recovered.evicted,
        }

    def disclosure(self, read: Reader) -> Disclosure:
        """What members are shown of an indicator round (protocol §9)."""
        return disclose(self._recovered, read)

    def documents(self) -> Mapping[str, bytes]:
        """The proofs against those evicted."""
        return {"evictions": Evictions(self.attempt.context, self._recovered.proofs).to_bytes()}


class MembersMode(Mode):
    """Members mask in pairs and decrypt together (protocol §1).

    Args:
        attempt: roster, manifest and opening.
        windows: how long each phase waits.
        history: how each attempt ended that the opening's links name.
        noted: what the transcript begins with; None where none is kept any more.
        key: the coordinator's, which signs the transcript.
    """

    name: ClassVar[ModeName] = "members"
    answers: ClassVar[tuple[type[Message], ...]] = (
        messages.Receipt,
        messages.Vote,
        messages.Refusal,
        messages.Reveal,
        messages.Report,
    )
    late: ClassVar[tuple[type[Message], ...]] = Certified.late

    def __init__(
        self,
        attempt: Attempt,
        windows: Windows,
        history: tuple[Past, ...],
        noted: Transcript | None,
        key: SigningKey,
    ) -> None:
        self._attempt, self._windows, self._history = attempt, windows, history
        self.noted, self._key = noted, key

    @property
    def attempt(self) -> Attempt:
        """Roster, manifest and opening."""
        return self._attempt

    def begin(self, opened_s: float) -> Phase:
        """Collecting."""
        return Collecting.begin(self._attempt, self._windows, opened_s, self._history)

    def parse(self, body: bytes) -> Message:
        """What a coordinator is sent."""
        check_sent(body, _SENT)
        return messages.parse(body)

    def announcement(self, body: bytes) -> tuple[str, Message]:
        """An Upload."""
        upload = Upload.from_bytes(body)
        return upload.header.member, upload

    def lost(self, body: bytes) -> Message:
        """A Lost."""
        return LostMessage.from_bytes(body)

    def is_known(self, phase: Phase | None, message: Message) -> bool:
        """By its signed header, which pins the rest."""
        return isinstance(message, Upload) and announced.announced_before(_live(phase), message)

    def is_stored(self, phase: Phase | None, member: str, index: int, digest: bytes) -> bool:
        """As `announced.stored`."""
        return announced.stored(_live(phase), member, index, digest)

    def collector(self, phase: Phase | None) -> Collector | None:
        """Collecting."""
        return phase if isinstance(phase, Collecting) else None

    def uploaded(self, phase: Phase) -> tuple[str, ...]:
        """As far as the phase still knows."""
        return announced.whole_uploads(self._attempt, _paired(phase))

    def summands(self, phase: Phase | None) -> Summands | None:
        """Recovered."""
        return PairedSummands(phase) if isinstance(phase, Recovered) else None

    def fault(self, phase: Phase) -> PeerFault | None:
        """VOID, failed, or closed by the admin."""
        return phase.fault if isinstance(phase, ends.SETTLED) else None

    def waits_for_admin(self, phase: Phase | None) -> bool:
        """Lost waits for reports and the admin."""
        return isinstance(phase, Lost)

    def state(self, phase: Phase) -> str:
        """As `ends.shown_state`."""
        return ends.shown_state(_paired(phase))

    def check_asker(self, member: str) -> None:
        """Members of the cohort are asked."""
        if member not in self._attempt.members:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])

    def request_for(self, phase: Phase | None, closing: AnyClosing | None, member: str) -> Message | None:
        """The phase's question; a certificate is news for everybody."""
        return closing if phase is None else _paired(phase).request_for(member)

    def asks_anew(self, before: Phase, after: Phase) -> bool:
        """Another phase, one more dealer that is to be left out, or a decryptor that has its boxes now and may sign.

        Not that the seeds are rebuilt: whoever reveals was shown the certificate, and hears of the round's end.
        """
        if isinstance(before, Revealing) and isinstance(after, Recovered):
            return False
        return super().asks_anew(before, after) or _asked_for(before) != _asked_for(after)

    def reports(self, phase: Phase) -> Message | None:
        """A Lost over the decryptors' reports."""
        return ends.unsigned(phase) if isinstance(phase, Lost) else None

    def closing_of(self, phase: Phase) -> AnyClosing:
        """A certificate or the admin's Lost."""
        return ends.closing_of(_paired(phase))

    def closing_from(self, body: bytes) -> AnyClosing:
        """A certificate or the admin's Lost."""
        return ends.closing_from(body)

    def link(self, closing: AnyClosing) -> tuple[bytes, bytes] | None:
        """The next link of the federation's chain."""
        past = self._attempt.past(cast("ends.Closing", closing))
        return self._attempt.link(past).encode_fields(), past.encode_fields()

    def signed(self, transcript: Transcript) -> Transcript:
        """As protocol §11 has it."""
        return transcript.signed(self._key, self._attempt.context)

    def fields(self, phase: Phase) -> Mapping[str, Any]:
        """Place, quorum, survivors and reports."""
        return member_fields(self._attempt, _paired(phase))


def check_sent(body: bytes, kinds: Collection[int]) -> None:
    """Refuse another kind before it is read (unknown-message): what a coordinator sends itself may be the size of a roster."""
    if len(body) > 1 and body[0] == PROTOCOL_VERSION and body[1] not in kinds:
        raise PeerFault(Cause.UNKNOWN_MESSAGE, f"kind {body[1]} is nothing that a coordinator is sent")


def _asked_for(phase: Phase) -> tuple[int, tuple[str, ...]]:
    """What changes what somebody is asked, beside the phase itself."""
    late = len(phase.receipts) if isinstance(phase, Freezing | Revealing) else 0
    return late, phase.evicted if isinstance(phase, Revealing) else ()


def _live(phase: Phase | None) -> CoordinatorPhase | None:
    return cast("CoordinatorPhase | None", phase)


def _paired(phase: Phase) -> CoordinatorPhase:
    return cast("CoordinatorPhase", phase)
