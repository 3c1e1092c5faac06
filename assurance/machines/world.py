"""Honest members against a hostile coordinator, which makes every message they receive and keeps every answer."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from assurance.machines.cast import CLASSES, Collected, Mutable, Place, Shape, cast, collect, fresh
from assurance.machines.disk import Disk, history_of
from assurance.machines.forming import Cohort, Draft
from assurance.machines.ghost import Ghost
from assurance.machines.pairs import check_keys
from assurance.machines.records import Records
from tests.support.forging import other_secrets, redeal, resign
from tests.support.simulator import SeededRandom
from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.counting import withheld_classes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import (
    Closed,
    Enrolled,
    EnrolmentPhase,
    History,
    Lapsed,
    MemberPhase,
    Opened,
    Paired,
    Ready,
    Uploaded,
)
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.member.history import Counted
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Certificate,
    Ciphertexts,
    Deliveries,
    Erased,
    Erasure,
    Freeze,
    Link,
    Lost,
    Message,
    Opening,
    Pairing,
    Survivor,
    SurvivorSet,
    Terms,
    Upload,
    Vote,
    survivors_hash,
)
from veilsum.protocol.messages.opening import ERASED_REASON, LOST_REASON, MAX_ATTEMPTS, NO_REASON
from veilsum.protocol.opening_rules import earlier_contexts, link_of
from veilsum.protocol.sealing import unseal_box
from veilsum.protocol.shelf import Trees
from veilsum.protocol.study import COUNT_STEP, ROWS_LEVELS, ROWS_STEP, SUM_STEP, read_content

LIFE_S = 10_000
COHORTS_MAX = 6
Chain = tuple[Link, ...]


class Scene(Mutable):
    """An attempt, as the coordinator knows it.

    Attributes:
        uploads: by member, all uploads it ever made: colluders may make several.
        outcomes: what members were asked to sign, with the survivors or the reason for VOID.
        documents: certificates and Erasures, true or false, and the admin's Lost.
    """

    def __init__(self, attempt: Attempt, cohort: int) -> None:
        self.attempt, self.cohort = attempt, cohort
        self.uploads: dict[str, list[Upload]] = {}
        self.trees: dict[bytes, Trees] = {}
        self.dealt: dict[bytes, list[bytes]] = {}
        self.outcomes: dict[bytes, tuple[tuple[Survivor, ...], str]] = {}
        self.documents: list[Closing] = []

    @property
    def context(self) -> bytes:
        """The attempt's context."""
        return self.attempt.context

    @property
    def chain(self) -> Chain:
        """The history that the opening shows."""
        return self.attempt.opening.links

    def add(self, upload: Upload, dealt: Sequence[bytes] = ()) -> None:
        """Store an upload, and what its dealer dealt if the coordinator knows it."""
        self.uploads.setdefault(upload.header.member, []).append(upload)
        self.trees[upload.header.digest] = Trees.from_upload(upload)
        self.dealt[upload.header.digest] = list(dealt)


