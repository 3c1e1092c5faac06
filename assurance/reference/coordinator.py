"""The coordinator of the secure sum (wire: States): what it accepts, asks and computes. It keeps no deadlines."""

from collections import Counter, defaultdict
from functools import partial, reduce
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from assurance.reference import mlkem
from assurance.reference.reference import (
    NONE,
    Party,
    agree,
    computed,
    peers,
    recipients,
    secrets,
    senders,
    survivor,
    windows_hold,
)
from assurance.reference.wire import (
    KINDS,
    H,
    M,
    Refused,
    decode,
    demand,
    encode,
    outcome,
    pieces,
    recover,
    root,
    sign,
    tree,
)

OF_FREEZE = {"chain-broken", "outcome-missing", "already-summed", "malformed", "repeat-mismatch", "count-mismatch"} | {
    "survivors-invalid",
    "survivors-too-few",
    "window-exceeded",
    "own-upload-changed",
}  # the causes of FREEZE
WORK_MAX = 10**6  # branchings times disputed pairs


def matching(edges: Any, ranked: list[str]) -> set[str]:
    """Return both ends of disjoint edges: each member with its first free neighbour."""
    taken = set[str]()
    for member in ranked:
        free = [each for each in ranked if {member, each} in edges and not taken & {member, each}]
        taken |= {member, free[0]} if free else set()
    return taken


def search(edges: Any, ranked: list[str], fewer: int, left: int, *, once: bool = False) -> Any:
    """Return the first of the smallest results below `fewer` members, and whether the branchings sufficed (wire: Survivors)."""
    best, branches = None, [set[str]()]
    while branches and left >= 0 and not (once and best):
        gone = branches.pop()
        rest = {edge for edge in edges if not edge & gone}
        near = {each: set().union(*(edge for edge in rest if each in edge)) - {each} for each in ranked}
        if lone := [each for each in ranked if len(near[each]) == 1]:
            branches.append(gone | near[lone[0]])
        elif len(gone) + len(matching(rest, ranked)) // 2 < fewer:
            hub, left = max(ranked, key=lambda each: len(near[each])), left - bool(rest)
            best, fewer = (best, fewer) if rest else (gone, len(gone))
            branches += [gone | near[hub], gone | {hub}] if rest else []
    return best, left >= 0


def least_cover(edges: Any, ranked: list[str], liars: int, most: int) -> set[str]:
    """Return the first of the smallest covers; with too few branchings, the best so far or a matching (wire: Survivors)."""
    best = search(edges, ranked, len(ranked), most, once=True)[0] or {*ranked}
    found, whole = search(edges, ranked, min(len(best), liars + 1), most)
    if whole and not found:
        found, whole = search(edges, ranked, len(best), most)
    return found or best if whole else min(matching(edges, ranked), found or best, key=len)


