"""What was recorded: the messages of a recording, by cohort and round."""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from assurance.recording.messages import MANIFEST_KIND, hashed, parse

FORMAT = "veilsum-recording/1"
SUITES = {
    3: b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31",
    4: b"x25519_mlkem768-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31",
}


def load(path: Path) -> dict[str, Any]:
    """Read a recording. Raises ValueError if it has another format."""
    data = path.read_bytes()
    recording: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    if recording.get("format") != FORMAT:
        raise ValueError(f"{path} is no {FORMAT}")
    return recording


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@dataclass
class Round:
    """One attempt, as it was recorded.

    Attributes:
        uploads: announcements, by member.
        chunks: masked chunks, by member and index.
        holders: by decryptor, the dealers whose boxes it holds, from its receipt.
        reveals: in order of traffic.
        survivors: of the certificate; empty without one.
    """

    version: int
    context: bytes
    opening: Any
    manifest: Any
    bits: int
    uploads: dict[str, Any] = field(default_factory=dict)
    chunks: dict[str, dict[int, bytes]] = field(default_factory=dict)
    holders: dict[str, list[str]] = field(default_factory=dict)
    reveals: list[Any] = field(default_factory=list)
    survivors: list[str] = field(default_factory=list)

    def masked(self, member: str) -> list[int] | None:
        """Return y_u, a member's masked vector; None if it was not sent as a whole."""
        sent, upload = self.chunks.get(member, {}), self.uploads.get(member)
        if upload is None or len(sent) < len(upload.chunk_digests):
            return None
        chunks = [sent[index] for index in sorted(sent)]
        if [hashlib.sha256(each).digest() for each in chunks] != upload.chunk_digests:
            raise ValueError(f"chunks of {member} are not those that it announced")
        return [word for each in chunks for word in self._unpack(each)]

    def _unpack(self, packed: bytes) -> Iterator[int]:  # wire: Keys
        for each in pieces(packed, self.bits // 8):
            yield int.from_bytes(each, "little")


class Recording:
    """A recording's messages, by what they belong to."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.version: int = recorded["version"]
        self.rosters, self.studies = dict[bytes, Any](), dict[bytes, Any]()
        self.manifests = dict[bytes, Any]()
        self.cards = dict[tuple[bytes, str], Any]()
        self.mlkem_keys = dict[tuple[bytes, str], bytes]()
        self.pairings = dict[tuple[bytes, str], list[bytes]]()
        self.rounds = dict[bytes, Round]()
        self._sent = set[bytes]()
        for each in recorded["traffic"]:
            self._sent.add(bytes.fromhex(each["bytes" if "chunk" in each else "message"]))
            if "chunk" in each:
                (of,) = (one for one in self.rounds.values() if one.context.hex().startswith(each["round"]))
                of.chunks.setdefault(each["from"], {})[each["chunk"]] = bytes.fromhex(each["bytes"])
                continue
            data = bytes.fromhex(each["message"])
            if found := parse(self.version, data):
                self._note(*found, data)

    @cached_property
    def _windows(self) -> set[bytes]:
        return {sent[at : at + 32] for sent in self._sent for at in range(len(sent) - 31)}

    def is_public(self, window: bytes) -> bool:
        """Return whether 32 bytes stood in the traffic."""
        return window in self._windows

    def hashed(self, tag: str, *fields: bytes) -> bytes:
        return hashed(self.version, tag, *fields)

    def _note(self, name: str, message: Any, data: bytes) -> None:
        match name:
            case "Roster":
                self.rosters[self.hashed("roster", data)] = message
            case "Study":
                self.studies[self.hashed("study", data[:-64])] = message
            case "Opening":
                self._note_opening(message)
            case "KeyCard" | "Enrolment" | "Cards" | "Pairing":
                self._note_of_cohort(name, message)
            case _:
                self._note_of_round(name, message)

    def _note_of_cohort(self, name: str, message: Any) -> None:
        match name:
            case "KeyCard":
                self.cards[message.cohort, message.member] = message
            case "Enrolment":
                self.cards[message.card.cohort, message.card.member] = message.card
                self.mlkem_keys[message.card.cohort, message.card.member] = message.mlkem_key
            case "Cards":
                head = bytes((self.version, MANIFEST_KIND))
                self.manifests[self.hashed("manifest", head + message.manifest.raw)] = message.manifest
            case "Pairing":
                self.pairings[message.manifest, message.member] = message.ciphertexts

    def _note_of_round(self, name: str, message: Any) -> None:
        of = self.rounds[message.header.context if name == "Upload" else message.context]
        match name:
            case "Upload":
                of.uploads[message.header.member] = message
            case "Receipt":
                of.holders[message.member] = [*message.dealers, message.member]
            case "Certificate":
                of.survivors = [each.member for each in message.survivors]
            case "Reveal":
                of.reveals.append(message)

    def _note_opening(self, opening: Any) -> None:  # wire: Openings
        chain = bytes(32)
        for link in opening.links:
            chain = self.hashed("link", chain, link.raw)
        terms = self.hashed("terms", opening.terms.raw)
        for manifest_hash, manifest in self.manifests.items():
            if manifest.cohort != opening.cohort:
                continue
            place = opening.sequence.to_bytes(8, "little"), bytes([opening.attempt])
            federation = self.rosters[manifest.roster_hash].federation
            bound = (manifest.roster_hash, manifest.cohort, manifest_hash, *place, chain, terms)
            context = self.hashed("ctx", SUITES[self.version], federation, *bound)
            content = json.loads(self.studies[manifest.study].content)
            bits = content["question"]["ring_bits"]
            self.rounds.setdefault(context, Round(self.version, context, opening, manifest, bits))