class World(Mutable):
    """All parties' state, and all messages ever sent.

    Attributes:
        shape: of the federation.
        kind: how colluders deal by default, see `scheme`.
        honest: members that follow the rules.
        disks, records: each honest member's storage and reservations.
        cohorts: those that members sent cards to.
        lapse_s: when a member's private keys must be gone, by cohort and member.
        scenes: attempts that the coordinator opened.
        chains: histories that the coordinator may show: each is empty or ends in an attempt that it can prove closed.
        sets: survivors by context, of every attempt for which it can show a certificate.
        sent: every message shown to a member, with its cohort.
        given: every message that an honest member released.
    """

    def __init__(self, shape: Shape, liars: frozenset[str], kind: int) -> None:
        self.shape, self.kind = shape, kind
        self.ghost = Ghost(liars)
        everybody = cast(shape)
        self.honest = tuple(member for member in everybody.ids if member not in liars)
        self.disks = {member: Disk(member) for member in self.honest}
        self.records = {member: Records() for member in self.honest}
        self.cohorts: list[Cohort] = []
        self.lapse_s: dict[tuple[int, str], int] = {}
        self.scenes: list[Scene] = []
        self.chains: list[Chain] = [()]
        self.sets: dict[bytes, tuple[Survivor, ...]] = {}
        self.sent: list[tuple[int, Message]] = []
        self.given: list[Message] = []
        self.now_s = int(everybody.federation.now_s)
        self.made, self.receives = 0, 0

    def random(self) -> SeededRandom:
        """New random bytes."""
        self.made += 1
        return SeededRandom(self.made)

    # What the coordinator and the colluders make

    def form(self, place: Place, without: str = "") -> int | None:
        """Form a cohort as an honest coordinator does; return its number, or None if too few members come."""
        number = self.enrol(place, without)
        if number is not None:
            self.usher(number, self.honest)
        return number

    def enrol(self, place: Place, without: str = "") -> int | None:
        """Have all members that say yes send their cards; return the cohort's number, or None if they are too few."""
        if place.study not in cast(self.shape).studies:
            return None
        study, roster = cast(self.shape).studies[place.study], cast(self.shape).rosters[place.roster]
        for number, known in enumerate(self.cohorts):
            made = known.collected
            where = made.signed, made.roster, made.enrolling.counter, made.enrolling.period
            if where == (study, roster, place.counter, place.period):
                return number
        if len(self.cohorts) >= COHORTS_MAX:
            return None
        question = read_content(study.content).question
        coming = [
            member
            for member in cast(self.shape).ids
            if member in self.ghost.liars
            or (member != without and self.records[member].answer(question, place.period))
        ]
        return self._enrolled(fresh(self.shape, place, tuple(coming)), History())

    def repeat(self, context: bytes, study: str, twist: int = 0) -> int | None:
        """Form a cohort that repeats an attempt, with its members or, if twisted, without one of them."""
        survivors = self.sets.get(context, ())
        attempt = self.ghost.attempts[context]
        if not survivors or study not in cast(self.shape).studies or len(self.cohorts) >= COHORTS_MAX:
            return None
        question = read_content(cast(self.shape).studies[study].content).question
        members = [
            each.member
            for each in survivors
            if each.member in self.ghost.liars
            or self.records[each.member].again(context, question, attempt.manifest.period)
        ]
        if twist:
            members, survivors = members[1:], survivors[1:]
        if len(members) < 3 or {each.member for each in survivors} != {*members}:
            return None
        lent = next(self.disks[member].history for member in members if member in self.disks)
        place = Place(study, attempt.manifest.period, 10 + len(self.cohorts))
        number = self._enrolled(collect(self.shape, place, tuple(members), context, survivors), lent)
        if number is not None:
            self.ghost.reached["a cohort that repeats"] += 1
            self.usher(number, self.honest)
            took = self.ghost.paired.keys() & {(self.cohorts[number].id, member) for member in self.honest}
            assert not twist or not took, f"{took} paired with others than those of the repeated attempt"
        return number

    def _enrolled(self, collected: Collected, lent: History) -> int | None:
        cohort = Cohort(collected, self.ghost.liars, lent)
        try:
            self._note_draft(cohort.draft())
        except PeerFault as fault:
            self.ghost.reached[f"no cohort: {fault.cause.value}"] += 1
            return None
        number, windows = len(self.cohorts), read_content(collected.signed.content).question.windows
        self.cohorts.append(cohort)
        for member in self.honest:
            if (enrolled := collected.enrolled.get(member)) is not None:
                lapse_s = self.now_s + windows.enrol + 4 * windows.answer
                self.lapse_s[number, member] = lapse_s
                self.disks[member].enrol(number, replace(enrolled, lapses_s=lapse_s))
                self.given.append(enrolled.enrolment)
        return number

    def _note_draft(self, draft: Draft) -> Draft:
        self.ghost.manifests[draft.manifest.hash] = draft.manifest
        return draft

    def draft(self, number: int, without: frozenset[str], *, second: bool) -> None:
        """Make another manifest of a cohort, without some members and perhaps with a colluder's second card."""
        with suppress(PeerFault):  # too few are left
            self._note_draft(self.cohorts[number].draft(without, second=second))

    def collude(self, liar: str, number: int, draft: Draft, kind: int) -> None:
        """Have a colluder pair, see `Cohort.collude`."""
        if liar in draft.colluding:
            with suppress(PeerFault):  # a manifest that no member takes
                self.cohorts[number].collude(liar, draft, cast(self.shape).keys[liar], kind)

    def usher(self, number: int, members: Iterable[str], which: int = 0) -> None:
        """Take members to the keys of their pairs under one of a cohort's manifests, as an honest coordinator would."""
        cohort = self.cohorts[number]
        draft = cohort.drafts[-1 - which % len(cohort.drafts)]
        for liar in draft.colluding:
            if (draft.manifest.hash, liar) not in cohort.pairings:
                self.collude(liar, number, draft, 0)
        joining = [member for member in members if self._is_pairing(member, number)]
        for member in joining:
            if member in draft.manifest.member_places:
                self.tell(member, number, cohort.cards_for(draft, member))
        if cohort.is_paired(draft):
            for member in joining:
                if member in draft.manifest.member_places:
                    self.tell(member, number, cohort.ciphertexts_for(draft, member))

    def _is_pairing(self, member: str, number: int) -> bool:
        held = self.disks[member].stored.get(number)
        return held is not None and isinstance(held.phase, Enrolled | Paired)

    @property
    def is_pairing(self) -> bool:
        """Whether an honest member waits for a cohort to be formed."""
        return any(
            self._is_pairing(member, number) for member in self.honest for number in self.disks[member].stored
        )

    def drafts_by_use(self, number: int) -> list[Draft]:
        """Return a cohort's manifests, first the one under which most honest members hold keys."""
        cohort = self.cohorts[number]
        joined = [self.ghost.joined.get((cohort.id, member)) for member in self.honest]
        return sorted(cohort.drafts, key=lambda draft: -joined.count(draft.manifest.hash))

    def open(self, cohort: int, chain: Chain, step: int = 0, rests: int = 0, which: int = 0) -> Scene:
        """Sign an opening that continues a chain.

        Args:
            cohort: its number.
            chain: the history to show.
            step: 0 for the next step; otherwise another step of the study.
            rests: 0 for the right count; otherwise another attempt and other classes.
            which: of the cohort's manifests, 0 for the one under which most members hold keys.
        """
        formed, drafts = self.cohorts[cohort], self.drafts_by_use(cohort)
        manifest = drafts[which % len(drafts)].manifest
        opening = Opening.make_signed(
            cast(self.shape).federation.coordinator,
            cohort=formed.id,
            sequence=(place := self._place(formed, chain))[0],
            attempt=place[1],
            links=chain,
            terms=self._terms(formed, chain, step, rests),
        )
        collected = formed.collected
        return self._scene(Attempt(collected.roster, collected.signed, manifest, opening), cohort)

    def _scene(self, attempt: Attempt, cohort: int) -> Scene:
        known = [each for each in self.scenes if each.context == attempt.context]
        if known:
            return known[0]
        scene = Scene(attempt, cohort)
        self.scenes.append(scene)
        self.ghost.attempts[scene.context] = scene.attempt
        return scene

    def _place(self, formed: Cohort, chain: Chain) -> tuple[int, int]:
        place = (0, 0)
        for link in chain:
            if link.cohort == formed.id:
                after = {NO_REASON, LOST_REASON, ERASED_REASON}
                retry = link.reason not in after and link.attempt + 1 < MAX_ATTEMPTS
                place = (link.sequence, link.attempt + 1) if retry else (link.sequence + 1, 0)
        return place

    def _terms(self, formed: Cohort, chain: Chain, step: int, rests: int) -> Terms:
        question, enrolling = formed.collected.enrolling.content.question, formed.collected.enrolling
        run = (question.digest, enrolling.period)
        done = [link for link in chain if (link.question, link.period) == run and link.reason == NO_REASON]
        # Every member holds every class, so no rows are counted but by a false coordinator.
        due = [each for each in question.steps if each not in {ROWS_STEP, *(link.step for link in done)}]
        chosen = question.steps[step % len(question.steps)] if step or not due else due[0]
        repeated = link_of(chain, enrolling.repeats)
        if repeated is not None and not step:
            return replace(self.ghost.attempts[repeated.context].terms, latest_end_s=self.now_s + LIFE_S)
        values: dict[str, Any] = {"count": NO_CONTEXT, "rows": NO_CONTEXT, "withheld": (), "evicted": ()}
        if chosen in {ROWS_STEP, SUM_STEP} and question.withhold is not None:
            counted = [link.context for link in done if link.step == COUNT_STEP]
            values["count"] = next(iter(counted), bytes([7] * 32))
            if rests and chain:
                values["count"] = chain[-1 - rests % len(chain)].context
            counts = [disk.history.count_of(values["count"]) for disk in self.disks.values()]
            for count in filter(None, counts):
                values["withheld"], values["evicted"] = (
                    withheld_classes(question, count.sums),
                    count.evicted,
                )
            if rests == 2:
                values["withheld"] = () if values["withheld"] else (0,)
            if chosen == ROWS_STEP and not values["withheld"]:
                values["withheld"] = (0,)
            if chosen == SUM_STEP and values["withheld"]:
                values["rows"] = bytes([8] * 32)
        return Terms(
            step=chosen,
            material=bytes([1] * 32) if question.takes_material(chosen) else NO_CONTEXT,
            latest_end_s=self.now_s + LIFE_S,
            **values,
        )

    def scheme(self, liar: str, scene: Scene, kind: int) -> Upload | None:
        """Make a colluder's upload: `kind` 1 deals shares of another b, 2 of all other secrets, 3 a box that doesn't open."""
        manifest, opening = scene.attempt.manifest.hash, scene.attempt.opening
        ready = self.cohorts[scene.cohort].ready_of(liar, manifest)
        if ready is None or opening.terms.step not in scene.attempt.question.steps:
            return None
        ready = ready.advance_to(*opening.sequence_and_attempt, ready.history)
        upload, own = self._sealed(liar, Opened(ready, opening, (), SecretBytes()))
        alone: Any = SimpleNamespace(keys=cast(self.shape).keys, phases={})
        alone.phases[liar] = Uploaded(ready, opening, (upload,), own)
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
                dealt.append(unseal_box(key, upload.boxes[place], scene.context, liar))
        scene.add(upload, dealt)
        self.ghost.rows[upload.header.digest] = upload
        return upload

    def _sealed(self, member: str, opened: Opened) -> tuple[Upload, SecretBytes]:
        sealing = opened.begin_sealing(self.random())
        sealing.mask_next_chunk(np.zeros(opened.attempt.spec.elements, np.int64))
        return sealing.finish(cast(self.shape).keys[member])

    def certificate(self, scene: Scene, outcome: bytes, twist: int = 0) -> Certificate:
        """Assemble a certificate from honest members' votes and the colluders' own; `twist` adds forged votes."""
        keys, context = cast(self.shape).keys, scene.context
        survivors, reason = scene.outcomes[outcome]
        liars = sorted(self.ghost.liars & set(scene.attempt.decryptors))
        votes = {
            vote.member: vote for vote in self.votes() if (vote.context, vote.outcome) == (context, outcome)
        }
        votes |= {
            liar: Vote.make_signed(keys[liar], context=context, member=liar, outcome=outcome)
            for liar in liars
        }
        for vote in self._forged(scene, outcome, twist):
            votes.setdefault(vote.member, vote)
        return Certificate(context, survivors, reason, tuple(votes[member] for member in sorted(votes)))

    def _forged(self, scene: Scene, outcome: bytes, twist: int) -> list[Vote]:
        if twist == 1:  # votes on another outcome of this context
            return [vote for vote in self.votes() if vote.context == scene.context]
        if twist == 2:  # votes of another context
            return self.votes()
        if twist == 3:  # votes for this outcome with a signature for another
            return [replace(vote, context=scene.context, outcome=outcome) for vote in self.votes()]
        if twist == 4:  # votes in others' names, signed by a colluder
            key = cast(self.shape).keys[min(self.ghost.liars)]
            return [
                Vote.make_signed(key, context=scene.context, member=member, outcome=outcome)
                for member in scene.attempt.decryptors
            ]
        return []

    def votes(self) -> list[Vote]:
        """Return every vote that an honest member signed."""
        return [message for message in self.given if isinstance(message, Vote)]

    def propose(self, scene: Scene, uploads: Sequence[Upload], twist: int = 0) -> Freeze:
        """Propose a set, together with the set that the attempt rests on, or a forged one."""
        survivors = tuple(Survivor.from_header(upload.header) for upload in uploads)
        if survivors:
            outcome = survivors_hash(scene.context, survivors)
            scene.outcomes[outcome] = survivors, "none"
            self.ghost.sets[outcome] = survivors
        return Freeze(
            scene.context, tuple(upload.header for upload in uploads), self._earlier(scene, survivors, twist)
        )

    def _earlier(self, scene: Scene, survivors: tuple[Survivor, ...], twist: int) -> tuple[SurvivorSet, ...]:
        *others, true = (self.sets.get(each, ()) for each in (bytes(32), *earlier_contexts(scene.attempt)))
        if twist == 1:
            return ()
        if twist == 2:  # without one member
            true = true[1:]
        if twist == 3:  # the proposal itself
            true = survivors
        if twist == 4:  # the first certified set
            true = next(iter(self.sets.values()), ())
        return tuple(map(SurvivorSet, filter(None, [*others[1:], true])))

    def reports(self, scene: Scene, told: int) -> dict[str, Erased]:
        """Return reports by decryptor: those that honest members signed, and the colluders', with whatever suits them."""
        keys, signed = cast(self.shape).keys, self.ghost.erased
        reports = {m: signed[scene.context, m] for m in self.honest if (scene.context, m) in signed}
        for liar in self.ghost.liars & set(scene.attempt.decryptors):
            reports[liar] = Erased.make_signed(
                keys[liar], context=scene.context, member=liar, revealed=bytes((told == 3,)) * 32
            )
        return reports

    def close(self, scene: Scene, document: Closing) -> None:
        """Record how an attempt ended, and its chain, if members would accept it."""
        if document not in scene.documents:
            scene.documents.append(document)
        if self.closes(document):
            chain = (*scene.chain, scene.attempt.make_link(document))
            if chain not in self.chains:
                self.chains.append(chain)
            if isinstance(document, Certificate) and not document.is_void:
                self.sets[scene.context] = document.survivors

    def closes(self, document: Closing) -> bool:
        """Return whether members accept a document as the end of an attempt."""
        if isinstance(document, Erasure):
            return self.ghost.erasure(document.context, document.reports)
        return isinstance(document, Lost) or self.ghost.genuine(document)

    # What honest members do

    def tell(self, member: str, cohort: int, message: Message) -> tuple[Message, ...]:
        """Give a member a message in one of its cohorts, and keep its answers."""
        if cohort not in self.disks[member].stored:
            return ()
        self.sent.append((cohort, message))
        self.receives += 1
        before = self.disks[member].phase(cohort)
        self._show(member, message)
        try:
            self._check_roster(member, cohort, message)
            after, replies = before.receive(message, cast(self.shape).keys[member], self.now_s)
        except PeerFault as fault:
            self.ghost.reached[f"refused {fault.cause.value}"] += 1
            return ()
        if isinstance(message, Certificate) and history_of(after) != history_of(before):
            assert self.ghost.genuine(message), f"{member} took a certificate that nobody signed"
        if isinstance(message, Deliveries) and after is not before:
            digests = frozenset(delivery.header.digest for delivery in message.deliveries)
            self.ghost.delivered[message.context, member] = digests
        if isinstance(message, Opening):
            for attempt in history_of(after).unsettled:  # of the member's manifest, which may be another
                self._scene(attempt, cohort)
        if isinstance(message, Cards | Ciphertexts):
            assert self.now_s < self.lapse_s[cohort, member], f"{member} paired after its keys had lapsed"
        self.disks[member].hold(cohort, after)
        self._learn(member, message, after)
        self.release(member, replies)
        if isinstance(before, Paired) and isinstance(after, Ready):
            self._join(member, cohort, after)
        return replies

    def _join(self, member: str, number: int, ready: Ready) -> None:
        """Check the keys with other honest members. Those that only receive may not have paired yet: a coordinator need not wait for them."""
        manifest, enrolled = ready.manifest, self.cohorts[number].collected.enrolled
        honest = {other: enrolled[other] for other in manifest.members if other in self.disks}
        sent = {
            other: self.ghost.pairings[key]
            for other in honest
            if (key := (manifest.hash, other)) in self.ghost.pairings
        }
        check_keys(ready, honest, sent)
        self.ghost.join(member, manifest)

    def _check_roster(self, member: str, cohort: int, message: Message) -> None:
        """Check what the driver checks: an opening counts only under the newest roster that the member has seen (OPEN-25)."""
        number = self.cohorts[cohort].collected.roster.number
        if isinstance(message, Opening) and number < self.disks[member].roster:
            raise PeerFault(Cause.ROSTER_ROLLBACK, "a newer roster was seen", ["coordinator"])

    def _learn(self, member: str, message: Message, phase: MemberPhase) -> None:
        """Record in the member's ledger how attempts ended. A survivors' certificate is no end until a link confirms it (wire: Ends)."""
        history = self.disks[member].history
        ends = [link for link in history.settled if link.reason != NO_REASON]
        # A late opening is accepted for erasing only: its links were not checked.
        if isinstance(message, Opening) and isinstance(phase, Attempting):
            ends += message.links
        for link in ends:
            self.records[member].ended(link)

    def _show(self, member: str, message: Message) -> None:
        if (
            isinstance(message, Certificate)
            and not message.is_void
            and message.context in self.ghost.attempts
        ):
            self.ghost.sets.setdefault(message.outcome, message.survivors)
            if self.ghost.genuine(message):
                self.ghost.shown[message.context, member].add(message.outcome)

    def upload(self, member: str, cohort: int) -> None:
        """Let a member upload if an attempt is open, it has made no upload, and its ledger allows it."""
        if cohort not in self.disks[member].stored:
            return
        opened = self.disks[member].phase(cohort)
        if not isinstance(opened, Opened):
            return
        ledger = self.records[member]
        if not ledger.may_open(opened.attempt):
            self.ghost.reached["refused by the ledger"] += 1
            return
        upload, own = self._sealed(member, opened)
        try:
            after, replies = opened.store_upload(upload, own)
        except PeerFault as fault:
            self.ghost.reached[f"refused {fault.cause.value}"] += 1
            return
        self.ghost.records[opened.attempt.context][member] = ledger.runs[
            ledger.run_of[opened.attempt.context]
        ].records
        for scene in self.scenes:
            if scene.context == upload.header.context:
                scene.add(upload)
        self.disks[member].hold(cohort, after)
        self.release(member, replies)

    def recount(self, member: str, cohort: int) -> None:
        """Let a member recount a count whose sum is readable; it gets the true counts."""
        phase = self.disks[member].stored[cohort].phase if cohort in self.disks[member].stored else None
        if not isinstance(phase, Closed) or phase.attempt.context not in self.ghost.sums:
            return
        if phase.attempt.spec.is_disclosed and not phase.certificate.is_void:
            terms = phase.attempt.terms
            numbers = CLASSES if terms.step == COUNT_STEP else len(ROWS_LEVELS)
            sums = (
                len(phase.staying_survivors),
            ) * numbers  # every member holds every class, and has many rows
            evicted = tuple(dealer.member for dealer in phase.evicted)
            counted = Counted(phase.attempt.context, terms.count, sums, phase.staying_survivors, evicted)
            self.ghost.reached["count recounted"] += 1
            self.disks[member].hold(cohort, phase.with_history(phase.history.with_count(counted)))

    def give_up(self, member: str, number: int) -> None:
        """Let a member give up one of its runs."""
        ledger = self.records[member]
        if ledger.runs:
            ledger.give_up(list(ledger.runs)[number % len(ledger.runs)])

    def release(self, member: str, messages: Iterable[Message]) -> None:
        """Release messages: the ghost checks that each is allowed."""
        for message in messages:
            self.ghost.take(member, message)
            self.given.append(message)
            if isinstance(message, Pairing):
                [cohort] = [each for each in self.cohorts if each.of_manifest(message.manifest)]
                cohort.pairings[message.manifest, member] = [message]

    def crash(self, member: str, cohort: int) -> None:
        """Restart from the stored bytes: the phase is unchanged, and repeats its messages."""
        if cohort not in self.disks[member].stored:
            return
        loaded = self.disks[member].restart(cohort)
        for message in loaded.messages_to_resend():
            assert message in self.given, "a restarted member sends something new"
        self.release(member, loaded.messages_to_resend())

    def lapse(self, member: str, cohort: int) -> None:
        """Let a member look at its clock."""
        if cohort not in self.disks[member].stored:
            return
        before = self.disks[member].phase(cohort)
        after = before.erase_expired(self.now_s)
        if isinstance(before, Enrolled | Paired):
            due = self.now_s >= self.lapse_s[cohort, member]
            assert isinstance(after, Lapsed) == due, (
                f"{member} keeps private keys for another time than it may"
            )
        self.disks[member].hold(cohort, after)
        if after is not before and isinstance(after, EnrolmentPhase):
            self.ghost.lapse(member, self.cohorts[cohort].id)

    def settle(self, member: str, cohort: int) -> None:
        """Tell a member that the result is out."""
        phase = self.disks[member].stored[cohort].phase if cohort in self.disks[member].stored else None
        if isinstance(phase, Closed):
            self.disks[member].hold(cohort, phase.erase_shares())
