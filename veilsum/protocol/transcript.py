"""The signed, hash-chained transcript of an attempt, without seeds, shares or chunks (analysis: Transcripts)."""

import json
from dataclasses import dataclass, replace
from typing import Any

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import CoordinatorPhase, Ended, Freezing, Revealing, Voiding
from veilsum.protocol.coordinator.base import Evicting
from veilsum.protocol.coordinator.revealing import ShareFault
from veilsum.protocol.coordinator.statements import OutcomeFault
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Cards, Message, Refusal, Reveal, Upload, UploadSummary, parse_message
from veilsum.protocol.sealing import commitment_tree
from veilsum.protocol.tags import PROTOCOL_VERSION, Tag, hash_fields

TRANSCRIPT_FORMAT = "veilsum-transcript"
MAX_ENTRIES = 1 << 20
_JSON_MARKS_MAX = {"{": 1, "[": 1, ":": 3, ",": MAX_ENTRIES + 3}
"""Maximum number of each character in a file. The rest is names, digits and space."""
PROVING_CAUSES = frozenset({Cause.UPLOAD_CONFLICT, Cause.ALREADY_VOTED, Cause.CONFLICT})
"""Causes for which a signed message is refused because it contradicts an earlier one: the two prove their sender false."""


@dataclass(frozen=True)
class Accusation:
    """A refused message that proves its sender false to others: the cause, the parties that the fault names, and the transcript's entry."""

    cause: Cause
    parties: tuple[str, ...]
    entry: bytes

    @classmethod
    def from_refusal(cls, message: Message, fault: PeerFault) -> "Accusation | None":
        """Return the accusation that a refusal proves to others; None if it proves nothing, so that it can't displace a proof."""
        if isinstance(fault, ShareFault):
            return cls(fault.cause, fault.parties, fault.evidence.to_bytes())
        # Refusing twice is allowed.
        proves = isinstance(fault, OutcomeFault) or (
            fault.cause in PROVING_CAUSES and not isinstance(message, Refusal)
        )
        return cls(fault.cause, fault.parties, _entry_of(message).to_bytes()) if proves else None


@dataclass(frozen=True)
class Transcript:
    """The entries so far.

    `signature`, the coordinator's over context and head, is empty until the attempt ends. Each accusation is noted once, which bounds
    the file's size.
    """

    entries: tuple[bytes, ...]
    signature: bytes = b""
    accused: frozenset[tuple[Cause, str]] = frozenset()

    @classmethod
    def begin(cls, attempt: Attempt, cards: Cards) -> "Transcript":
        """Begin the transcript of an attempt; `cards` holds all cards of the cohort."""
        return cls(tuple(m.to_bytes() for m in (attempt.roster, attempt.study, cards, attempt.opening)))

    @property
    def head(self) -> bytes:
        """The head of the hash chain over the entries."""
        head = bytes(32)
        for entry in self.entries:
            head = hash_fields(Tag.TRANSCRIPT, head, entry)
        return head

    def note_accepted(
        self, message: Message, before: CoordinatorPhase, after: CoordinatorPhase
    ) -> "Transcript":
        """Note an accepted message and what the coordinator shows members after it; a message without effect is not noted."""
        if after == before:
            return self
        return self._noting_once(_entry_of(message).to_bytes()).note_phase_change(before, after)

    def note_accusation(self, found: Accusation) -> "Transcript":
        """Note an accusation, once for each cause and party."""
        accused = self.accused | {(found.cause, party) for party in found.parties}
        return self if accused == self.accused else replace(self._noting_once(found.entry), accused=accused)

    def note_phase_change(self, before: CoordinatorPhase, after: CoordinatorPhase) -> "Transcript":
        """Note what the coordinator shows members after it changed its phase without a message."""
        shown = _message_shown_by(after)
        if shown is None or shown == _message_shown_by(before):
            return self
        return self._noting_once(shown.to_bytes())

    def sign(self, key: SigningKey, context: bytes) -> "Transcript":
        """Close the transcript with the coordinator's signature."""
        return replace(self, signature=key.sign(transcript_digest(context, self.head)))

    def to_json(self) -> str:
        """Encode the transcript as a file's text."""
        document = {
            TRANSCRIPT_FORMAT: PROTOCOL_VERSION,
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
        # An empty list takes two characters, and twenty times as much memory.
        if any(text.count(mark) > most for mark, most in _JSON_MARKS_MAX.items()):
            raise PeerFault(Cause.MALFORMED, "not a transcript's file: too many lists")
        try:
            document: Any = json.loads(text)
            version, entries, signature = (
                document[TRANSCRIPT_FORMAT],
                document["entries"],
                document["signature"],
            )
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

    def decode_messages(self) -> tuple[Message, ...]:
        """Decode the entries. Raises PeerFault if one is malformed."""
        return tuple(map(parse_message, self.entries))

    def _noting_once(self, entry: bytes) -> "Transcript":
        return self if entry in self.entries else replace(self, entries=(*self.entries, entry))


def transcript_digest(context: bytes, head: bytes) -> bytes:
    """Compute H(transcript tag, ctx, head), which the coordinator signs."""
    return hash_fields(Tag.TRANSCRIPT, context, head)


def _entry_of(message: Message) -> Message:
    if isinstance(message, Upload):
        tree = commitment_tree(message.secret_commitments, message.share_rows)
        return UploadSummary(message.header, message.secret_commitments, tuple(tree.path_to(0)))
    return message.summary if isinstance(message, Reveal) else message


def _message_shown_by(phase: CoordinatorPhase) -> Message | None:
    """Return the message that this phase shows every member, or every decryptor that it waits for; None without one."""
    if isinstance(phase, Freezing):
        return phase.proposal
    if isinstance(phase, Voiding):
        return phase.request
    if isinstance(phase, Evicting) and phase.evictions:
        return phase.evictions
    if isinstance(phase, Revealing):
        return phase.certificate
    return phase.closing if isinstance(phase, Ended) else None
