"""A member of the secure sum (§4), each check in the page's order. Messages go in and out as bytes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import rules, wire
from tests.reference.rules import (
    closing,
    commit_secret,
    commit_share,
    delivered,
    hkdf,
    outcome,
    pieces,
    survivor,
)
from tests.reference.wire import H, M, Refused, climb, decode, demand, encode, fields, root, sign, u

SUITE = "x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"


class Party(SimpleNamespace):
    """One cohort and its open attempt, as either side sees it; `now` is in seconds since 1970."""

    next: Any
    history: Any
    vote: Any
    evicted: Any
    proofs: Any

    def __init__(self, key: Ed25519PrivateKey, roster: bytes, counter: int) -> None:
        super().__init__(context=b"", place=(0, -1), next=(0, 0), links=(), history=(), now=0, places={})
        self.key, self.roster, self.roster_hash = key, decode(roster, "Roster"), H("roster", roster)
        self.cohort, self.counter = H("cohort", self.roster_hash, u(64, counter)), counter
        self.keys = {entry.member: entry.key for entry in self.roster.members}
        self.verify(self.roster)
        demand(len({*self.keys.values()}) == len(self.keys), "duplicate")
        demand(
            {*self.roster.decryptors, *self.roster.helpers, *self.roster.readers} <= set(self.keys),
            "unknown-member",
        )

    def receive(self, message: bytes) -> bytes | None:
        """The answer to a message, if it has one."""
        said = decode(message, *(name for name in wire.KINDS if hasattr(self, f"on_{name.lower()}")))
        self.verify(said)
        answer = getattr(self, f"on_{type(said).__name__.lower()}")(said)
        return encode(answer) if answer else None

    def verify(self, said: Any, blame: str = "") -> None:
        """The cohort or context, the signer and the signature, as the tables have them."""
        demand(getattr(said, "cohort", self.cohort) == self.cohort, blame or "wrong-cohort")
        demand(getattr(said, "context", self.context) == self.context, blame or "wrong-context")
        signer, who = wire.SIGNERS.get(type(said).__name__, ("",))[0], getattr(said, "member", "")
        demand(not who or who in self.keys, blame or "unknown-member", who)
        demand(signer != "decryptor" or who in self.places, blame or "not-a-decryptor", who)
        key = {"admin": self.roster.federation, "coordinator": self.roster.coordinator}.get(signer)
        demand(not signer or wire.signed(key or self.keys[who], said), blame or "bad-signature", who)

    def settle(self, manifest: Any) -> None:
        self.m, self.manifest_hash = manifest, H("manifest", encode(manifest))
        self.keys = {member: self.keys[member] for member in manifest.members}
        self.places = {decryptor: x for x, decryptor in enumerate(manifest.decryptors, 1)}

    def near(self, member: str) -> tuple[str, ...]:
        return rules.neighbours(self.m, member)

    def owed(self, survivors: Sequence[Any], evicted: Collection[str]) -> dict[str, list[int]]:
        """Which of its secrets each dealer of `S∖E` must have revealed (§4.7)."""
        kept = [each.member for each in survivors if each.member not in evicted]
        return {v: [0, *(i for i, w in enumerate(self.near(v), 1) if w not in kept)] for v in kept}

    def begin(self, opening: Any) -> None:
        """The context (§4.3)."""
        self.opening, self.terms, self.links, self.place = opening, opening.terms, opening.links, opening[1:3]
        folded = bytes(32)
        for link in opening.links:
            folded = H("link", folded, fields(link))
        who = (self.roster.federation, self.roster_hash, self.cohort, self.manifest_hash)
        where = (u(64, opening.sequence), u(8, opening.attempt), folded)
        what = (H("terms", fields(self.terms)), H("layout", self.terms.layout))
        exceptions = H("exception", *map(encode, opening.exceptions))
        self.context = H("ctx", SUITE, "pairwise", *who, *where, *what, exceptions)

    def check_names(self, names: Sequence[str]) -> None:
        demand([*names] == sorted(set(names)) and set(names) <= set(self.m.members), "survivors-invalid")
        demand(len(names) >= self.m.n_min, "survivors-too-few")

    def check_proposal(self, survivors: Any, history: Sequence[Any], chosen: Sequence[Any] = ()) -> None:
        """What anybody can check of survivors (§4.6)."""
        names = [each.member for each in survivors]
        self.check_names(names)
        demand(rules.windows_hold(self.m, names), "window-exceeded")
        known = [(link.context, link.closing) for link in self.links]
        demand([(past.context, closing(*past)) for past in history] == known, "chain-broken")
        self.check_ledger(survivors, history, chosen)

    def check_ledger(self, survivors: Any, history: Sequence[Any], chosen: Sequence[Any] = ()) -> None:
        """§8; `chosen` are further sets, each with its context."""
        families, mine = {link.context: link.family for link in self.links}, rules.family(self.terms)
        past = dict.fromkeys((context, each.survivors) for context, _, sets in history for each in sets)
        past |= dict.fromkeys(chosen)
        kinds = [(families[each[0]], each, {one[:2] for one in each[1]}) for each in past]
        columns, linked = {each[:2] for each in survivors}, -1
        other = {"exact": "noisy", "noisy": "exact"}.get(mine)
        mixed = columns & set().union(*(held for kind, _, held in kinds if kind == other))
        demand(not mixed, "lineage-mixed", tuple(sorted(member for member, _ in mixed)), ())
        while len(columns) != linked:
            linked = len(columns)
            columns = columns.union(*(held for kind, _, held in kinds if kind == mine and held & columns))
        opened = [*(each for kind, each, held in kinds if kind == mine and held & columns)]
        opened += [(self.context, survivors)]
        excused, exposed, forks = [{*each.members} for each in self.opening.exceptions], [], list[Any]()
        for reading in (2, 3) if mine != "noisy" else ():
            rounds_of, groups = defaultdict(list), defaultdict(set)
            for number, (context, members) in enumerate(opened):
                for each in members:
                    rounds_of[each[:reading]].append((number, context))
            for column, held in rounds_of.items():
                groups[tuple(held)].add(column[0])
            small = [(len(group), sorted(group), rounds) for rounds, group in groups.items()]
            exposed += [each for each in small if not any(names.issuperset(each[1]) for names in excused)]
            if reading == 2:
                forks = self._forks(rounds_of, groups, (len(opened) - 1, self.context))
        if exposed and min(exposed)[0] < self.m.a + self.m.h_min:
            forks.insert(0, min(exposed, key=lambda each: each[:2]))
        for _, group, rounds in forks:
            raise Refused("ledger-refused", tuple(group), tuple(dict.fromkeys(at for _, at in rounds)))

    def _forks(self, rounds_of: Any, groups: Any, here: tuple[int, bytes]) -> list[Any]:
        """The older groups of which this sum takes some, and no majority (§8)."""
        older = defaultdict(set)
        for column, held in rounds_of.items():
            older[tuple(each for each in held if each != here)].add(column[0])
        split = [(groups.get((*held, here), ()), held, names) for held, names in older.items() if held]
        return [
            (len(names), sorted(names), held)
            for taken, held, names in split
            if taken and 2 * len(taken) <= len(names) + self.m.a
        ]


class Member(Party):
    """A member; `policy` has its least `a` and `h_min`, its highest `loss`, and whether exceptions may name it."""

    def __init__(self, name: str, key: Ed25519PrivateKey, roster: bytes, counter: int, policy: Any) -> None:
        super().__init__(key, roster, counter)
        self.name, self.policy, self.step = name, policy, 0
        self.ends: dict[bytes, bytes] = {}  # context → the closing it knows
        self.chosen: dict[bytes, Any] = {}  # context → survivors it signed, unless VOID closed it
        self.joined: set[bytes] = set()  # contexts it uploaded to, or voted in
        self.spent: set[bytes] = set()  # lineages

    def enrol(self, expires: int, draw: Callable[[int], bytes]) -> bytes:
        self.exchange = [X25519PrivateKey.from_private_bytes(draw(32)) for _ in range(2)]
        publics = [each.public_key().public_bytes_raw() for each in self.exchange]
        self.card = sign(self.key, "KeyCard", self.cohort, self.name, *publics, draw(32), expires)
        return encode(self.card)

    def on_cards(self, said: Any) -> None:
        """§4.2."""
        m, cards = said.manifest, {each.card.member: each.card for each in said.shown}
        demand(m[:3] == (self.cohort, self.roster_hash, self.counter), "wrong-cohort")
        demand(set(m.members) <= set(self.keys), "unknown-member")
        self.settle(m)
        demand(m[5:-1] == rules.sizes(self.roster, m), "weak-parameters")
        whole = tuple(cards) == m.members and root(map(encode, cards.values())) == m.cards_root
        for card, siblings in said.shown:
            self.verify(card)
            leaf = (encode(card), m.members.index(card.member), len(m.members), siblings)
            demand(climb(*leaf) == m.cards_root if siblings else whole, "manifest-mismatch", card.member)
        rules.check_points(cards.values())
        near, boxed = self.near(self.name), m.members if self.name in self.places else m.decryptors
        demand(cards.get(self.name) == self.card and {*near, *boxed} <= set(cards), "manifest-mismatch")
        allowed = m.a >= self.policy[0] and m.h_min >= self.policy[1] and m.loss <= self.policy[2]
        demand(allowed, "policy-refused")
        self.mask = {v: self._pair("pair-mask", 0, cards[v].mask_key, v) for v in near}
        self.box = {v: self._pair("pair-box", 1, cards[v].box_key, v) for v in boxed if v != self.name}
        self.expires = min(card.expires for card in cards.values())
        del self.exchange

    def _pair(self, tag: str, own: int, public: bytes, other: str) -> bytes:
        try:
            shared = self.exchange[own].exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise Refused("low-order-point", other) from None
        return hkdf(shared, self.manifest_hash, tag, self.cohort, *sorted((self.name, other)))

    def on_opening(self, said: Any) -> None:
        """§4.3."""
        terms, links, place = said.terms, said.links, said[1:3]
        demand(self.now < self.expires, "card-expired")
        demand(self.now < terms.latest_end, "terms-expired")
        over = not self.context or self.context in self.ends or self.now >= self.terms.latest_end
        ahead = place > self.place and said.sequence >= self.step and said.attempt < 8
        demand(over and ahead, "wrong-sequence")
        demand(self.joined <= set(self.ends), "outcome-missing")
        known = self.ends.items() <= {link.context: link.closing for link in links}.items()
        demand(known and links[: len(self.links)] == self.links, "chain-broken")
        places = [(0, -1), *(link[1:3] for link in links if link.cohort == self.cohort), place]
        demand(all(b in {(a[0], a[1] + 1), (a[0] + 1, 0)} for a, b in pairwise(places)), "chain-broken")
        demand(terms.extractor in self.roster.extractors and sum(self.m.caps) <= terms.N_max, "terms-refused")
        counting = rules.family(terms) == "indicator" or any(terms.indicator)
        demand(counting or not self.roster.withhold, "terms-refused")
        for each in said.exceptions:
            self.verify(each, "exception-refused")
            right = (each.federation, each.sequence) == (self.roster.federation, said.sequence)
            demand(right, "exception-refused")
            demand(self.policy[3] or self.name not in each.members, "policy-refused")
        self.begin(said)
        vars(self).update(own=None, receipt=None, vote=None, certified=(), evicted=set())
        vars(self).update(headers={}, shares={})  # delivered, and their shares, by dealer
        self._ratchet(said.sequence)

    def _ratchet(self, sequence: int) -> None:
        for step in range(self.step + 1, sequence + 1):
            self.step, parts = step, (b"", "ratchet", self.cohort, u(64, step))
            self.mask = {v: hkdf(key, *parts) for v, key in self.mask.items()}
            self.box = {v: hkdf(key, *parts) for v, key in self.box.items()}

    def upload(
        self, x: Sequence[int], lineage: bytes, records: bytes, draw: Callable[[int], bytes], below_p: Any
    ) -> tuple[bytes, list[bytes]]:
        """The announcement and the chunks of a vector (§4.4); `below_p` draws Shamir's coefficients."""
        demand(lineage not in self.spent or rules.family(self.terms) == "noisy", "lineage-spent")
        ctx, name, places, bits = self.context, self.name, self.places, self.terms.ring_bits
        seeds = {v: hkdf(key, ctx, "mask-seed", *sorted((name, v))) for v, key in self.mask.items()}
        secrets, masked = {"": draw(32), **seeds}, list(x)
        for v, secret in secrets.items():
            rules.mask(masked, bits, 1 if v > name or not v else -1, secret)
        chunks = pieces(rules.pack(masked, bits), self.terms.chunk_elements * bits // 8)
        digests = tuple(sha256(chunk).digest() for chunk in chunks)
        commits = tuple(commit_secret(ctx, name, *each) for each in secrets.items())
        dealt = [rules.split(secret, self.m.t, len(places), below_p) for secret in secrets.values()]
        shares = dict(zip(places, zip(*dealt, strict=True), strict=True))
        rows = tuple(
            b"".join(commit_share(ctx, name, d, *one) for one in enumerate(shares[d])) for d in places
        )
        roots = (root(digests), root((b"".join(commits), *rows)))
        head = M.Header(ctx, name, lineage, records, draw(32), *roots, b"", b"")
        seals = {d: AESGCM(rules.box_key(key, head, d)) for d, key in self.box.items() if d in places}
        plain = {d: b"".join(shares[d]) for d in places}
        boxes = tuple(seals[d].encrypt(bytes(12), plain[d], ctx) if d in seals else b"" for d in places)
        self.own = sign(self.key, "Header", *head[:-2], root(boxes))
        self.joined.add(ctx)
        self.shares |= {name: shares[name]} if name in places else {}
        return encode(M.Upload(self.own, digests, commits, rows, boxes)), chunks

    def on_deliveries(self, said: Any) -> Any:
        """→ Receipt (§4.5)."""
        demand(self.name in self.places, "not-a-decryptor")
        x, count, complaints = self.places[self.name], len(self.places), []
        for header, *_ in said.items:
            self.verify(header)
            demand(header.member != self.name, "malformed")
        for header, box, box_path, row, row_path in said.items:
            dealer, shares = header.member, []
            demand(climb(box, x - 1, count, box_path) == header.box_root, "chunk-mismatch", dealer)
            demand(climb(row, x, 1 + count, row_path) == header.commitment_root, "chunk-mismatch", dealer)
            with suppress(InvalidTag, ValueError):
                key = rules.box_key(self.box[dealer], header, self.name)
                shares = pieces(AESGCM(key).decrypt(bytes(12), box, self.context), 36)
            low = all(int.from_bytes(word, "little") < rules.P for each in shares for word in pieces(each, 4))
            right = (commit_share(self.context, dealer, self.name, *each) for each in enumerate(shares))
            if len(shares) == 1 + self.m.k and low and b"".join(right) == row:
                self.shares[dealer] = shares
            else:
                complaints.append(dealer)
        self.headers = {each.header.member: each.header for each in said.items}
        dealers = tuple(dealer for dealer in self.headers if dealer not in complaints)
        said = (self.name, delivered(self.context, self.headers.values()), dealers, tuple(complaints))
        self.receipt = sign(self.key, "Receipt", self.context, *said)
        return self.receipt

    def on_freeze(self, said: Any) -> Any:
        """→ Vote or Refusal (§4.6)."""
        demand(self.receipt, "wrong-phase")
        survivors = tuple(map(survivor, said.headers))
        try:
            self.check_proposal(survivors, said.history, [*self.chosen.items()])
            for header in said.headers:
                mine, shown = header.member == self.name, {self.name: self.own, **self.headers}
                cause = "own-upload-changed" if mine else "survivors-invalid"
                demand(header == shown.get(header.member), cause, header.member)
        except Refused as refused:
            cause, *named = refused.args
            exposed = named if cause == "ledger-refused" else ((), ())
            return sign(self.key, "Refusal", self.context, self.name, cause, *exposed)
        vote = self._vote("none", survivors)
        self.chosen[self.context] = survivors
        return vote

    def on_voidrequest(self, said: Any) -> Any:
        """→ Vote (§4.6)."""
        return self._vote(said.reason, ())

    def _vote(self, reason: str, survivors: Sequence[Any]) -> Any:
        chosen = outcome(self.context, reason, survivors)
        demand(self.name in self.places, "not-a-decryptor")
        demand(self.vote in {None, chosen}, "already-voted")
        self.vote = chosen
        self.joined.add(self.context)
        return sign(self.key, "Vote", self.context, self.name, chosen)

    def on_certificate(self, said: Any) -> Any:
        """→ Reveal, if it is for survivors and this member holds shares (§4.6, §4.7)."""
        context, survivors, reason, votes = said
        demand(len(votes) >= self.m.t, "certificate-invalid")
        for vote in votes:
            self.verify(vote, "certificate-invalid")
            demand(vote.outcome == outcome(context, reason, survivors), "certificate-invalid", vote.member)
        own = [each for each in survivors if each.member == self.name]
        demand(not own or (self.own and own == [survivor(self.own)]), "own-upload-changed")
        self.certified = survivors
        self._close(reason, [M.SurvivorSet(survivors)] if survivors else [])
        return self._reveal() if survivors and self.receipt else None

    def _close(self, reason: str, sets: Sequence[Any]) -> None:
        self.ends[self.context] = closing(self.context, reason, sets)
        if reason in {"none", "lost"}:
            self._ratchet(self.place[0] + 1)
        else:
            self.chosen.pop(self.context, None)

    def _reveal(self) -> Any:
        owed, chosen = self.owed(self.certified, self.evicted), outcome(self.context, "none", self.certified)
        runs = tuple(b"".join(self.shares[v][i] for i in owed[v]) for v in owed if v in self.shares)
        return sign(self.key, "Reveal", self.context, self.name, chosen, tuple(sorted(self.evicted)), runs)

    def on_evictions(self, said: Any) -> Any:
        """→ the second Reveal (§4.7)."""
        for header, commits, siblings, index, holders in said.proofs:
            dealer, top, count = header.member, header.commitment_root, 1 + len(self.places)
            self.verify(header, "eviction-invalid")
            right = [survivor(header) in self.certified, climb(commits, 0, count, siblings) == top]
            right += [16 * index < len(commits), len(holders) >= self.m.t]
            for member, share, row, row_path in holders:
                right += [climb(row, self.places.get(member, count), count, row_path) == top]
                right += [row[16 * index :][:16] == commit_share(self.context, dealer, member, index, share)]
            demand(all(right), "eviction-invalid", dealer)
            secret = rules.recover({self.places[each.member]: each.share for each in holders[: self.m.t]})
            true = commit_secret(self.context, dealer, ("", *self.near(dealer))[index], secret)
            demand(not secret or true != pieces(commits, 16)[index], "eviction-invalid", dealer)
        evicted = self.evicted | {proof.header.member for proof in said.proofs}
        demand(len(evicted) <= self.m.a, "eviction-invalid")
        self.evicted = evicted
        return self._reveal()

    def on_reportrequest(self, _: Any) -> Any:
        """→ Report (§4.9); from then on no vote is to be had."""
        demand(self.name in self.places, "not-a-decryptor")
        self.vote = self.vote or b"reported"
        sets = tuple(M.SurvivorSet(self.chosen[each]) for each in {self.context} & self.chosen.keys())
        return sign(self.key, "Report", self.context, self.name, sets)

    def on_lost(self, said: Any) -> None:
        """§4.9."""
        for report in said.reports:
            self.verify(report)
            for each in report.sets:
                self.check_names([one.member for one in each.survivors])
        reported = [one for each in said.reports for one in each.sets]
        sets = {outcome(self.context, "none", one.survivors): one for one in reported}
        times = Counter(reported)
        enough = self.m.t - self.m.a_D - len(self.places) + len(said.reports)
        self._close("lost", [sets[key] for key in sorted(sets) if times[sets[key]] >= enough])
        self.spent |= {self.own.lineage} if self.own and len(said.reports) < self.m.t else set()
