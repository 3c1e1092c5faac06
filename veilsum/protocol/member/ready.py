"""Between rounds: a member holds pair secrets and checks the next opening against its history."""

from dataclasses import replace
from typing import Annotated, ClassVar

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import U8, U64, Id, Many, SecretBytes
from veilsum.protocol.counting import check_counts, check_withheld
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import PairKey
from veilsum.protocol.member.base import MemberPhase, Step
from veilsum.protocol.member.history import History
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Certificate,
    Erased,
    Erasure,
    ErasureRequest,
    Lost,
    Manifest,
    Opening,
    Roster,
    Study,
)
from veilsum.protocol.messages.base import MAX_MEMBERS
from veilsum.protocol.opening_rules import (
    check_latest_end,
    check_places,
    check_repeats,
    check_signed,
    check_step,
    repeated_link,
)

Pairs = Annotated[tuple[PairKey, ...], Many(PairKey, MAX_MEMBERS)]


class Ready(MemberPhase, kind=2):
    """Holds the pair keys for one sequence number; earlier keys are erased.

    Attributes:
        expires_s: earliest expiry among the received cards, Unix time in seconds.
        sequence: sequence number that the keys serve.
        attempt: lowest attempt of that sequence number that may still be opened.
        masks: mask keys, one per neighbour.
        boxes: box keys, one per decryptor; one per member if this member is a decryptor.
        history: this member's history of the federation's rounds.
    """

    member: Id
    roster: Roster
    study: Study
    manifest: Manifest
    expires_s: U64
    sequence: U64
    attempt: U8
    masks: Pairs
    boxes: Pairs
    history: History

    def advance_to(self, sequence: int, attempt: int, history: History) -> "Ready":
        """Ratchet the keys to `sequence`, ready for `attempt` or later."""
        masks, boxes = self.masks, self.boxes
        for step in range(self.sequence + 1, sequence + 1):
            masks = tuple(pair.ratchet_to(self.manifest.cohort, step) for pair in masks)
            boxes = tuple(pair.ratchet_to(self.manifest.cohort, step) for pair in boxes)
        return replace(self, sequence=sequence, attempt=attempt, masks=masks, boxes=boxes, history=history)

    def with_history(self, history: History) -> "Ready":
        return replace(self, history=history)

    def erase_keys(self, attempt: Attempt, history: History) -> "Ready":
        """Erase the keys of this attempt's sequence, and wait for the attempt's end."""
        place = max((self.sequence, self.attempt), (attempt.opening.sequence + 1, 0))
        return self.advance_to(*place, history.enter_attempt(attempt))

    def left_open(self, context: bytes) -> Attempt:
        """Look up an attempt of this cohort whose end this member waits for. Raises PeerFault(wrong-context) if there is none."""
        attempt = self.history.left_open(context)
        if attempt.manifest.cohort != self.manifest.cohort:
            raise PeerFault(
                Cause.WRONG_CONTEXT,
                "the attempt is another cohort's, where this member may still hold shares: it is shown there",
                ["coordinator"],
            )
        return attempt

    def _on_erasure_request(self, request: ErasureRequest, key: SigningKey, _now_s: float) -> Step:
        """Report that nothing was revealed; a member that reveals is already Closed by the certificate."""
        attempt = self.left_open(request.context)
        attempt.check_decryptor(self.member)
        report = Erased.make_signed(
            key, context=request.context, member=self.member, revealed=NOTHING_REVEALED
        )
        return self.erase_keys(attempt, self.history), (report,)

    def erase_unopened(
        self, opening: Opening, request: ErasureRequest, key: SigningKey, now_s: float
    ) -> Step:
        """Erase the keys of an attempt that this decryptor never opened, and report that it revealed nothing (ERASE-1 to ERASE-5).

        It checks, in this order:

        1. the opening is for this cohort (wrong-cohort), signed by the roster's coordinator (bad-signature), and the request's
           (wrong-context);
        2. its latest end has passed (wrong-phase);
        3. its place follows its links (chain-broken) and is not behind this member (wrong-sequence). An attempt in which this member
           revealed is behind it; if it re-entered, it could report that it revealed nothing.
        """
        attempt = Attempt(self.roster, self.study, self.manifest, opening)
        check_signed(attempt)
        attempt.check_context(request.context, "coordinator")
        if now_s < opening.terms.latest_end_s:
            raise PeerFault(
                Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
            )
        check_places(opening)
        self._check_ahead(opening)
        return self.erase_keys(attempt, self.history).receive(request, key, now_s)

    def _on_closing(self, document: Closing, _key: SigningKey, now_s: float) -> Step:
        return self.with_history(self.history.close_attempt(document, now_s)), ()

    def _on_opening(self, opening: Opening, _key: SigningKey, now_s: float) -> Step:
        """Check an opening, in this order, before advancing any key (OPEN-1 to OPEN-24).

        1. it is for this cohort (wrong-cohort) and signed by the roster's coordinator (bad-signature);
        2. no received card has expired (card-expired), the study is neither expired nor revoked (study-refused), and the latest
           end is in the future, by at most 30 days (terms-expired, terms-refused);
        3. sequence and attempt are not behind this member (wrong-sequence);
        4. and 5. the history: `History.adopt_links` (outcome-missing, chain-broken, already-summed);
        6. to 8. the step, and fresh records or the repeated attempt: `opening_rules`;
        9. the counts (count-mismatch).

        The driver adds 10., the newest roster, and 11., the member's policy. Nothing is stored of an opening that is refused.
        """
        from veilsum.protocol.member.attempting import Opened  # noqa: PLC0415 - the phases form a cycle

        attempt = Attempt(self.roster, self.study, self.manifest, opening)
        check_signed(attempt)
        if now_s >= self.expires_s:
            raise PeerFault(
                Cause.CARD_EXPIRED, "a key card of this cohort has expired: enrol in a new cohort"
            )
        if now_s >= attempt.content.notes.expires or self.study.hash in self.roster.revoked:
            raise PeerFault(Cause.STUDY_REFUSED, f"study {attempt.content.notes.name} is expired or revoked")
        check_latest_end(attempt, now_s)
        self._check_ahead(opening)
        history = self.history.adopt_links(attempt)
        check_step(attempt)
        if (link := repeated_link(attempt)) is not None:
            check_repeats(attempt, history.finished_of(link.context))
        self.check_counts(attempt)
        return Opened(self.advance_to(*opening.sequence_and_attempt, history), opening, (), SecretBytes()), ()

    def _check_ahead(self, opening: Opening) -> None:
        if opening.sequence_and_attempt < (self.sequence, self.attempt):
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                f"round {opening.sequence}.{opening.attempt} is behind {self.sequence}.{self.attempt}",
            )

    def check_counts(self, attempt: Attempt) -> None:
        """Check the terms' withheld classes and evicted members against this member's recounts (OPEN-23, OPEN-24)."""
        terms = attempt.terms
        if not terms.counts:
            return
        counts = [self.history.count_of(context) for context in terms.counts]
        known = [each for each in counts if each is not None and self.member in each.names]
        if len(known) < len(counts) or any(each.count != terms.count for each in known[1:]):
            raise PeerFault(
                Cause.COUNT_MISMATCH,
                "this member was not counted in a step that the terms name, or has not recounted it",
                ["coordinator"],
            )
        check_withheld(attempt.question, known[0].sums, terms.withheld, repeats=attempt.repeats)
        evicted = tuple(sorted({member for each in known for member in each.evicted}))
        if terms.evicted != evicted:
            raise PeerFault(
                Cause.COUNT_MISMATCH,
                f"the terms name {list(terms.evicted)} evicted, this member saw {list(evicted)}",
                ["coordinator"],
            )
        check_counts(attempt.question, known[0].sums, known[1].sums if known[1:] else None)

    handlers: ClassVar = {
        Opening: _on_opening,
        Certificate: _on_closing,
        Erasure: _on_closing,
        Lost: _on_closing,
        ErasureRequest: _on_erasure_request,
    }
