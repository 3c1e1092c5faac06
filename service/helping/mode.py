"""The helpers' mode behind the seam of `service.modes` (helpers H2–H9)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.coordinator import (
    Collecting,
    Ended,
    Freezing,
    HelperWindows,
    Lost,
    Recovered,
    Summing,
    Voided,
    Voiding,
)
from protocol.helpers.messages import (
    HELPERS,
    THRESHOLD,
    ClientSet,
    HelperCertificate,
    HelperLost,
    HelperReceipt,
    HelperRefusal,
    HelperSums,
    HelperUpload,
    HelperVote,
    parse,
)
from protocol.helpers.messages import Ended as EndedAttempt
from protocol.helpers.unmasking import HelperUnmasking
from protocol.messages import Message, Survivor
from protocol.rest import ModeName
from protocol.ring import Words
from service.ends import UNSIGNED
from service.helping.kept import Kept
from service.modes import AnyClosing, Collector, Mode, Phase, Reader, Summands, check_sent

_SENT = frozenset(
    form.kind for form in (HelperUpload, HelperSums, HelperReceipt, HelperVote, HelperRefusal, HelperLost)
)
"""Kinds of what a coordinator is sent."""

_ANNOUNCED_BYTES = 4096
"""Of an announcement, most that is no chunk's digest."""


class HelpedSummands:
    """The sums of the masks are agreed on, and their chunks lie here (helpers H8)."""

    def __init__(self, kept: Kept, recovered: Recovered) -> None:
        self._kept, self._recovered = kept, recovered
        self._unmasking = HelperUnmasking(recovered)
        self.attempt = recovered.attempt

    @property
    def survivors(self) -> tuple[Survivor, ...]:
        """The certified set."""
        return self._recovered.certificate.survivors

    @property
    def vectors(self) -> int:
        """Each survivor's."""
        return len(self.survivors)

    @cached_property
    def closing(self) -> bytes:
        """The link of the helpers' chain."""
        return self._recovered.certificate.ended.closing

    @property
    def members(self) -> tuple[str, ...]:
        """Each survivor."""
        return self._unmasking.survivors

    def unmask(self, index: int, total: Words, read: Reader) -> npt.NDArray[np.int64]:
        """Less the four sums of their keystreams."""
        sums = []
        for seed, source in enumerate(self._recovered.sources):
            holder = self._kept.holder(seed, index, source.digests[index])
            assert holder is not None  # sums are taken whole
            sums.append(read(*holder))
        return self._unmasking.unmask(index, total, sums)

    def particulars(self) -> Mapping[str, Any]:
        """How many clients there were, and the helper that two others contradict."""
        return {"members": len(self.attempt.clients), "outvoted": self._recovered.outvoted}

    def documents(self) -> Mapping[str, bytes]:
        """None."""
        return {}


