"""The two families of errors.

Exception
├── Misuse      the caller used the API wrongly: a programming error
└── PeerFault   a peer broke a rule by what it sent or failed to send: carries its Cause
"""

from collections.abc import Iterable

from veilsum.protocol.causes import Cause


class Misuse(Exception):  # noqa: N818 - a misuse is what it is
    """The caller broke the API's own contract: fix the calling code."""


class PeerFault(Exception):  # noqa: N818 - the field speaks of faults
    """A peer broke a rule of the protocol.

    Attributes:
        cause: the rule's name in the closed enum.
        detail: the observation, without any secret value.
        parties: member ids (or "coordinator", "admin") that the fault names; may be empty. A refusal names the claimed sender, but
            that is no accusation: proofs against a party are in the transcript (analysis: Transcripts).
    """

    def __init__(self, cause: Cause, detail: str = "", parties: Iterable[str] = ()) -> None:
        self.cause = cause
        self.detail = detail or cause.summary
        self.parties = tuple(parties)
        super().__init__(cause, self.detail, self.parties)

    def __str__(self) -> str:
        named = f" [{', '.join(self.parties)}]" if self.parties else ""
        return f"{self.cause.value}: {self.detail}{named}"
