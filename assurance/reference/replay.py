"""Replay of a transcript (analysis: Transcripts): an outsider finds out who broke which rule. Written from the specification alone."""

from collections import defaultdict
from functools import partial, reduce
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from assurance.reference.coordinator import Coordinator
from assurance.reference.reference import NONE, agree, computed, survivor, windows_hold
from assurance.reference.wire import H, M, Refused, climb, decode, demand, encode, outcome, pieces

UNCERTIFIED = "collecting checking freezing voiding"
STATES = {  # of the coordinator, in which it admits or shows a message (wire: REST)
    "UploadSummary": "collecting",
    "Receipt": f"{UNCERTIFIED} revealing erasing closed",  # from voiding on only a second one
    "Freeze": "checking",
    "VoidRequest": "collecting checking freezing",
    "Vote": "freezing voiding revealing erasing closed",
    "Refusal": "freezing",
    "Certificate": "freezing voiding",
    "RevealSummary": "revealing erasing closed",  # from erasing on only one for another outcome
    **dict.fromkeys(("BadRun", "Evictions"), "revealing"),
    "Erased": f"{UNCERTIFIED} revealing erasing closed",  # in closed only a second one
    "Lost": f"{UNCERTIFIED} revealing erasing",
    "Erasure": "erasing",
}


def replay(entries: Any, signature: bytes, federation: bytes | None = None) -> set[frozenset[str]]:
    """Return the parties of each finding. Raises `Refused` if the first four entries are invalid."""
    auditor = Auditor.of(entries[:4], federation)
    for entry in entries[4:]:
        auditor.take(entry)
    auditor.end(reduce(partial(H, "transcript"), entries, NONE), signature)
    return {*auditor.found}


