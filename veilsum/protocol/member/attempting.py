"""A member in an attempt, from the opening to the end (wire: States).

    Opened ──upload──▶ Uploaded ──boxes──▶ Checked ──vote──▶ Voted ──certificate──▶ Closed

A member that is too late to upload opens its boxes while Opened. Closed holds none of the attempt's keys: they have been ratcheted.
"""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, ClassVar, Self

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Bytes, Digest, Many, SecretBytes, Struct
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import PairKey
from veilsum.protocol.member.base import MemberPhase, Step
from veilsum.protocol.member.history import Counted, History
from veilsum.protocol.member.ready import Ready
from veilsum.protocol.merkle import verify_path
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    SHARE_BYTES,
    Certificate,
    Deliveries,
    Delivery,
    Disclosure,
    Erased,
    Erasure,
    ErasureRequest,
    Evictions,
    Freeze,
    Lost,
    Message,
    Opening,
    Receipt,
    Refusal,
    Reveal,
    Survivor,
    Survivors,
    Upload,
    VoidRequest,
    Vote,
    deliveries_hash,
    survivors_hash,
    void_hash,
)
from veilsum.protocol.messages.base import MAX_MEMBERS
from veilsum.protocol.messages.opening import MAX_ATTEMPTS
from veilsum.protocol.proposal import check_proposal
from veilsum.protocol.recount import recount_disclosure
from veilsum.protocol.reveal_plan import due_secrets, entries_due
from veilsum.protocol.sealing import Sealing, commit_row, unseal_box
from veilsum.protocol.shamir import ShareError, check_shares

Shares = Annotated[bytes, Bytes(SHARE_BYTES * MAX_MEMBERS, secret=True)]


class Dealt(Struct):
    """A dealer's shares for this decryptor, checked against their commitments."""

    survivor: Survivor
    shares: Shares

    @property
    def member(self) -> str:
        """The dealer."""
        return self.survivor.member


class AttemptPhase(MemberPhase):
    """A phase of one attempt.

    Attributes:
        ready: the phase that takes the next opening; holds the keys.
        opening: fixes the attempt.
    """

    ready: Ready
    opening: Opening

    @cached_property
    def attempt(self) -> Attempt:
        """The attempt's public state."""
        return Attempt(self.ready.roster, self.ready.study, self.ready.manifest, self.opening)

    @property
    def member(self) -> str:
        return self.ready.member

    @property
    def history(self) -> History:
        return self.ready.history

    def with_history(self, history: History) -> Self:
        return replace(self, ready=self.ready.with_history(history))

    def is_past_end(self, now_s: float) -> bool:
        """Whether the terms' latest end has passed."""
        return now_s >= self.opening.terms.latest_end_s

    def check_may_erase(self, request: ErasureRequest, now_s: float) -> None:
        """Refuse a request to erase another attempt, or before the terms' latest end."""
        self.attempt.check_context(request.context, "coordinator")
        self.attempt.check_decryptor(self.member)
        if not self.is_past_end(now_s):
            raise PeerFault(
                Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
            )


