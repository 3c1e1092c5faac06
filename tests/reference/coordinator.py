"""The coordinator of the secure sum (§4): what it admits, asks, and computes. It keeps no deadlines."""

from collections import Counter, defaultdict
from functools import partial, reduce
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.reference.reference import Party, agree, family, secrets, sizes, survivor, windows_hold
from tests.reference.wire import H, M, Refused, demand, encode, outcome, pieces, recover, root, sign, tree

WORK_MAX = 10**6  # branchings times disputed pairs


def matching(edges: Any, ranked: list[str]) -> set[str]:
    """Both ends of disjoint edges: each member with the first of its neighbours that is left."""
    taken = set[str]()
    for member in ranked:
        free = [each for each in ranked if {member, each} in edges and not taken & {member, each}]
        taken |= {member, free[0]} if free else set()
    return taken


def search(edges: Any, ranked: list[str], fewer: int, left: int, *, once: bool = False) -> Any:
    """The first of the smallest results with fewer members; whether the branchings were enough (§4.5, rules 2 to 4)."""
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
    """The first of the smallest; with too few branchings, the best so far or a matching (§4.5, rules 3, 4)."""
    best = search(edges, ranked, len(ranked), most, once=True)[0] or {*ranked}
    found, whole = search(edges, ranked, min(len(best), liars + 1), most)
    if whole and not found:
        found, whole = search(edges, ranked, len(best), most)
    return found or best if whole else min(matching(edges, ranked), found or best, key=len)


