"""An honest coordinator on a network that loses, repeats, delays and garbles, with up to `a` liars and other members that come and go."""

import copy
from collections import defaultdict
from collections.abc import Collection
from functools import cache
from random import Random

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from assurance.machines.blame import check_end
from assurance.machines.cast import MARGIN, SHAPES, SMALL, Shape
from assurance.machines.lies import lie
from assurance.machines.tally import TALLY
from tests.support.simulator import After, Federation, SeededRandom, Vector
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Ended, Erasing, Freezing, PairingWindow, Recovered, disclose_vectors
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Closed, EnrolmentPhase, Lapsed, Opened, Paired, Ready, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Ciphertexts,
    Message,
    Opening,
    Pairing,
    ShownCiphertext,
    parse_message,
)
from veilsum.protocol.pairing import split_pairing
from veilsum.protocol.study import COUNT_STEP, SUM_STEP

PASSES_MAX = 12
"""More than the number of requests that an attempt makes to a member."""
WHO = st.integers(0, 11)
LARGER = (Shape(3, 0), Shape(9, 2, (0, 2, 4, 6)), Shape(12, 3), Shape(12, 3, (0, 1, 3, 5, 7, 9, 11)))


class Rounds(Federation):
    """A federation that remembers how each attempt ended, and tells members that were away.

    Attributes:
        endings: by context, the message that closed the attempt, and what else its members must be shown.
        absent: members that receive nothing.
        liars: members that lie while a cohort pairs, if `deceit` is not zero.
        unlucky: members that miss the ciphertexts for them, and fetch them later.
        ciphertexts: by member, of the last cohort that was formed.
        spoilt: whether a liar lied in the last cohort, or a member was left out of it.
    """

    endings: dict[bytes, tuple[Message, ...]]
    absent: set[str]
    liars: tuple[str, ...]
    deceit: int
    unlucky: frozenset[str]
    ciphertexts: dict[str, Ciphertexts]
    spoilt: bool

    @classmethod
    def of(cls, shape: Shape, seed: int, *, withholding: bool = False) -> "Rounds":
        """Copy an enrolled federation, with its own random bytes."""
        federation = copy.copy(enrolled(shape, MARGIN if withholding else None))
        federation.__class__ = cls
        assert isinstance(federation, cls)
        federation.phases = dict(federation.phases)
        federation.random, federation.drop, federation.endings = SeededRandom(seed), {}, {}
        federation.sets, federation.counted = {}, {}
        federation.absent, federation.liars, federation.deceit = set(), (), 0
        federation.unlucky, federation.ciphertexts, federation.spoilt = frozenset(), {}, False
        return federation

    def catch_up(self, member: str) -> None:
        """Show a member the ciphertexts that it missed, and tell it how its attempts ended."""
        phase = self.phases[member] = self.phases[member].erase_expired(self.now_s)
        if isinstance(phase, Paired) and phase.manifest == self.manifest:
            self.tell_member(member, self.ciphertexts[member])
            phase = self.phases[member]
        if isinstance(phase, EnrolmentPhase):
            TALLY.reached["lapsed"] += isinstance(phase, Lapsed)
            return
        missed = [phase.attempt.context] if isinstance(phase, Attempting | Closed) else []
        assert isinstance(phase, Ready | Attempting | Closed)
        missed += [attempt.context for attempt in phase.history.unsettled]
        for context in missed:
            if phase.history.count_of(context) is None:
                for message in self.endings.get(context, ()):
                    self.tell_member(member, message)

    def tell_ending(self) -> None:
        """Do nothing: `catch_up` tells the members."""

    def keep_ending(self, context: bytes) -> None:
        """Remember how the last attempt ended, for members that missed it."""
        assert self.ending is not None
        shown: tuple[Message, ...] = ()
        if isinstance(self.phase, Recovered) and self.phase.attempt.spec.is_disclosed:
            disclosure = disclose_vectors(self.phase, lambda member, index: self.spool[member, index])
            shown = tuple(filter(None, (self.phase.evictions, disclosure)))
        self.endings[context] = (self.ending, *shown)

    def vectors(self, step: str | None = None) -> dict[str, Vector]:
        """Make vectors; in a count every member holds every class, so that the sum has something to publish."""
        vectors = super().vectors(step)
        if (step or self.next_step()) == COUNT_STEP:
            return {member: np.ones_like(vector) for member, vector in vectors.items()}
        return vectors

    def begin_next(self, *, anew: bool = False) -> None:
        """Open the next attempt, in a new period if the run can't continue or is to start again."""
        if self.next_step() is None or self._stuck() or anew:
            for member in self.phases:
                if not self._gone(member, After.OPENING):
                    self.catch_up(member)
            self._form_next()
        self.begin()

    @property
    def incomplete(self) -> bool:
        """Whether the last cohort lacks a member, or cannot be trusted to be without disputes."""
        return self.spoilt or any(isinstance(phase, EnrolmentPhase) for phase in self.phases.values())

    def _form_next(self) -> None:
        """Form the next period's cohort. If too few members pair, all come back and tell the truth."""
        self.spoilt = bool(self.deceit)
        excused = {*self.absent, *(self.liars if self.deceit else ())}
        try:
            self.enrol(f"period-{self.counter + 1}")
        except PeerFault as fault:
            check_too_small(fault, excused)
            TALLY.reached["no cohort"] += 1
            self.absent.clear()
            self.deceit, self.spoilt = 0, False
            self.enrol(f"period-{self.counter + 1}")
        left_out = {*self.ids} - {*self.manifest.members}
        assert left_out <= excused, f"{sorted(left_out)} paired and were left out"
        self.spoilt = self.spoilt or bool(left_out)
        TALLY.reached["formed without a member"] += bool(left_out)

    def _pair_all(self, window: PairingWindow) -> PairingWindow:
        """Let the present members of a manifest pair, some of them falsely, and show most of them the others' ciphertexts."""
        manifest, shown = window.manifest, defaultdict[str, dict[str, ShownCiphertext]](dict)
        self.manifest = manifest
        for member in manifest.members:
            if member in self.absent:
                continue
            for pairing in self._pairings(member, window):
                try:
                    after = window.receive(pairing)
                except PeerFault as fault:
                    check_liar(fault, member, self.liars)
                    continue
                if after is not window:
                    window = after
                    for recipient, one in split_pairing(manifest, pairing):
                        shown[recipient][member] = one
        if window.is_complete:
            self.ciphertexts = {
                member: Ciphertexts(
                    manifest.hash, tuple(shown[member][sender] for sender in sorted(shown[member]))
                )
                for member in manifest.members
            }
            for member in manifest.members:
                if member not in self.absent | self.unlucky:
                    self.tell_member(member, self.ciphertexts[member])
        return window

    def _pairings(self, member: str, window: PairingWindow) -> list[Pairing]:
        """Return what a member sends when it is shown the cards of a manifest."""
        replies = self.tell_member(member, window.enrolling.cards_for(window.manifest, member))
        TALLY.receives += 1
        if member in self.liars and self.deceit:
            random, told = Random(f"{self.deceit} {member} {window.number}"), list[Message]()
            for reply in replies:
                name, lies = lie(self, reply, random)
                TALLY.reached[f"lie: {name}"] += 1
                told += lies
            replies = tuple(told)
        return [reply for reply in replies if isinstance(reply, Pairing)]

    def _stuck(self) -> bool:
        """Return whether the run's sum was refused (too few rows behind its classes), or no member knows the counts that it rests on."""
        if self.content.question.withhold is None or self.next_step() != SUM_STEP:
            return False
        last = self.links[-1]
        refused = (last.cohort, last.step) == (self.manifest.cohort, SUM_STEP)
        return refused or self.terms().count == NO_CONTEXT


