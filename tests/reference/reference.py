"""A member of the secure sum (§4, with §5, §8 and §9), each check in the page's order; messages are bytes."""

from collections import defaultdict
from contextlib import suppress
from functools import cache, partial, reduce
from hashlib import sha256
from itertools import pairwise
from math import comb
from operator import add
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import wire
from tests.reference.wire import H, M, P, Refused, climb, decode, demand, encode, hkdf, outcome, pieces, root, sign, u


@cache
def least(n: int, marked: int, sample: int, odds: int) -> int:
    """The least `c` with `P[Hyp(n, marked, sample) > c]·odds ≤ 1`."""
    ways = [comb(marked, i) * comb(n - marked, sample - i) for i in range(sample + 1)]
    return next(c for c in range(sample + 1) if sum(ways[c + 1 :]) * odds <= comb(n, sample))


@cache
def by_draw(tag: str, m: Any) -> list[str]:
    beacon = H("cards", m.cohort, m.cards_root)
    return sorted(m.members, key=lambda each: H(tag, beacon, each))


def sizes(roster: Any, m: Any) -> tuple[Any, ...]:  # a manifest's fields from `a` to `decryptors`
    demand(m.h_min >= 3 and m.loss <= 374, "weak-parameters")
    n, lost = len(m.members), len(m.members) * m.loss // 1000

    def drawn(losses: int, odds: int, lost_odds: int) -> Any:
        """The least sample that outweighs the colluders, and so many times the lost, in it."""
        bounds = ((w, least(n, m.a, w, odds), least(n, lost, w, lost_odds)) for w in range(losses, n))
        return (each for each in bounds if n > 200 and each[0] > each[1] + losses * each[2])

    if roster.decryptors:
        decryptors, a_d = {*m.members} & {*roster.decryptors}, min(m.a, (len(roster.decryptors) - 1) // 3)
    else:
        size, a_d, _ = next(drawn(2, 1 << 80, 1 << 30), (n, m.a, 0))
        decryptors = {*by_draw("committee", m)[:size]}
    w, _, d_max = next(drawn(1, n << 80, n << 20), (n, 0, 0))
    k, d_max = (2 * w, d_max) if 2 * w < n - 1 and (n > 1000 or 6 * w <= n - 1) else (n - 1, 0)
    n_min, t = max(m.a + m.h_min, (len(roster.members) + m.a) // 2 + 1), (len(decryptors) + a_d) // 2 + 1
    demand(n >= max(3, n_min) and len(decryptors) >= max(2, t) and a_d >= min(m.a, 1), "cohort-too-small")
    return m.a, a_d, m.h_min, n_min, t, k, d_max, m.loss, tuple(sorted(decryptors))


@cache
def secrets(m: Any, member: str) -> tuple[str, ...]:
    """With whom each of its secrets is shared: `b_u`, the first, with nobody, the others with its neighbours."""
    n, ring = len(m.members), by_draw("ring", m)
    steps = range(-(m.k // 2), m.k // 2 + 1) if m.k < n - 1 else range(n)
    return ("", *sorted({ring[(ring.index(member) + step) % n] for step in steps} - {member}))


def windows_hold(m: Any, survivors: Any) -> bool:
    lost, n = [each not in survivors for each in by_draw("ring", m)], len(m.members)
    return m.k == n - 1 or all(sum((lost * 2)[i : i + m.k // 2]) <= m.D_max for i in range(n))


def family(terms: Any) -> str:
    return "indicator" if terms.statistic == "indicator" else "noisy" if terms.noise else "exact"


def survivor(header: Any) -> Any:
    return M.Survivor(*header[1:4], H("upload-digest", *header[:-1]))


def closing(context: bytes, reason: str, sets: Any) -> bytes:
    return H("closing", context, reason, *(outcome(context, "none", each.survivors) for each in sets))


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    with suppress(ValueError):
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    raise Refused("low-order-point")


class Party(SimpleNamespace):
    """One cohort and its open attempt, as either side sees it; `now` is in seconds since 1970."""

    def __init__(self, key: Ed25519PrivateKey, roster: bytes, counter: int) -> None:
        super().__init__(key=key, context=b"", now=0, place=(0, -1), next=(0, 0), links=(), history=(), places={})
        self.roster, self.roster_hash, self.counter = decode(roster, "Roster"), H("roster", roster), counter
        self.cohort, self.keys = H("cohort", self.roster_hash, u(64, counter)), dict(self.roster.members)
        self.verify(self.roster)
        demand(len({*self.keys.values()}) == len(self.keys), "duplicate")
        demand({"admin", "coordinator", "operator"}.isdisjoint(self.keys), "malformed")
        named = (*self.roster.decryptors, *self.roster.readers)
        demand({*named} <= {*self.keys}, "unknown-member")

    def receive(self, message: bytes) -> bytes | None:  # the answer to a message, if it has one
        said = decode(message, *(name for name in wire.KINDS if hasattr(self, f"on_{name.lower()}")))
        self.verify(said)
        answer = getattr(self, f"on_{type(said).__name__.lower()}")(said)
        return encode(answer) if answer else None

    def verify(self, said: Any) -> None:  # the cohort or context, the signer and the signature, as the tables have them
        signer, who = wire.SIGNERS.get(type(said).__name__, ("",))[0], getattr(said, "member", "")
        demand(getattr(said, "cohort", self.cohort) == self.cohort, "wrong-cohort")
        demand(getattr(said, "context", self.context) == self.context, "wrong-context")
        demand(signer != "decryptor" or who in self.places, "not-a-decryptor")
        demand(not who or who in self.keys, "unknown-member")
        keys = {**self.keys, "admin": self.roster.federation, "coordinator": self.roster.coordinator}
        demand(not signer or wire.signed(keys[who or signer], said), "bad-signature")

    def settle(self, manifest: Any) -> None:
        self.m, self.manifest_hash = manifest, H("manifest", encode(manifest))
        self.keys = {member: self.keys[member] for member in manifest.members}
        self.places = {decryptor: x for x, decryptor in enumerate(manifest.decryptors, 1)}

    def check_points(self, cards: Any) -> None:
        keys = [int.from_bytes(key, "little") % 2**255 % (2**255 - 19) for card in cards for key in card[2:4]]
        demand(len(keys) == len({*keys}), "duplicate")

    def owed(self, survivors: Any, evicted: Any) -> dict[str, list[int]]:
        """Which of its secrets each dealer of `S∖E` must have revealed (§4.7)."""
        kept = {each.member: each for each in survivors if each.member not in evicted}
        return {v: [i for i, w in enumerate(secrets(self.m, v)) if w not in kept] for v in kept}

    def commit(self, member: str, index: int, secret: bytes) -> bytes:
        ends = sorted({member, secrets(self.m, member)[index] or member})
        return H("commit-edge" if ends[1:] else "commit-self", self.context, *ends, secret)[:16]

    def commit_share(self, dealer: str, decryptor: str, index: int, share: bytes) -> bytes:
        return H("commit-share", self.context, dealer, decryptor, u(32, index), share)[:16]

    def delivered(self, headers: Any) -> bytes:
        return H("deliveries", self.context, *(survivor(header).digest for header in headers))

    def is_chunk(self, index: int, data: bytes) -> bool:  # as long as it is to be, and padded with zeros (§4.4)
        step, bits = self.terms.chunk_elements, self.terms.ring_bits
        count = max(0, min(step, self.terms.elements - index * step))
        return wire.pack(wire.unpack(data, count, bits), bits) == data

    def mask(self, total: list[int], member: str, seeds: dict[int, bytes], sign: int = 1) -> None:
        """Adds, or takes away, the masks that these secrets of a member make, by index (§4.4)."""
        for index, seed in seeds.items():
            other = secrets(self.m, member)[index]
            wire.mask(total, self.terms.ring_bits, sign if other > member or not other else -sign, seed)

    def unmask(self, total: list[int], member: str, chunks: Any, seeds: dict[int, bytes]) -> None:
        """Adds an upload without the masks that these seeds make (§4.8)."""
        total[:] = map(add, total, wire.unpack(b"".join(chunks), len(total), self.terms.ring_bits))
        self.mask(total, member, seeds, -1)

    def begin(self, opening: Any) -> None:  # the context (§4.3)
        self.opening, self.terms, self.links, self.place = opening, opening.terms, opening.links, opening[1:3]
        suite = "x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"
        who = (self.roster.federation, self.roster_hash, self.cohort, self.manifest_hash)
        where = (u(64, opening.sequence), u(8, opening.attempt), reduce(partial(H, "link"), opening.links, bytes(32)))
        what = (
            H("terms", self.terms),
            H("layout", self.terms.layout),
            H("exception", *map(encode, opening.exceptions)),
        )
        self.context = H("ctx", suite, *who, *where, *what)

    def link(self, reason: str, sets: Any) -> Any:
        kind, floor = family(self.terms), self.m.a + self.m.h_min
        return M.Link(self.cohort, *self.place, kind, floor, self.context, closing(self.context, reason, sets))

    def check_names(self, survivors: Any) -> None:
        known = wire.ascend(survivors) and {each.member for each in survivors} <= {*self.m.members}
        demand(known, "survivors-invalid")
        demand(len(survivors) >= self.m.n_min, "survivors-too-few")

    def check_proposal(self, survivors: Any, history: Any) -> None:
        """What anybody can check of survivors (§4.6)."""
        self.check_names(survivors)
        demand(windows_hold(self.m, [each.member for each in survivors]), "window-exceeded")
        known = [(link.context, link.closing) for link in self.links]
        demand([(past.context, closing(*past)) for past in history] == known, "chain-broken")
        self.check_ledger(survivors, history)

    def check_ledger(self, survivors: Any, history: Any) -> None:  # §8
        mine, links = family(self.terms), {each.context: each for each in (*self.links, self.link("none", ()))}
        sets = dict.fromkeys((at, each.survivors) for at, _, every in history for each in every)
        columns, linked, noisy = {each[:2] for each in survivors}, -1, mine == "noisy"
        mixed = {v[0] for at, held in sets for v in held if (links[at].family == "noisy") != noisy and v[:2] in columns}
        demand(not mixed, "lineage-mixed", tuple(sorted(mixed)), ())
        past, near = [(at, held, {v[:2] for v in held}) for at, held in sets if links[at].family == mine], list[Any]()
        while linked < len(columns):
            near, linked = [each for each in past if each[2] & columns], len(columns)
            columns = columns.union(*(each[2] for each in near))
        opened, small, last = [*near, (self.context, survivors, ())], list[Any](), len(near)
        for reading in () if noisy else (2, 3):
            rounds, groups = defaultdict[Any, Any](tuple), defaultdict[Any, set[str]](set)
            for number, each in ((i, each) for i, (_, members, _) in enumerate(opened) for each in members):
                rounds[each[:reading]] += (number,)
            for column, held in rounds.items():
                groups[held].add(column[0])
            small += [(len(names), (*sorted(names),), held) for held, names in groups.items()]
        spared = [each.members for each in self.opening.exceptions]
        small = [v for v in small if v[0] < max(links[opened[i][0]].floor for i in v[2]) and v[1] not in spared]
        self.lonely = {name for _, names, held in small if last in held for name in names}
        for _, group, held in sorted(small, key=lambda each: each[:2])[:1]:
            raise Refused("ledger-refused", group, tuple(dict.fromkeys(opened[i][0] for i in held)))
        own = {each[:2] for each in survivors}
        for at, held, whole in () if noisy else near:  # two sums that part at an older one share an honest member
            if 0 < 2 * len(own & whole) <= len(whole) + self.m.a:
                raise Refused("ledger-refused", tuple(each.member for each in held), (at,))


class Member(Party):
    """A member; `policy` has its least `a` and `h_min`, its highest `loss`, and whether exceptions may name it."""

    def __init__(self, name: str, key: Ed25519PrivateKey, roster: bytes, counter: int, policy: Any) -> None:
        super().__init__(key, roster, counter)
        self.name, self.policy, self.step = name, policy, 0
        self.ends: dict[bytes, Any] = {}  # context → the link it knows
        self.joined: set[bytes] = set()  # contexts it uploaded to, sent a receipt in, voted in, or erased
        self.spent: set[bytes] = set()  # lineages
        self.counted: Any = (b"", [], [])  # the last indicator round: its context, survivors and holders

    def enrol(self, expires: int, draw: Any) -> bytes:
        self.exchange = [X25519PrivateKey.from_private_bytes(draw(32)) for _ in range(2)]
        publics = [each.public_key().public_bytes_raw() for each in self.exchange]
        self.card = sign(self.key, "KeyCard", self.cohort, self.name, *publics, draw(32), expires)
        return encode(self.card)

    def on_cards(self, said: Any) -> None:  # §4.2
        m, cards = said.manifest, {each.card.member: each.card for each in said.shown}
        demand(m[:3] == (self.cohort, self.roster_hash, self.counter), "wrong-cohort")
        demand({*m.members} <= {*self.keys}, "unknown-member")
        self.settle(m)
        demand(m[5:-1] == sizes(self.roster, m), "weak-parameters")
        whole = tuple(cards) == m.members and root(map(encode, cards.values())) == m.cards_root
        for card, siblings in said.shown:
            self.verify(card)
            top = climb(encode(card), m.members.index(card.member), len(m.members), siblings)
            demand(top == m.cards_root if siblings else whole, "manifest-mismatch")
        self.check_points(cards.values())
        demand(self.name in m.members, "manifest-mismatch")
        near, boxed = secrets(self.m, self.name)[1:], m.members if self.name in self.places else m.decryptors
        demand(cards.get(self.name) == self.card and {*near, *boxed} <= {*cards}, "manifest-mismatch")
        demand(m.a >= self.policy[0] and m.h_min >= self.policy[1] and m.loss <= self.policy[2], "policy-refused")
        self.mask_keys = {v: self._pair("pair-mask", 0, cards[v].mask_key, v) for v in near}
        self.box_keys = {v: self._pair("pair-box", 1, cards[v].box_key, v) for v in boxed if v != self.name}
        self.expires = min(card.expires for card in cards.values())
        del self.exchange

    def _pair(self, tag: str, own: int, public: bytes, other: str) -> bytes:
        shared = agree(self.exchange[own], public)
        return hkdf(shared, self.manifest_hash, tag, self.cohort, *sorted((self.name, other)))

    def _ratchet(self, sequence: int) -> None:
        for step in range(self.step + 1, sequence + 1):
            for keys in (self.mask_keys, self.box_keys):
                keys.update((v, hkdf(key, b"", "ratchet", self.cohort, u(64, step))) for v, key in keys.items())
            self.step = step

    def on_opening(self, said: Any) -> None:  # §4.3
        terms, links, place = said.terms, said.links, said[1:3]
        late = self.now >= terms.latest_end and self.name in self.places  # it is to erase (§4.9)
        demand(late or self.now < self.expires, "card-expired")
        demand(late or self.now < terms.latest_end, "terms-expired")
        over = not self.context or self.context in self.ends or self.now >= self.terms.latest_end
        ahead = place > self.place and said.sequence >= self.step and said.attempt < 8
        demand(late or (over and ahead), "wrong-sequence")
        demand(self.joined <= {*self.ends}, "outcome-missing")
        places = [(0, -1), *(link[1:3] for link in links if link.cohort == self.cohort), place]
        steps = all(b in {(a[0], a[1] + 1), (a[0] + 1, 0)} for a, b in pairwise(places))
        known = {*self.ends.values()} <= {*links} and links[: len(self.links)] == self.links
        demand(steps and known, "chain-broken")
        if late:
            self._enter(said)
            self._erase()
            return
        counting = family(terms) == "indicator" or any(terms.indicator) or not self.roster.withhold
        allowed = terms.extractor in self.roster.extractors and sum(self.m.caps) <= terms.N_max
        demand(counting and allowed, "terms-refused")
        indicator, staying, counts = self.counted
        rare = tuple(c for c, held in enumerate(counts) if held < self.m.a + self.m.h_min + terms.margin)
        seen = (terms.indicator, terms.withheld) == (indicator, rare)
        seen = seen and {each.member for each in staying}.isdisjoint(terms.evicted)
        demand(seen or not any(terms.indicator), "indicator-mismatch")
        for each in said.exceptions:
            demand(each[:3] == (self.roster.federation, self.cohort, said.sequence), "exception-refused")
            self.verify(each)
            demand(self.policy[3] or self.name not in each.members, "policy-refused")
        self._enter(said)
        self._ratchet(said.sequence)

    def _enter(self, opening: Any) -> None:
        self.begin(opening)
        # Headers and shares are those delivered, by dealer.
        vars(self).update(own=None, receipt=None, vote=None, certified=(), evicted=set(), headers={}, shares={})
        self.revealed, self.erased = bytes(32), False

    def _check_open(self) -> None:
        demand(not self.erased, "wrong-phase")
        demand(self.now < self.terms.latest_end, "terms-expired")

    def upload(self, x: Any, lineage: bytes, records: bytes, draw: Any, below_p: Any) -> tuple[bytes, list[bytes]]:
        """The announcement and the chunks of a vector (§4.4); `below_p` draws Shamir's coefficients."""
        demand(lineage not in self.spent or family(self.terms) == "noisy", "lineage-spent")
        ctx, name, masked = self.context, self.name, list(x)
        seeds = [hkdf(self.mask_keys[v], ctx, "mask-seed", *sorted((name, v))) for v in secrets(self.m, name)[1:]]
        drawn = dict(enumerate((draw(32), *seeds)))
        self.mask(masked, name, drawn)
        chunks = pieces(wire.pack(masked, self.terms.ring_bits), self.terms.chunk_elements * self.terms.ring_bits // 8)
        digests = tuple(sha256(chunk).digest() for chunk in chunks)
        commits = tuple(self.commit(name, *each) for each in drawn.items())
        dealt = [wire.split(secret, self.m.t, len(self.places), below_p) for secret in drawn.values()]
        shares = dict(zip(self.places, zip(*dealt, strict=True), strict=True))
        rows = tuple(self.row(name, *each) for each in shares.items())
        roots = (root(digests), root((b"".join(commits), *rows)))
        head = M.Header(ctx, name, lineage, records, draw(32), *roots, b"", b"")
        sealed = {d: self.cipher(head, d).encrypt(bytes(12), b"".join(shares[d]), ctx) for d in shares if d != name}
        boxes = tuple(sealed.get(d, b"") for d in shares)
        self.own = sign(self.key, "Header", *head[:-2], root(boxes))
        self.joined.add(ctx)
        self.shares |= {name: shares[name]} if name in shares else {}
        return encode(M.Upload(self.own, digests, commits, rows, boxes)), chunks

    def row(self, dealer: str, decryptor: str, shares: Any) -> bytes:
        return b"".join(self.commit_share(dealer, decryptor, i, share) for i, share in enumerate(shares))

    def cipher(self, header: Any, decryptor: str) -> AESGCM:
        key = self.box_keys[decryptor if header.member == self.name else header.member]
        return AESGCM(hkdf(key, self.context + header.salt, "box-key", header.member, decryptor))

    def on_deliveries(self, said: Any) -> Any:  # → Receipt (§4.5)
        self._check_open()
        demand(self.name in self.places, "not-a-decryptor")
        x, count, opened = self.places[self.name], len(self.places), dict[str, Any]()
        for each in said.items:
            self.verify(each.header)
            demand(each.header.member != self.name, "malformed")
        for header, box, box_path, row, row_path in said.items:
            roots = climb(box, x - 1, count, box_path), climb(row, x, 1 + count, row_path)
            demand(roots == (header.box_root, header.commitment_root), "chunk-mismatch")
        self.headers = {each.header.member: each.header for each in said.items}
        for header, box, _, row, _ in said.items:
            with suppress(InvalidTag, ValueError):
                shares = pieces(self.cipher(header, self.name).decrypt(bytes(12), box, self.context), 36)
                low = all(word < P for share in shares for word in wire.unpack(share, 9, 32))
                if len(shares) == 1 + self.m.k and low and self.row(header.member, self.name, shares) == row:
                    opened[header.member] = shares
        self.shares |= opened
        fates = (tuple(v for v in self.headers if (v in opened) == clean) for clean in (True, False))
        self.joined.add(self.context)
        self.receipt = sign(self.key, "Receipt", self.context, self.name, self.delivered(self.headers.values()), *fates)
        return self.receipt

    def on_freeze(self, said: Any) -> Any:  # → Vote or Refusal (§4.6)
        self._check_open()
        survivors, shown = tuple(map(survivor, said.headers)), {self.name: self.own, **self.headers}
        if self.vote:
            return self._vote("none", survivors)
        demand(self.receipt, "wrong-phase")
        try:
            self.check_proposal(survivors, said.history)
            strange = [header.member for header in said.headers if header != shown.get(header.member)]
            demand(self.name not in strange, "own-upload-changed")
            demand(not strange, "survivors-invalid")
            here, counted = ({each[:3] for each in every} for every in (survivors, self.counted[1]))
            right = here <= counted and len(counted - here) <= self.terms.margin
            demand(right or not any(self.terms.indicator), "indicator-mismatch")
        except Refused as refused:
            cause, *named = refused.args
            exposed = named if cause == "ledger-refused" else ((), ())
            return sign(self.key, "Refusal", self.context, self.name, cause, *exposed)
        return self._vote("none", survivors)

    def on_voidrequest(self, said: Any) -> Any:  # → Vote (§4.6)
        self._check_open()
        return self._vote(said.reason)

    def _vote(self, reason: str, survivors: Any = ()) -> Any:
        chosen = outcome(self.context, reason, survivors)
        demand(self.name in self.places, "not-a-decryptor")
        demand(self.vote in {None, chosen}, "already-voted")
        self.vote: Any = chosen
        self.joined.add(self.context)
        return sign(self.key, "Vote", self.context, self.name, chosen)

    def on_certificate(self, said: Any) -> Any:
        """→ Reveal, if it is for survivors and this member holds shares (§4.6, §4.7)."""
        context, survivors, reason, votes = said
        demand({vote.outcome for vote in votes} <= {outcome(context, reason, survivors)}, "certificate-invalid")
        for vote in votes:
            self.verify(vote)
        demand(len(votes) >= self.m.t, "certificate-invalid")
        if survivors:
            self.check_names(survivors)
        own = [each for each in survivors if each.member == self.name]
        demand(not own or (self.own and own == [survivor(self.own)]), "own-upload-changed")
        sets = [M.SurvivorSet(survivors)] if survivors else []
        demand(self.ends.get(context) in {None, self.link(reason, sets)}, "wrong-context")
        self.certified = survivors
        self._close(reason, sets)
        return self._reveal()

    def _close(self, reason: str, sets: Any) -> None:
        self.ends[self.context] = self.link(reason, sets)
        if reason in {"none", "erased", "lost"} or self.now >= self.terms.latest_end:
            self._ratchet(self.place[0] + 1)

    def _reveal(self) -> Any:
        if self.certified and self.receipt and self.now < self.terms.latest_end:
            owed, chosen = self.owed(self.certified, self.evicted), outcome(self.context, "none", self.certified)
            runs = tuple(b"".join(self.shares[v][i] for i in owed[v]) for v in owed if v in self.shares)
            self.revealed = chosen
            return sign(self.key, "Reveal", self.context, self.name, chosen, tuple(sorted(self.evicted)), runs)
        return None

    def on_evictions(self, said: Any) -> Any:  # → the second Reveal (§4.7)
        for header, commits, siblings, index, holders in said.proofs:
            dealer, top, count = header.member, header.commitment_root, 1 + len(self.places)
            right = [survivor(header) in self.certified and wire.signed(self.keys[dealer], header)]
            right += [climb(commits, 0, count, siblings) == top, 16 * index < len(commits), len(holders) >= self.m.t]
            for member, share, row, row_path in holders:
                right += [climb(row, self.places.get(member, count), count, row_path) == top]
                right += [row[16 * index :][:16] == self.commit_share(dealer, member, index, share)]
            demand(all(right), "eviction-invalid")
            secret = wire.recover({self.places[each.member]: each.share for each in holders[: self.m.t]})
            false = not secret or self.commit(dealer, index, secret) != pieces(commits, 16)[index]
            demand(false, "eviction-invalid")
        evicted = self.evicted | {proof.header.member for proof in said.proofs}
        demand(len(said.proofs) == len(evicted) <= self.m.a, "eviction-invalid")
        self.evicted: Any = evicted
        return self._reveal()

    def on_disclosure(self, said: Any) -> None:  # an indicator round recounted (§9)
        staying = [each for each in self.certified if each.member not in self.evicted]
        right = family(self.terms) == "indicator" and [survivor(each.header) for each in said.entries] == staying
        demand(right and staying, "disclosure-invalid")
        owed, holders = self.owed(staying, ()), [0] * self.terms.elements
        for header, commits, siblings, digests, chunks, seeds in said.entries:
            v, paired = header.member, pieces(commits, 16)
            right = climb(commits, 0, 1 + len(self.places), siblings) == header.commitment_root
            right &= [seed.index for seed in seeds] == owed[v] and root(digests) == header.chunk_root
            right &= all(self.commit(v, *seed) == paired[seed.index] for seed in seeds if right)
            right &= [sha256(chunk).digest() for chunk in chunks] == [*digests]
            demand(right and all(self.is_chunk(*each) for each in enumerate(chunks)), "disclosure-invalid")
            self.unmask(holders, v, chunks, dict(seeds))
        counts = [count % 2**self.terms.ring_bits for count in holders]  # one below zero is among the highest
        demand(max(counts) <= len(staying), "disclosure-invalid")
        self.counted = (self.context, staying, counts)

    def on_erasurerequest(self, _: Any) -> Any:  # → Erased (§4.9)
        demand(self.name in self.places, "not-a-decryptor")
        demand(self.now >= self.terms.latest_end, "wrong-phase")
        self._erase()
        return sign(self.key, "Erased", self.context, self.name, self.revealed)

    def _erase(self) -> None:
        self._ratchet(self.place[0] + 1)
        self.shares.clear()
        self.erased = True
        self.joined.add(self.context)

    def on_erasure(self, said: Any) -> None:  # §4.9
        for report in said.reports:
            try:
                self.verify(report)
            except Refused as refused:
                raise Refused("erasure-invalid") from refused
            demand(not any(report.revealed), "erasure-invalid")
        demand(len(said.reports) >= len(self.places) + self.m.a_D - self.m.t + 1, "erasure-invalid")
        self._close("erased", [])

    def on_lost(self, _: Any) -> None:  # §4.9
        demand(self.now >= self.terms.latest_end, "wrong-phase")
        self._close("lost", [])
        self.spent |= {self.own.lineage} if self.own else set()
