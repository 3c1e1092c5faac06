"""M3: decryptors receive the certificate and reveal shares; the seeds are rebuilt (wire: Reveals)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator.base import (
    CoordinatorPhase,
    Delivering,
    Erasing,
    Evicting,
    Failed,
    Recovered,
)
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    COMMITMENT_BYTES,
    SHARE_BYTES,
    BadRun,
    Certificate,
    Delivery,
    Holder,
    Message,
    Proof,
    Receipt,
    Refusal,
    Reveal,
    Vote,
    share_commitments,
)
from veilsum.protocol.reveal_plan import Due, entries_due, secrets_due
from veilsum.protocol.shamir import ShareError, recover_secrets
from veilsum.protocol.shelf import MemoryShelf

SLICE_BYTES = 1 << 26
"""Bytes of shares joined for one recovery: a compromise between speed and memory."""


class ShareFault(PeerFault):
    """share-invalid, with evidence that others can verify."""

    def __init__(self, evidence: BadRun) -> None:
        self.evidence = evidence
        decryptor, dealer = evidence.reveal.member, evidence.header.member
        super().__init__(Cause.SHARE_INVALID, f"{decryptor}'s share of {dealer}'s secret", [decryptor])


@dataclass(frozen=True, repr=False)
class Revealing(Delivering, Evicting):
    """Waits until each survivor has a threshold of runs.

    Attributes:
        disputes: disputes that dropped members before the freeze.
        due: secrets to rebuild, by dealer; the dealers are the certified survivors without the evicted, in order.
        heard: decryptors that have sent any reveal, and so know the certificate.
        reveals: reveals for the current evictions, by decryptor in order of arrival.
    """

    name: ClassVar[str] = "revealing"
    late: ClassVar[tuple[type[Message], ...]] = (Vote, Refusal)
    certificate: Certificate
    disputes: tuple[Dispute, ...]
    due: dict[str, tuple[Due, ...]]
    proofs: tuple[Proof, ...] = ()
    heard: frozenset[str] = frozenset()
    reveals: dict[str, Reveal] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, frozen: Delivering, certificate: Certificate, disputes: tuple[Dispute, ...]
    ) -> "Revealing":
        setting = frozen.setting.with_certificate(certificate)
        deadline_s = setting.attempt.terms.latest_end_s
        due = secrets_due(setting.attempt, [survivor.member for survivor in certificate.survivors])
        return cls(setting, deadline_s, frozen.uploads, frozen.receipts, certificate, disputes, due)

    def waiting_for(self) -> tuple[str, ...]:
        """Return the decryptors that have not revealed their shares."""
        return tuple(member for member in self.attempt.decryptors if member not in self.reveals)

    def question_for(self, member: str) -> Message | None:
        """Return the certificate, or the evictions for a decryptor that already knows it."""
        if member in self.reveals:
            return None
        return self.evictions if self.evictions and member in self.heard else self.certificate

    def _shares_asked(self, reveal: Reveal) -> tuple[tuple[str, ...], list[tuple[Due, ...]]]:
        """Return the dealers and secrets due under the reveal's evictions. Raises PeerFault(reveal-misshapen) for other runs."""
        due = self.due
        if reveal.evicted != self.evicted:
            if not set(reveal.evicted) < set(self.evicted):
                raise self._misshapen_fault(reveal.member)
            certified, evicted = (each.member for each in self.certificate.survivors), set(reveal.evicted)
            due = secrets_due(self.attempt, [each for each in certified if each not in evicted])
        dealers = self._dealers_of(reveal.member, due)
        asked = [due[dealer] for dealer in dealers]
        if [len(run) for run in reveal.runs] != [SHARE_BYTES * len(each) for each in asked]:
            raise self._misshapen_fault(reveal.member)
        return dealers, asked

    def _dealers_of(self, member: str, staying: Iterable[str]) -> tuple[str, ...]:
        """Return the dealers whose runs a decryptor must reveal: those in its receipt, and itself."""
        held = {member, *self.receipts[member].dealers}
        return tuple(dealer for dealer in staying if dealer in held)

    def _on_reveal(self, reveal: Reveal, _now_s: float) -> CoordinatorPhase:
        """Accept a reveal after REVEAL-1 to REVEAL-3, in their order; a bad share names the decryptor."""
        member, attempt = reveal.member, self.attempt
        self.setting.statements.check_outcome(attempt, reveal)
        if member not in self.receipts or (reveal.evicted != self.evicted and member in self.heard):
            return self  # its shares are unknown without a receipt, or it has already revealed
        dealers, dues = self._shares_asked(reveal)
        if reveal.evicted != self.evicted:
            return replace(self, heard=self.heard | {member})  # it has not seen the evictions yet
        context, place, shelf = attempt.context, attempt.decryptor_place[member], self.setting.shelf
        for dealer, due, run in zip(dealers, dues, reveal.runs, strict=True):
            committed = entries_due(shelf.read_row(dealer, place), due, COMMITMENT_BYTES)
            if share_commitments(context, dealer, member, [each.index for each in due], run) != committed:
                raise ShareFault(self._make_bad_run(reveal, dealers, dealer))
        if member in self.reveals:
            return self
        reveals = {**self.reveals, member: reveal}
        phase = replace(self, reveals=reveals, heard=self.heard | {member})
        return phase.recover_seeds() if phase.is_complete else phase

    def _read_delivery(self, dealer: str, holder: str) -> Delivery:
        place = self.attempt.decryptor_place[holder]
        return Delivery.from_bytes(self.setting.shelf.read_delivery(dealer, place))

    def _make_bad_run(self, reveal: Reveal, dealers: tuple[str, ...], dealer: str) -> BadRun:
        place = dealers.index(dealer)
        delivery = self._read_delivery(dealer, reveal.member)
        return BadRun(
            reveal=reveal.summary,
            header=delivery.header,
            place=place,
            count=len(reveal.runs),
            run=reveal.runs[place],
            run_path=tuple(Tree(reveal.runs).path_to(place)),
            row=delivery.row,
            row_path=delivery.row_path,
        )

    def _misshapen_fault(self, member: str) -> PeerFault:
        return PeerFault(Cause.REVEAL_MISSHAPEN, f"{member}'s reveal does not fit the certificate", [member])

    @cached_property
    def _runs_by_dealer(self) -> dict[str, dict[str, bytes]]:
        """Runs by dealer and decryptor, in order of arrival."""
        runs: dict[str, dict[str, bytes]] = {dealer: {} for dealer in self.due}
        for member, reveal in self.reveals.items():
            for dealer, run in zip(self._dealers_of(member, self.due), reveal.runs, strict=True):
                runs[dealer][member] = run
        return runs

    @property
    def is_complete(self) -> bool:
        """Whether each dealer has a threshold of runs."""
        threshold = self.attempt.quorum.threshold
        return len(self.reveals) >= threshold and all(
            len(runs) >= threshold for runs in self._runs_by_dealer.values()
        )

    def recover_seeds(self) -> CoordinatorPhase:
        """Rebuild each secret due, check it against its commitment, and evict false dealers."""
        secrets: dict[str, list[bytes]] = {}
        false: dict[str, int] = {}  # dealer, index of the secret that proves it
        for holders, dealers in self._group_dealers():
            for dealer, found in self._recover_group(holders, dealers):
                if isinstance(found, int):
                    false[dealer] = found
                else:
                    secrets[dealer] = found
        if not false:
            return self._end_recovered(secrets)
        proofs = sorted((*self.proofs, *map(self._make_proof, false.items())), key=lambda proof: proof.member)
        if len(proofs) > self.attempt.quorum.colluders:
            parties = [proof.member for proof in proofs]
            fault = PeerFault(Cause.DEALER_INCONSISTENT, "more dealers are false than may collude", parties)
            return Failed(self.setting, None, self.certificate, fault, tuple(proofs))
        evicted = {proof.member for proof in proofs}
        due = secrets_due(self.attempt, [member for member in self.due if member not in evicted])
        return replace(self, due=due, proofs=tuple(proofs), reveals={})

    def _end_recovered(self, secrets: dict[str, list[bytes]]) -> Recovered:
        pairs = [
            (due, SecretBytes(seed))
            for dealer in self.due
            for due, seed in zip(self.due[dealer], secrets[dealer], strict=True)
        ]
        setting, uploads = self.setting, self.uploads
        if not self.attempt.spec.is_disclosed:
            # Announcements are large, and only a disclosure reads them again.
            setting = replace(setting, shelf=MemoryShelf())
            uploads = {member: replace(kept, shelf=setting.shelf) for member, kept in uploads.items()}
        return Recovered(
            setting,
            None,
            self.certificate,
            uploads,
            self.proofs,
            self.disputes,
            {due.dealer: seed for due, seed in pairs if due.lost is None},
            {(due.dealer, due.lost): seed for due, seed in pairs if due.lost is not None},
        )

    def _group_dealers(self) -> Iterator[tuple[tuple[str, ...], list[str]]]:
        """Group dealers with the same first t holders, in slices, for a joint interpolation."""
        threshold = self.attempt.quorum.threshold
        alike = defaultdict[tuple[str, ...], list[str]](list)
        for dealer, runs in self._runs_by_dealer.items():
            alike[tuple(runs)[:threshold]].append(dealer)
        for holders, dealers in alike.items():
            width = threshold * SHARE_BYTES * max(len(self.due[dealer]) for dealer in dealers)
            step = max(1, SLICE_BYTES // width)
            for start in range(0, len(dealers), step):
                yield holders, dealers[start : start + step]

    def _recover_group(
        self, holders: tuple[str, ...], dealers: list[str]
    ) -> Iterator[tuple[str, list[bytes] | int]]:
        """Yield each dealer with its secrets due, or the index of a secret that proves it false."""
        try:
            seeds = iter(self._interpolate_secrets(holders, dealers))
        except ShareError:
            # Bisect: dealer by dealer, one false dealer would keep a coordinator of 1,000 members busy for hours.
            if len(dealers) > 1:
                middle = len(dealers) // 2
                yield from self._recover_group(holders, dealers[:middle])
                yield from self._recover_group(holders, dealers[middle:])
            else:
                yield dealers[0], self._find_false_secret(holders, dealers[0])
            return
        context = self.attempt.context
        for dealer in dealers:
            found = [next(seeds) for _ in self.due[dealer]]
            committed = self.uploads[dealer].commitments
            missed = [
                due.index
                for due, seed in zip(self.due[dealer], found, strict=True)
                if due.commit_to(context, seed) != committed.commitment_to(due.index)
            ]
            yield dealer, missed[0] if missed else found

    def _interpolate_secrets(
        self, holders: tuple[str, ...], dealers: list[str], only: int | None = None
    ) -> list[bytes]:
        positions = [self.attempt.decryptor_place[holder] for holder in holders]
        part = slice(None) if only is None else slice(only * SHARE_BYTES, (only + 1) * SHARE_BYTES)
        runs = self._runs_by_dealer
        shares = [b"".join(runs[dealer][holder][part] for dealer in dealers) for holder in holders]
        return recover_secrets(positions, shares)

    def _find_false_secret(self, holders: tuple[str, ...], dealer: str) -> int:
        """Return the index of the first secret that fails to recover; one exists because the joint recovery failed."""
        due = self.due[dealer]
        return next(
            d.index for place, d in enumerate(due) if not self._is_recoverable(holders, dealer, place)
        )

    def _is_recoverable(self, holders: tuple[str, ...], dealer: str, place: int) -> bool:
        try:
            self._interpolate_secrets(holders, [dealer], place)
        except ShareError:
            return False
        return True

    def _make_proof(self, false: tuple[str, int]) -> Proof:
        """Build a proof from a threshold of the dealer's shares of that secret and the committed rows."""
        dealer, index = false
        upload, threshold = self.uploads[dealer], self.attempt.quorum.threshold
        place = [due.index for due in self.due[dealer]].index(index)
        holders = []
        for holder in sorted(tuple(self._runs_by_dealer[dealer])[:threshold]):
            delivery = self._read_delivery(dealer, holder)
            run = self._runs_by_dealer[dealer][holder]
            share = run[place * SHARE_BYTES : (place + 1) * SHARE_BYTES]
            holders.append(Holder(holder, share, delivery.row, delivery.row_path))
        committed = upload.commitments
        return Proof(upload.header, committed.commitments, committed.path, index, tuple(holders))

    def pass_latest_end(self) -> CoordinatorPhase:
        """Ask decryptors to erase after too few reveals, or close the certified attempt without a sum."""
        fault = PeerFault(Cause.QUORUM_LOST, self._describe_shortage(), self.waiting_for())
        return Erasing(self.setting, None, fault, self.certificate, self.proofs, self.heard).end_if_decided()

    def _describe_shortage(self) -> str:
        threshold = self.attempt.quorum.threshold
        if len(self.reveals) < threshold:
            return f"{len(self.reveals)} reveals, the threshold is {threshold}"
        dealer, runs = min(self._runs_by_dealer.items(), key=lambda each: len(each[1]))
        return f"{len(runs)} of the decryptors that revealed hold shares of {dealer}'s secrets, the threshold is {threshold}"

    def give_up(self, fault: PeerFault) -> CoordinatorPhase:
        """Abandon the sum; the certified records stay spent."""
        return Failed(self.setting, None, self.certificate, fault, self.proofs)

    def chunk_damaged(self, member: str, index: int) -> CoordinatorPhase:
        """Give up the sum if it needs the member's vector."""
        certified = any(each.member == member for each in self.certificate.survivors)
        return super().chunk_damaged(member, index) if certified and member not in self.evicted else self

    handlers: ClassVar = {Receipt: Delivering.take_receipt, Reveal: _on_reveal}
