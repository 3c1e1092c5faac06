"""Transcripts of simulated rounds, and changes that a coordinator can make to them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.forging import again, changing, resign
from tests.support.simulator import Federation, Tamper, of
from veilsum.protocol.coordinator import CoordinatorPhase
from veilsum.protocol.messages import BadRun, Freeze, Message, Reveal, Upload, parse_message
from veilsum.protocol.messages.base import Signed
from veilsum.protocol.replay import Verdict, replay_transcript
from veilsum.protocol.shamir import LIMB_PRIME
from veilsum.protocol.transcript import Transcript

Entries = list[bytes]
COORDINATOR = ("coordinator",)


def played(members: int = 5, **settings: Any) -> Federation:
    """Return a federation after a round."""
    federation = Federation(members, **settings)
    federation.run_round()
    return federation


def verdict(federation: Federation) -> Verdict:
    """Return an auditor's verdict on the last attempt."""
    return replay_transcript(Transcript.from_json(federation.transcript.to_json()), federation.admin.public)


def kinds(transcript: Transcript) -> list[str]:
    """Return each entry's kind."""
    return [type(parse_message(entry)).__name__ for entry in transcript.entries]


def find(entries: Entries | tuple[bytes, ...], form: type[Message], member: str = "") -> int:
    """Return the index of the first message of this type, by this member if given."""
    for index, entry in enumerate(entries):
        message = parse_message(entry)
        header = getattr(message, "header", message)
        if isinstance(message, form) and member in {"", getattr(header, "member", "")}:
            return index
    raise LookupError(form)


def doctored(federation: Federation, edit: Callable[[Entries], object]) -> Verdict:
    """Return an auditor's verdict on entries that the coordinator changed and then signed."""
    entries = list(federation.transcript.entries)
    edit(entries)
    context = federation.phase.attempt.context
    made = Transcript(tuple(entries)).sign(federation.coordinator, context)
    return replay_transcript(made, federation.admin.public)


def named(verdict: Verdict) -> set[tuple[tuple[str, ...], str]]:
    """Return who is blamed, and for what."""
    return {(finding.parties, finding.cause.value) for finding in verdict.findings}


def with_other_share(runs: tuple[bytes, ...], by: int = 1) -> tuple[bytes, ...]:
    """Add to the first word of the first run."""
    word = (int.from_bytes(runs[0][:4], "little") + by) % LIMB_PRIME
    return word.to_bytes(4, "little") + runs[0][4:], *runs[1:]


def bad_share(federation: Federation, liar: str) -> Tamper:
    """Have the liar reveal one share that it was not dealt."""

    def lie(reveal: Reveal) -> Reveal:
        return again(reveal, federation.keys[liar], runs=with_other_share(reveal.runs))

    return changing(Reveal, lie, liar)


def false_edge(federation: Federation, liar: str) -> Tamper:
    """Have the liar commit to another seed of its last edge than it shares."""

    def lie(upload: Upload) -> Upload:
        return resign(federation, upload, secret_commitments=(*upload.secret_commitments[:-1], b"\x66" * 16))

    return changing(Upload, lie, liar)


class Insistent(Federation):
    """A federation in which one party sends further messages after its own."""

    follow_up: Callable[[str, Message], Message | None] = staticmethod(lambda _member, _message: None)

    def take_reply(self, phase: CoordinatorPhase, member: str, reply: Message) -> CoordinatorPhase:
        phase = super().take_reply(phase, member, reply)
        other = self.follow_up(member, reply)
        return phase if other is None else super().take_reply(phase, member, other)


def equivocating(liar: str, form: type[Message], **changes: Any) -> Insistent:
    """Return a federation of five in which the liar also signs a second message of this type."""
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
    """Return the transcript's findings against a decryptor."""
    return of(
        BadRun, parse_message(federation.transcript.entries[find(federation.transcript.entries, BadRun)])
    )


def rewritten(entries: Entries, index: int, **changes: Any) -> None:
    """Change fields of an entry, which may invalidate its signature."""
    entries[index] = replace(parse_message(entries[index]), **changes).to_bytes()


def move(first: type[Message], behind: type[Message]) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        entry = entries.pop(find(entries, first))
        entries.insert(find(entries, behind) + 1, entry)

    return edit


def drop_entry(form: type[Message], member: str = "") -> Callable[[Entries], object]:
    return lambda entries: entries.pop(find(entries, form, member))


def repeat(form: type[Message]) -> Callable[[Entries], None]:
    def edit(entries: Entries) -> None:
        at = find(entries, form)
        entries.insert(at, entries[at])

    return edit


def change(form: type[Message], **fields: Any) -> Callable[[Entries], None]:
    return lambda entries: rewritten(entries, find(entries, form), **fields)


def showing_too_few(*members: str) -> Tamper:
    """Show these decryptors a proposal of two members less."""
    return changing(
        Freeze,
        lambda proposal: replace(proposal, headers=proposal.headers[2:]),
        *(f"coordinator>{member}" for member in members),
    )


def refused_by_two() -> Federation:
    """Show two decryptors another proposal than the recorded one."""
    return played(5, tamper=showing_too_few("member-0", "member-1"))