class Coordinator(Party):
    """The coordinator of one cohort; `links` and `history` are the federation's."""

    def on_keycard(self, said: Any) -> None:  # §4.2
        demand(said.expires >= self.now + 86_400, "card-expired")
        cards = vars(self).setdefault("cards", {})
        demand(cards.get(said.member, said) == said, "card-conflict")
        self.check_points({**cards, said.member: said}.values())
        agree(X25519PrivateKey.generate(), said.mask_key)
        agree(X25519PrivateKey.generate(), said.box_key)
        cards[said.member] = said

    def gather(self, a: int, h_min: int, loss: int, caps: Any) -> None:  # the manifest of those who came
        names = tuple(sorted(self.cards))
        self.leaves = tuple(encode(self.cards[name]) for name in names)
        known = (self.cohort, self.roster_hash, self.counter, names, root(self.leaves))
        m = M.Manifest(*known, a, 0, h_min, 0, 0, 0, 0, loss, (), tuple(caps))
        self.settle(M.Manifest(*known, *sizes(self.roster, m), m.caps))

    def show(self, member: str) -> bytes:  # its Cards: all, or in a large cohort those that it needs, by paths
        names, near = self.m.members, {member, *secrets(self.m, member)[1:], *self.places}
        near = {*names} if member in self.places else near
        paths = {v: tree(self.leaves, i)[1] if len(near) < len(names) else () for i, v in enumerate(names) if v in near}
        return encode(M.Cards(self.m, tuple(M.Shown(self.cards[v], path) for v, path in paths.items())))

    def open(self, terms: Any, exceptions: Any = ()) -> bytes:
        self.begin(sign(self.key, "Opening", self.cohort, *self.next, self.links, terms, tuple(exceptions)))
        vars(self).update(uploads={}, chunks={}, receipts={}, votes={}, proofs={}, evicted=())
        vars(self).update(shares=defaultdict(dict))  # dealer and index → holder → share
        return encode(self.opening)

    def on_upload(self, said: Any) -> None:  # §4.4
        header, digests, commits, rows, boxes = said
        member, size = header.member, 1 + self.m.k
        self.verify(header)
        shape = [-(-self.terms.elements // self.terms.chunk_elements), size, *[16 * size] * len(self.places)]
        shape += [(36 * size + 16) * (d != member) for d in self.places]
        demand([len(digests), len(commits), *map(len, rows + boxes)] == shape, "upload-misshapen", member)
        roots = (root(digests), root((b"".join(commits), *rows)), root(boxes))
        demand(header[5:8] == roots, "upload-misshapen", member)
        demand(self.uploads.setdefault(member, said) == said, "upload-conflict", member)

    def chunk(self, member: str, data: bytes) -> None:
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
        headers = [self.uploads[v].header for v in self.whole() if v != said.member]
        right = sorted(said.dealers + said.complaints) == [header.member for header in headers]
        demand(right and said.uploads == self.delivered(headers), "malformed", said.member)
        self.receipts[said.member] = said

    def on_vote(self, said: Any) -> None:
        self.votes[said.member] = said

    def dropped(self, conflicts: Any, complaints: Any) -> set[str]:
        """For disputes: a conflict joins two dealers, a complaint is (dealer, decryptor) (§4.5)."""
        edges = {*conflicts, *map(frozenset, complaints)}
        ends = Counter(each for edge in edges for each in edge)
        gone = {each for each, count in ends.items() if count > self.m.a}
        edges = {each for each in edges if not each & gone}
        most, parts = WORK_MAX // max(len(edges), 1), []
        while edges:
            part = {next(iter(edges))}
            while more := {edge for edge in edges - part if edge & frozenset().union(*part)}:
                part |= more
            edges -= part
            parts.append((part, sorted(frozenset().union(*part), key=lambda each: H("priority", self.context, each))))
        least = [len(matching(*each)) // 2 for each in parts]
        spare = self.m.a - len(gone) - sum(least)
        for (part, ranked), pairs in zip(parts, least, strict=True):
            lone = [dealer for dealer, decryptor in complaints if {dealer, decryptor} in part]
            alone = len(part) == len(lone) == 1 and not part & conflicts
            gone |= {*lone} if alone else least_cover(part, ranked, pairs + spare, most)
        return gone

    def freeze(self) -> bytes:  # A Freeze, or the VoidRequest that says why there is none (§4.5)
        whole, receipts, t = self.whole(), self.receipts, self.m.t
        seen = {
            (v, w): each for v in whole for w, each in zip(secrets(self.m, v), self.uploads[v][2], strict=True) if w
        }
        conflicts = {frozenset(pair) for pair, each in seen.items() if seen.get(pair[::-1], each) != each}
        clean = {v: sum(v in each.dealers or v == d for d, each in receipts.items()) for v in whole}
        complaints = {(v, d) for d, each in receipts.items() for v in each.complaints if clean[v] < t + self.m.a_D}
        disputed = ("edge-disagreement" if conflicts else "box-refused") if conflicts or complaints else ""
        parties = {each for pair in (*conflicts, *complaints) for each in pair}
        past = [sets[0].survivors for at, _, sets in self.history if at == self.terms.indicator]
        self.counted = {each[:3] for names in past for each in names if each.member not in self.terms.evicted}
        vouched = (survivor(self.uploads[v].header) for v in whole if clean[v] >= t)
        staying = [each for each in vouched if not any(self.terms.indicator) or each[:3] in self.counted]
        try:
            demand(len(whole) >= self.m.n_min, "survivors-too-few")
            demand(len(receipts) >= t, "quorum-lost")
            self.survivors = self._undisputed(staying, conflicts, complaints)
            if (conflicts or complaints) and not self._passes(self.propose, self.survivors):
                among = self._undisputed(staying, (), ())
                base = {each.member for each in among}
                conflicts = {each for each in conflicts if each <= base}
                complaints = {each for each in complaints if base >= {*each}}
                self.survivors = self._undisputed(among, conflicts, complaints)
            there = {each.member for each in self.survivors}
            wide = windows_hold(self.m, there) or not windows_hold(self.m, there | parties)
            demand(not disputed or (len(there) >= self.m.n_min and wide), disputed)
            self.propose(self.survivors)
        except Refused as refused:
            return encode(M.VoidRequest(self.context, refused.args[0]))
        headers = tuple(self.uploads[each.member].header for each in self.survivors)
        return encode(M.Freeze(self.context, headers, self.history))

    def propose(self, survivors: Any) -> None:
        """What can be checked of survivors with the history (§4.6, clauses 1 to 4 and 7)."""
        self.check_proposal(survivors, self.history)
        missing = self.counted - {each[:3] for each in survivors}
        demand(len(missing) <= self.terms.margin, "indicator-mismatch")

    def _undisputed(self, staying: Any, conflicts: Any, complaints: Any) -> Any:
        gone = self.dropped(conflicts, complaints)
        return self._allowed(tuple(each for each in staying if each.member not in gone))

    def _allowed(self, survivors: Any) -> Any:  # without those whom the ledger lets this sum expose alone (§4.5)
        try:
            self.check_ledger(survivors, self.history)
        except Refused as refused:
            cause, group, rounds = refused.args
            inside = self.context in rounds and set(group) <= {each.member for each in survivors}
            if cause == "lineage-mixed" or inside:
                return self._allowed(tuple(each for each in survivors if each.member not in group))
            left = tuple(each for each in survivors if each.member not in self.lonely)
            if 0 < len(survivors) - len(left) <= self.m.a and self._passes(self.check_ledger, left, self.history):
                return left
        return survivors

    def _passes(self, check: Any, *args: Any) -> bool:
        try:
            check(*args)
        except Refused:
            return False
        return True

    def certify(self, reason: str = "none") -> bytes:
        """The Certificate for the survivors or for VOID; the attempt enters the history."""
        survivors = self.survivors if reason == "none" else ()
        chosen = outcome(self.context, reason, survivors)
        votes = tuple(self.votes[d] for d in sorted(self.votes) if self.votes[d].outcome == chosen)
        demand(len(votes) >= self.m.t, "certificate-invalid")
        past = M.Past(self.context, reason, (M.SurvivorSet(survivors),) if survivors else ())
        place = (self.place[0] + 1, 0) if survivors else (self.place[0], self.place[1] + 1)
        vars(self).update(links=(*self.links, self.link(*past[1:])), history=(*self.history, past), next=place)
        return encode(M.Certificate(self.context, survivors, reason, votes))

    def on_reveal(self, said: Any) -> None:  # §4.7
        d, owed = said.member, self.owed(self.survivors, self.evicted)
        held = [v for v in owed if v == d or v in self.receipts[d].dealers]
        demand(said.outcome == outcome(self.context, "none", self.survivors), "reveal-misshapen", d)
        lengths = [36 * len(owed[v]) for v in held]
        demand((said.evicted, [*map(len, said.runs)]) == (self.evicted, lengths), "reveal-misshapen", d)
        for v, run in zip(held, said.runs, strict=True):
            row = pieces(self.committed(v)[self.places[d]], 16)
            for i, share in zip(owed[v], pieces(run, 36), strict=True):
                demand(self.commit_share(v, d, i, share) == row[i], "share-invalid", d)
                self.shares[v, i][d] = share

    def result(self) -> bytes | list[int]:  # the sum, or the Evictions that must come first (§4.7, §4.8)
        proofs, total, entries = dict(self.proofs), [0] * self.terms.elements, []
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
            return [value % 2**self.terms.ring_bits for value in total]
        vars(self).update(proofs=proofs, evicted=tuple(sorted(proofs)), shares=defaultdict(dict))
        return encode(M.Evictions(self.context, tuple(proofs[v] for v in self.evicted)))

    def disclose(self) -> bytes:
        """What an indicator round's sum was made of (§9); of any other this would open every vector."""
        demand(family(self.terms) == "indicator", "wrong-phase")
        return encode(M.Disclosure(self.context, self.entries))

    def seal(self, entries: Any) -> Any:  # the signature of a transcript (§11)
        head = reduce(partial(H, "transcript"), entries, bytes(32))
        return self.key.sign(H("transcript", self.context, head))
