"""What decryptors have signed in an attempt: what contradicts it is refused in every phase, also after the end (ANSWER-4 to ANSWER-6)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    Certificate,
    Erased,
    Freeze,
    Message,
    Receipt,
    Refusal,
    Reveal,
    Survivor,
    VoidRequest,
    Vote,
    parse_message,
    survivors_hash,
    void_hash,
)

Answer: TypeAlias = Receipt | Vote | Refusal | Reveal | Erased
"""A decryptor's answer to a request of the coordinator."""
_TOLD_KINDS = frozenset(form.kind for form in (Receipt, Freeze, VoidRequest, Vote, Certificate, Erased))
"""Kinds of the transcript's entries from which `Statements` follow."""


class OutcomeFault(PeerFault):
    """A signed outcome that no honest decryptor signs: not one that it was asked to sign, or not the certificate's. Others can verify it."""


@dataclass(frozen=True)
class Statements:
    """The receipt, vote and report of each decryptor, and what decryptors were asked. Refusing and revealing twice is allowed.

    Attributes:
        votes: the outcome of each decryptor's vote.
        digests: the digest of each decryptor's receipt and report, by form and decryptor.
        asked: outcomes that decryptors were asked to sign.
        certified: the certificate's outcome; None without a certificate.
    """

    votes: Mapping[str, bytes] = field(default_factory=dict)
    digests: Mapping[tuple[type[Message], str], bytes] = field(default_factory=dict)
    asked: tuple[bytes, ...] = ()
    certified: bytes | None = None

    @classmethod
    def from_entries(cls, attempt: Attempt, entries: Iterable[bytes]) -> "Statements":
        """Gather the statements from the entries of an attempt's transcript."""
        told = cls()
        for entry in entries:
            if entry[1] in _TOLD_KINDS:
                told = told._note_entry(attempt, parse_message(entry))
        return told

    def _note_entry(self, attempt: Attempt, entry: Message) -> "Statements":
        match entry:
            case Freeze():
                survivors = tuple(map(Survivor.from_header, entry.headers))
                return self.note_question(survivors_hash(attempt.context, survivors))
            case VoidRequest():
                return self.note_question(void_hash(attempt.context, entry.reason))
            case Certificate():
                return self.note_certificate(entry.outcome)
            case Vote() if entry.outcome not in self.asked:
                return self  # noted as it was refused
            case _:
                assert isinstance(entry, Receipt | Vote | Erased)
                return self.note_answer(entry)

    def check_contradiction(self, answer: Answer) -> None:
        """Refuse a second, different vote (already-voted), receipt or report (conflict) of a decryptor."""
        member, form = answer.member, type(answer)
        if isinstance(answer, Vote):
            if self.votes.get(member, answer.outcome) != answer.outcome:
                raise PeerFault(Cause.ALREADY_VOTED, f"{member} has signed another outcome before", [member])
        elif self.digests.get((form, member), answer.digest) != answer.digest:
            said = f"{member} has sent another {form.__name__.lower()} before"
            raise PeerFault(Cause.CONFLICT, said, [member])

    def check_outcome(self, attempt: Attempt, answer: Answer) -> None:
        """Refuse a vote on an outcome that no decryptor was asked to sign, and a reveal for another outcome than the certificate's.

        Raises:
            OutcomeFault: survivors-invalid, reveal-misshapen.
            PeerFault: wrong-phase before any such question; reveal-misshapen for more evictions than there can be.
        """
        member = answer.member
        if isinstance(answer, Vote):
            if not self.asked:
                raise PeerFault(Cause.WRONG_PHASE, "no decryptor was asked to vote in this attempt")
            if answer.outcome not in self.asked:
                said = f"{member} signed an outcome that no decryptor was asked to sign"
                raise OutcomeFault(Cause.SURVIVORS_INVALID, said, [member])
        elif isinstance(answer, Reveal):
            if self.certified is None:
                raise PeerFault(Cause.WRONG_PHASE, "this attempt has no certificate to reveal for")
            if len(answer.evicted) > attempt.quorum.colluders:
                # The coordinator never sends so many evictions; noting this reveal would only fill the transcript.
                said = f"{member}'s reveal does not fit the certificate"
                raise PeerFault(Cause.REVEAL_MISSHAPEN, said, [member])
            if answer.outcome != self.certified:
                raise OutcomeFault(Cause.REVEAL_MISSHAPEN, f"{member} revealed for another outcome", [member])

    def note_answer(self, answer: Receipt | Vote | Erased) -> "Statements":
        """Note an admitted receipt, vote or report, if it is its sender's first."""
        if isinstance(answer, Vote):
            return replace(self, votes={answer.member: answer.outcome, **self.votes})
        return replace(self, digests={(type(answer), answer.member): answer.digest, **self.digests})

    def note_question(self, outcome: bytes) -> "Statements":
        """Note an outcome that decryptors are asked to sign."""
        return replace(self, asked=(*self.asked, outcome))

    def note_certificate(self, outcome: bytes) -> "Statements":
        """Note the certificate's outcome."""
        return replace(self, certified=outcome)
