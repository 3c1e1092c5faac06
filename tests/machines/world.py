"""Honest members in the hands of a hostile coordinator: every message they get is of its making, every answer it keeps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from protocol.attempt import Attempt, Closing
from protocol.boxes import unseal
from protocol.codec import SecretBytes
from protocol.errors import PeerFault
from protocol.member import Closed, Opened, Ready, Uploaded
from protocol.messages import (
    Certificate,
    Deliveries,
    Erased,
    Erasure,
    Freeze,
    Link,
    Lost,
    Message,
    Opening,
    Past,
    Survivor,
    Upload,
    Vote,
    survivors_hash,
)
from protocol.messages.opening import MAX_ATTEMPTS
from protocol.shelf import Trees
from protocol.simulator import SeededRandom
from tests.machines.cast import Mutable, Shape, cast
from tests.machines.disk import Disk, ready_of
from tests.machines.ghost import Ghost
from tests.protocol.forging import other_secrets, redeal, resign

ELEMENTS = 8
LIFE_S = 10_000
Chain = tuple[tuple[Link, ...], tuple[Past, ...]]


class Scene(Mutable):
    """An attempt as the coordinator has it.

    Attributes:
        uploads: by member, every one that it ever made: colluders may make several.
        outcomes: what somebody was asked to sign, with the survivors, or the reason for VOID.
        documents: certificates and Erasures, true or not, and the admin's Lost.
    """

    def __init__(self, attempt: Attempt, cohort: int, chain: Chain) -> None:
        self.attempt, self.cohort, self.chain = attempt, cohort, chain
        self.uploads: dict[str, list[Upload]] = {}
        self.trees: dict[bytes, Trees] = {}
        self.dealt: dict[bytes, list[bytes]] = {}
        self.outcomes: dict[bytes, tuple[tuple[Survivor, ...], str]] = {}
        self.documents: list[Closing] = []

    @property
    def context(self) -> bytes:
        """The attempt's."""
        return self.attempt.context

    def add(self, upload: Upload, dealt: Sequence[bytes] = ()) -> None:
        """Keep an upload, and what its dealer dealt where the coordinator knows."""
        self.uploads.setdefault(upload.header.member, []).append(upload)
        self.trees[upload.header.digest] = Trees.of(upload)
        self.dealt[upload.header.digest] = list(dealt)