class Attempting(AttemptPhase):
    """A member inside an attempt.

    Attributes:
        uploads: this member's upload, at most one, kept for retransmission.
        own_shares: a decryptor's shares of its own seeds.
    """

    uploads: Annotated[tuple[Upload, ...], Many(Upload, 1)]
    own_shares: Shares

    @property
    def own_survivor(self) -> tuple[Survivor, ...]:
        """This member as a certificate names it, if it has uploaded."""
        return tuple(Survivor.from_header(upload.header) for upload in self.uploads)

    def vouched_shares(self) -> tuple[Dealt, ...]:
        """Return the shares that this decryptor vouched for, ordered by dealer; empty before its receipt."""
        return ()

    def sealed_again(self, self_seed: SecretBytes) -> Sealing:
        """Mask the stored upload's chunks again, with the seed of its `Sealing`; the driver compares their digests."""
        return Sealing(self.attempt, self.member, self.ready.masks, self.ready.boxes, self_seed=self_seed)

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message; after the terms' latest end, accept only closing documents and erasure requests."""
        if self.is_past_end(now_s) and not isinstance(message, Certificate | Erasure | Lost | ErasureRequest):
            raise PeerFault(
                Cause.TERMS_EXPIRED, "the terms' latest end has passed: nothing more is signed or opened"
            )
        return super().receive(message, key, now_s)

    @property
    def expiry_s(self) -> float:
        return self.opening.terms.latest_end_s

    def erase_expired(self, now_s: float) -> Self | Ready:
        """Erase the round's keys and shares after the terms' latest end; this member has revealed nothing and never will."""
        if not self.is_past_end(now_s):
            return self
        return self.ready.erase_keys(self.attempt, self.history)

    def _opened_again(self, opening: Opening, _key: SigningKey, _now_s: float) -> Step:
        """Answer a repeated opening with the outbox."""
        # Each place has a single opening: a different one has another context.
        if opening != self.opening:
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                "another attempt is open, and no certificate has ended it",
                ["coordinator"],
            )
        return self, self.messages_to_resend()

    def sign_vote(self, outcome: bytes, key: SigningKey) -> Step:
        """Store and sign one outcome, the only one ever signed in this context."""
        self.attempt.check_decryptor(self.member)
        vote = Vote.make_signed(key, context=self.attempt.context, member=self.member, outcome=outcome)
        ready = self.ready.with_history(self.history.enter_attempt(self.attempt))
        attempting = (ready, self.opening, self.uploads, self.own_shares)
        return Voted(*attempting, self.vouched_shares(), self._refused_survivors(), vote), (vote,)

    def _refused_survivors(self) -> tuple[Survivor, ...]:
        return ()

    def _on_void_request(self, request: VoidRequest, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        return self.sign_vote(void_hash(request.context, request.reason), key)

    def _on_erasure_request(self, request: ErasureRequest, key: SigningKey, now_s: float) -> Step:
        self.check_may_erase(request, now_s)
        return self.erase_expired(now_s).receive(request, key, now_s)

    def _without_sum(self, document: Erasure | Lost, _key: SigningKey, now_s: float) -> Step:
        history = self.history.add_end(self.attempt, document, now_s)
        return self.ready.advance_to(self.opening.sequence + 1, 0, history), ()

    def _on_certificate(self, certificate: Certificate, key: SigningKey, now_s: float) -> Step:
        history = self.history.add_end(self.attempt, certificate, now_s)
        _check_own(certificate, self.member, self.own_survivor)
        sequence, attempt = self.opening.sequence_and_attempt
        # A round's keys serve its retries, but nothing after its last VOID or the terms' latest end.
        keyed = self.ready.sequence == sequence
        retry = certificate.is_void and attempt + 1 < MAX_ATTEMPTS and keyed and not self.is_past_end(now_s)
        place = (sequence, attempt + 1) if retry else (sequence + 1, 0)
        open_ = not certificate.is_void and not self.is_past_end(now_s)
        closed = Closed(
            self.ready.advance_to(*place, history),
            self.opening,
            certificate,
            self.own_survivor,
            self._certified_shares(certificate) if open_ else (),
            (),
            (),
            NOTHING_REVEALED,
        )
        closed = closed.with_reveal(key)
        return closed, closed.reveals

    def _certified_shares(self, certificate: Certificate) -> tuple[Dealt, ...]:
        """Return the shares of the certified survivors' secrets, after the receipt including its own."""
        held = self.vouched_shares()
        if held or self._refused_survivors():
            held = tuple(
                sorted(
                    (*held, *(Dealt(own, self.own_shares) for own in self.own_survivor)),
                    key=attrgetter("member"),
                )
            )
        certified = set(certificate.survivors) if held else ()
        return tuple(dealt for dealt in held if dealt.survivor in certified)

    handlers: ClassVar = {
        Opening: _opened_again,
        VoidRequest: _on_void_request,
        ErasureRequest: _on_erasure_request,
        Certificate: _on_certificate,
        Erasure: _without_sum,
        Lost: _without_sum,
    }


class Holding(Attempting):
    """A decryptor that has opened its boxes.

    Attributes:
        opened: valid shares of the other dealers.
        refused: dealers that it complained about.
    """

    opened: Annotated[tuple[Dealt, ...], Many(Dealt, MAX_MEMBERS, ascending=True)]
    refused: Survivors

    def vouched_shares(self) -> tuple[Dealt, ...]:
        return self.opened

    def _on_freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        """Answer the proposal through `sign_vote`."""
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.from_header(header) for header in freeze.headers)
        return self.sign_vote(survivors_hash(self.attempt.context, survivors), key)

    def _refused_survivors(self) -> tuple[Survivor, ...]:
        return self.refused

    handlers: ClassVar = {**Attempting.handlers, Freeze: _on_freeze}