class HelpersMode(Mode):
    """Clients speak once, four helpers take the masks off.

    Args:
        attempt: roster and opening.
        windows: how long each phase waits.
        history: how the attempts before it ended.
    """

    name: ClassVar[ModeName] = "helpers"
    answers: ClassVar[tuple[type[Message], ...]] = (HelperReceipt, HelperVote, HelperRefusal)
    late: ClassVar[tuple[type[Message], ...]] = Ended.late

    def __init__(
        self, attempt: HelperAttempt, windows: HelperWindows, history: tuple[EndedAttempt, ...]
    ) -> None:
        self._attempt, self._windows, self._history = attempt, windows, history

    @property
    def attempt(self) -> HelperAttempt:
        """Roster and opening."""
        return self._attempt

    @cached_property
    def _clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._attempt.clients))

    def begin(self, opened_s: float) -> Phase:
        """Collecting."""
        return Kept.begin(self._attempt, self._windows, opened_s, self._history)

    def parse(self, body: bytes) -> Message:
        """What a coordinator is sent."""
        check_sent(body, _SENT)
        return parse(body)

    def announcement(self, body: bytes) -> tuple[str, Message]:
        """A client's HelperUpload or a helper's HelperSums."""
        most = _ANNOUNCED_BYTES + 32 * (HELPERS - 1) * self._attempt.chunks
        if len(body) > most:  # before it is read: nobody has shown yet to be a client
            raise PeerFault(
                Cause.UPLOAD_MISSHAPEN, f"an announcement of {len(body)} bytes, at most {most} are one"
            )
        message = self.parse(body)
        if not isinstance(message, HelperUpload | HelperSums):
            raise PeerFault(Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} announces no chunks")
        return message.member, message

    def lost(self, body: bytes) -> Message:
        """A HelperLost."""
        return HelperLost.from_bytes(body)

    def is_known(self, phase: Phase | None, message: Message) -> bool:
        """While uploads are collected the phase itself looks at one that comes again."""
        kept = _kept(phase)
        return (
            isinstance(message, HelperUpload)
            and not isinstance(kept.phase, Collecting)
            and kept.announced.get(message.member) == message
        )

    def is_stored(self, phase: Phase | None, member: str, index: int, digest: bytes) -> bool:
        """As `Kept.is_stored`; not after the end."""
        return phase is not None and _kept(phase).is_stored(member, index, digest)

    def collector(self, phase: Phase | None) -> Collector | None:
        """While clients' uploads, or the helpers' sums, come in."""
        return phase if isinstance(phase, Kept) and isinstance(phase.phase, Collecting | Summing) else None

    def uploaded(self, phase: Phase) -> tuple[str, ...]:
        """Clients whose upload is whole."""
        return _kept(phase).uploaded()

    def is_whole(self, phase: Phase, member: str) -> bool:
        """Of a helper's sums nothing is missing either once two others' agree."""
        kept = _kept(phase)
        if member not in self._attempt.present:
            return kept.is_whole(member)
        return isinstance(kept.phase, Ended) or (member in kept.announced and not kept.missing_chunks(member))

    def chunks_of(self, member: str) -> int:
        """A helper returns three vectors."""
        return self._attempt.chunks * (HELPERS - 1 if member in self._attempt.roster.helpers else 1)

    def summands(self, phase: Phase | None) -> Summands | None:
        """Recovered."""
        inner = phase.phase if isinstance(phase, Kept) else None
        return HelpedSummands(_kept(phase), inner) if isinstance(inner, Recovered) else None

    def fault(self, phase: Phase) -> PeerFault | None:
        """VOID, failed, or closed by the admin."""
        inner = _kept(phase).phase
        return inner.fault if isinstance(inner, Voided | Lost) else None

    def waits_for_admin(self, phase: Phase | None) -> bool:
        """Never for good: a helper that comes back may still sign."""
        del phase
        return False

    def state(self, phase: Phase) -> str:
        """The phase's name; on the way to an end, the phase before it."""
        inner = _kept(phase).phase
        if isinstance(inner, Voided | Lost):
            return Summing.name if _kept(phase).name == "failed" else Voiding.name
        return phase.name

    def check_asker(self, member: str) -> None:
        """Clients and helpers are asked."""
        self._attempt.roster.key_of(member)

    def request_for(self, phase: Phase | None, closing: AnyClosing | None, member: str) -> Message | None:
        """To a helper the phase's question, or the end; to a client the opening, then the proof that it was counted."""
        if member in self._attempt.roster.helpers:
            return closing if phase is None else _kept(phase).phase.request_for(member)
        if phase is not None and isinstance(_kept(phase).phase, Collecting):
            return None if _kept(phase).is_whole(member) else self._attempt.opening
        certificate = closing if phase is None else _kept(phase).certificate
        if not isinstance(certificate, HelperCertificate) or member not in certificate.places:
            return None
        return certificate.counted(member)

    def reports(self, phase: Phase) -> Message | None:
        """A HelperLost with the set that helpers were shown, where the attempt waits for a helper or the admin."""
        kept = _kept(phase)
        if not (isinstance(kept.phase, Freezing | Voiding) and kept.deadline_s is None):
            return None
        sets = (ClientSet(kept.proposed),) if kept.proposed else ()
        return HelperLost(
            context=self._attempt.context,
            family=self._attempt.family.value,
            floor=self._attempt.manifest.floor,
            sets=sets,
            signature=UNSIGNED,
        )

    def closing_of(self, phase: Phase) -> AnyClosing:
        """A certificate or the admin's Lost."""
        ended = _kept(phase).phase
        assert isinstance(ended, Ended)
        return ended.closing

    def closing_from(self, body: bytes) -> AnyClosing:
        """A certificate or the admin's Lost."""
        closing = parse(body)
        assert isinstance(closing, HelperCertificate | HelperLost)
        return closing

    def link(self, closing: AnyClosing) -> tuple[bytes, bytes] | None:
        """None: the helpers' history is the closings themselves, in order."""
        del closing
        return None

    def fields(self, phase: Phase) -> Mapping[str, Any]:
        """Place, clients, helpers and survivors."""
        manifest, certificate = self._attempt.manifest, _kept(phase).certificate
        return {
            "sequence": manifest.counter,
            "attempt": 0,
            "members": self._clients,
            "survivors_min": manifest.survivors_min,
            "threshold": THRESHOLD,
            "survivors": tuple(certificate.places) if certificate else (),
            "helpers": self._attempt.present,
        }


def _kept(phase: Phase | None) -> Kept:
    return cast("Kept", phase)
