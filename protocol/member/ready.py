"""Between rounds: the pair secrets stand, and the next opening is checked against the history."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from protocol.attempt import Attempt, Closing
from protocol.causes import Cause
from protocol.codec import U8, U64, Id, Many, Nested, SecretBytes
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import PairKey
from protocol.member.base import MemberPhase, PhaseKind, Step
from protocol.member.history import Entered, History
from protocol.messages import (
    NO_INDICATOR,
    NOTHING_REVEALED,
    Certificate,
    Erased,
    Erasure,
    ErasureRequest,
    Lost,
    Manifest,
    Message,
    Opening,
    Roster,
)
from protocol.messages.base import MAX_MEMBERS
from protocol.opening_rules import check_exceptions, check_terms
from protocol.recount import class_floor, rare_classes

Pairs = Annotated[tuple[PairKey, ...], Many(Nested(PairKey), MAX_MEMBERS)]


class Ready(MemberPhase):
    """Holds the pair keys for one sequence number; the keys of earlier ones are gone.

    Attributes:
        expires_s: when the first of the cards it was shown expires, Unix time in seconds.
        sequence: the round that the keys are for.
        attempt: the least attempt of that round which may still be opened.
        masks: one with each neighbour.
        boxes: one with each decryptor, or with everybody where this member is one.
        history: what it knows of the federation's rounds.
    """

    kind: ClassVar[int] = PhaseKind.READY

    member: Id
    roster: Annotated[Roster, Nested(Roster)]
    manifest: Annotated[Manifest, Nested(Manifest)]
    expires_s: U64
    sequence: U64
    attempt: U8
    masks: Pairs
    boxes: Pairs
    history: Annotated[History, Nested(History)]

    def advanced(self, sequence: int, attempt: int, history: History) -> "Ready":
        """The same member with its keys ratcheted to `sequence`, ready for `attempt` of it at the least."""
        masks, boxes = self.masks, self.boxes
        for step in range(self.sequence + 1, sequence + 1):
            masks = tuple(pair.ratcheted(self.manifest.cohort, step) for pair in masks)
            boxes = tuple(pair.ratcheted(self.manifest.cohort, step) for pair in boxes)
        return replace(self, sequence=sequence, attempt=attempt, masks=masks, boxes=boxes, history=history)

    def knowing(self, history: History) -> "Ready":
        """The same member with what it learned in other cohorts of the federation since."""
        return replace(self, history=history)

    def erased(self, entry: Entered, history: History) -> "Ready":
        """The same member without the keys of this attempt's sequence; it waits for the attempt's end."""
        sequence, attempt = max((self.sequence, self.attempt), (entry.attempt.opening.sequence + 1, 0))
        return self.advanced(sequence, attempt, history.entered(entry))

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """An opening; how an attempt ended that this member left open; and a request to erase what it held of one."""
        return {
            Opening: self._opening,
            Certificate: self._settle,
            Erasure: self._settle,
            Lost: self._settle,
            ErasureRequest: self._erase,
        }

    def _erase(self, request: ErasureRequest, key: SigningKey, _now_s: float) -> Step:
        """Say that nothing was revealed: a member that reveals has seen the certificate, which ends the attempt for it."""
        entry = self.history.left_open(request.context)
        if entry.attempt.manifest.cohort != self.manifest.cohort:
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the attempt is another cohort's, where this member may still hold shares: it reports there",
                ["coordinator"],
            )
        entry.attempt.check_decryptor(self.member)
        report = Erased.make(key, context=request.context, member=self.member, revealed=NOTHING_REVEALED)
        # A crash may have come between the history that holds the entry and the phase without its keys.
        return self.erased(entry, self.history), (report,)

    def _settle(self, document: Closing, _key: SigningKey, now_s: float) -> Step:
        return self.knowing(self.history.settle(document, now_s)), ()

    def _opening(self, opening: Opening, _key: SigningKey, now_s: float) -> Step:
        """Check an opening in this order, and only then move any key (protocol §4.3).

        1. it is for this cohort (wrong-cohort) and signed by the roster's coordinator (bad-signature);
        2. no card this member was shown has expired (card-expired), nor have the terms (terms-expired);
        3. sequence and attempt are not behind this member (wrong-sequence);
        4. and 5. the history: `History.check` (outcome-missing, chain-broken);
        6. extractor, caps and rare classes: `check_terms` (terms-refused, indicator-mismatch);
        7. exceptions are the admin's, for this federation, cohort and sequence (exception-refused).

        A decryptor that is shown one too late checks 1, 4 and 5, and erases the keys of its sequence (protocol §4.9).
        """
        from protocol.member.opened import Opened  # noqa: PLC0415 - the phases form a cycle

        if opening.cohort != self.manifest.cohort:
            raise PeerFault(Cause.WRONG_COHORT, "the opening is for another cohort")
        opening.verify(self.roster.coordinator, "coordinator")
        if now_s >= opening.terms.latest_end_s and self.member in self.manifest.decryptors:
            entry = Entered(Attempt(self.roster, self.manifest, opening), ())
            return self.erased(entry, self.history.check(opening)), ()
        if now_s >= self.expires_s:
            raise PeerFault(
                Cause.CARD_EXPIRED, "a key card of this cohort has expired: enrol in a new cohort"
            )
        if now_s >= opening.terms.latest_end_s:
            raise PeerFault(Cause.TERMS_EXPIRED, "the terms' latest end has passed")
        if opening.place < (self.sequence, self.attempt):
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"round {opening.sequence}.{opening.attempt} is behind {self.sequence}.{self.attempt}",
            )
        history = self.history.check(opening)
        self._check_terms(opening)
        check_exceptions(self.roster, opening)
        return Opened(self.advanced(*opening.place, history), opening, (), SecretBytes()), ()

    def _check_terms(self, opening: Opening) -> None:
        terms = opening.terms
        check_terms(self.roster, self.manifest, opening)
        if terms.indicator == NO_INDICATOR:
            return
        counted = [each for each in self.history.counted if each.context == terms.indicator]
        if not counted:
            raise PeerFault(
                Cause.INDICATOR_MISMATCH, "this member has not recounted the indicator round", ["coordinator"]
            )
        floor = class_floor(self.manifest, terms.margin)
        rare = rare_classes(counted[0].holders, floor)
        if terms.withheld != rare:
            raise PeerFault(
                Cause.INDICATOR_MISMATCH,
                f"the terms withhold classes {list(terms.withheld)}, by the counts it is {list(rare)}",
                ["coordinator"],
            )
        # Whom the terms leave out wrongly the proposal would too; whom they leave in, decryptors refuse to sign.
        if left_out := sorted({each.member for each in counted[0].survivors} & {*terms.evicted}):
            raise PeerFault(
                Cause.INDICATOR_MISMATCH,
                f"the terms name {', '.join(left_out)} evicted, whom the indicator round counted",
                ["coordinator"],
            )
