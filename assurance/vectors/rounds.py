"""Whole rounds with every intermediate value: a simulated federation that records what it draws, derives and sends."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from assurance.reference import mlkem
from tests.support.forging import changing, other_secrets, redeal, swallowing
from tests.support.simulator import After, Federation, Outcome, SeededRandom, Vectors, of, untampered
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Ended, Recovered
from veilsum.protocol.keys import Encapsulated, PairKey
from veilsum.protocol.member import Opened
from veilsum.protocol.messages import NO_CONTEXT, Cards, Evictions, Message, Upload
from veilsum.protocol.shamir import LIMB_PRIME, share_secrets
from veilsum.protocol.study import COUNT_STEP

Json = dict[str, Any]


@dataclass
class Noted:
    """The values from which cases are made, in hexadecimal.

    Attributes:
        opened: roster, study, manifest and opening.
        staying: S∖E at the end; empty if there is no sum.
    """

    opened: Json
    certificate: str = ""
    evictions: str = ""
    staying: list[str] = field(default_factory=list)


class Draws:
    """Random bytes that are recorded."""

    def __init__(self, source: SeededRandom) -> None:
        self._source, self.drawn = source, list[bytes]()

    def __call__(self, count: int) -> bytes:
        self.drawn.append(self._source(count))
        return self.drawn[-1]


def encapsulate_drawn(draw: Callable[[int], bytes], mlkem_key: bytes) -> Encapsulated:
    """Encapsulate 32 drawn bytes, so that each run makes the same ciphertext."""
    secret, ciphertext = mlkem.encapsulate(mlkem_key, draw(32))
    return Encapsulated(SecretBytes(secret), ciphertext)


class Recorder(Federation):
    """A federation that records its round as a vector file."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, SeededRandom):
            value = Draws(value)
        super().__setattr__(name, value)

    def __post_init__(self) -> None:
        self.said: list[str] = []
        self.log: list[list[Any]] = []
        self.drawn_cards: Json = {}
        self.paired = defaultdict[str, list[dict[str, str]]](list)
        self.drawn_uploads: Json = {}
        super().__post_init__()

    def enrol(self, period: str, repeats: bytes = NO_CONTEXT) -> None:
        draws = self._draws
        start = len(draws)
        self.inner, self.tamper, self.encapsulate = self.tamper, self._keep, self._encapsulate
        super().enrol(period, repeats)
        for index, member in enumerate(self.ids):
            x25519, seed, nonce = draws[start + 3 * index : start + 3 * index + 3]
            self.drawn_cards[member] = {
                "identity": self.keys[member].seed.hex(),
                "x25519_private": x25519.hex(),
                "mlkem_seed": seed.hex(),
                "nonce": nonce.hex(),
                "serial": str(self.serial),
                "encapsulated": self.paired[member],
            }

    def _encapsulate(self, mlkem_key: bytes, owner: str) -> Encapsulated:
        made = encapsulate_drawn(self.random, mlkem_key)
        self.made[owner] = made.secret.hex()
        return made

    @property
    def _draws(self) -> list[bytes]:
        assert isinstance(self.random, Draws)
        return self.random.drawn

    def _keep(self, sender: str, message: Message) -> Message | None:
        sent = self.inner(sender, message)
        if sent is not None and ">" not in sender:
            self._say(sender, "coordinator", sent)
        return sent

    def tell_member(self, member: str, message: Message) -> tuple[Message, ...]:
        self._say("coordinator", member, message)
        self.made: dict[str, str] = {}
        replies = super().tell_member(member, message)
        if isinstance(message, Cards):
            self.paired[member].append(self.made)
        return replies

    def _say(self, source: str, to: str, message: Message) -> None:
        text = message.to_bytes().hex()
        if text not in self.said:
            self.said.append(text)
        self.log.append([source, to, self.said.index(text)])

    def _upload(self, member: str, opened: Opened) -> tuple[Message, ...]:
        start = len(self._draws)
        made = super()._upload(member, opened)
        if not made:
            return made
        b_u, coefficients, salt = self._draws[start:]
        attempt, ready, context = opened.attempt, opened.ready, opened.attempt.context
        seeds = {pair.peer: pair.mask_seed(member, context) for pair in ready.masks}
        edges = [seeds[peer] for peer in attempt.neighbours_of(member)]
        quorum = attempt.quorum
        dealt = share_secrets([b_u, *edges], quorum.threshold, quorum.decryptors, lambda _count: coefficients)

        def key_of(pair: PairKey) -> str:
            return pair.box_key(member, pair.peer, context, salt).hex()

        words = [coefficients[i : i + 4] for i in range(0, len(coefficients), 4)]
        self.drawn_uploads[member] = {
            "vector": self.vectors_now[member].tolist(),
            "b_u": b_u.hex(),
            "salt": salt.hex(),
            "coefficients": b"".join(
                (int.from_bytes(word, "little") & LIMB_PRIME).to_bytes(4, "little") for word in words
            ).hex(),
            "mask_keys": {pair.peer: pair.key.hex() for pair in ready.masks},
            "box_keys": {pair.peer: pair.key.hex() for pair in ready.boxes},
            "r_uv": {peer: seeds[peer].hex() for peer in attempt.neighbours_of(member)},
            "sealing_keys": {
                pair.peer: key_of(pair) for pair in ready.boxes if pair.peer in attempt.decryptors
            },
            "shares": {decryptor: dealt[i].tobytes().hex() for i, decryptor in enumerate(attempt.decryptors)},
            "chunks": [self.spool[member, index].hex() for index in range(attempt.chunk_count)],
        }
        return made


