"""Errors on the member's side. Each message says what to do next, and no message holds a secret.

Exception
├── Misuse                 the calling code broke the API's contract               (protocol)
├── PeerFault              a peer broke a rule: carries its Cause                  (protocol)
│   └── NoResult           the round ended without a result for this member
└── ClientError            this member's own machine, or the way to the coordinator
    ├── IdentityError      the identity's folder: missing, exists, loose modes, in use
    ├── StateError         the stored state is damaged
    ├── Declined           this member answered no: too few of its records are free
    ├── NotEnrolled        the round's cohort does not know this member yet
    ├── Unreachable        no answer within `patience_s`
    └── UnexpectedAnswer   an answer that this release can't read
"""

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.rest import CohortView, Problem, RoundView
from veilsum.study.progress import RunEnd


class NoResult(PeerFault):
    """The round is over for this member, without a result.

    Attributes:
        round_id: which round.
        state: how it ended, a `RunEnd`: "failed", "failed-noisy", "failed-count", "voided", "erased", "lost"; "counted" for a count
            after which no sum can follow; "erasing" while it waits for reports; "missed" if this member came too late to see the opening; "lapsed" if
            the terms' latest end passed and this member erased its keys.
    """

    def __init__(self, round_id: str, state: str, fault: PeerFault) -> None:
        end = RunEnd(state)
        said = end.explain_end(fault.detail, end.member)
        super().__init__(fault.cause, f"round {round_id} {said}", fault.parties)
        self.round_id, self.state = round_id, state


class ClientError(Exception):
    """Base of errors on this machine, or between it and the coordinator."""


class IdentityError(ClientError):
    """The identity's folder can't be used as it is."""


class StateError(ClientError):
    """This member's stored state is damaged or can't be read."""


class Declined(ClientError):  # noqa: N818 - says what this member answered
    """This member takes no part in a run: it has too few records for it. The answer is final for the study and period."""


class NotEnrolled(ClientError):  # noqa: N818 - says what is the case
    """The round belongs to a cohort that this member holds no keys for."""


class Unreachable(ClientError):  # noqa: N818 - says what the coordinator is
    """The coordinator gave no usable answer within `patience_s`."""


class UnexpectedAnswer(ClientError):  # noqa: N818 - says what came
    """This release cannot read the coordinator's answer."""


def fault_of(problem: Problem) -> PeerFault:
    """Convert a problem document to the fault that it describes; to `malformed` if only this member can find out that fault.

    Raises:
        UnexpectedAnswer: this release does not know its cause.
    """
    try:
        cause = Cause(problem.cause)
    except ValueError as error:
        raise UnexpectedAnswer(
            f"the coordinator refused for a cause this release does not know, {problem.cause!r}: "
            f"{problem.detail}; update veilsum"
        ) from error
    if cause in {Cause.STATE_RESTORED, Cause.CANARIES_DIFFER}:
        return PeerFault(
            Cause.MALFORMED,
            f"the coordinator claims {cause}, which only this member can detect",
            ["coordinator"],
        )
    return PeerFault(cause, problem.detail, problem.parties)


def fault_in(view: RoundView | CohortView) -> PeerFault:
    """Return why a round ended without a result, or a cohort failed, according to its view. Raises as `fault_of`."""
    if view.fault:
        return fault_of(view.fault)
    return PeerFault(Cause.QUORUM_LOST if isinstance(view, RoundView) else Cause.COHORT_TOO_SMALL)


__all__ = [
    "ClientError",
    "Declined",
    "IdentityError",
    "Misuse",
    "NoResult",
    "NotEnrolled",
    "PeerFault",
    "StateError",
    "UnexpectedAnswer",
    "Unreachable",
    "fault_in",
    "fault_of",
]