class Checked(Holding, kind=5):
    """A decryptor that has sent its receipt."""

    receipt: Receipt

    def messages_to_resend(self) -> tuple[Message, ...]:
        return (self.receipt,)

    def _on_repeated_deliveries(self, message: Deliveries, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(message.context, "coordinator")
        return self, (self.receipt,)

    def _on_freeze(self, freeze: Freeze, key: SigningKey, _now_s: float) -> Step:
        context = self.attempt.context
        self.attempt.check_context(freeze.context, "coordinator")
        survivors = tuple(Survivor.from_header(header) for header in freeze.headers)
        try:
            self.check_proposal(survivors, freeze)
        except PeerFault as fault:
            # The refusal states the cause; this member may still sign another proposal.
            refusal = Refusal.make_signed(key, context=context, member=self.member, cause=fault.cause.value)
            return self, (refusal,)
        return self.sign_vote(survivors_hash(context, survivors), key)

    def check_proposal(self, survivors: tuple[Survivor, ...], freeze: Freeze) -> None:
        """Check the proposed survivors, in this order (FREEZE-1 to FREEZE-11).

        First, the opening's links must cover everything learned since the opening (OPEN-8 to OPEN-14). Then

        1. to 3. `proposal.check_proposal`: members in order, n_min, windows, and the earlier certified set;
        4. this member's own upload, if proposed, is the one it sent;
        5. every other upload was delivered with this header: its signature was checked then, and its digest pins all it
           signed.

        OPEN-23 has already checked that this member recounted the count.
        """
        self.history.adopt_links(self.attempt, joined=True)
        check_proposal(self.attempt, survivors, freeze.earlier)
        delivered = {*(dealt.survivor for dealt in self.opened), *self.refused, *self.own_survivor}
        unknown = [survivor.member for survivor in survivors if survivor not in delivered]
        if self.member in unknown:
            raise PeerFault(Cause.OWN_UPLOAD_CHANGED, "the proposal shows another upload than this member's")
        if unknown:
            raise PeerFault(
                Cause.SURVIVORS_INVALID, f"{unknown[0]}'s upload is not the one whose box was shown"
            )

    handlers: ClassVar = {**Attempting.handlers, Freeze: _on_freeze, Deliveries: _on_repeated_deliveries}


class Voted(Holding, kind=6):
    """A decryptor that has stored its vote, the only one in this context.

    Attributes:
        given: the stored vote.
    """

    given: Vote

    def messages_to_resend(self) -> tuple[Message, ...]:
        return (self.given,)

    def sign_vote(self, outcome: bytes, key: SigningKey) -> Step:  # noqa: ARG002 - nothing is signed again
        """Repeat the stored vote; refuse any other outcome."""
        if outcome != self.given.outcome:
            raise PeerFault(Cause.ALREADY_VOTED, f"{self.member} has signed another outcome for this context")
        return self, (self.given,)


class Receiving(Attempting):
    """A member that has not opened boxes in this attempt."""

    def _on_deliveries(self, message: Deliveries, key: SigningKey, _now_s: float) -> Step:
        """Check deliveries, in this order.

        1. the context is this attempt's, and this member is a decryptor;
        2. every header is signed by its cohort member, and none is this member's own;
        3. the paths of box and row lead to the signed roots; otherwise the coordinator is at fault, and must send them again;
        4. the box opens and holds 1 + k shares that match their commitments; otherwise complain about the dealer.
        """
        attempt = self.attempt
        attempt.check_context(message.context, "coordinator")
        attempt.check_decryptor(self.member)
        for delivery in message.deliveries:
            attempt.check_header(delivery.header)
            if delivery.member == self.member:
                raise PeerFault(Cause.MALFORMED, "a decryptor is sent a box of its own", ["coordinator"])
        for delivery in message.deliveries:
            self._check_paths(delivery)
        pairs = {pair.peer: pair for pair in self.ready.boxes}
        dealt, refused = [], []
        for delivery in message.deliveries:
            dealer = Survivor.from_header(delivery.header)
            try:
                dealt.append(Dealt(dealer, self._open_box(delivery, pairs[delivery.member])))
            except PeerFault:
                refused.append(dealer)
        receipt = Receipt.make_signed(
            key,
            context=attempt.context,
            member=self.member,
            uploads=deliveries_hash(attempt.context, (each.header.digest for each in message.deliveries)),
            dealers=tuple(entry.member for entry in dealt),
            complaints=tuple(dealer.member for dealer in refused),
        )
        # A member that holds shares opens no other attempt until this one has ended.
        ready = self.ready.with_history(self.history.enter_attempt(self.attempt))
        holding = (ready, self.opening, self.uploads, self.own_shares, tuple(dealt), tuple(refused))
        checked = Checked(*holding, receipt)
        return checked, (receipt,)

    def _check_paths(self, delivery: Delivery) -> None:
        header, attempt = delivery.header, self.attempt
        place, holders = attempt.decryptor_place[self.member], len(attempt.decryptors)
        if not (
            verify_path(header.box_root, delivery.box, place, holders, delivery.box_path)
            and attempt.has_signed_row(header, self.member, delivery.row, delivery.row_path)
        ):
            raise PeerFault(
                Cause.CHUNK_MISMATCH,
                f"the box shown for {delivery.member} is not the one it signed",
                ["coordinator"],
            )

    def _open_box(self, delivery: Delivery, pair: PairKey) -> SecretBytes:
        context, dealer = self.attempt.context, delivery.member
        key = pair.box_key(dealer, self.member, context, delivery.header.salt)
        shares = unseal_box(key, delivery.box, context, dealer)
        try:
            check_shares(shares)
        except ShareError as error:
            raise PeerFault(Cause.BOX_REFUSED, f"{dealer}'s shares are not canonical", [dealer]) from error
        if (
            len(shares) != SHARE_BYTES * (1 + self.attempt.manifest.degree)
            or commit_row(context, dealer, self.member, shares) != delivery.row
        ):
            raise PeerFault(Cause.BOX_REFUSED, f"{dealer}'s shares miss their commitments", [dealer])
        return SecretBytes(shares)

    handlers: ClassVar = {**Attempting.handlers, Deliveries: _on_deliveries}


class Opened(Receiving, kind=3):
    """A member with context and keys that has sent nothing."""

    def begin_sealing(self, random_bytes: Callable[[int], bytes] = os.urandom) -> Sealing:
        """Begin this member's upload, with fresh secrets."""
        return Sealing(self.attempt, self.member, self.ready.masks, self.ready.boxes, random_bytes)

    def store_upload(self, upload: Upload, own_shares: SecretBytes) -> Step:
        """Store the result of `Sealing.finish` and send the announcement.

        Raises:
            Misuse: the upload is for another attempt or member.
            PeerFault: outcome-missing, chain-broken or already-summed if the member has since joined an attempt that the opening's links
                lack.
        """
        if (upload.header.context, upload.header.member) != (self.attempt.context, self.member):
            raise Misuse("the upload was sealed for another attempt or member")
        # When two cohorts are open at once, neither's links hold the other's end (OPEN-14).
        history = self.history.adopt_links(self.attempt, joined=True)
        ready = self.ready.with_history(history.enter_attempt(self.attempt))
        return Uploaded(ready, self.opening, (upload,), own_shares), (upload,)


class Uploaded(Receiving, kind=4):
    """A member whose upload is final."""

    def messages_to_resend(self) -> tuple[Upload, ...]:
        """Return the announcement; the driver sends the chunks."""
        return self.uploads


def _check_own(certificate: Certificate, member: str, own: tuple[Survivor, ...]) -> None:
    named = tuple(survivor for survivor in certificate.survivors if survivor.member == member)
    if named and named != own:
        raise PeerFault(Cause.OWN_UPLOAD_CHANGED, "the certificate names another upload than this member's")


class Closed(AttemptPhase, kind=7):
    """A closed attempt: its reveals and the data to verify the result, but none of its keys.

    Attributes:
        certificate: the attempt's outcome.
        own_survivor: this member as the certificate should name it, if it uploaded.
        vouched_shares: shares of the survivors' secrets, kept while a dealer may still be evicted.
        evicted: dealers proved false to this member.
        reveals: its last reveal, kept for retransmission; empty for VOID or without opened boxes.
        revealed: the outcome of its reveal, kept after shares and reveal are erased; zero for none.
    """

    certificate: Certificate
    own_survivor: Annotated[tuple[Survivor, ...], Many(Survivor, 1)]
    vouched_shares: Annotated[tuple[Dealt, ...], Many(Dealt, MAX_MEMBERS, ascending=True)]
    evicted: Survivors
    reveals: Annotated[tuple[Reveal, ...], Many(Reveal, 1)]
    revealed: Digest

    @classmethod
    def after_erasure(
        cls, ready: Ready, certificate: Certificate, own: tuple[Survivor, ...], now_s: float
    ) -> "Closed":
        """Close an attempt whose secrets were erased at its latest end, before this member saw its certificate.

        Args:
            ready: the phase that waits for the attempt's end.
            certificate: the attempt's.
            own: as `own_survivor` of the erased phase.
            now_s: Unix time in seconds.

        Raises:
            PeerFault: wrong-context for an attempt that this member left open in no cohort or another one; own-upload-changed; as
                `History.add_end`.
        """
        attempt = ready.left_open(certificate.context)
        _check_own(certificate, ready.member, own)
        closing = ready.with_history(ready.history.add_end(attempt, certificate, now_s))
        return cls(closing, attempt.opening, certificate, own, (), (), (), NOTHING_REVEALED)

    @property
    def staying_survivors(self) -> tuple[Survivor, ...]:
        """S∖E: the certified survivors without the evicted dealers."""
        evicted = set(self.evicted)
        return tuple(s for s in self.certificate.survivors if s not in evicted)

    def with_reveal(self, key: SigningKey) -> "Closed":
        """Add the reveal of this decryptor's shares for the certified set without the evicted (wire: Reveals).

        Certificate and proofs alone determine the shares due, never a request.
        """
        if not self.vouched_shares:
            return self
        attempt = self.attempt
        staying = {survivor.member for survivor in self.staying_survivors}
        reveal = Reveal.make_signed(
            key,
            context=attempt.context,
            member=self.member,
            outcome=self.certificate.outcome,
            evicted=tuple(dealer.member for dealer in self.evicted),
            runs=tuple(
                SecretBytes(
                    entries_due(dealt.shares, due_secrets(attempt, dealt.member, staying), SHARE_BYTES)
                )
                for dealt in self.vouched_shares
                if dealt.member in staying
            ),
        )
        return replace(self, reveals=(reveal,), revealed=reveal.outcome)

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message; reveal nothing after the terms' latest end."""
        return super(Closed, self.erase_expired(now_s)).receive(message, key, now_s)

    @property
    def expiry_s(self) -> float:
        kept = self.vouched_shares or self.reveals or self.ready.sequence <= self.opening.sequence
        return self.opening.terms.latest_end_s if kept else math.inf

    def erase_expired(self, now_s: float) -> "Closed":
        """Erase the keys kept for a retry, and the reveal, after the terms' latest end."""
        if now_s < self.expiry_s:
            return self
        following = self.opening.sequence + 1
        moved = self.ready.sequence == following
        ready = self.ready if moved else self.ready.advance_to(following, 0, self.history)
        return replace(self, ready=ready).erase_shares()

    def erase_shares(self) -> "Closed":
        """Erase the shares and the reveal, once there is a result or can be none."""
        return replace(self, vouched_shares=(), reveals=()) if self.vouched_shares or self.reveals else self

    def messages_to_resend(self) -> tuple[Message, ...]:
        """Return the reveal, if any."""
        return self.reveals

    def _on_opening(self, opening: Opening, key: SigningKey, now_s: float) -> Step:
        return self.ready.receive(opening, key, now_s)

    def _on_certificate(self, certificate: Certificate, key: SigningKey, now_s: float) -> Step:
        if certificate.context == self.attempt.context:
            return self, self.reveals
        return self._on_closing(certificate, key, now_s)

    def _on_closing(self, document: Closing, _key: SigningKey, now_s: float) -> Step:
        history = self.history.close_attempt(document, now_s)
        # A document that replaces this attempt's certificate also ends this phase.
        own = document.context == self.attempt.context
        return (self.ready if own else self).with_history(history), ()

    def _on_erasure_request(self, request: ErasureRequest, key: SigningKey, now_s: float) -> Step:
        """Report the revealed outcome; `receive` has already erased the secrets."""
        self.check_may_erase(request, now_s)
        report = Erased.make_signed(
            key, context=self.attempt.context, member=self.member, revealed=self.revealed
        )
        return self, (report,)

    def _on_evictions(self, message: Evictions, key: SigningKey, _now_s: float) -> Step:
        """Check proofs that dealers are false, in this order, and reveal again with those dealers as dropouts.

        1. the context is this attempt's; 2. each proof holds (`check_proof`); 3. no evicted dealer is readmitted, and at most
        `a` are evicted (eviction-invalid).
        """
        attempt = self.attempt
        attempt.check_context(message.context, "coordinator")
        for proof in message.proofs:
            check_proof(attempt, self.certificate, proof)
        evicted = tuple(Survivor.from_header(proof.header) for proof in message.proofs)
        most = attempt.quorum.colluders
        if not set(self.evicted) <= set(evicted) or len(evicted) > most:
            raise PeerFault(
                Cause.EVICTION_INVALID,
                f"{len(evicted)} dealers evicted after {len(self.evicted)}, at most {most} may be",
                ["coordinator"],
            )
        if evicted == self.evicted:
            return self, self.reveals
        closed = replace(self, evicted=evicted).with_reveal(key)
        return closed, closed.reveals

    def _on_disclosure(self, message: Disclosure, _key: SigningKey, _now_s: float) -> Step:
        """Recount a step that counts members from its disclosure (wire: Counts)."""
        if not self.attempt.spec.is_disclosed or self.certificate.is_void:
            raise PeerFault(Cause.WRONG_PHASE, "only a certified count is recounted")
        sums = recount_disclosure(self.attempt, self.staying_survivors, message)
        if (sums < 0).any() or (sums > len(self.staying_survivors)).any():
            raise PeerFault(
                Cause.DISCLOSURE_INVALID, "a sum counts fewer than 0 members, or more than there are"
            )
        counted = Counted(
            self.attempt.context,
            self.attempt.terms.count,
            tuple(map(int, sums)),
            self.staying_survivors,
            tuple(dealer.member for dealer in self.evicted),
        )
        return self.with_history(self.history.with_count(counted)), ()

    handlers: ClassVar = {
        Opening: _on_opening,
        Certificate: _on_certificate,
        Erasure: _on_closing,
        Lost: _on_closing,
        ErasureRequest: _on_erasure_request,
        Evictions: _on_evictions,
        Disclosure: _on_disclosure,
    }
