"""What was said in an attempt, hash-chained and signed, without any seed, share or chunk (protocol §11)."""

import json
from dataclasses import dataclass, replace
from typing import Any

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import (
    Abandoned,
    Certified,
    CoordinatorPhase,
    Failed,
    Freezing,
    Recovered,
    Revealing,
    Voiding,
)
from protocol.coordinator.revealing import ShareFault
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Cards, Evictions, Message, Reveal, Upload, UploadSummary, parse
from protocol.sealing import commitment_tree
from protocol.tags import PROTOCOL_VERSION, Tag, hash_fields

FORMAT = "veilsum-transcript"
MAX_ENTRIES = 1 << 20
PROVING = frozenset({Cause.UPLOAD_CONFLICT, Cause.ALREADY_VOTED, Cause.CONFLICT, Cause.REVEAL_MISSHAPEN})
"""Refusals of what its sender signed, which beside what it signed before may prove it false."""


@dataclass(frozen=True)
class Transcript:
    """The entries so far.

    Attributes:
        entries: each a message's bytes.
        signature: the coordinator's, over context and head; empty while the attempt goes on.
        accused: what refused messages were noted for, and of whom: one of each is enough, and nobody can fill the file.
    """

    entries: tuple[bytes, ...]
    signature: bytes = b""
    accused: frozenset[tuple[Cause, str]] = frozenset()

    @classmethod
    def begin(cls, attempt: Attempt, cards: Cards) -> "Transcript":
        """Open the transcript of an attempt; `cards` shows all of the cohort's."""
        return cls(tuple(m.to_bytes() for m in (attempt.roster, cards, attempt.opening)))

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
        return self._noting_once(_entry(message)).moved(before, after)

    def refused(self, message: Message, fault: PeerFault) -> "Transcript":
        """Note a message that was refused, where others can see by it that its sender is false."""
        evidence = fault.evidence if isinstance(fault, ShareFault) else message
        proving = evidence is not message or fault.cause in PROVING
        accused = self.accused | {(fault.cause, party) for party in fault.parties}
        if not proving or accused == self.accused:
            return self
        return replace(self._noting_once(_entry(evidence)), accused=accused)

    def moved(self, before: CoordinatorPhase, after: CoordinatorPhase) -> "Transcript":
        """Note what the coordinator shows members since it moved on by itself."""
        shown = _shown(after)
        if shown is None or shown == _shown(before):
            return self
        return self._noting_once(shown)

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
        try:
            document: Any = json.loads(text)
            version, entries, signature = document[FORMAT], document["entries"], document["signature"]
            signed = bytes.fromhex(signature)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise PeerFault(Cause.MALFORMED, "this is no transcript") from error
        if version != PROTOCOL_VERSION:
            raise PeerFault(Cause.UNKNOWN_VERSION, f"version {version}, this side reads {PROTOCOL_VERSION}")
        if not isinstance(entries, list):
            raise PeerFault(Cause.MALFORMED, "the entries are no list")
        if len(entries) > MAX_ENTRIES:
            raise PeerFault(Cause.OVERSIZED, f"{len(entries)} entries, at most {MAX_ENTRIES}")
        try:
            return cls(tuple(map(bytes.fromhex, entries)), signed)
        except (ValueError, TypeError) as error:
            raise PeerFault(Cause.MALFORMED, "an entry is not hexadecimal") from error

    def messages(self) -> tuple[Message, ...]:
        """The entries decoded; PeerFault names what is wrong with one."""
        return tuple(map(parse, self.entries))

    def _noting(self, message: Message) -> "Transcript":
        return replace(self, entries=(*self.entries, message.to_bytes()))

    def _noting_once(self, message: Message) -> "Transcript":
        return self if message.to_bytes() in self.entries else self._noting(message)


def transcript_digest(context: bytes, head: bytes) -> bytes:
    """What the coordinator signs: H(transcript tag, ctx, head)."""
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
    if isinstance(phase, Revealing | Recovered | Failed) and phase.proofs:
        return Evictions(phase.attempt.context, phase.proofs)
    if isinstance(phase, Revealing | Certified):
        return phase.certificate
    return phase.lost if isinstance(phase, Abandoned) else None
