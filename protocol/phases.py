"""What phases are, in either mode: values that answer the messages they name, refuse all others, and never change.

A phase of a party is stored before anything that follows from it leaves. A phase of the coordinator sends nothing: it is asked
what somebody has to answer now.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

from protocol.causes import Cause
from protocol.codec import Headed
from protocol.errors import Misuse, PeerFault
from protocol.extending import extended
from protocol.identity import SigningKey
from protocol.messages.base import Message
from protocol.messages.opening import Terms

PhaseT = TypeVar("PhaseT")
"""Any phase of the same party: what a phase becomes."""


class PartyPhase(Headed, ABC, Generic[PhaseT]):
    """One phase of a member or a helper: a value that is stored, and answers messages by a next phase and replies.

    Attributes:
        party: what it is a phase of, for people.
    """

    party: ClassVar[str]

    def receive(self, message: Message, key: SigningKey, now_s: float) -> tuple[PhaseT, tuple[Message, ...]]:
        """Answer a message from the coordinator, or the admin's.

        Args:
            message: what came.
            key: the party's identity, which signs the replies.
            now_s: Unix time in seconds.

        Returns:
            The next phase, to be stored durably first, and the messages to send after that.

        Raises:
            PeerFault: the message breaks a rule; the phase stays as it was.
        """
        handler = self.handlers().get(type(message))
        if handler is None:
            said = f"a {self.party} that is {type(self).__name__} takes no {type(message).__name__}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(message, key, now_s)

    def lapse(self, now_s: float) -> PhaseT:
        """The phase once its time has passed, without the secrets of the attempt; itself where none are due."""
        del now_s
        return cast("PhaseT", self)

    def outbox(self) -> tuple[Message, ...]:
        """What is sent again after a restart: the very bytes that this phase sent when it was entered."""
        return ()

    @abstractmethod
    def handlers(self) -> dict[type[Message], Callable[..., tuple[PhaseT, tuple[Message, ...]]]]:
        """What this phase takes, and the method that answers it."""


class Attempted(Protocol):
    """An attempt of either mode."""

    @property
    def context(self) -> bytes:
        """Names it."""

    @property
    def terms(self) -> Terms:
        """The opening's."""


@dataclass(frozen=True)
class AskingPhase(ABC, Generic[PhaseT]):
    """One phase of an attempt on the coordinator's side.

    Attributes:
        setting: what stays the same through the attempt.
        deadline_s: Unix time in seconds at which `expire` is due; None where no time moves it on.
    """

    name: ClassVar[str]
    late: ClassVar[tuple[type[Message], ...]] = ()
    """Answers to an earlier phase's question: unread and without effect."""
    setting: object
    deadline_s: float | None

    @property
    @abstractmethod
    def attempt(self) -> Attempted:
        """What the opening and those before it fix."""

    def receive(self, message: Message, now_s: float) -> PhaseT:
        """The phase after a message; the same message again changes nothing.

        Raises:
            PeerFault: the message breaks a rule, or the phase does not take it.
        """
        if isinstance(message, self.late):
            return cast("PhaseT", self)
        handler = self.handlers().get(type(message))
        if handler is None:
            said = f"the attempt is {self.name} and takes no {type(message).__name__.lower()}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(message, now_s)

    def handlers(self) -> dict[type[Message], Callable[[Any, float], PhaseT]]:
        """What this phase takes, and the method that answers it."""
        return {}

    @abstractmethod
    def request_for(self, party: str) -> Message | None:
        """What `party` has to answer now, or None."""

    def waiting_for(self) -> tuple[str, ...]:
        """Those whose answers would move the attempt on."""
        return ()

    def expire(self, now_s: float) -> PhaseT:
        """The phase after `deadline_s` has passed."""
        raise Misuse(f"an attempt that is {self.name} has no deadline to pass at {now_s}")

    def extend(self, deadline_s: float) -> Self:
        """The phase with time until `deadline_s`, in Unix time; PeerFault as `extended`."""
        latest_end_s = self.attempt.terms.latest_end_s
        return replace(self, deadline_s=extended(self.name, self.deadline_s, deadline_s, latest_end_s))

    @abstractmethod
    def cancel(self, now_s: float, reason: str = "") -> PhaseT:
        """The phase after the operator gave the attempt up; an ended one stays as it is."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.attempt.context.hex()[:16]}>"


def cancelled(reason: str) -> PeerFault:
    """The fault of an attempt that its operator gave up, in the operator's words."""
    return PeerFault(Cause.CANCELLED, reason, ["operator"])
