"""Canaries: every secret of a round is known here, and none occurs in printed or reported text."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulator import After, Federation
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import MemberPhase, Paired, Ready
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.member.enrolled import Pairable
from veilsum.protocol.messages import Freeze, Message, Opening, Reveal, Upload
from veilsum.protocol.sealing import Sealing


class Watched(Federation):
    """Record every phase, message, fault and secret."""

    def __post_init__(self) -> None:
        self.shown: list[object] = []
        self.secrets: set[bytes] = set()
        super().__post_init__()

    def note(self, phase: MemberPhase) -> None:
        self.shown.append(phase)
        if isinstance(phase, Pairable):
            self.secrets |= {bytes(phase.keys.x25519), bytes(phase.keys.mlkem_seed)}
            self.shown.append(phase.keys)
        if isinstance(phase, Paired):
            self.secrets |= {bytes(phase.secrets[at : at + 32]) for at in range(0, len(phase.secrets), 32)}
        ready = getattr(phase, "ready", phase)
        if isinstance(ready, Ready):
            self.secrets |= {bytes(pair.key) for pair in (*ready.masks, *ready.boxes)}
            self.shown += (*ready.masks, *ready.boxes)
        if isinstance(phase, Attempting):
            own = [phase.own_shares] if phase.own_shares else []
            for shares in (*own, *(dealt.shares for dealt in phase.vouched_shares())):
                self.secrets |= {bytes(shares[i : i + 36]) for i in range(0, len(shares), 36)}
            self.secrets |= {
                bytes(pair.mask_seed(phase.member, phase.attempt.context)) for pair in phase.ready.masks
            }
            self.shown += phase.vouched_shares()

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        self.note(self.phases[member])
        replies = super().tell_member(member, message)
        self.note(self.phases[member])
        self.shown += [message, *replies]
        return replies


@pytest.fixture(scope="module")
def watched() -> Watched:
    """Three rounds: an honest one, one with dropouts, and one with a cheat in every message."""
    federation = Watched(5)
    seeds: list[bytes] = []
    init = Sealing.__init__

    def keep(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        seeds.append(bytes(self.self_seed))
        federation.shown.append(self)
        federation.shown.append(self._masks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sealing, "__init__", keep)
        federation.run_round()
        federation.drop = {2: After.OPENING}
        outcome = federation.run_round()
        assert isinstance(outcome.phase, Recovered)
        federation.shown += [outcome, outcome.phase, outcome.phase.setting]
        federation.drop = {}
        federation.tamper = cheat
        outcome = federation.run_round()
        federation.shown += [outcome, outcome.phase, *(fault for _, fault in outcome.faults)]
    federation.secrets |= {key.seed for key in federation.keys.values()} | set(seeds)
    federation.secrets |= {federation.admin.seed, federation.coordinator.seed}
    federation.shown += [*federation.keys.values(), federation.admin, federation.coordinator]
    return federation


def cheat(sender: str, message: Message) -> Message:
    """Falsify most kinds of messages, so that faults are raised."""
    if sender == "coordinator>member-4" and isinstance(message, Opening):
        return replace(message, attempt=3)
    if sender == "member-1" and isinstance(message, Upload):
        return replace(message, boxes=message.boxes[::-1])
    if sender == "coordinator>member-0" and isinstance(message, Freeze):
        return replace(message, context=bytes(32))
    if sender == "member-2" and isinstance(message, Reveal):
        return replace(message, runs=(SecretBytes(bytes(36)), *message.runs[1:]))
    return message


def spellings(secret: bytes) -> Iterator[str]:
    """Return how a secret may be spelt in a text, even if only its beginning is shown."""
    yield secret[:4].hex()
    yield secret[-4:].hex()
    yield repr(secret[:4])[2:-1]
    yield str(int.from_bytes(secret[:8], "little"))


def test_the_canaries_are_planted(watched: Watched) -> None:
    assert len(watched.secrets) > 300
    kinds = {type(thing).__name__ for thing in watched.shown}
    assert {"Enrolled", "Paired", "Ready", "Opened", "Uploaded", "Checked", "Voted", "Closed"} <= kinds
    assert {"Reveal", "Upload", "Recovered", "PeerFault", "Sealing", "Masks", "PairKey", "Dealt"} <= kinds


def test_no_secret_stands_in_any_repr_or_fault(watched: Watched) -> None:
    texts = set()
    for thing in watched.shown:
        texts |= {repr(thing), str(thing)}
        if isinstance(thing, PeerFault):
            texts |= {repr(thing.args), thing.detail}
    everything = "\n".join(texts)
    leaked = [
        (len(secret), spelling)
        for secret in watched.secrets
        for spelling in spellings(secret)
        if spelling in everything
    ]
    assert leaked == []