class Auditor(Coordinator):
    """A coordinator's knowledge, as far as the transcript shows it."""

    state: str
    evicted: tuple[str, ...]
    asked: tuple[bytes, ...]

    @classmethod
    def of(cls, entries: Any, federation: bytes | None) -> "Auditor":
        demand(len(entries) == 4, "malformed")
        roster, study = entries[:2]
        cards, opening = decode(entries[2], "Cards"), decode(entries[3], "Opening")
        m = cards.manifest
        demand(federation in {None, decode(roster, "Roster").federation}, "wrong-federation")
        auditor = cls(Ed25519PrivateKey.generate(), roster, study, *m[2:3], *m[4:6])
        auditor._opened(cards, opening)
        return auditor

    def _opened(self, cards: Any, opening: Any) -> None:  # AUDIT-1, without clocks and histories
        m = cards.manifest
        demand((m.cohort, m.roster_hash, m.study) == (self.cohort, self.roster_hash, self.study_hash), "wrong-cohort")
        demand({*m.members} <= {*self.keys}, "unknown-member")
        demand(not self.fresh or len(self.roster.members) <= self.study.rostered, "weak-parameters")
        demand(self.fresh or self.study.noise is None, "terms-refused")
        demand(m[8:] == computed(self.roster, self.study, m), "weak-parameters")
        shown = [each.card for each in cards.shown]
        demand(tuple(each.member for each in shown) == m.members, "manifest-mismatch")
        self.check_cards(cards)
        demand(not any(each.ML_KEM_key for each in cards.shown), "manifest-mismatch")
        for card in shown:
            agree(X25519PrivateKey.generate(), card.X25519_key)
        self.settle(m)
        self.verify(opening)
        self.check_places(opening)
        self.check_step(opening)
        self.begin(opening)
        vars(self).update(uploads={}, receipts={}, votes={}, reports={}, refusals={}, earlier=(), survivors=())
        vars(self).update(state="collecting", seen=set(), found=set(), reason="", certified=(), agreed=b"")
        vars(self).update(evicted=(), asked=(), unasked=[], shown=set(), revealed=defaultdict(set), closed=False)

    def blame(self, *parties: str) -> None:
        self.found.add(frozenset(parties))

    def whole(self) -> list[str]:  # the uploads that the receipts cover
        return sorted({each for said in self.receipts.values() for each in said.dealers + said.complaints})

    def take(self, entry: bytes) -> None:
        try:
            said = decode(entry, *STATES)
            name = type(said).__name__
            demand(entry not in self.seen, "duplicate")
            demand(self.state in STATES[name].split(), "wrong-phase")
            self.seen.add(entry)
            getattr(self, f"take_{name.lower()}")(said)
        except Refused:
            self.blame("coordinator")

    def contradicts(self, signed: dict[str, Any], said: Any) -> bool:
        """Return whether a decryptor's statement contradicts its first one, which is a finding."""
        self.verify(said)
        other = bool(signed.get(said.member, said)[:-1] != said[:-1])
        if other:
            self.blame(said.member)
        return other

    def take_uploadsummary(self, said: Any) -> None:
        header, commits = said.header, b"".join(said.secret_commitments)
        self.verify(header)
        if header.member in self.uploads:
            demand(survivor(self.uploads[header.member].header) != survivor(header), "duplicate")
            self.blame(header.member)
            return
        demand(len(said.secret_commitments) == 1 + self.m.degree, "upload-misshapen")
        top = climb(commits, 0, 1 + len(self.places), said.path)
        demand(top == header.commitment_root, "upload-misshapen")
        self.uploads[header.member] = M.Upload(header, (), said.secret_commitments, (), ())

    def take_receipt(self, said: Any) -> None:
        if self.contradicts(self.receipts, said):
            return
        demand(self.state not in {"voiding", "erasing", "closed"}, "wrong-phase")
        named = said.dealers + said.complaints
        demand(len({*named}) == len(named) and {*named} <= {*self.uploads} - {said.member}, "malformed")
        before = self.whole()
        self.receipts.setdefault(said.member, said)
        if self.state in {"collecting", "checking"}:
            self.state = "checking"
            return
        demand(self._is_for(said, before), "survivors-invalid")
        for dealer in said.complaints:  # a late complaint drops no dealer
            self.blame(dealer, said.member)

    def _is_for(self, said: Any, whole: list[str]) -> bool:
        headers = [self.uploads[each].header for each in whole if each != said.member]
        right = sorted(said.dealers + said.complaints) == [header.member for header in headers]
        return bool(right and said.uploads == self.delivered(headers))

    def disputed(self) -> None:
        for said in self.receipts.values():
            demand(self._is_for(said, self.whole()), "survivors-invalid")
        for said in self.receipts.values():
            for dealer in said.complaints:
                self.blame(dealer, said.member)
        for pair in self.conflicts(self.whole()):
            self.blame(*pair)

    def take_freeze(self, said: Any) -> None:
        self.state = "freezing"
        self.verify(said)
        self.earlier, proposed = said.earlier, tuple(map(survivor, said.headers))
        try:
            self.disputed()
            demand(self.freeze() == encode(said), "survivors-invalid")
        finally:
            self.survivors, self.asked = proposed, (outcome(self.context, "none", proposed),)

    def take_voidrequest(self, said: Any) -> None:
        self.state, self.reason = "voiding", said.reason
        self.asked = (*self.asked, outcome(self.context, said.reason))
        self.verify(said)

    def take_vote(self, said: Any) -> None:
        if self.contradicts(self.votes, said):
            return
        demand(said.outcome != self.agreed, "wrong-phase")  # it comes after the certificate
        if said.member in self.votes:
            return
        self.votes[said.member] = said
        if said.outcome not in self.asked:
            self.unasked.append(said)

    def take_refusal(self, said: Any) -> None:
        self.verify(said)
        demand(self.refusals.setdefault(said.member, said) is said, "duplicate")

    def take_certificate(self, said: Any) -> None:
        asked, self.state = self.state, "revealing" if said.survivors else "closed"
        self.verify(said)
        self.check_certificate(said)
        self.certified, self.closed = said.survivors, True
        self.agreed = outcome(self.context, said.reason, said.survivors)
        noted = {*self.votes}
        for vote in said.votes:
            if not self.contradicts(self.votes, vote):
                self.votes.setdefault(vote.member, vote)
        demand(asked == ("freezing" if said.survivors else "voiding"), "certificate-invalid")
        demand(
            said.survivors == self.survivors if said.survivors else said.reason == self.reason, "certificate-invalid"
        )
        demand({vote.member for vote in said.votes} <= noted, "certificate-invalid")

    def due(self, said: Any) -> bool:  # whether a reveal is for the certificate's outcome
        self.verify(said)
        demand(self.agreed, "certificate-invalid")
        right = said.outcome == self.agreed
        if not right:
            self.blame(said.member)
        return bool(right)

    def take_revealsummary(self, said: Any) -> None:
        if self.due(said):
            demand(self.state == "revealing", "wrong-phase")
            demand({*said.evicted} <= self.shown, "eviction-invalid")
            self.revealed[said.member].add(said.outcome)

    def take_badrun(self, said: Any) -> None:
        reveal, header, place, count, run, run_path, row, row_path = said
        d, dealer = reveal.member, header.member
        demand(self.due(reveal) and d in self.receipts, "share-invalid")
        self.verify(header)
        demand(survivor(header) in self.certified, "share-invalid")
        owed = self.owed(self.certified, reveal.evicted)
        held = [each for each in owed if each == d or each in self.receipts[d].dealers]
        demand(dealer in held and (count, place) == (len(held), held.index(dealer)), "share-invalid")
        demand(climb(run, place, count, run_path) == reveal.runs_root, "share-invalid")
        top = climb(row, self.places[d], 1 + len(self.places), row_path)
        demand(top == header.commitment_root and len(run) == 36 * len(owed[dealer]), "share-invalid")
        shares, kept = zip(owed[dealer], pieces(run, 36), strict=True), pieces(row, 16)
        demand(any(self.commit_share(dealer, d, i, share) != kept[i] for i, share in shares), "share-invalid")
        self.blame(d)

    def take_evictions(self, said: Any) -> None:
        self.verify(said)
        named = {proof.header.member for proof in said.proofs}
        self.shown |= named
        demand({*self.evicted} < named, "eviction-invalid")
        for proof in said.proofs:
            demand(self.certified, "certificate-invalid")
            self.check_proof(proof, self.certified)
            self.evicted = (*self.evicted, proof.header.member)
            self.blame(proof.header.member)

    def take_erased(self, said: Any) -> None:
        if self.contradicts(self.reports, said):
            return
        demand(self.state != "closed", "wrong-phase")
        self.reports.setdefault(said.member, said)
        self.state = "erasing"

    def take_erasure(self, said: Any) -> None:
        self.state = "closed"
        self.verify(said)
        self.check_erasure(said)
        self.closed = True
        demand({each.member for each in said.reports} <= {*self.reports}, "erasure-invalid")

    def take_lost(self, said: Any) -> None:
        self.verify(said)
        self.state, self.closed = "closed", True

    def end(self, head: bytes, signature: bytes) -> None:
        """Add the findings that only the whole transcript shows."""
        if self.receipts and not self.survivors:
            try:
                self.disputed()
            except Refused:
                self.blame("coordinator")
        doubtful = [each for each in self.unasked if each.outcome != self.agreed]
        for said in (*doubtful, *filter(self.refuted, self.refusals.values())):
            self.blame(said.member, "coordinator")
        for said in self.reports.values():
            if said.member in self.revealed and not any(said.revealed):
                self.blame(said.member)
        try:
            key = Ed25519PublicKey.from_public_bytes(self.roster.coordinator)
            key.verify(signature, H("transcript", self.context, head))
        except (InvalidSignature, ValueError):
            self.blame("coordinator")
        if not self.closed:
            self.blame("coordinator")

    def refuted(self, said: Any) -> bool:
        """Return whether the proposal shows that a refusal's cause is false (analysis: Transcripts)."""
        names = {each.member for each in self.survivors}
        announced = {each: survivor(upload.header) for each, upload in self.uploads.items() if each in self.whole()}
        match said.cause:
            case "survivors-too-few":
                return len(self.survivors) >= self.survivors_min
            case "window-exceeded":
                return windows_hold(self.m, names)
            case "malformed" | "repeat-mismatch" | "count-mismatch":
                return self._passes(self.check_proposal, self.survivors, self.earlier)
            case "own-upload-changed":
                own = [each for each in self.survivors if each.member == said.member]
                return all(announced.get(said.member) == each for each in own)
            case "survivors-invalid" if said.member in self.receipts:
                right = all(announced.get(each.member) == each for each in self.survivors)
                ordered = [each.member for each in self.survivors] == sorted(names)
                return right and ordered and self._is_for(self.receipts[said.member], self.whole())
        return False
