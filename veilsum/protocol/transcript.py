"""The signed, hash-chained transcript of an attempt, without seeds, shares or chunks (protocol §11)."""

import json
from dataclasses import dataclass, replace
from typing import Any

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import CoordinatorPhase, Ended, Freezing, Revealing, Voiding
from veilsum.protocol.coordinator.base import Evicting
from veilsum.protocol.coordinator.revealing import OutcomeFault, ShareFault
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Cards, Message, Refusal, Reveal, Upload, UploadSummary, parse
from veilsum.protocol.sealing import commitment_tree
from veilsum.protocol.tags import PROTOCOL_VERSION, Tag, hash_fields

FORMAT = "veilsum-transcript"
MAX_ENTRIES = 1 << 20
_MARKS = {"{": 1, "[": 1, ":": 3, ",": MAX_ENTRIES + 3}
"""How often each may stand in a file: the rest is names, digits and space."""
PROVING = frozenset({Cause.UPLOAD_CONFLICT, Cause.ALREADY_VOTED, Cause.CONFLICT})
"""What its sender signed is refused for these where it signed something else before: the two prove it false."""


@dataclass(frozen=True)
class Accusation:
    """A refused message that proves its sender false to others: why it was refused, whom the fault names, and its entry in a transcript."""

    cause: Cause
    parties: tuple[str, ...]
    entry: bytes

    @classmethod
    def of(cls, message: Message, fault: PeerFault) -> "Accusation | None":
        """What the refusal proves to others; None where it proves nothing, and would stand in the way of what does."""
        if isinstance(fault, ShareFault):
            return cls(fault.cause, fault.parties, fault.evidence.to_bytes())
        # Refusing twice is allowed.
        proves = isinstance(fault, OutcomeFault) or (
            fault.cause in PROVING and not isinstance(message, Refusal)
        )
        return cls(fault.cause, fault.parties, _entry(message).to_bytes()) if proves else None


@dataclass(frozen=True)
class Transcript:
    """The entries so far.

    The coordinator's signature, over context and head, is empty while the attempt goes on. Each accusation is noted once, which bounds the
    file.
    """

    entries: tuple[bytes, ...]
    signature: bytes = b""
    accused: frozenset[tuple[Cause, str]] = frozenset()

    @classmethod
    def begin(cls, attempt: Attempt, cards: Cards) -> "Transcript":
        """Open the transcript of an attempt; `cards` shows all of the cohort's."""
        return cls(tuple(m.to_bytes() for m in (attempt.roster, attempt.study, cards, attempt.opening)))

    @property
    def head(self) -> bytes:
        """The fold of the entries."""
        head = bytes(32)
        for entry in self.entries:
            head = hash_fields(Tag.TRANSCRIPT, head, entry)
        return head

    def received(self, message: Message, before: CoordinatorPhase, after: CoordinatorPhase) -> "Transcript":
        """Note a message that the coordinator took, and what it shows members since; nothing if it changed nothing."""
        if after == before:
            return self
        return self._noting_once(_entry(message).to_bytes()).moved(before, after)

    def refused(self, message: Message, fault: PeerFault) -> "Transcript":
        """Note a refused message if it proves its sender false to others."""
        found = Accusation.of(message, fault)
        return self if found is None else self.accusing(found)

    def accusing(self, found: Accusation) -> "Transcript":
        """Note what a refused message proves, once for each cause and party."""
        accused = self.accused | {(found.cause, party) for party in found.parties}
        return self if accused == self.accused else replace(self._noting_once(found.entry), accused=accused)

    def moved(self, before: CoordinatorPhase, after: CoordinatorPhase) -> "Transcript":
        """Note what the coordinator shows members since it moved on by itself."""
        shown = _shown(after)
        if shown is None or shown == _shown(before):
            return self
        return self._noting_once(shown.to_bytes())

    def signed(self, key: SigningKey, context: bytes) -> "Transcript":
        """Close it with the coordinator's signature."""
        return replace(self, signature=key.sign(transcript_digest(context, self.head)))

    def to_json(self) -> str:
        """The file's text."""
        document = {
            FORMAT: PROTOCOL_VERSION,
            "entries": [entry.hex() for entry in self.entries],
            "signature": self.signature.hex(),
        }
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Transcript":
        """Read a file's text.

        Raises:
            PeerFault: malformed, unknown-version or oversized.
        """
        # A list of nothing takes two characters, and twenty times that in memory.
        if any(text.count(mark) > most for mark, most in _MARKS.items()):
            raise PeerFault(Cause.MALFORMED, "not a transcript's file: too many lists")
        try:
            document: Any = json.loads(text)
            version, entries, signature = document[FORMAT], document["entries"], document["signature"]
            signed = bytes.fromhex(signature)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PeerFault(Cause.MALFORMED, "not a transcript's file") from error
        if version != PROTOCOL_VERSION:
            # The file's own value is untrusted text, unfit for a terminal.
            raise PeerFault(Cause.UNKNOWN_VERSION, f"another version than {PROTOCOL_VERSION}")
        if not isinstance(entries, list):
            raise PeerFault(Cause.MALFORMED, "the entries are not a list")
        if len(entries) > MAX_ENTRIES:
            raise PeerFault(Cause.OVERSIZED, f"{len(entries)} entries, at most {MAX_ENTRIES}")
        try:
            return cls(tuple(map(bytes.fromhex, entries)), signed)
        except (ValueError, TypeError) as error:
            raise PeerFault(Cause.MALFORMED, "an entry is not hexadecimal") from error

    def messages(self) -> tuple[Message, ...]:
        """The entries decoded; PeerFault names what is wrong with one."""
        return tuple(map(parse, self.entries))

    def _noting_once(self, entry: bytes) -> "Transcript":
        return self if entry in self.entries else replace(self, entries=(*self.entries, entry))


def transcript_digest(context: bytes, head: bytes) -> bytes:
    """Compute H(transcript tag, ctx, head), which the coordinator signs."""
    return hash_fields(Tag.TRANSCRIPT, context, head)


def _entry(message: Message) -> Message:
    if isinstance(message, Upload):
        tree = commitment_tree(message.secret_commitments, message.share_rows)
        return UploadSummary(message.header, message.secret_commitments, tuple(tree.path(0)))
    return message.summary if isinstance(message, Reveal) else message


def _shown(phase: CoordinatorPhase) -> Message | None:
    """What this phase shows every member, or every decryptor that it waits for."""
    if isinstance(phase, Freezing):
        return phase.proposal
    if isinstance(phase, Voiding):
        return phase.request
    if isinstance(phase, Evicting) and phase.evictions:
        return phase.evictions
    if isinstance(phase, Revealing):
        return phase.certificate
    return phase.closing if isinstance(phase, Ended) else None
