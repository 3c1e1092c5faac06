"""Attempts with mask helpers, every value kept: a simulated federation that writes down what it draws, derives and says."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from protocol.helpers.coordinator import Ended, Recovered
from protocol.helpers.helper import Enrolled
from protocol.helpers.messages import HelperHeader, HelperSums, HelperUpload
from protocol.helpers.sealing import box_key
from protocol.helpers.simulator import ClientStop, HelperFederation, HelperOutcome, HelperStop
from protocol.keys import AgreementKey
from protocol.merkle import Tree
from protocol.messages.base import Message
from protocol.messages.opening import EMPTY_CHAIN
from tests.protocol.forging import again, unsigned
from tests.vectors.rounds import Draws

Json = dict[str, Any]
ELEMENTS, CAP = 19, 1000
FALSE_CLIENT, MISLED = "client-4", "helper-1"
"""Who deals another seed than it commits to, and to whom."""


class HelperRecorder(HelperFederation):
    """A federation that keeps its attempts as a vector."""

    def __post_init__(self) -> None:
        self.said: list[str] = []
        self.log: list[list[Any]] = []
        self.spoken_now: Json = {}
        super().__post_init__()
        self.random: Any = Draws(self.random)
        self.inner, self.tamper = self.tamper, self._keep

    def _keep(self, sender: str, message: Message) -> Message | None:
        sent = self.inner(sender, message)
        if sent is not None and ">" not in sender:
            self._say(sender, "coordinator", sent)
        return sent

    def _tell(self, helper: str, message: Message) -> tuple[Message, ...]:
        self._say("coordinator", helper, message)
        return super()._tell(helper, message)

    def _say(self, source: str, to: str, message: Message) -> None:
        text = message.to_bytes().hex()
        if text not in self.said:
            self.said.append(text)
        self.log.append([source, to, self.said.index(text)])

    def box_privates(self) -> dict[str, str]:
        """The helpers' keys behind their cards."""
        return {
            helper: each.private.hex() for helper, each in self.phases.items() if isinstance(each, Enrolled)
        }

    def begin(self, terms: Any) -> None:
        """As every attempt begins; the private keys are noted before the openings are told."""
        self.privates: dict[str, str] = {}
        super().begin(terms)

    def _serve(self, helper: str) -> None:
        self.privates |= self.box_privates()
        super()._serve(helper)

    def _speak(self, index: int) -> HelperUpload:
        start = len(self.random.drawn)
        upload, client, attempt = super()._speak(index), self.ids[index], self.attempt
        *seeds, private = self.random.drawn[start:]
        sender = AgreementKey(private)

        def key_of(helper: str, public: bytes) -> bytes:
            keys = sender.public, public
            return box_key(sender.agree(public, helper), attempt.context, client, helper, keys)

        self.spoken_now[client] = {
            "vector": self.vector(index, attempt.terms.elements).tolist(),
            "lineage": self.lineage(index).hex(),
            "records": bytes(8).hex(),
            "seeds": [seed.hex() for seed in seeds],
            "sender_private": private.hex(),
            "box_keys": {
                card.member: key_of(card.member, card.box_key).hex() for card in attempt.manifest.cards
            },
            "chunks": [self.spool[client, chunk].hex() for chunk in range(attempt.chunks)],
        }
        return upload