@dataclass
class Recorded:
    """A federation after its run, its attempts as cases need them, and the vector file's document."""

    federation: Recorder
    attempts: dict[str, Noted]
    document: Json


def _attempt(federation: Recorder, outcome: Outcome) -> tuple[Noted, Json]:
    phase = of(Ended, outcome.phase)
    assert phase.link is not None
    attempt, messages = phase.attempt, [*federation.transcript.decode_messages()]
    opened = {
        name: message.to_bytes().hex()
        for name, message in (
            ("roster", attempt.roster),
            ("study", attempt.study),
            ("manifest", attempt.manifest),
            ("opening", attempt.opening),
        )
    }
    noted = Noted(opened)
    document: Json = {
        "opening": opened["opening"],
        "context": attempt.context.hex(),
        "members": dict(federation.drawn_uploads),
        "log": list(federation.log),
        "ending": phase.name,
        "link": phase.link.encode().hex(),
    }
    certificate = getattr(phase, "certificate", None)
    if certificate:
        noted.certificate = certificate.to_bytes().hex()
    if isinstance(phase, Recovered) and outcome.total is not None:
        noted.staying = list(phase.summed_members)
        noted.evictions = "".join(m.to_bytes().hex() for m in messages if isinstance(m, Evictions))
        document |= {
            "survivors": list(outcome.survivors),
            "evicted": list(phase.evicted),
            "self_seeds": {member: seed.hex() for member, seed in phase.self_seeds.items()},
            "edge_seeds": {f"{u} {w}": seed.hex() for (u, w), seed in phase.edge_seeds.items()},
            "sum": outcome.total.tolist(),
        }
    document["transcript"] = json.loads(federation.transcript.to_json())
    federation.log.clear()
    federation.drawn_uploads.clear()
    return noted, document


def _run(name: str, federation: Recorder, *steps: Callable[[Recorder], Vectors | None]) -> Recorded:
    """Run an attempt after each preparation, with the vectors that it returns or with random ones."""
    shared: Json = {
        "what": SCENARIOS[name].__doc__,
        "admin": federation.admin.seed.hex(),
        "coordinator": federation.coordinator.seed.hex(),
        "now_s": int(federation.now_s),
        "late_s": int(federation.now_s) + 86_400,
        "roster": federation.roster.to_bytes().hex(),
        "study": federation.study.to_bytes().hex(),
        "members": federation.drawn_cards,
        "cards": federation.cards.to_bytes().hex(),
        "enrolment": list(federation.log),
    }
    federation.log.clear()
    attempts, documents = {}, []
    for step in steps:
        outcome = federation.run_round(step(federation))
        if outcome.phase.attempt.spec.is_disclosed:
            federation.disclose()
        place = outcome.phase.attempt.opening.sequence_and_attempt
        noted, document = _attempt(federation, outcome)
        attempts[f"{name} {place[0]}.{place[1]}"] = noted
        documents.append(document)
    return Recorded(federation, attempts, {**shared, "messages": federation.said, "attempts": documents})