class World(Mutable):
    """Everybody's state, and all that was ever sent.

    Attributes:
        shape: of the federation.
        kind: how colluders deal, see `scheme`, where nobody says otherwise.
        honest: members that keep the rules.
        disks: what each of them has stored.
        scenes: attempts that the coordinator opened.
        chains: histories that it may show: each but the empty one ends in an attempt that it can prove closed.
        sent: every message that it has shown to anybody, with its cohort.
        given: every message that an honest member has released.
    """

    def __init__(self, shape: Shape, liars: frozenset[str], kind: int) -> None:
        self.shape, self.kind = shape, kind
        self.ghost = Ghost(liars)
        everybody = cast(shape)
        self.honest = tuple(member for member in everybody.ids if member not in liars)
        self.disks = {
            member: Disk(member, [cohort.ready[member] for cohort in everybody.cohorts])
            for member in self.honest
        }
        self.scenes: list[Scene] = []
        self.chains: list[Chain] = [((), ())]
        self.sent: list[tuple[int, Message]] = []
        self.given: list[Message] = []
        self.now_s = int(everybody.federation.now_s)
        self.made, self.receives = 0, 0

    def random(self) -> SeededRandom:
        """Fresh bytes."""
        self.made += 1
        return SeededRandom(self.made)

    # What the coordinator and the colluders make

    def open(self, cohort: int, chain: Chain, variant: int) -> Scene:
        """Sign the opening that goes on from a chain."""
        everybody = cast(self.shape)
        links = chain[0]
        place = (0, 0)
        for link, past in zip(*chain, strict=True):
            if link.cohort == everybody.cohorts[cohort].manifest.cohort:
                retry = past.reason not in {"none", "lost"} and link.attempt + 1 < MAX_ATTEMPTS
                place = (link.sequence, link.attempt + 1) if retry else (link.sequence + 1, 0)
        federation = everybody.federation
        changes: dict[str, int | str | bytes] = {"noise": b"noisy"} if variant == 2 else {}
        opening = Opening.make(
            federation.coordinator,
            cohort=everybody.cohorts[cohort].manifest.cohort,
            sequence=place[0],
            attempt=place[1],
            links=links,
            terms=federation.terms(
                ELEMENTS, chunk_elements=8 * (1 + variant), latest_end_s=self.now_s + LIFE_S, **changes
            ),
            exceptions=(),
        )
        scene = Scene(Attempt(federation.roster, everybody.cohorts[cohort].manifest, opening), cohort, chain)
        known = [each for each in self.scenes if each.context == scene.context]
        if known:
            return known[0]
        self.scenes.append(scene)
        self.ghost.attempts[scene.context] = scene.attempt
        return scene

    def scheme(self, liar: str, scene: Scene, kind: int, lineage: int, records: int) -> Upload:
        """A colluder's upload: `kind` 1 deals shares of another b, 2 of all others, 3 a box that does not open."""
        ready = cast(self.shape).cohorts[scene.cohort].ready[liar]
        assert isinstance(ready, Ready)
        ready = ready.advanced(*scene.attempt.opening.place, ready.history)
        upload, own = self._sealed(
            liar, Opened(ready, scene.attempt.opening, (), SecretBytes()), lineage, records
        )
        alone: Any = SimpleNamespace(keys=cast(self.shape).keys, phases={})
        alone.phases[liar] = Uploaded(ready, scene.attempt.opening, (upload,), own)
        if kind in {1, 2}:
            upload = redeal(alone, upload, other_secrets(scene.attempt, *([0] if kind == 1 else ())))
        if kind == 3:
            boxes = tuple(bytes(len(box)) if place % 2 else box for place, box in enumerate(upload.boxes))
            upload = resign(alone, upload, boxes=boxes)
        pairs = {pair.peer: pair for pair in ready.boxes}
        dealt = []
        for place, holder in enumerate(scene.attempt.decryptors):
            if holder == liar:
                dealt.append(bytes(alone.phases[liar].own_shares))
            elif kind == 3 and place % 2:
                dealt.append(bytes(36 * len(scene.attempt.members)))
            else:
                key = pairs[holder].box_key(liar, holder, scene.context, upload.header.salt)
                dealt.append(unseal(key, upload.boxes[place], scene.context, liar))
        scene.add(upload, dealt)
        self.ghost.rows[upload.header.digest] = upload
        return upload

    def _sealed(self, member: str, opened: Opened, lineage: int, records: int) -> tuple[Upload, SecretBytes]:
        sealing = opened.seal(self.random())
        sealing.chunk(np.zeros(ELEMENTS, np.int64))
        return sealing.finish(
            cast(self.shape).keys[member],
            lineage=bytes([lineage] * 8),
            records_tag=bytes([records] * 8),
            records=1,
        )

    def certificate(self, scene: Scene, outcome: bytes, twist: int = 0) -> Certificate:
        """Assemble one from votes that honest members have signed and the colluders' own; `twist` forges more."""
        keys, context = cast(self.shape).keys, scene.context
        survivors, reason = scene.outcomes[outcome]
        liars = sorted(self.ghost.liars & set(scene.attempt.decryptors))
        votes = {
            vote.member: vote for vote in self.votes() if (vote.context, vote.outcome) == (context, outcome)
        }
        votes |= {
            liar: Vote.make(keys[liar], context=context, member=liar, outcome=outcome) for liar in liars
        }
        for vote in self._forged(scene, outcome, twist):
            votes.setdefault(vote.member, vote)
        return Certificate(context, survivors, reason, tuple(votes[member] for member in sorted(votes)))

    def _forged(self, scene: Scene, outcome: bytes, twist: int) -> list[Vote]:
        if twist == 1:  # on another outcome of this context
            return [vote for vote in self.votes() if vote.context == scene.context]
        if twist == 2:  # of another context
            return self.votes()
        if twist == 3:  # for this outcome, under a signature for another
            return [replace(vote, context=scene.context, outcome=outcome) for vote in self.votes()]
        if twist == 4:  # in others' names, signed by a colluder
            key = cast(self.shape).keys[min(self.ghost.liars)]
            return [
                Vote.make(key, context=scene.context, member=member, outcome=outcome)
                for member in scene.attempt.decryptors
            ]
        return []

    def votes(self) -> list[Vote]:
        """Every vote that an honest member has signed."""
        return [message for message in self.given if isinstance(message, Vote)]

    def propose(self, scene: Scene, uploads: Sequence[Upload], history: tuple[Past, ...]) -> Freeze:
        """Put a set to the vote."""
        survivors = tuple(Survivor.of(upload.header) for upload in uploads)
        if survivors:
            outcome = survivors_hash(scene.context, survivors)
            scene.outcomes[outcome] = survivors, "none"
            self.ghost.sets[outcome] = survivors
        return Freeze(scene.context, tuple(upload.header for upload in uploads), history)

    def reports(self, scene: Scene, told: int) -> dict[str, Erased]:
        """By decryptor: those that honest members have signed, and the colluders' of what suits them."""
        keys, signed = cast(self.shape).keys, self.ghost.erased
        reports = {m: signed[scene.context, m] for m in self.honest if (scene.context, m) in signed}
        for liar in self.ghost.liars & set(scene.attempt.decryptors):
            reports[liar] = Erased.make(
                keys[liar], context=scene.context, member=liar, revealed=bytes((told == 3,)) * 32
            )
        return reports

    def close(self, scene: Scene, document: Closing) -> None:
        """Keep how an attempt ended, and the chain that says so, if others can be made to believe it."""
        if document not in scene.documents:
            scene.documents.append(document)
        if self.closes(document):
            past = document.past
            chain = (*scene.chain[0], scene.attempt.link(past)), (*scene.chain[1], past)
            if chain not in self.chains:
                self.chains.append(chain)

    def closes(self, document: Closing) -> bool:
        """Whether members take this for the end of an attempt."""
        if isinstance(document, Erasure):
            return self.ghost.erasure(document.context, document.reports)
        return isinstance(document, Lost) or self.ghost.genuine(document)

    # What honest members do

    def tell(self, member: str, cohort: int, message: Message) -> tuple[Message, ...]:
        """Let a member take a message into one of its cohorts, and keep what it answers."""
        self.sent.append((cohort, message))
        self.receives += 1
        before = self.disks[member].phase(cohort)
        self._show(member, message)
        try:
            after, replies = before.receive(message, cast(self.shape).keys[member], self.now_s)
        except PeerFault as fault:
            self.ghost.reached[f"refused {fault.cause.value}"] += 1
            return ()
        if isinstance(message, Certificate) and ready_of(after).history != ready_of(before).history:
            assert self.ghost.genuine(message), f"{member} took a certificate that nobody signed"
        if isinstance(message, Deliveries) and after is not before:
            digests = frozenset(delivery.header.digest for delivery in message.deliveries)
            self.ghost.delivered[message.context, member] = digests
        self.disks[member].hold(cohort, after)
        self.release(member, replies)
        return replies

    def _show(self, member: str, message: Message) -> None:
        if isinstance(message, Certificate) and not message.void and message.context in self.ghost.attempts:
            self.ghost.sets.setdefault(message.outcome, message.survivors)
            if self.ghost.genuine(message):
                self.ghost.shown[message.context, member].add(message.outcome)

    def upload(self, member: str, cohort: int, lineage: int, records: int) -> None:
        """Let a member make its upload, if an attempt is open and it has made none."""
        opened = self.disks[member].phase(cohort)
        if not isinstance(opened, Opened):
            return
        upload, own = self._sealed(member, opened, lineage, records)
        try:
            after, replies = opened.uploaded(upload, own)
        except PeerFault as fault:
            self.ghost.reached[f"refused {fault.cause.value}"] += 1
            return
        for scene in self.scenes:
            if scene.context == upload.header.context:
                scene.add(upload)
        self.disks[member].hold(cohort, after)
        self.release(member, replies)

    def release(self, member: str, messages: Iterable[Message]) -> None:
        """A message has left: the ghost checks that it may."""
        for message in messages:
            self.ghost.take(member, message)
            self.given.append(message)

    def crash(self, member: str, cohort: int) -> None:
        """Restart from the stored bytes: the same phase, which sends the very same again, or nothing."""
        loaded = self.disks[member].restart(cohort)
        for message in loaded.outbox():
            assert message in self.given, "a restarted member sends something new"
        self.release(member, loaded.outbox())

    def lapse(self, member: str, cohort: int) -> None:
        """Let a member look at its clock."""
        self.disks[member].hold(cohort, self.disks[member].phase(cohort).lapse(self.now_s))

    def settle(self, member: str, cohort: int) -> None:
        """Let a member learn that the result is out."""
        phase = self.disks[member].phase(cohort)
        if isinstance(phase, Closed):
            self.disks[member].hold(cohort, phase.settled())
