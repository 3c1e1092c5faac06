"""A member of the secure sum (docs/protocol/wire.md), with checks in the specification's order; messages are bytes."""

from contextlib import suppress
from functools import cache, lru_cache, partial, reduce
from hashlib import sha256
from itertools import pairwise
from operator import add
from types import SimpleNamespace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from assurance.reference import mlkem, wire
from assurance.reference.study import Study, sizes
from assurance.reference.wire import (
    H,
    M,
    P,
    Refused,
    climb,
    decode,
    demand,
    encode,
    hkdf,
    outcome,
    pieces,
    root,
    sign,
    u,
)

NONE = bytes(32)
DAY = 86_400

read_study = lru_cache(64)(Study)  # all members of a federation read the same bytes


@cache
def by_draw(tag: str, m: Any) -> list[str]:
    beacon = H("cards", m.cohort, m.cards_root)
    return sorted(m.members, key=lambda each: H(tag, beacon, each))


@cache
def secrets(m: Any, member: str) -> tuple[str, ...]:
    """Return with whom each of a member's secrets is shared: the first, `b_u`, with no neighbour, the others with one each."""
    n, ring = len(m.members), by_draw("ring", m)
    steps = range(-(m.degree // 2), m.degree // 2 + 1) if m.degree < n - 1 else range(n)
    return ("", *sorted({ring[(ring.index(member) + step) % n] for step in steps} - {member}))


@cache
def recipients(m: Any, member: str) -> tuple[str, ...]:
    """Return those that a member encapsulates to (wire: Cohorts)."""
    n = len(m.members)
    circle, half = (by_draw("ring", m), m.degree // 2) if m.degree < n - 1 else (m.members, (n - 1) // 2)
    onward = [circle[(circle.index(member) + step) % n] for step in range(1, n // 2 + 1)]
    opposite = {*onward[half:]} if circle is m.members else set[str]()  # of an even number of members
    following = {*onward[:half], *(each for each in opposite if member < each)}
    near, decrypts = {member, *secrets(m, member)}, member in m.decryptors
    others = {each for each in m.decryptors if each not in near and (member < each or not decrypts)}
    return tuple(sorted(following | others))


@cache
def senders(m: Any, member: str) -> tuple[str, ...]:
    """Return those that encapsulate to a member (wire: Cohorts)."""
    return tuple(each for each in peers(m, member) if each not in recipients(m, member))


def peers(m: Any, member: str) -> list[str]:
    """Return everyone that a member shares keys with (wire: Cohorts)."""
    near = m.members if member in m.decryptors else (*secrets(m, member)[1:], *m.decryptors)
    return sorted({*near} - {member})


def check_ciphertexts(keys: Any, m: Any, member: str, said: Any) -> None:
    """Check what a member of this manifest is shown of the others' pairings (CIPHER-1 to CIPHER-3)."""
    demand(said.manifest == H("manifest", encode(m)), "manifest-mismatch")
    demand(tuple(each.member for each in said.shown) == senders(m, member), "manifest-mismatch")
    for sender, ciphertext, siblings, signature in said.shown:
        to = recipients(m, sender)
        digest = H("pairing", said.manifest, sender, climb(ciphertext, to.index(member), len(to), siblings))
        demand(wire.is_signature(keys[sender], signature, digest), "bad-signature")


def windows_hold(m: Any, survivors: Any) -> bool:
    lost, n = [each not in survivors for each in by_draw("ring", m)], len(m.members)
    return m.degree == n - 1 or all(sum((lost * 2)[i : i + m.degree // 2]) <= m.D_max for i in range(n))


def computed(roster: Any, study: Study, m: Any) -> Any:
    """Return a manifest's fields from `a_D` to `decryptors`, by its sizes (analysis: Sizes)."""
    came = {*roster.decryptors} & {*m.members}
    found = sizes(
        study, len(m.members), len(roster.members), len(came), len(roster.decryptors), fresh=m.repeats == NONE
    )
    return *found[:5], tuple(sorted(came or by_draw("committee", m)[: found[5]]))


def survivor(header: Any) -> Any:
    return M.Survivor(header.member, H("upload-digest", *header[:-1]))


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    with suppress(ValueError):
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    raise Refused("low-order-point")


class Known(SimpleNamespace):
    """What a party knows of a federation, over all its cohorts."""

    def __init__(self) -> None:
        super().__init__(links=(), number=0, roster=b"")
        self.studies: dict[str, tuple[int, bytes]] = {}  # name → version and hash
        self.joined: set[bytes] = set()  # contexts that it uploaded to, sent a receipt or a vote in, or erased
        self.ends: dict[bytes, Any] = {}  # context → its link
        self.certified: dict[bytes, Any] = {}  # context → its link, should it count, its survivors, study and terms
        self.counted: dict[bytes, Any] = {}  # context → members counted, members evicted, sums, the count it rests on


class Party(SimpleNamespace):
    """One cohort and its open attempt, from either side; `now` is in seconds since 1970."""

    manifest_hash = b""

    def __init__(
        self,
        key: Ed25519PrivateKey,
        roster: bytes,
        study: bytes,
        counter: int = 0,
        period: str = "",
        repeats: bytes = NONE,
        known: Known | None = None,
        chunk: int = 2**20,
    ) -> None:
        super().__init__(key=key, context=b"", now=0, place=(0, -1), places={}, known=known or Known(), chunk=chunk)
        self.roster, self.roster_hash = decode(roster, "Roster"), H("roster", roster)
        self.signed = decode(study, "Study")
        self.study_hash = wire.signable(self.signed)
        self.run = (counter, self.study_hash, period, repeats)
        self.cohort, self.keys = H("cohort", self.roster_hash, u(64, counter), *self.run[1:]), dict(self.roster.members)
        self.verify(self.roster)
        demand({"admin", "coordinator", "operator"}.isdisjoint(self.keys), "malformed")
        named = (*self.roster.decryptors, *self.roster.readers)
        demand({*named} <= {*self.keys}, "unknown-member")
        demand(self.signed.federation == self.roster.federation, "wrong-federation")
        self.verify(self.signed)
        self.study = read_study(self.signed.content)
        demand(self.study_hash not in self.roster.revoked, "study-refused")

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
        others = {"admin": self.roster.federation, "coordinator": self.roster.coordinator}
        keys = {**self.keys, **others, "study key": self.roster.study_key}
        demand(not signer or wire.signed(keys[who or signer], said), "bad-signature")

    def settle(self, manifest: Any) -> None:
        self.m, self.manifest_hash = manifest, H("manifest", encode(manifest))
        self.keys = {member: self.keys[member] for member in manifest.members}
        self.places = {decryptor: x for x, decryptor in enumerate(manifest.decryptors, 1)}

    def check_keys(self, cards: Any) -> None:
        points = [int.from_bytes(card.X25519_key, "little") % 2**255 % (2**255 - 19) for card in cards]
        hashes = [card.ML_KEM_key_hash for card in cards]
        demand(len(points) == len({*points}) and len(hashes) == len({*hashes}), "duplicate")

    def check_cards(self, said: Any) -> None:
        """Check each card shown, and all together (CARDS-9 to CARDS-12)."""
        m, cards = said.manifest, [each.card for each in said.shown]
        for card in cards:
            self.verify(card)
        if tuple(card.member for card in cards) == m.members:
            whole = root(map(encode, cards)) == m.cards_root
            demand(whole and not any(each.path for each in said.shown), "manifest-mismatch")
        else:
            place = {member: at for at, member in enumerate(m.members)}
            demand({card.member for card in cards} <= {*place}, "manifest-mismatch")
            tops = {climb(encode(c), place[c.member], len(place), path) for c, _, path in said.shown}
            demand(tops <= {m.cards_root}, "manifest-mismatch")
        self.check_keys(cards)

    @property
    def fresh(self) -> bool:
        return not any(self.run[3])

    def check_places(self, said: Any) -> None:
        """Check that the links name no attempt twice, and skip no place of this cohort (OPEN-12, OPEN-13)."""
        demand(len({link.context for link in said.links}) == len(said.links), "chain-broken")
        places = [*(link[1:3] for link in said.links if link.cohort == self.cohort), said[1:3]]
        steps = all(b in {(a[0], a[1] + 1), (a[0] + 1, 0)} for a, b in pairwise(places))
        demand(places[0] == (0, 0) and steps, "chain-broken")

    def check_step(self, said: Any) -> None:
        """Check the terms against the links alone (OPEN-15 to OPEN-20)."""
        terms, study = said.terms, self.study
        demand(terms.step in study.steps_in(self.run[2]), "terms-refused")
        demand(any(terms.material) == study.takes_material(terms.step), "terms-refused")
        under = study.withhold is not None and terms.step in {"rows", "sum"}
        demand(any(terms.count) == under, "terms-refused")
        demand(terms.step != "rows" or terms.withheld, "terms-refused")
        demand(any(terms.rows) == (terms.step == "sum" and bool(terms.withheld)), "terms-refused")
        demand({*terms.withheld} <= {*range(len(study.classes))}, "terms-refused")
        same = [each for each in said.links if (each.question, each.period) == (study.digest, self.run[2])]
        certified = {(each.step, each.context) for each in same if each.reason == "none" and not any(each.repeats)}
        if self.fresh:
            named = {("count", terms.count), ("rows", terms.rows)}
            demand({(step, at) for step, at in named if any(at)} <= certified, "terms-refused")
            before = "" if under else study.before(terms.step)
            demand(not before or before in {step for step, _ in certified}, "terms-refused")
            self.check_fresh(said, said.links)
        else:
            demand(terms.step == "sum", "repeat-mismatch")
            what = (self.run[2], terms.step, NONE, self.run[3], "none")
            demand(what in {each[4:9] for each in said.links}, "repeat-mismatch")

    def check_fresh(self, said: Any, links: Any) -> None:  # OPEN-19
        step = (self.study.digest, self.run[2], said.terms.step, NONE)
        spent = [each for each in links if each[3:7] == step and each.reason in {"none", "lost"}]
        demand(not self.fresh or not spent, "already-summed")

    @property
    def elements(self) -> int:
        return self.study.elements_of(self.terms.step)

    @property
    def bits(self) -> int:
        return self.study.bits_of(self.terms.step)

    def owed(self, survivors: Any, evicted: Any) -> dict[str, list[int]]:
        """Return which of its secrets each dealer of `S∖E` must have revealed (wire: Reveals)."""
        kept = {each.member: each for each in survivors if each.member not in evicted}
        return {v: [i for i, w in enumerate(secrets(self.m, v)) if w not in kept] for v in kept}

    def commit(self, member: str, index: int, secret: bytes) -> bytes:
        ends = sorted({member, secrets(self.m, member)[index] or member})
        return H("commit-edge" if ends[1:] else "commit-self", self.context, *ends, secret)[:16]

    def commit_share(self, dealer: str, decryptor: str, index: int, share: bytes) -> bytes:
        return H("commit-share", self.context, dealer, decryptor, u(32, index), share)[:16]

    def delivered(self, headers: Any) -> bytes:
        return H("deliveries", self.context, *(survivor(header).digest for header in headers))

    def is_chunk(self, index: int, data: bytes) -> bool:  # of the right length (wire: Uploads)
        count = max(0, min(self.chunk, self.elements - index * self.chunk))
        return bool(8 * len(data) == count * self.bits)

    def mask(self, total: list[int], member: str, seeds: dict[int, bytes], sign: int = 1) -> None:
        """Add or subtract the masks of these secrets of a member, given by index (wire: Uploads)."""
        for index, seed in seeds.items():
            other = secrets(self.m, member)[index]
            wire.mask(total, self.bits, sign if other > member or not other else -sign, seed)

    def unmask(self, total: list[int], member: str, chunks: Any, seeds: dict[int, bytes]) -> None:
        """Add an upload without the masks of these seeds (analysis: Results)."""
        total[:] = map(add, total, wire.unpack(b"".join(chunks), len(total), self.bits))
        self.mask(total, member, seeds, -1)

    def begin(self, opening: Any) -> None:  # the context (wire: Openings)
        self.opening, self.terms, self.place = opening, opening.terms, opening[1:3]
        self.context = self.context_of(opening)

    def context_of(self, opening: Any) -> bytes:
        suite = "x25519_mlkem768-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31"
        who = (self.roster.federation, self.roster_hash, self.cohort, self.manifest_hash)
        where = (u(64, opening.sequence), u(8, opening.attempt), reduce(partial(H, "link"), opening.links, NONE))
        return H("ctx", suite, *who, *where, H("terms", opening.terms))

    def link(self, reason: str, survivors: Any = ()) -> Any:
        chosen = outcome(self.context, "none", survivors) if reason == "none" else NONE
        _, _, period, repeats = self.run
        what = (self.study.digest, period, self.terms.step, repeats)
        return M.Link(self.cohort, *self.place, *what, self.context, reason, chosen)

    @property
    def rests(self) -> list[bytes]:
        """Return the contexts that an attempt rests on (wire: Votes)."""
        return [at for at in (self.terms[1:3] if self.fresh else self.run[3:]) if any(at)]

    @property
    def survivors_min(self) -> int:  # wire: Uploads
        counted = self.terms.step == "count"
        return int(max(self.m.n_min + self.study.margin, self.study.floor) if counted else self.m.n_min)

    def check_names(self, survivors: Any) -> None:
        known = wire.ascend(survivors) and {each.member for each in survivors} <= {*self.m.members}
        demand(known, "survivors-invalid")
        demand(len(survivors) >= self.survivors_min, "survivors-too-few")

    def check_proposal(self, survivors: Any, earlier: Any) -> None:
        """Check survivors against the chain, and the earlier set with them (FREEZE-2 to FREEZE-9)."""
        self.check_names(survivors)
        names = {each.member for each in survivors}
        demand(windows_hold(self.m, names), "window-exceeded")
        cause = "count-mismatch" if self.fresh else "repeat-mismatch"
        demand(len(earlier) == len(self.rests), "malformed")
        for before, known in zip(self.rests, earlier, strict=True):
            said = outcome(before, "none", known.survivors)
            demand((before, said) in {(each.context, each.survivors) for each in self.opening.links}, cause)
        kept = [{each.member for each in known.survivors} for known in earlier]
        for each in kept:
            demand(self.fresh or names == each, cause, *sorted(each - names))
            demand(not self.fresh or names <= each - {*self.terms.evicted}, cause)
        missing = kept[0] - {*self.terms.evicted} - names if self.fresh and kept else set()
        demand(len(missing) <= (self.study.margin if missing else 0), cause)

    def check_certificate(self, said: Any) -> None:  # wire: Votes
        context, survivors, reason, votes = said
        demand({vote.outcome for vote in votes} <= {outcome(context, reason, survivors)}, "certificate-invalid")
        for vote in votes:
            self.verify(vote)
        demand(len(votes) >= self.m.t, "certificate-invalid")
        if survivors:
            self.check_names(survivors)

    def check_erasure(self, said: Any) -> None:  # wire: Ends
        for report in said.reports:
            try:
                self.verify(report)
            except Refused as refused:
                raise Refused("erasure-invalid") from refused
            demand(not any(report.revealed), "erasure-invalid")
        demand(len(said.reports) >= len(self.places) + self.m.a_D - self.m.t + 1, "erasure-invalid")

    def check_proof(self, proof: Any, certified: Any) -> None:
        """Check a proof that a dealer of the certified set is false (wire: Reveals)."""
        header, commits, siblings, index, holders = proof
        dealer, top, count = header.member, header.commitment_root, 1 + len(self.places)
        right = [survivor(header) in certified and wire.signed(self.keys[dealer], header)]
        right += [climb(commits, 0, count, siblings) == top, 16 * index < len(commits), len(holders) >= self.m.t]
        for member, share, row, row_path in holders:
            right += [climb(row, self.places.get(member, count), count, row_path) == top]
            right += [row[16 * index :][:16] == self.commit_share(dealer, member, index, share)]
        demand(all(right), "eviction-invalid")
        secret = wire.recover({self.places[each.member]: each.share for each in holders[: self.m.t]})
        false = not secret or self.commit(dealer, index, secret) != pieces(commits, 16)[index]
        demand(false, "eviction-invalid")


class Member(Party):
    """A member. `policy`: approvals, or None for any; the smallest `a_D`; the fewest members; the longest time."""

    policy: Any = (None, 0, 0, 30 * DAY)
    exchange: Any = None  # its private keys, until it is ready or too late
    paired: Any = None  # its Pairing, of the last manifest that it was offered
    manifests: int = 0
    encapsulate: Any = None  # (key, its owner) → a secret and its ciphertext; None to draw them afresh

    def __init__(self, name: str, *cohort: Any, federation: bytes = b"", now: int = 0, **options: Any) -> None:
        demand(not federation or decode(cohort[1], "Roster").federation == federation, "wrong-federation")
        super().__init__(*cohort, **options)
        self.name, self.now, self.step, self.open, number = name, now, 0, False, self.roster.number
        same = number > self.known.number or (number, self.roster_hash) == (self.known.number, self.known.roster)
        demand(same or not self.known.number, "roster-rollback")
        vars(self.known).update(number=number, roster=self.roster_hash)
        study, version = self.study, (self.study.version, self.study_hash)
        demand(now < study.expires <= now + 90 * DAY, "study-refused")
        demand(version >= (seen := self.known.studies.get(study.name, version)), "study-refused")
        demand(version == seen or version[0] > seen[0], "study-refused")
        self.known.studies[study.name] = version
        demand(self.policy[0] is None or study.approval in self.policy[0], "study-refused")

    def verify(self, said: Any) -> None:  # an open attempt comes first (PHASE-3)
        over = not self.context or self._late() or self.context in {*self.known.ends, *self.known.certified}
        demand(over or not isinstance(said, M.Opening) or said == self.opening, "wrong-sequence")
        super().verify(said)

    def receive(self, message: bytes) -> bytes | None:
        if self.exchange and self.now >= self.lapses:
            vars(self).update(exchange=None, encapsulated={})
        return super().receive(message)

    def enrol(self, expires: int, draw: Any, serial: int) -> bytes:
        point, (kem_key, kem) = X25519PrivateKey.from_private_bytes(draw(32)), mlkem.generate(draw(64))
        publics = (point.public_key().public_bytes_raw(), H("mlkem-key", kem_key))
        self.card = sign(self.key, "KeyCard", self.cohort, self.name, *publics, draw(32), expires, serial)
        self.enrolment = M.Enrolment(self.card, kem_key)
        self.exchange, self.lapses, self.draw = (point, kem), self.now + self.study.pairs_within, draw
        return encode(self.enrolment)

    def on_cards(self, said: Any) -> Any:  # → Pairing (wire: Cohorts)
        demand(self.exchange, "wrong-phase")  # it has a card, is not ready, and not too late
        m, cards, study = said.manifest, {each.card.member: each.card for each in said.shown}, self.study
        if self.paired:
            if m == self.offered:
                return self.paired
            changed = [v for v in cards.keys() & self.cards.keys() if cards[v] != self.cards[v]]
            fewer = {*m.members} < {*self.offered.members} and self.manifests < 3
            demand(fewer and not changed, "manifest-mismatch")
        demand((m.cohort, m.roster_hash, *m[2:6]) == (self.cohort, self.roster_hash, *self.run), "wrong-cohort")
        study.check_period(m.period, repeats=any(m.repeats))
        demand({*m.members} <= {*self.keys}, "unknown-member")
        n = len(m.members)
        if self.fresh:
            demand(len(self.roster.members) <= study.rostered, "weak-parameters")
        else:
            demand(study.noise is None, "terms-refused")
            _, survivors, repeated, *_ = self.known.certified.get(m.repeats, (None, (), study))
            demand(m.members == tuple(each.member for each in survivors), "repeat-mismatch")
            demand(repeated.noise is None, "repeat-mismatch")
        demand(m[8:] == computed(self.roster, study, m), "weak-parameters")
        demand(study.noise_fits(n, m.n_min), "weak-parameters")
        self.check_cards(said)
        demand(cards.get(self.name) == self.card, "manifest-mismatch")
        near, to = peers(m, self.name), recipients(m, self.name)
        demand({*near} <= {*cards}, "manifest-mismatch")
        shown = {card.member: key for card, key, _ in said.shown if key}
        right = all(H("mlkem-key", key) == cards[v].ML_KEM_key_hash for v, key in shown.items())
        demand(tuple(shown) == to and right, "manifest-mismatch")
        demand(all(map(mlkem.is_key, shown.values())), "mlkem-key-invalid")
        demand(m.a_D >= self.policy[1] and n >= self.policy[2], "policy-refused")
        for v in near:
            agree(self.exchange[0], cards[v].X25519_key)
        vars(self).update(offered=m, cards=cards, manifests=self.manifests + 1)
        made = self.encapsulate or (lambda key, _: mlkem.encapsulate(key, self.draw(32)))
        self.encapsulated = {v: made(key, v) for v, key in shown.items()}
        ciphertexts = tuple(ciphertext for _, ciphertext in self.encapsulated.values())
        self.paired = sign(self.key, "Pairing", H("manifest", encode(m)), self.name, ciphertexts)
        return self.paired

    def on_ciphertexts(self, said: Any) -> None:  # wire: Cohorts, wire: Keys
        demand(self.exchange and self.paired, "wrong-phase")
        m, cards, (point, kem) = self.offered, self.cards, self.exchange
        check_ciphertexts(self.keys, m, self.name, said)
        agreed = {v: (self.name, v, *each) for v, each in self.encapsulated.items()}
        for sender, ciphertext, *_ in said.shown:
            agreed[sender] = (sender, self.name, mlkem.decapsulate(kem, ciphertext), ciphertext)

        def derived(tag: str, v: str) -> bytes:
            sender, to, secret, ciphertext = agreed[v]
            shared = agree(point, cards[v].X25519_key) + secret
            parts = (self.cohort, sender, to, cards[to].ML_KEM_key_hash, H("ciphertext", ciphertext))
            return hkdf(shared, said.manifest, tag, *parts)

        boxed = m.members if self.name in m.decryptors else m.decryptors
        self.mask_keys = {v: derived("pair-mask", v) for v in secrets(m, self.name)[1:]}
        self.box_keys = {v: derived("pair-box", v) for v in boxed if v != self.name}
        self.expires = min(card.expires for card in cards.values())
        self.settle(m)
        vars(self).update(exchange=None, encapsulated={})

    def _ratchet(self, sequence: int) -> None:
        for step in range(self.step + 1, sequence + 1):
            for keys in (self.mask_keys, self.box_keys):
                keys.update((v, hkdf(key, b"", "ratchet", self.cohort, u(64, step))) for v, key in keys.items())
            self.step = step

    def on_opening(self, said: Any) -> Any:  # OPEN-3 to OPEN-25
        terms, study, known = said.terms, self.study, self.known
        demand(self.places, "wrong-phase")  # it is not ready
        if self.open and said == self.opening and not self._late():
            return self.announced  # the earlier answer, if there was one
        if self.context and self._late():
            self._erase()  # as at the end of that attempt's time
        demand(self.now < self.expires, "card-expired")
        demand(self.now < study.expires, "study-refused")
        demand(self.now < terms.latest_end, "terms-expired")
        demand(terms.latest_end - self.now <= 30 * DAY, "terms-refused")
        demand(self._ahead(said), "wrong-sequence")
        ends = self.check_chain(said)
        self.check_step(said)
        if not self.fresh:
            demand(self.run[3] in known.certified, "repeat-mismatch")
            _, _, repeated, others = known.certified[self.run[3]]
            demand(study.like(repeated), "repeat-mismatch")
            demand(terms[1:5] == others[1:5], "count-mismatch")
        if any(terms.count):
            self._check_counts(terms)
        demand(self.roster.number >= known.number, "roster-rollback")
        demand(terms.latest_end - self.now <= self.policy[3], "policy-refused")
        self._enter(said)
        vars(known).update(ends=ends, links=said.links)
        self._ratchet(said.sequence)
        return None

    def _check_counts(self, terms: Any) -> None:  # member: Enough rows
        counts = [self.known.counted.get(at) for at in terms[1:3] if any(at)]
        for counted in counts:
            demand(counted and self.name in counted[0] and counted[3] in {NONE, terms.count}, "count-mismatch")
        evicted = tuple(sorted({v for counted in counts for v in counted[1]}))
        holders, reached = [counted[2] for counted in counts] + [()] * (2 - len(counts))
        rare, withheld = {*self.study.rare(holders)}, {*terms.withheld}
        right = [terms.evicted == evicted, withheld == rare if self.fresh else rare <= withheld]
        demand(all(right) and self.study.enough_published(holders, reached), "count-mismatch")

    def check_chain(self, said: Any) -> dict[bytes, Any]:
        """Return the known ends, with those of links that close certified attempts (OPEN-8 to OPEN-14)."""
        known, links, here = self.known, said.links, vars(self).get("opening")
        held = {at: each[0] for at, each in known.certified.items() if at not in known.ends}
        ends: dict[bytes, Any] = known.ends | {at: link for at, link in held.items() if link in links}
        demand(known.joined - {self.context if said == here else b""} <= {*ends}, "outcome-missing")
        named = {link.context for link in links}
        left_out = {link for at, link in known.ends.items() if at not in named and link.reason != "none"}
        kept = {*known.ends.values()} - left_out <= {*links}
        demand(links[: len(known.links)] == known.links and kept, "chain-broken")
        demand({*held} <= {*ends}, "outcome-missing")
        self.check_places(said)
        self.check_fresh(said, left_out)
        return ends

    def _late(self) -> bool:
        return bool(self.now >= self.terms.latest_end)

    def _enter(self, opening: Any) -> None:
        self.begin(opening)
        # Headers and shares are the delivered ones, by dealer.
        vars(self).update(
            open=True, own=None, receipt=None, vote=None, certified=(), evicted=set(), headers={}, shares={}
        )
        vars(self).update(revealed=NONE, announced=None)

    def _check_open(self) -> None:
        demand(self.open, "wrong-phase")
        demand(not self._late(), "terms-expired")

    def upload(self, x: Any, draw: Any, below_p: Any) -> tuple[bytes, list[bytes]]:
        """Return the announcement and the chunks of a vector (wire: Uploads); `below_p` draws Shamir's coefficients."""
        self.check_chain(self.opening)
        ctx, name, masked = self.context, self.name, list(x)
        seeds = [hkdf(self.mask_keys[v], ctx, "mask-seed", *sorted((name, v))) for v in secrets(self.m, name)[1:]]
        drawn = dict(enumerate((draw(32), *seeds)))
        self.mask(masked, name, drawn)
        chunks = [wire.pack(masked[i : i + self.chunk], self.bits) for i in range(0, len(masked), self.chunk)]
        digests = tuple(sha256(chunk).digest() for chunk in chunks)
        commits = tuple(self.commit(name, *each) for each in drawn.items())
        dealt = [wire.split(secret, self.m.t, len(self.places), below_p) for secret in drawn.values()]
        shares = dict(zip(self.places, zip(*dealt, strict=True), strict=True))
        rows = tuple(self.row(name, *each) for each in shares.items())
        roots = (root(digests), root((b"".join(commits), *rows)))
        head = M.Header(ctx, name, draw(32), *roots, b"", b"")
        sealed = {d: self.cipher(head, d).encrypt(bytes(12), b"".join(shares[d]), ctx) for d in shares if d != name}
        boxes = tuple(sealed.get(d, b"") for d in shares)
        self.own = sign(self.key, "Header", *head[:-2], root(boxes))
        self.shares |= {name: shares[name]} if name in shares else {}
        self.announced = M.Upload(self.own, digests, commits, rows, boxes)
        self.known.joined.add(ctx)
        return encode(self.announced), chunks

    def row(self, dealer: str, decryptor: str, shares: Any) -> bytes:
        return b"".join(self.commit_share(dealer, decryptor, i, share) for i, share in enumerate(shares))

    def cipher(self, header: Any, decryptor: str) -> AESGCM:
        key = self.box_keys[decryptor if header.member == self.name else header.member]
        return AESGCM(hkdf(key, self.context + header.salt, "box-key", header.member, decryptor))

    def on_deliveries(self, said: Any) -> Any:  # → Receipt (wire: Survivors)
        self._check_open()
        demand(not self.vote, "wrong-phase")
        demand(self.name in self.places, "not-a-decryptor")
        if self.receipt:
            return self.receipt
        x, count, opened = self.places[self.name], len(self.places), dict[str, Any]()
        for each in said.deliveries:
            self.verify(each.header)
            demand(each.header.member != self.name, "malformed")
        for header, box, box_path, row, row_path in said.deliveries:
            roots = climb(box, x - 1, count, box_path), climb(row, x, 1 + count, row_path)
            demand(roots == (header.box_root, header.commitment_root), "chunk-mismatch")
        self.headers = {each.header.member: each.header for each in said.deliveries}
        for header, box, _, row, _ in said.deliveries:
            with suppress(InvalidTag, ValueError):
                shares = pieces(self.cipher(header, self.name).decrypt(bytes(12), box, self.context), 36)
                low = all(word < P for share in shares for word in wire.unpack(share, 9, 32))
                if len(shares) == 1 + self.m.degree and low and self.row(header.member, self.name, shares) == row:
                    opened[header.member] = shares
        self.shares |= opened
        fates = (tuple(v for v in self.headers if (v in opened) == clean) for clean in (True, False))
        self.known.joined.add(self.context)
        self.receipt: Any = sign(
            self.key, "Receipt", self.context, self.name, self.delivered(self.headers.values()), *fates
        )
        return self.receipt

    def on_freeze(self, said: Any) -> Any:  # → Vote or Refusal (wire: Votes)
        self._check_open()
        _, headers, earlier = said
        survivors = tuple(map(survivor, headers))
        known = {survivor(each) for each in (self.own, *self.headers.values()) if each}
        if self.vote:
            return self._vote("none", survivors)
        demand(self.receipt, "wrong-phase")
        try:
            self.check_chain(self.opening)
            self.check_proposal(survivors, earlier)
            strange = [each.member for each in survivors if each not in known]
            demand(self.name not in strange, "own-upload-changed")
            demand(not strange, "survivors-invalid")
        except Refused as refused:
            return sign(self.key, "Refusal", self.context, self.name, refused.args[0])
        return self._vote("none", survivors)

    def on_voidrequest(self, said: Any) -> Any:  # → Vote (wire: Votes)
        self._check_open()
        return self._vote(said.reason)

    def _vote(self, reason: str, survivors: Any = ()) -> Any:
        chosen = outcome(self.context, reason, survivors)
        demand(self.name in self.places, "not-a-decryptor")
        demand(self.vote in {None, chosen}, "already-voted")
        self.vote: Any = chosen
        self.known.joined.add(self.context)
        return sign(self.key, "Vote", self.context, self.name, chosen)

    def on_certificate(self, said: Any) -> Any:
        """→ Reveal, if it is for survivors and this member holds shares (wire: Votes, wire: Reveals)."""
        self.check_certificate(said)
        context, survivors, reason, _ = said
        own = [each for each in survivors if each.member == self.name]
        demand(not own or (self.own and own == [survivor(self.own)]), "own-upload-changed")
        end, link = self.known.ends.get(context), self.link(reason, survivors)
        demand(end in {None, link}, "wrong-context")
        if not survivors:
            return self._close(reason)
        vars(self).update(open=False, certified=survivors)
        self.known.certified[context] = (link, survivors, self.study, self.terms)
        self._ratchet(self.place[0] + 1)
        return self._reveal()

    def _close(self, reason: str) -> None:
        self.open = False
        self.known.ends.setdefault(self.context, self.link(reason))
        if reason in {"erased", "lost"} or self._late() or self.place[1] == 7:
            self._ratchet(self.place[0] + 1)

    def _reveal(self) -> Any:
        if self.certified and self.receipt and not self._late() and self.context not in self.known.ends:
            owed, chosen = self.owed(self.certified, self.evicted), outcome(self.context, "none", self.certified)
            runs = tuple(b"".join(self.shares[v][i] for i in owed[v]) for v in owed if v in self.shares)
            self.revealed = chosen
            return sign(self.key, "Reveal", self.context, self.name, chosen, tuple(sorted(self.evicted)), runs)
        return None

    def on_evictions(self, said: Any) -> Any:  # → the second Reveal (wire: Reveals)
        for proof in said.proofs:
            self.check_proof(proof, self.certified)
        evicted = self.evicted | {proof.header.member for proof in said.proofs}
        demand(len(said.proofs) == len(evicted) <= self.study.a, "eviction-invalid")
        self.evicted: Any = evicted
        return self._reveal()

    def on_disclosure(self, said: Any) -> None:  # a count recounted (wire: Counts)
        staying = [each for each in self.certified if each.member not in self.evicted]
        demand(staying and self.terms.step in {"count", "rows"}, "wrong-phase")
        demand([survivor(each.header) for each in said.entries] == staying, "disclosure-invalid")
        owed, holders = self.owed(staying, ()), [0] * self.elements
        for header, commits, siblings, digests, chunks, seeds in said.entries:
            v, paired = header.member, pieces(commits, 16)
            right = climb(commits, 0, 1 + len(self.places), siblings) == header.commitment_root
            right &= [seed.index for seed in seeds] == owed[v] and root(digests) == header.chunk_root
            right &= all(self.commit(v, *seed) == paired[seed.index] for seed in seeds if right)
            right &= [sha256(chunk).digest() for chunk in chunks] == [*digests]
            demand(right and all(self.is_chunk(*each) for each in enumerate(chunks)), "disclosure-invalid")
            self.unmask(holders, v, chunks, dict(seeds))
        counts = [count % 2**self.bits for count in holders]  # a negative count is among the highest
        demand(max(counts) <= len(staying), "disclosure-invalid")
        counted = {each.member for each in staying}
        self.known.counted[self.context] = (counted, tuple(sorted(self.evicted)), counts, self.terms.count)

    def on_erasurerequest(self, _: Any) -> Any:  # → Erased (wire: Ends)
        demand(self.name in self.places, "not-a-decryptor")
        demand(self._late(), "wrong-phase")
        demand(self.context not in self.known.ends, "wrong-context")
        return self._erase()

    def erase_unopened(self, opening: bytes, request: bytes) -> bytes:  # an attempt that it never took (wire: Ends)
        said = decode(opening, "Opening")
        self.verify(said)
        demand(decode(request, "ErasureRequest").context == self.context_of(said), "wrong-context")
        demand(self.now >= said.terms.latest_end, "wrong-phase")
        self.check_places(said)
        if self.context and self._late():
            self._erase()  # as at the end of that attempt's time
        demand(self._ahead(said), "wrong-sequence")
        demand(self.name in self.places, "not-a-decryptor")
        self._enter(said)
        return encode(self._erase())

    def _ahead(self, opening: Any) -> bool:
        return bool(opening[1:3] > self.place and opening.sequence >= self.step)

    def _erase(self) -> Any:
        self.open = False
        self._ratchet(self.place[0] + 1)
        self.shares.clear()
        self.known.joined.add(self.context)
        return sign(self.key, "Erased", self.context, self.name, self.revealed)

    def on_erasure(self, said: Any) -> None:  # wire: Ends
        self.check_erasure(said)
        self._close("erased")

    def on_lost(self, _: Any) -> None:  # wire: Ends
        demand(self._late(), "wrong-phase")
        self._close("lost")
