"""Mutated messages, half of them signed again by whom they name, into every phase: nothing but a PeerFault comes out."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.helpers.coordinator import CoordinatorPhase, Ended
from protocol.helpers.helper import Checked, Enrolled, HelperPhase, Opened, Standing, Voted, load_helper
from protocol.helpers.messages import HelperHeader, HelperOpening, HelperUpload, parse
from protocol.helpers.simulator import HelperFederation
from protocol.identity import SigningKey
from protocol.merkle import Tree
from protocol.messages.base import Message, Signed


class Recording(HelperFederation):
    """Keeps every phase it goes through, and every message."""

    def record(self) -> tuple[list[HelperPhase], list[CoordinatorPhase], list[Message]]:
        helpers: dict[bytes, HelperPhase] = {}
        coordinators: list[CoordinatorPhase] = []
        messages: list[Message] = []

        def keep(_sender: str, message: Message) -> Message:
            messages.append(message)
            helpers.update({phase.to_bytes(): phase for phase in self.phases.values()})
            if hasattr(self, "phase") and self.phase not in coordinators:
                coordinators.append(self.phase)
            return message

        self.tamper = keep
        self.run(self.terms(20))
        assert isinstance(self.phase, Ended)
        return list(helpers.values()), coordinators, messages


def signed_again(federation: HelperFederation, message: Message) -> Message:
    """The message under the right signature: a party that cheats signs what it likes."""
    if isinstance(message, HelperUpload):
        key = federation.keys.get(message.member)
        if key is None or not (message.chunk_digests and message.commitments and message.boxes):
            return message
        values = {name: value for name, value in vars(message.header).items() if name != "signature"}
        values |= {
            "chunk_root": Tree.of(message.chunk_digests).root,
            "seed_root": Tree.of(message.commitments).root,
            "box_root": Tree.of(message.boxes).root,
        }
        header = HelperHeader.make(key, **values)
        return HelperUpload(header, message.chunk_digests, message.commitments, message.boxes)
    if isinstance(message, Signed):
        signer: SigningKey | None = federation.admin
        if isinstance(message, HelperOpening):
            signer = federation.coordinator
        elif hasattr(message, "member"):
            signer = federation.keys.get(message.member)
        if signer is not None:
            values = {name: value for name, value in vars(message).items() if name != "signature"}
            return type(message).make(signer, **values)
    return message


def mutated(random: Random, data: bytes) -> Iterator[bytes]:
    """Flipped, shortened, lengthened, and with a run copied from elsewhere."""
    at = random.randrange(len(data))
    yield data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    yield data[:at]
    yield data + random.randbytes(random.randrange(1, 40))
    start, count = random.randrange(len(data)), random.randrange(1, 64)
    yield data[:at] + data[start : start + count] + data[at + count :]


def outcome(call: Callable[[], Any]) -> Any:
    """What the call returns, or None for a PeerFault."""
    try:
        return call()
    except PeerFault:
        return None


@pytest.mark.parametrize("seed", range(3))
def test_only_peer_faults_come_out(seed: int) -> None:
    random = Random(seed)
    federation = Recording(6, seed=seed)
    helpers, coordinators, messages = federation.record()
    assert {type(phase) for phase in helpers} >= {Standing, Enrolled, Opened, Checked, Voted}
    key, now_s = federation.keys["helper-0"], federation.now_s
    ends: list[Any] = []
    for message in random.choices(messages, k=150):
        for data in mutated(random, message.to_bytes()):
            received = outcome(partial(parse, data))
            if received is None:
                continue
            assert isinstance(received, Message)
            assert received.to_bytes() == data
            if random.random() < 0.7:
                received = signed_again(federation, received)
            steps = [outcome(partial(phase.receive, received, key, now_s)) for phase in helpers]
            for after, _ in filter(None, steps):
                assert load_helper(after.to_bytes()) == after
            ends += [*steps, *(outcome(partial(phase.receive, received, now_s)) for phase in coordinators)]
    assert ends.count(None) > 1000
    assert any(end is not None for end in ends)
