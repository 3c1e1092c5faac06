"""The coordinator of the secure sum (§4): what it admits, asks, and computes. It keeps no deadlines."""

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from tests.reference import rules, wire
from tests.reference.reference import Party
from tests.reference.rules import closing, commit_secret, commit_share, delivered, outcome, pieces, survivor
from tests.reference.wire import M, Refused, demand, encode, root, sign


class Coordinator(Party):
    """The coordinator of one cohort; `links` and `history` are the federation's."""

    def on_keycard(self, said: Any) -> None:
        """§4.2."""
        demand(said.expires >= self.now + 86_400, "card-expired")
        cards = vars(self).setdefault("cards", {})
        demand(cards.get(said.member, said) == said, "card-conflict")
        rules.check_points({**cards, said.member: said}.values())
        cards[said.member] = said

    def gather(self, a: int, h_min: int, loss: int, caps: Sequence[int]) -> bytes:
        """The Cards of those who came."""
        names, cards = tuple(sorted(self.cards)), [self.cards[name] for name in sorted(self.cards)]
        known = (self.cohort, self.roster_hash, self.counter, names, root(map(encode, cards)))
        m = M.Manifest(*known, a, 0, h_min, 0, 0, 0, 0, loss, (), tuple(caps))
        self.settle(M.Manifest(*known, *rules.sizes(self.roster, m), m.caps))
        return encode(M.Cards(self.m, tuple(M.Shown(card, ()) for card in cards)))

    def open(self, terms: Any, exceptions: Sequence[Any] = ()) -> bytes:
        self.begin(sign(self.key, "Opening", self.cohort, *self.next, self.links, terms, tuple(exceptions)))
        vars(self).update(uploads={}, chunks={}, receipts={}, votes={}, proofs={}, evicted=())
        self.shares: Any = defaultdict(dict)  # dealer and index → holder → share
        return encode(self.opening)

    def on_upload(self, said: Any) -> None:
        """§4.4."""
        header, digests, commits, rows, boxes = said
        member, size = header.member, 1 + self.m.k
        self.verify(header)
        count = -(-self.terms.elements // self.terms.chunk_elements)
        shape = [count, size, *(16 * size for _ in self.places)]
        shape += [(36 * size + 16) * (d != member) for d in self.places]
        demand([len(digests), len(commits), *map(len, rows + boxes)] == shape, "upload-misshapen", member)
        roots = (root(digests), root((b"".join(commits), *rows)), root(boxes))
        demand(header[5:8] == roots, "upload-misshapen", member)
        demand(self.uploads.setdefault(member, said) == said, "upload-conflict", member)

    def chunk(self, member: str, data: bytes) -> None:
        demand(sha256(data).digest() in self.uploads[member].chunk_digests, "chunk-mismatch", member)
        self.chunks[sha256(data).digest()] = data

    def whole(self) -> list[str]:
        return [v for v in sorted(self.uploads) if self.chunks.keys() >= {*self.uploads[v].chunk_digests}]

    def deliver(self, decryptor: str) -> bytes:
        items, x = [], self.places[decryptor]
        for header, _, commits, rows, boxes in (self.uploads[v] for v in self.whole() if v != decryptor):
            tree = (b"".join(commits), *rows)
            items.append(
                M.Delivery(header, boxes[x - 1], wire.path(boxes, x - 1), tree[x], wire.path(tree, x))
            )
        return encode(M.Deliveries(self.context, tuple(items)))

    def on_receipt(self, said: Any) -> None:
        headers = [self.uploads[v].header for v in self.whole() if v != said.member]
        right = sorted(said.dealers + said.complaints) == [header.member for header in headers]
        demand(right and said.uploads == delivered(self.context, headers), "malformed", said.member)
        self.receipts[said.member] = said

    def on_vote(self, said: Any) -> None:
        self.votes[said.member] = said

    def freeze(self) -> bytes:
        """A Freeze, or the VoidRequest that says why there is none (§4.5)."""
        whole, receipts, t = self.whole(), self.receipts, self.m.t
        seen = {
            (v, w): each for v in whole for w, each in zip(self.near(v), self.uploads[v][2][1:], strict=True)
        }
        conflicts = {frozenset(pair) for pair, each in seen.items() if seen.get(pair[::-1], each) != each}
        complaints = {(v, d) for d, each in receipts.items() for v in each.complaints}
        dropped = rules.cover(self.context, conflicts, complaints)
        clean = {v: sum(v in each.dealers or v == d for d, each in receipts.items()) for v in whole}
        staying = [self.uploads[v].header for v in whole if v not in dropped and clean[v] >= t]
        try:
            demand(len(whole) >= self.m.n_min, "survivors-too-few")
            demand(len(receipts) >= t, "quorum-lost")
            self.survivors = self._allowed(tuple(map(survivor, staying)))
            disputed = "edge-disagreement" if conflicts else "box-refused"
            demand(len(self.survivors) >= self.m.n_min or not (conflicts or complaints), disputed)
            self.check_proposal(self.survivors, self.history)
        except Refused as refused:
            return encode(M.VoidRequest(self.context, refused.args[0]))
        headers = tuple(self.uploads[each.member].header for each in self.survivors)
        return encode(M.Freeze(self.context, headers, self.history))

    def _allowed(self, survivors: Any) -> Any:
        """Without those whom the ledger lets this sum expose alone (§4.5)."""
        try:
            self.check_ledger(survivors, self.history)
        except Refused as refused:
            cause, group, rounds = refused.args
            inside = self.context in rounds and set(group) <= {each.member for each in survivors}
            if cause == "lineage-mixed" or inside:
                return self._allowed(tuple(each for each in survivors if each.member not in group))
        return survivors

    def certify(self, reason: str = "none") -> bytes:
        """The Certificate for the survivors or for VOID; the attempt enters the history."""
        survivors = self.survivors if reason == "none" else ()
        chosen = outcome(self.context, reason, survivors)
        votes = tuple(self.votes[d] for d in sorted(self.votes) if self.votes[d].outcome == chosen)
        demand(len(votes) >= self.m.t, "certificate-invalid")
        past = M.Past(self.context, reason, (M.SurvivorSet(survivors),) if survivors else ())
        link = M.Link(self.cohort, *self.place, rules.family(self.terms), self.context, closing(*past))
        self.links, self.history = (*self.links, link), (*self.history, past)
        self.next = (self.place[0] + 1, 0) if survivors else (self.place[0], self.place[1] + 1)
        return encode(M.Certificate(self.context, survivors, reason, votes))

    def on_reveal(self, said: Any) -> None:
        """§4.7."""
        d, owed = said.member, self.owed(self.survivors, self.evicted)
        held = [v for v in owed if v == d or v in self.receipts[d].dealers]
        right = (self.evicted, [36 * len(owed[v]) for v in held])
        demand(said.outcome == outcome(self.context, "none", self.survivors), "reveal-misshapen", d)
        demand((said.evicted, [*map(len, said.runs)]) == right, "reveal-misshapen", d)
        for v, run in zip(held, said.runs, strict=True):
            row = pieces(self.uploads[v].share_rows[self.places[d] - 1], 16)
            for i, share in zip(owed[v], pieces(run, 36), strict=True):
                demand(commit_share(self.context, v, d, i, share) == row[i], "share-invalid", d)
                self.shares[v, i][d] = share

    def result(self) -> bytes | list[int]:
        """The sum, or the Evictions that must come first (§4.7, §4.8)."""
        proofs, bits, total = dict(self.proofs), self.terms.ring_bits, [0] * self.terms.elements
        for v, indices in self.owed(self.survivors, self.evicted).items():
            header, digests, commits, rows, _ = self.uploads[v]
            masked = rules.unpack(b"".join(self.chunks[each] for each in digests), len(total), bits)
            total, tree = [*map(int.__add__, total, masked)], (b"".join(commits), *rows)
            for i in indices:
                shares, other = dict([*self.shares[v, i].items()][: self.m.t]), ("", *self.near(v))[i]
                demand(len(shares) == self.m.t, "quorum-lost")
                secret = rules.recover({self.places[d]: share for d, share in shares.items()})
                if secret and commit_secret(self.context, v, other, secret) == commits[i]:
                    rules.mask(total, bits, -1 if other > v or not other else 1, secret)
                elif v not in proofs:
                    rows_of = [
                        (d, tree[x], wire.path(tree, x)) for d, x in self.places.items() if d in shares
                    ]
                    holders = tuple(M.Holder(d, shares[d], *row) for d, *row in rows_of)
                    proofs[v] = M.Proof(header, tree[0], wire.path(tree, 0), i, holders)
        if len(proofs) == len(self.evicted):
            return [value % 2**bits for value in total]
        self.proofs, self.evicted, self.shares = proofs, tuple(sorted(proofs)), defaultdict(dict)
        return encode(M.Evictions(self.context, tuple(proofs[v] for v in self.evicted)))