SMALL: Json = {"dim": 3, "classes": ["a", "b"]}
"""Fields of a question with short vectors: 14 elements."""


def _plain(_recorder: Recorder) -> None:
    """Prepare nothing."""


def complete() -> Recorded:
    """Six members in the first step of a noisy study, one of which vanishes before its upload; then the second step."""
    noise = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}
    question = SMALL | {"noise": noise, "ring_bits": 48, "members_min": 5}
    federation = Recorder(6, drop={4: After.OPENING}, question=question)

    def second(recorder: Recorder) -> None:
        recorder.drop = {}

    return _run("complete", federation, _plain, second)


def voided() -> Recorded:
    """Four members, all of which are needed: one upload is lost, and the attempt is voided and tried again."""
    federation = Recorder(4, question=SMALL)

    def first(recorder: Recorder) -> None:
        recorder.inner = swallowing(Upload, "member-0")

    def again(recorder: Recorder) -> None:
        recorder.inner = untampered

    return _run("voided", federation, first, again)


def evicted() -> Recorded:
    """Five members, one of which deals shares of another seed than it commits to, and is evicted."""
    federation = Recorder(5, question=SMALL)

    def first(recorder: Recorder) -> None:
        def deal(upload: Upload) -> Upload:
            return redeal(recorder, upload, other_secrets(recorder.phase.attempt, 0))

        recorder.inner = changing(Upload, deal, "member-4")

    return _run("evicted", federation, first)


def unpaired() -> Recorded:
    """Five members, one of which never pairs: the others pair again, under a second manifest."""
    lost = swallowing(Cards, "coordinator>member-2")
    return _run("unpaired", Recorder(5, tamper=lost, question=SMALL), _plain)


def nominated() -> Recorded:
    """Six members. Four are nominated to decrypt, and another one vanishes before its upload."""
    federation = Recorder(
        6, decryptors=(0, 1, 2, 5), drop={3: After.OPENING}, question=SMALL | {"ring_bits": 48}
    )
    return _run("nominated", federation, _plain)


def erased() -> Recorded:
    """Five members, two of which vanish after their receipts: no certificate is possible, and the others report that they erased."""
    return _run("erased", Recorder(5, drop={0: After.RECEIPT, 1: After.RECEIPT}, question=SMALL), _plain)


def lost() -> Recorded:
    """Five members, three of which vanish after their receipts: too few report, and the admin closes the attempt."""
    return _run("lost", Recorder(5, drop=dict.fromkeys(range(3), After.RECEIPT), question=SMALL), _plain)


def count() -> Recorded:
    """Four members with classes: their holders are counted, then the rows of common classes, and the sum withholds rare ones."""
    records = {"least": 50, "most": 500, "least_per_class": 50, "rows_per_id": 1}
    question = SMALL | {"classes": ["a", "b", "c", "d", "e"], "records": records}
    holding = {f"member-{place}": np.array([1, 1, place % 2, 1, 0]) for place in range(4)}
    federation = Recorder(4, margin=0, question=question)

    def counting(recorder: Recorder) -> Vectors | None:
        return holding if recorder.next_step() == COUNT_STEP else None

    return _run("count", federation, counting, counting, counting)


SCENARIOS: dict[str, Callable[[], Recorded]] = {
    "complete": complete,
    "voided": voided,
    "evicted": evicted,
    "unpaired": unpaired,
    "nominated": nominated,
    "erased": erased,
    "lost": lost,
    "count": count,
}


@cache
def played(name: str) -> Recorded:
    """Run a scenario."""
    return SCENARIOS[name]()