class Coordinator(Party):
    """The coordinator of one cohort; `known` holds what it knows of the federation's other cohorts."""

    asked: tuple[bytes, ...]

    def __init__(self, *cohort: Any, **options: Any) -> None:
        super().__init__(*cohort, **options)
        self.cards, self.mlkem_keys, self.manifests = dict[str, Any](), dict[str, bytes](), 0
        self.pairings = dict[str, Any]()

    def receive(self, message: bytes) -> bytes | None:
        pairing = decode(message, "Pairing") if message[1:2] == bytes([KINDS["Pairing"]]) else None
        of_another = pairing and pairing.manifest != self.manifest_hash  # which is ignored
        return None if of_another else super().receive(message)

    def on_enrolment(self, said: Any) -> None:  # wire: Cohorts
        card, key = said
        self.verify(card)
        demand(card.expires >= self.study.expires, "card-expired")
        if card.member in self.cards:
            demand(self.cards[card.member] == card, "card-conflict")
            return
        demand(H("mlkem-key", key) == card.ML_KEM_key_hash and mlkem.is_key(key), "mlkem-key-invalid")
        agree(X25519PrivateKey.generate(), card.X25519_key)
        self.check_keys({**self.cards, card.member: card}.values())
        self.cards[card.member], self.mlkem_keys[card.member] = card, key

    def gather(self) -> None:  # the manifest of the members that sent cards
        names = tuple(sorted(self.cards))
        self.leaves = tuple(encode(self.cards[name]) for name in names)
        m = M.Manifest(self.cohort, self.roster_hash, *self.run, names, root(self.leaves), 0, 0, 0, 0, 0, ())
        self.settle(M.Manifest(*m[:8], *computed(self.roster, self.study, m)))
        vars(self).update(next=(0, 0), manifests=self.manifests + 1, pairings={})

    def leave_out(self) -> None:  # the manifest of the members that paired under the last one
        demand(self.fresh and self.manifests < 3, "cohort-too-small")
        self.cards = {member: self.cards[member] for member in self.pairings}
        self.gather()

    def show(self, member: str) -> bytes:  # its Cards: all, or in a large cohort the ones it needs, with paths
        names, near, to = self.m.members, {member, *peers(self.m, member)}, recipients(self.m, member)
        paths = {v: tree(self.leaves, i)[1] if len(near) < len(names) else () for i, v in enumerate(names) if v in near}
        shown = ((self.cards[v], self.mlkem_keys[v] if v in to else b"", path) for v, path in paths.items())
        return encode(M.Cards(self.m, tuple(M.Shown(*each) for each in shown)))

    def on_pairing(self, said: Any) -> None:  # wire: Cohorts
        demand(len(said.ciphertexts) == len(recipients(self.m, said.member)), "pairing-misshapen")
        demand(self.pairings.setdefault(said.member, said) == said, "pairing-conflict")

    def show_ciphertexts(self, member: str) -> bytes:
        demand(self.pairings.keys() == {*self.m.members}, "wrong-phase")
        shown = []
        for sender in senders(self.m, member):
            (_, _, ciphertexts, signature), at = self.pairings[sender], recipients(self.m, sender).index(member)
            shown.append(M.ShownCiphertext(sender, ciphertexts[at], tree(ciphertexts, at)[1], signature))
        return encode(M.Ciphertexts(self.manifest_hash, tuple(shown)))

    def open(self, terms: Any) -> bytes:
        self.begin(sign(self.key, "Opening", self.cohort, *self.next, self.known.links, terms))
        vars(self).update(
            uploads={}, chunks={}, receipts={}, votes={}, proofs={}, reports={}, evicted=(), survivors=(), over=False
        )
        vars(self).update(asked=(), refusals={}, shares=defaultdict(dict))  # dealer and index → holder → share
        certified = self.known.certified
        self.earlier = tuple(M.SurvivorSet(certified[at][1]) for at in self.rests if at in certified)
        return encode(self.opening)

    def on_upload(self, said: Any) -> None:  # wire: Uploads
        header, digests, commits, rows, boxes = said
        member, size = header.member, 1 + self.m.degree
        self.verify(header)
        shape = [-(-self.elements // self.chunk), size, *[16 * size] * len(self.places)]
        shape += [(36 * size + 16) * (d != member) for d in self.places]
        demand([len(digests), len(commits), *map(len, rows + boxes)] == shape, "upload-misshapen", member)
        roots = (root(digests), root((b"".join(commits), *rows)), root(boxes))
        demand(header[3:6] == roots, "upload-misshapen", member)
        demand(self.uploads.setdefault(member, said) == said, "upload-conflict", member)

    def store(self, member: str, data: bytes) -> None:
        digests, digest = self.uploads[member].chunk_digests, sha256(data).digest()
        demand(digest in digests and self.is_chunk(digests.index(digest), data), "chunk-mismatch", member)
        self.chunks[digest] = data

    def whole(self) -> list[str]:
        return [v for v in sorted(self.uploads) if self.chunks.keys() >= {*self.uploads[v].chunk_digests}]

    def committed(self, dealer: str) -> tuple[bytes, ...]:  # the leaves of its commitment root
        return (b"".join(self.uploads[dealer].secret_commitments), *self.uploads[dealer].share_rows)

    def deliver(self, decryptor: str) -> bytes:
        items, x = [], self.places[decryptor]
        for header, *_, boxes in (self.uploads[v] for v in self.whole() if v != decryptor):
            rows = self.committed(header.member)
            items.append(M.Delivery(header, boxes[x - 1], tree(boxes, x - 1)[1], rows[x], tree(rows, x)[1]))
        return encode(M.Deliveries(self.context, tuple(items)))

    def on_receipt(self, said: Any) -> None:
        demand(self.receipts.get(said.member, said)[:-1] == said[:-1], "conflict", said.member)
        headers = [self.uploads[v].header for v in self.whole() if v != said.member]
        right = sorted(said.dealers + said.complaints) == [header.member for header in headers]
        demand(right and said.uploads == self.delivered(headers), "malformed", said.member)
        self.receipts.setdefault(said.member, said)

    def on_vote(self, said: Any) -> None:  # wire: Votes
        demand(self.votes.get(said.member, said)[:-1] == said[:-1], "already-voted", said.member)
        demand(said.outcome in self.asked, "survivors-invalid", said.member)
        if not self.over:  # a late one is harmless
            self.votes.setdefault(said.member, said)

    def on_refusal(self, said: Any) -> None:  # wire: Votes
        demand(self.refusals.setdefault(said.member, said)[:-1] == said[:-1], "conflict", said.member)

    def give_up(self, reason: str = "") -> bytes:
        """Return what it asks for when the attempt can't go on: erasure after the latest end, before it VOID (wire: Survivors)."""
        if self.now >= self.terms.latest_end:
            return encode(M.ErasureRequest(self.context))
        causes = [said.cause if said.cause in OF_FREEZE else "policy-refused" for said in self.refusals.values()]
        if self.asked and not reason:
            reason = (causes or ["quorum-lost"])[0]
        return self.ask_void(reason) if reason else self.freeze()

    def on_erased(self, said: Any) -> None:  # wire: Ends
        demand(self.reports.setdefault(said.member, said)[:-1] == said[:-1], "conflict", said.member)

    def dropped(self, conflicts: Any, complaints: Any) -> set[str]:
        """Return the dealers to drop: a conflict joins two dealers, a complaint is (dealer, decryptor) (wire: Survivors)."""
        edges = {*conflicts, *map(frozenset, complaints)}
        ends = Counter(each for edge in edges for each in edge)
        gone = {each for each, count in ends.items() if count > self.study.a}
        edges = {each for each in edges if not each & gone}
        most, parts = WORK_MAX // max(len(edges), 1), []
        while edges:
            part = {next(iter(edges))}
            while more := {edge for edge in edges - part if edge & frozenset().union(*part)}:
                part |= more
            edges -= part
            parts.append((part, sorted(frozenset().union(*part), key=lambda each: H("priority", self.context, each))))
        least = [len(matching(*each)) // 2 for each in parts]
        spare = self.study.a - len(gone) - sum(least)
        for (part, ranked), pairs in zip(parts, least, strict=True):
            lone = [dealer for dealer, decryptor in complaints if {dealer, decryptor} in part]
            alone = len(part) == len(lone) == 1 and not part & conflicts
            gone |= {*lone} if alone else least_cover(part, ranked, pairs + spare, most)
        return gone

    def conflicts(self, whole: list[str]) -> set[frozenset[str]]:  # edges whose ends committed to different seeds
        ends = ((v, zip(secrets(self.m, v), self.uploads[v].secret_commitments, strict=True)) for v in whole)
        seen = {(v, w): each for v, pairs in ends for w, each in pairs if w}
        return {frozenset(pair) for pair, each in seen.items() if seen.get(pair[::-1], each) != each}

    def freeze(self) -> bytes:  # A Freeze, or the VoidRequest that says why there is none (wire: Survivors)
        whole, receipts, t = self.whole(), self.receipts, self.m.t
        conflicts = self.conflicts(whole)
        clean = {v: sum(v in each.dealers or v == d for d, each in receipts.items()) for v in whole}
        complaints = {(v, d) for d, each in receipts.items() for v in each.complaints if clean[v] < t + self.m.a_D}
        disputed = ("edge-disagreement" if conflicts else "box-refused") if conflicts or complaints else ""
        parties = {each for pair in (*conflicts, *complaints) for each in pair}
        vouched = tuple(survivor(self.uploads[v].header) for v in whole if clean[v] >= t)
        staying = vouched
        for known in self.earlier if self.fresh else ():  # under counts: members that they counted
            counted = {each.member for each in known.survivors} - {*self.terms.evicted}
            staying = tuple(each for each in staying if each.member in counted)
        try:
            demand(len(whole) >= self.survivors_min, "survivors-too-few")
            demand(len(receipts) >= t, "quorum-lost")
            self.survivors = self._undisputed(staying, conflicts, complaints)
            if (conflicts or complaints) and not self._passes(self.check_proposal, self.survivors, self.earlier):
                base = {each.member for each in staying}
                conflicts = {each for each in conflicts if each <= base}
                complaints = {each for each in complaints if base >= {*each}}
                self.survivors = self._undisputed(staying, conflicts, complaints)
            there = {each.member for each in self.survivors}
            wide = windows_hold(self.m, there) or not windows_hold(self.m, there | parties)
            demand(not disputed or (len(there) >= self.survivors_min and wide), disputed)
            self.check_proposal(self.survivors, self.earlier)
        except Refused as refused:
            return self.ask_void(refused.args[0])
        headers = tuple(self.uploads[each.member].header for each in self.survivors)
        self.asked = (outcome(self.context, "none", self.survivors),)
        return encode(M.Freeze(self.context, headers, self.earlier))

    def ask_void(self, reason: str) -> bytes:
        self.asked = (*self.asked, outcome(self.context, reason))
        return encode(M.VoidRequest(self.context, reason))

    def _undisputed(self, staying: Any, conflicts: Any, complaints: Any) -> Any:
        gone = self.dropped(conflicts, complaints)
        return tuple(each for each in staying if each.member not in gone)

    def _passes(self, check: Any, *args: Any) -> bool:
        try:
            check(*args)
        except Refused:
            return False
        return True

    def certify(self, reason: str = "none") -> bytes:
        """Return the Certificate for the survivors or for VOID, and close the attempt."""
        survivors = self.survivors if reason == "none" else ()
        chosen = outcome(self.context, reason, survivors)
        votes = tuple(self.votes[d] for d in sorted(self.votes) if self.votes[d].outcome == chosen)
        demand(len(votes) >= self.m.t, "certificate-invalid")
        self.over = True
        if survivors:
            self.known.certified[self.context] = (self.link(reason, survivors), survivors, self.study, self.terms)
        else:
            self.close(reason)
        return encode(M.Certificate(self.context, survivors, reason, votes))

    def erase(self) -> bytes:  # the Erasure, which closes the attempt (wire: Ends)
        reports = tuple(each for _, each in sorted(self.reports.items()) if not any(each.revealed))
        demand(len(reports) >= len(self.places) + self.m.a_D - self.m.t + 1, "erasure-invalid")
        self.close("erased")
        return encode(M.Erasure(self.context, reports))

    def on_lost(self, _: Any) -> None:  # wire: Ends
        self.close("lost")

    def close(self, reason: str) -> None:
        """Add the attempt to the chain (wire: Ends)."""
        sequence, attempt = self.place
        retry = reason not in {"none", "erased", "lost"} and attempt < 7 and self.now < self.terms.latest_end
        self.next = (sequence, attempt + 1) if retry else (sequence + 1, 0)
        self.known.links = (*self.known.links, self.link(reason, self.survivors if reason == "none" else ()))

    def chain(self) -> bytes:
        return encode(M.Chain(self.roster.federation, self.known.links))

    def on_reveal(self, said: Any) -> None:  # wire: Reveals
        d, owed = said.member, self.owed(self.survivors, self.evicted)
        demand(said.outcome == outcome(self.context, "none", self.survivors), "reveal-misshapen", d)
        held = [v for v in owed if v == d or v in self.receipts[d].dealers]
        lengths = [36 * len(owed[v]) for v in held]
        demand((said.evicted, [*map(len, said.runs)]) == (self.evicted, lengths), "reveal-misshapen", d)
        for v, run in zip(held, said.runs, strict=True):
            row = pieces(self.committed(v)[self.places[d]], 16)
            for i, share in zip(owed[v], pieces(run, 36), strict=True):
                demand(self.commit_share(v, d, i, share) == row[i], "share-invalid", d)
                self.shares[v, i][d] = share

    def result(
        self,
    ) -> bytes | list[int]:  # the sum, or the Evictions that must precede it (wire: Reveals, analysis: Results)
        proofs, total, entries = dict(self.proofs), [0] * self.elements, []
        for v, indices in self.owed(self.survivors, self.evicted).items():
            (header, digests, commits, *_), leaves, seeds = self.uploads[v], self.committed(v), dict[int, bytes]()
            for i in indices:
                shares = dict(sorted([*self.shares[v, i].items()][: self.m.t]))
                demand(len(shares) == self.m.t, "quorum-lost")
                seeds[i] = recover({self.places[d]: share for d, share in shares.items()})
                if v not in proofs and not (seeds[i] and self.commit(v, i, seeds[i]) == commits[i]):
                    held = [(d, share, self.places[d]) for d, share in shares.items()]
                    holders = tuple(M.Holder(d, share, leaves[x], tree(leaves, x)[1]) for d, share, x in held)
                    proofs[v] = M.Proof(header, leaves[0], tree(leaves)[1], i, holders)
            if v not in proofs:
                chunks = tuple(self.chunks[each] for each in digests)
                self.unmask(total, v, chunks, seeds)
                shown = tuple(M.Seed(*each) for each in seeds.items())
                entries += [M.Disclosed(header, leaves[0], tree(leaves)[1], digests, chunks, shown)]
        if len(proofs) == len(self.evicted):
            self.entries = tuple(entries)
            return [value % 2**self.bits for value in total]
        vars(self).update(proofs=proofs, evicted=tuple(sorted(proofs)), shares=defaultdict(dict))
        return encode(M.Evictions(self.context, tuple(proofs[v] for v in self.evicted)))

    def disclose(self) -> bytes:
        """Return the parts of a count's sum (wire: Counts). For any other step this would reveal every vector."""
        demand(self.terms.step in {"count", "rows"}, "wrong-phase")
        return encode(M.Disclosure(self.context, self.entries))

    def seal(self, entries: Any) -> Any:  # the signature of a transcript (analysis: Transcripts)
        head = reduce(partial(H, "transcript"), entries, NONE)
        return self.key.sign(H("transcript", self.context, head))