def recorded(federation: HelperRecorder, outcome: HelperOutcome, chain: bytes) -> Json:
    """An attempt that is over, as a vector has it."""
    attempt, phase = federation.attempt, outcome.phase
    assert isinstance(phase, Ended)
    document: Json = {
        "opening": attempt.opening.to_bytes().hex(),
        "context": attempt.context.hex(),
        "box_privates": federation.privates,
        "clients": federation.spoken_now,
        "partial": [
            federation.ids[i] for i, stop in federation.drop.items() if stop is ClientStop.ANNOUNCEMENT
        ],
        "log": federation.log,
        "ending": type(phase).__name__.lower(),
        "cause": None if outcome.fault is None else outcome.fault.cause.value,
        "parties": [] if outcome.fault is None else list(outcome.fault.parties),
        "closing": phase.closing.ended.closing.hex(),
        "chain": phase.closing.ended.extend(chain).hex(),
    }
    added = [
        helper
        for helper in federation.helpers
        if (f"{helper}/{attempt.seeds_of(helper)[0]}", 0) in federation.spool
    ]
    document["sums"] = {
        helper: {
            str(seed): [federation.spool[f"{helper}/{seed}", chunk].hex() for chunk in range(attempt.chunks)]
            for seed in attempt.seeds_of(helper)
        }
        for helper in added
    }
    if isinstance(phase, Recovered) and outcome.total is not None:
        document |= {
            "survivors": list(outcome.survivors),
            "outvoted": list(phase.outvoted),
            "sum": outcome.total.tolist(),
        }
    federation.log, federation.spoken_now = [], {}
    for key in [key for key in federation.spool if "/" in key[0]]:
        del federation.spool[key]
    return document


def false_box(federation: HelperRecorder, upload: HelperUpload) -> HelperUpload:
    """The upload with another box for one helper, and signed again."""
    place = federation.attempt.present.index(MISLED)
    boxes = tuple(bytes(len(box)) if at == place else box for at, box in enumerate(upload.boxes))
    values = unsigned(upload.header) | {"box_root": Tree.of(boxes).root}
    return replace(upload, header=HelperHeader.make(federation.keys[upload.member], **values), boxes=boxes)


def swapped(sums: HelperSums, federation: HelperFederation) -> HelperSums:
    """Sums under each other's numbers, signed by who returns them."""
    first, second, third = sums.digests
    return again(sums, federation.keys[sums.member], digests=(second, first, third))


def begins(federation: HelperRecorder) -> None:
    """Six clients: one vanishes after its announcement, one deals a false box, and the helper dealt it complains."""

    def false(_sender: str, message: Message) -> Message:
        is_false = isinstance(message, HelperUpload) and message.member == FALSE_CLIENT
        return false_box(federation, message) if is_false else message  # type: ignore[arg-type]  # an upload

    federation.inner, federation.drop = false, {5: ClientStop.ANNOUNCEMENT}


def outvotes(federation: HelperRecorder) -> None:
    """The same four clients: a helper returns false sums, and two others contradict it."""

    def false(sender: str, message: Message) -> Message:
        lies = sender == "helper-0" and isinstance(message, HelperSums)
        return swapped(message, federation) if lies else message  # type: ignore[arg-type]  # sums

    federation.inner = false
    federation.drop = dict.fromkeys((4, 5), ClientStop.OPENING)


def disagrees(federation: HelperRecorder) -> None:
    """As before, while another helper has no card: nobody decides between two holders of one seed."""
    federation.helper_drop = {3: HelperStop.NOTHING}


def voids(federation: HelperRecorder) -> None:
    """All helpers are back, and too few clients speak."""
    federation.inner = lambda _sender, message: message
    federation.helper_drop, federation.drop = {}, dict.fromkeys((3, 4, 5), ClientStop.OPENING)


SCENES: tuple[Callable[[HelperRecorder], None], ...] = (begins, outvotes, disagrees, voids)


@cache
def played() -> tuple[HelperRecorder, Json]:
    """The federation once its attempts have ended, and all of it as a vector's document."""
    federation = HelperRecorder(6)
    attempts, chain = [], EMPTY_CHAIN
    shared: Json = {
        "admin": federation.admin.seed.hex(),
        "coordinator": federation.coordinator.seed.hex(),
        "now_s": int(federation.now_s),
        "roster": federation.roster.to_bytes().hex(),
        "cap": CAP,
        "identities": {member: key.seed.hex() for member, key in federation.keys.items()},
    }
    for scene in SCENES:
        scene(federation)
        terms = federation.terms(ELEMENTS, chunk_elements=16, ring_bits=48 if scene is voids else 32)
        now_s = int(federation.now_s)
        document = recorded(federation, federation.run(terms), chain)
        chain = bytes.fromhex(document["chain"])
        attempts.append({"what": scene.__doc__, "now_s": now_s, "expires_s": now_s + 10**6, **document})
    return federation, {**shared, "messages": federation.said, "attempts": attempts}
