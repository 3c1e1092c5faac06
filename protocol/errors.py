"""Two families of errors, never one class for both.

Exception
├── Misuse      we called our own API wrongly: a programming error, nothing to do with a peer
└── PeerFault   what a peer sent, or failed to send, breaks a rule: carries its Cause
"""

from collections.abc import Iterable

from protocol.causes import Cause


class Misuse(Exception):  # noqa: N818 - a misuse is what it is
    """The caller broke the API's own contract: fix the calling code."""


class PeerFault(Exception):  # noqa: N818 - the field speaks of faults
    """A peer broke a rule of the protocol.

    Attributes:
        cause: the rule's name in the closed enum.
        detail: what was seen, without any secret value.
        parties: member ids (or "coordinator", "admin") that the fault names; may be empty. A refusal names whom the message
            claims to be from, which accuses nobody: what proves a party false stands in the transcript (protocol §11).
    """

    def __init__(self, cause: Cause, detail: str = "", parties: Iterable[str] = ()) -> None:
        self.cause = cause
        self.detail = detail or cause.summary
        self.parties = tuple(parties)
        super().__init__(cause, self.detail, self.parties)

    def __str__(self) -> str:
        named = f" [{', '.join(self.parties)}]" if self.parties else ""
        return f"{self.cause.value}: {self.detail}{named}"
