"""What was recorded: the messages of a recording, by cohort and round."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from assurance.reference import wire
from assurance.reference.reference import Party
from assurance.reference.wire import H, decode

FORMAT, VERSION = "veilsum-recording/1", 4
NAMES = {
    wire.KINDS[name]: name
    for name in (
        *("Roster", "Study", "Enrolment", "Cards", "Pairing"),
        *("Opening", "Upload", "Receipt", "Certificate", "Reveal"),
    )
}
"""Messages that hold something that a recorder needs, by kind."""


def load(path: Path) -> dict[str, Any]:
    """Read a recording. Raises ValueError if it has another format."""
    data = path.read_bytes()
    recording: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    if (recording.get("format"), recording.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} is no {FORMAT} of version {VERSION}")
    return recording


@dataclass
class Round:
    """One attempt, as it was recorded.

    Attributes:
        party: knows the attempt's context, graph and commitments, as everybody does.
        uploads: announcements, by member.
        chunks: masked chunks, by member and index.
        holders: by decryptor, the dealers whose boxes it holds, from its receipt.
        reveals: in order of traffic.
        survivors: of the certificate; empty without one.
    """

    party: Party
    uploads: dict[str, Any] = field(default_factory=dict)
    chunks: dict[str, dict[int, bytes]] = field(default_factory=dict)
    holders: dict[str, list[str]] = field(default_factory=dict)
    reveals: list[Any] = field(default_factory=list)
    survivors: tuple[Any, ...] = ()

    def masked(self, member: str) -> list[bytes] | None:
        """Return the chunks of a member's masked vector; None if it was not sent as a whole."""
        sent, upload = self.chunks.get(member, {}), self.uploads.get(member)
        if upload is None or len(sent) < len(upload.chunk_digests):
            return None
        chunks = [sent[index] for index in sorted(sent)]
        if tuple(sha256(each).digest() for each in chunks) != upload.chunk_digests:
            raise ValueError(f"chunks of {member} are not those that it announced")
        return chunks


class Recording:
    """A recording's messages, by what they belong to."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.rosters, self.studies = dict[bytes, bytes](), dict[bytes, bytes]()
        self.manifests = dict[bytes, Any]()
        self.enrolments = dict[tuple[bytes, str], Any]()
        self.pairings = dict[tuple[bytes, str], tuple[bytes, ...]]()
        self.rounds = dict[bytes, Round]()
        self._sent = set[bytes]()
        for each in recorded["traffic"]:
            data = bytes.fromhex(each["bytes" if "chunk" in each else "message"])
            self._sent.add(data)
            if "chunk" in each:
                (of,) = (
                    one for context, one in self.rounds.items() if context.hex().startswith(each["round"])
                )
                of.chunks.setdefault(each["from"], {})[each["chunk"]] = data
            elif name := NAMES.get(data[1]):
                self._note(name, decode(data, name), data)

    @cached_property
    def _windows(self) -> set[bytes]:
        return {sent[at : at + 32] for sent in self._sent for at in range(len(sent) - 31)}

    def is_public(self, window: bytes) -> bool:
        """Return whether 32 bytes stood in the traffic."""
        return window in self._windows

    def _note(self, name: str, message: Any, data: bytes) -> None:
        match name:
            case "Roster":
                self.rosters[H("roster", data)] = data
            case "Study":
                self.studies[wire.signable(message)] = data
            case "Enrolment":
                self.enrolments[message.card.cohort, message.card.member] = message
            case "Cards":
                self.manifests[H("manifest", wire.encode(message.manifest))] = message.manifest
            case "Pairing":
                self.pairings[message.manifest, message.member] = message.ciphertexts
            case "Opening":
                self._note_opening(message)
            case _:
                self._note_of_round(name, message)

    def _note_of_round(self, name: str, message: Any) -> None:
        of = self.rounds[message.header.context if name == "Upload" else message.context]
        match name:
            case "Upload":
                of.uploads[message.header.member] = message
            case "Receipt":
                of.holders[message.member] = [*message.dealers, message.member]
            case "Certificate":
                of.survivors = message.survivors
            case "Reveal":
                of.reveals.append(message)

    def _note_opening(self, opening: Any) -> None:
        for manifest in self.manifests.values():
            if manifest.cohort == opening.cohort:
                signed = self.rosters[manifest.roster_hash], self.studies[manifest.study]
                run = manifest.counter, manifest.period, manifest.repeats
                party = Party(Ed25519PrivateKey.generate(), *signed, *run)
                party.settle(manifest)
                party.begin(opening)
                self.rounds.setdefault(party.context, Round(party))