def check_too_small(fault: PeerFault, excused: Collection[str]) -> None:
    """Check that a cohort failed for members alone that were away or lied."""
    assert fault.cause is Cause.COHORT_TOO_SMALL, fault
    assert {*fault.parties} <= {*excused}, f"{fault} names {fault.parties}"


def check_liar(fault: PeerFault, member: str, liars: Collection[str]) -> None:
    """Check that a refused pairing is a liar's, and that it is named."""
    assert fault.parties == (member,), fault
    assert member in liars, fault


@cache
def enrolled(shape: Shape, margin: int | None) -> Federation:
    """Return a federation whose first cohort has formed."""
    least = shape.colluders + 3 + (margin or 0)
    return Federation(
        shape.members,
        seed=shape.members,
        colluders=shape.colluders,
        decryptors=shape.nominated,
        margin=margin if least <= shape.members else None,
        question={**SMALL, "members_min": min(least, shape.members)},
    )


class Loyal(RuleBasedStateMachine):
    """A machine of the coordinator's phases against members' phases, message by message.

    Attributes:
        federation: all parties; its `phase` is the coordinator's.
        liars: at most `a` members.
        away: members that receive nothing.
        asked: requests in transit, with their members.
        answers: answers in transit, with their senders.
        late: members whose message arrived in another attempt than it was meant for.
        tampered: members with a message from or to them that was changed in transit.
    """

    @initialize(
        shape=st.sampled_from(SHAPES + LARGER),
        first=st.booleans(),
        seed=st.integers(0, 7),
        deceit=st.integers(0, 1 << 16),
    )
    def begin(self, shape: Shape, first: bool, seed: int, deceit: int = 0) -> None:  # noqa: FBT001 - drawn
        self.federation = Rounds.of(shape, seed, withholding=seed % 3 == 1)
        ids = self.federation.ids
        self.liars = ids[: shape.colluders] if first else ids[len(ids) - shape.colluders :]
        self.away = self.federation.absent
        self.federation.liars = self.liars
        self.good, self.deceit = seed < 3, deceit
        self._open()

    def _open(self, *, anew: bool = False, deceit: int = 0, unlucky: int = 0) -> None:
        federation = self.federation
        federation.deceit = deceit
        federation.unlucky = frozenset(
            member for place, member in enumerate(federation.ids) if unlucky >> place % 5 & 1
        )
        federation.begin_next(anew=anew)
        self.context = self.federation.phase.attempt.context
        self.asked: list[tuple[str, Message]] = []
        self.answers: list[tuple[str, Message]] = []
        self.late: set[str] = set()
        self.tampered: set[str] = set()

    @property
    def _ended(self) -> bool:
        return isinstance(self.federation.phase, Ended)

    def _hear(self, member: str, message: Message, deceit: int) -> list[tuple[str, Message]]:
        """Return a member's answers, or a liar's lies in their place."""
        federation = self.federation
        if member in self.away:
            return []
        federation.catch_up(member)
        if isinstance(message, Opening) or federation._has_opened(member, federation.phase.attempt):
            replies = federation.tell_member(member, message)
        else:
            replies = federation._tell_late(member, federation.phase.attempt.opening, message)
        opened = federation.phases[member]
        if isinstance(opened, Opened) and message == opened.opening:
            replies = federation._upload(member, opened)
        TALLY.receives += 1
        if member in self.liars and deceit:
            random, told = Random(f"{deceit} {member}"), list[Message]()
            for reply in replies:
                name, lies = lie(federation, reply, random)
                TALLY.reached[f"lie: {name}"] += 1
                told += lies
            replies = tuple(told)
        return [(member, reply) for reply in replies]

    def _arrive(self, member: str, message: Message) -> None:
        federation = self.federation
        if getattr(getattr(message, "header", message), "context", self.context) != self.context:
            self.late.add(member)
        federation.phase = federation.take_reply(federation.phase, member, message)
        if isinstance(federation.phase, Freezing):
            federation.proposed = federation.phase.survivors  # type: ignore[attr-defined]  # for `other_report`
        TALLY.receives += 1

    def _request(self, who: int) -> tuple[str, Message] | None:
        member = self.federation.ids[who % len(self.federation.ids)]
        request = self.federation.phase.request_for(member)
        return (member, request) if request else None

    @rule(who=WHO, deceit=st.integers(0, 1 << 16))
    def serve(self, who: int, deceit: int) -> None:
        """Ask a member, and deliver its answer at once."""
        if asked := self._request(who):
            for answer in self._hear(*asked, deceit):
                self._arrive(*answer)

    @rule(lost=st.integers(0, 63), deceit=st.integers(0, 1 << 16))
    def serve_all(self, lost: int, deceit: int) -> None:
        """Ask all members, and deliver their answers; some are lost."""
        for who in range(len(self.federation.ids)):
            if asked := self._request(who):
                for answer in self._hear(*asked, deceit):
                    if not (lost > 31 and lost >> (who % 5) & 1):
                        self._arrive(*answer)

    @rule(who=WHO)
    def ask(self, who: int) -> None:
        """Ask a member over a slow connection."""
        if asked := self._request(who):
            self.asked.append(asked)

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 7), again=st.booleans(), deceit=st.integers(0, 1 << 16))
    def hear(self, which: int, again: bool, deceit: int) -> None:  # noqa: FBT001 - drawn
        """Deliver a request to its member, possibly again later; the answer is then in transit."""
        asked = self.asked[which % len(self.asked)]
        if not again:
            self.asked.remove(asked)
        self.answers += self._hear(*asked, deceit)

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 7), again=st.booleans())
    def arrive(self, which: int, again: bool) -> None:  # noqa: FBT001 - drawn
        """Deliver an answer to the coordinator, possibly again later."""
        answer = self.answers[which % len(self.answers)]
        if not again:
            self.answers.remove(answer)
        self._arrive(*answer)

    @precondition(lambda self: self.asked or self.answers)
    @rule(which=st.integers(0, 7))
    def lose(self, which: int) -> None:
        """Lose a message."""
        for line in (self.asked, self.answers):
            if line:
                line.pop(which % len(line))

    @precondition(lambda self: self.asked or self.answers)
    @rule(which=st.integers(0, 7), bit=st.integers(0, 1 << 16))
    def garble(self, which: int, bit: int) -> None:
        """Flip a bit of a message in transit. A message that no longer parses is lost."""
        line = self.answers or self.asked
        member, message = line.pop(which % len(line))
        data = bytearray(message.to_bytes())
        data[2 + (bit >> 3) % (len(data) - 2)] ^= 1 << bit % 8
        try:
            changed: Message = parse_message(bytes(data))
        except PeerFault:
            return
        TALLY.reached["message garbled"] += 1
        self.tampered |= {member, getattr(getattr(changed, "header", changed), "member", member)}
        line.append((member, changed))

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        """Restart a member, which sends its last messages again."""
        member = self.federation.ids[who % len(self.federation.ids)]
        phase = load_phase(self.federation.phases[member].to_bytes())
        assert phase == self.federation.phases[member]
        self.federation.phases[member] = phase
        if isinstance(phase, EnrolmentPhase):
            return
        self.answers += [(member, message) for message in phase.messages_to_resend()]

    @rule(who=WHO)
    def vanish(self, who: int) -> None:
        """Have a member leave or come back."""
        self.away ^= {self.federation.ids[who % len(self.federation.ids)]}

    @rule(who=WHO)
    def come_back(self, who: int) -> None:
        """Bring a member back."""
        self.away -= {self.federation.ids[who % len(self.federation.ids)]}

    @precondition(lambda self: not self._ended)
    @rule(early=st.integers(0, 9))
    def expire(self, early: int) -> None:
        """Let the phase's time run out, mostly after all possible messages."""
        if early:
            self.serve_all(0, 0)
        waits = self.federation.phase.deadline_s is None
        if not self._ended and not waits and (early < 5 or self.away):
            self._expire()

    def _expire(self) -> None:
        federation = self.federation
        assert federation.phase.deadline_s is not None
        federation.now_s = federation.phase.deadline_s
        federation.phase = federation.note_change(federation.phase.pass_deadline(federation.now_s))

    @precondition(lambda self: not self._ended)
    @rule(sure=st.integers(0, 7))
    def cancel(self, sure: int) -> None:
        """Have the operator cancel the attempt."""
        if not sure:
            federation = self.federation
            federation.phase = federation.note_change(federation.phase.cancel(federation.now_s, "a test"))

    @precondition(lambda self: self._ended)
    @rule(anew=st.booleans(), deceit=st.integers(0, 1 << 16), unlucky=st.integers(0, 31))
    def next(self, anew: bool = False, deceit: int = 0, unlucky: int = 0) -> None:  # noqa: FBT001, FBT002 - drawn
        """Have the admin close a lost attempt, tell present members of the end, and open another attempt, perhaps in another cohort."""
        self._finish()
        self._open(anew=anew, deceit=deceit, unlucky=unlucky)

    def _finish(self) -> None:
        federation = self.federation
        federation.tamper = lambda sender, message: None if sender.partition(">")[2] in self.away else message
        ids = federation.ids
        if isinstance(federation.phase, Erasing):
            TALLY.reached["erasing"] += 1
        # `drop` keeps absent members from reporting, and from learning the end
        federation.drop = {ids.index(member): After.CARD for member in self.away}
        outcome = federation.finish()
        federation.drop = {}
        federation.keep_ending(self.context)
        TALLY.reached[check_end(federation, outcome, self.liars, self.tampered, self.late)] += 1

    def _drive(self, deceit: int = 0) -> None:
        """Bring all members back; honest members follow the rules, and the attempt must end, whatever happened before."""
        self.away.clear()
        for _ in range(PASSES_MAX):
            if self._ended:
                return
            before = self.federation.phase
            self.serve_all(0, deceit)
            if isinstance(before, Erasing) and self.federation.phase is before:
                return  # too many members revealed for the others' reports: the admin closes the attempt
            if self.federation.phase is before:
                self._expire()
        raise AssertionError(f"the attempt is {self.federation.phase.name} and does not end")

    @invariant()
    def count(self) -> None:
        """Count a step."""
        TALLY.steps += 1

    def teardown(self) -> None:
        """End the attempt; sometimes play a good round after it, which must give a sum."""
        if not hasattr(self, "federation"):
            return
        self._drive()
        self._finish()
        if not self.good:
            return
        federation, spread = self.federation, len(self.federation.ids) - 2 * len(self.liars)
        spare = spread >= federation.phase.attempt.quorum.survivors_min
        withholding = federation.content.question.withhold is not None
        self._open(
            anew=withholding or federation.incomplete or bool(self.deceit & 1),
            deceit=self.deceit if spare else 0,
        )
        quorum, members = federation.phase.attempt.quorum, {*federation.manifest.members}
        lying = len({*self.liars}.intersection(federation.manifest.decryptors))
        # Each liar costs at most one honest member (analysis: Proofs).
        spare = len(members) - 2 * len(members.intersection(self.liars)) >= quorum.survivors_min
        calm = spare and quorum.decryptors - lying >= quorum.threshold
        self._drive(self.deceit if calm else 0)
        phase, honest = federation.phase, members - {*self.liars}
        # A liar may have spoilt its own state or the cohort, and a small cohort needs all members.
        if calm or (len(honest) >= quorum.survivors_min and not federation.spoilt):
            assert isinstance(phase, Recovered), f"a good round ended {phase.name}: {phase}"
            assert (calm and self.deceit) or honest <= {*phase.summed_members}
            TALLY.reached["only lies"] += bool(calm and self.deceit)
        self._finish()
