"""Transcripts of simulated rounds, and what a coordinator can make of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.forging import again, resign
from tests.support.simulator import Federation, Tamper, of
from veilsum.protocol.coordinator import CoordinatorPhase
from veilsum.protocol.messages import BadRun, Freeze, Message, Reveal, Upload, parse
from veilsum.protocol.messages.base import Signed
from veilsum.protocol.replay import Verdict, replay
from veilsum.protocol.shamir import PRIME
from veilsum.protocol.transcript import Transcript

Entries = list[bytes]


def verdict(federation: Federation) -> Verdict:
    """What an auditor makes of the last attempt."""
    return replay(Transcript.from_json(federation.transcript.to_json()), federation.admin.public)


def kinds(transcript: Transcript) -> list[str]:
    """What each entry is."""
    return [type(parse(entry)).__name__ for entry in transcript.entries]


def find(entries: Entries | tuple[bytes, ...], form: type[Message], member: str = "") -> int:
    """Where the first message of this form, by this member if one is named, stands."""
    for index, entry in enumerate(entries):
        message = parse(entry)
        header = getattr(message, "header", message)
        if isinstance(message, form) and member in {"", getattr(header, "member", "")}:
            return index
    raise LookupError(form)


def doctored(federation: Federation, edit: Callable[[Entries], object]) -> Verdict:
    """What an auditor makes of entries that the coordinator has changed, and signed as they are now."""
    entries = list(federation.transcript.entries)
    edit(entries)
    context = federation.phase.attempt.context
    made = Transcript(tuple(entries)).signed(federation.coordinator, context)
    return replay(made, federation.admin.public)


def named(verdict: Verdict) -> set[tuple[tuple[str, ...], str]]:
    """Who, and for what."""
    return {(finding.parties, finding.cause.value) for finding in verdict.findings}


def bad_share(federation: Federation, liar: str) -> Tamper:
    """The liar reveals one share that it was not dealt."""

    def tamper(sender: str, message: Message) -> Message:
        if sender == liar and isinstance(message, Reveal) and message.runs:
            word = (int.from_bytes(message.runs[0][:4], "little") + 1) % PRIME
            run = word.to_bytes(4, "little") + message.runs[0][4:]
            return again(message, federation.keys[liar], runs=(run, *message.runs[1:]))
        return message

    return tamper


def false_edge(federation: Federation, liar: str, index: int = -1) -> Tamper:
    """The liar commits to another seed than the one it shares."""

    def tamper(sender: str, message: Message) -> Message:
        if sender == liar and isinstance(message, Upload):
            commitments = list(message.secret_commitments)
            commitments[index] = b"\x66" * 16
            return resign(federation, message, secret_commitments=tuple(commitments))
        return message

    return tamper


class Insistent(Federation):
    """A federation in which somebody follows up its messages with others."""

    follow_up: Callable[[str, Message], Message | None] = staticmethod(lambda _member, _message: None)

    def _answer(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        phase = super()._answer(phase, member, reply)
        other = self.follow_up(member, reply)
        return phase if other is None else super()._answer(phase, member, other)


def equivocating(liar: str, form: type[Message], **changes: Any) -> Insistent:
    """A federation of five in which the liar signs a second message of this form at once."""
    federation = Insistent(5)

    def follow_up(member: str, message: Message) -> Message | None:
        if member != liar or not isinstance(message, form):
            return None
        if isinstance(message, Upload):
            return resign(federation, message, **changes)
        assert isinstance(message, Signed)
        return again(message, federation.keys[liar], **changes)

    federation.follow_up = follow_up
    return federation


def evidence(federation: Federation) -> BadRun:
    """What the transcript holds against a decryptor."""
    return of(BadRun, parse(federation.transcript.entries[find(federation.transcript.entries, BadRun)]))


def rewritten(entries: Entries, index: int, **changes: Any) -> None:
    """Change fields of an entry, whatever that does to its signature."""
    entries[index] = replace(parse(entries[index]), **changes).to_bytes()


def refused_by_two() -> Federation:
    """Two decryptors are shown another proposal than the one that is noted."""
    federation = Federation(5)
    federation.tamper = lambda sender, message: (
        replace(message, headers=message.headers[2:])
        if isinstance(message, Freeze) and sender in {"coordinator>member-0", "coordinator>member-1"}
        else message
    )
    federation.run_round()
    return federation
