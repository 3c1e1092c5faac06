"""Who encapsulates to whom, and true and false enrolments, cards, pairings and ciphertexts, in both implementations (wire: Cohorts)."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from assurance.reference import coordinator, reference
from assurance.reference.lockstep import player, private, refusal
from tests.support.forging import again
from tests.support.simulator import Federation, SeededRandom
from veilsum.protocol.coordinator import Enrolling, PairingWindow
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import Encapsulated, encapsulate, hash_mlkem_key
from veilsum.protocol.member import Enrolled, MemberPhase, Paired, Ready
from veilsum.protocol.messages import Cards, Ciphertexts, Enrolment, Manifest, Message, Pairing, ShownCiphertext
from veilsum.protocol.pairing import recipients_of, senders_to, split_pairing

P = 2**255 - 19
LOW_ORDER = tuple(u.to_bytes(32, "little") for u in (0, 1, P - 1, P, P + 1, 2**255 + 1))
Change = dict[str, Any]


class Founded(Federation):
    """A roster, a study and everyone's keys, before any cohort."""

    def enrol(self, *_: Any) -> None:
        pass


class Cohort:
    """The cards of a cohort, the key of everyone, and a member with its twin, which take true and false messages."""

    def __init__(self, seed: int, members: int, nominees: Sequence[int]) -> None:
        self.rng = random.Random(seed)
        self.federation = Founded(members, seed=seed, decryptors=nominees)
        self.run = (self.federation.roster, self.federation.study, 1, "walk")
        self.now_s = int(self.federation.now_s)
        self.drawn = {member: SeededRandom(self.rng.getrandbits(64))(128) for member in self.federation.ids}
        made = {member: self._enrol(member) for member in self.federation.ids}
        self.enrolments = {member: enrolment for member, (_, enrolment) in made.items()}
        self.member = self.rng.choice(self.federation.ids)
        self.phase: MemberPhase = made[self.member][0]
        self.encapsulated: dict[str, Encapsulated] = {}
        self.twin = self._make_twin()

    def _enrol(self, member: str) -> tuple[Enrolled, Enrolment]:
        roster, study, counter, period = self.run
        phase, (enrolment,) = Enrolled.begin_enrolment(
            member,
            roster,
            study,
            self.federation.keys[member],
            counter=counter,
            period=period,
            serial=1,
            now_s=self.now_s,
            random_bytes=player(self.drawn[member]),
        )
        assert isinstance(enrolment, Enrolment)
        assert isinstance(phase, Enrolled)
        return phase, enrolment

    def _make_twin(self) -> reference.Member:
        roster, study, counter, period = self.run
        run = (roster.to_bytes(), study.to_bytes(), counter, period)
        twin = reference.Member(self.member, private(self.federation.keys[self.member]), *run, now=self.now_s)
        twin.encapsulate = lambda _, owner: tuple(map(bytes, self.encapsulated.pop(owner)))
        enrolment = self.enrolments[self.member]
        assert twin.enrol(enrolment.card.expires_s, player(self.drawn[self.member]), 1) == enrolment.to_bytes()
        return twin

    # What a coordinator with colluders may show

    def altered(self, enrolment: Enrolment) -> Enrolment:
        """Return an enrolment that its member, or another one, may have signed."""
        rng, card, mlkem_key = self.rng, enrolment.card, enrolment.mlkem_key
        other = self.enrolments[rng.choice(self.federation.ids)]
        beyond = b"\xff\xff" + mlkem_key[2:]  # a coefficient above q
        changes: list[tuple[Change, bytes]] = [
            ({"x25519_key": rng.choice(LOW_ORDER)}, mlkem_key),
            ({"x25519_key": other.card.x25519_key}, mlkem_key),
            ({"x25519_key": other.card.x25519_key[:-1] + bytes([other.card.x25519_key[-1] ^ 128])}, mlkem_key),
            ({"mlkem_key_hash": other.card.mlkem_key_hash}, rng.choice([mlkem_key, other.mlkem_key])),
            *[({"mlkem_key_hash": hash_mlkem_key(beyond)}, beyond)] * 2,
            ({}, beyond),
            ({"cohort": rng.randbytes(32)}, mlkem_key),
            ({"nonce": rng.randbytes(32)}, mlkem_key),
            ({"expires_s": card.expires_s + rng.choice([-1, 1])}, mlkem_key),
            ({"member": rng.choice([*self.federation.ids, "nobody"])}, mlkem_key),
        ]
        fields, shown = rng.choice(changes)
        signer = rng.choice([*[card.member] * 9, rng.choice(self.federation.ids)])
        return replace(enrolment, card=again(card, self.federation.keys[signer], **fields), mlkem_key=shown)

    def enrolling(self, members: Sequence[str], changed: int) -> Enrolling:
        """Return the cards of these members as a coordinator has them. Some colluders' cards are others than they were."""
        enrolments = {member: self.enrolments[member] for member in members}
        colluders = [member for member in members if member != self.member]
        for member in self.rng.sample(colluders, min(changed, len(colluders))):
            other = self.altered(enrolments[member])
            if other.card.member == member:
                enrolments[member] = other
        return Enrolling(*self.run).with_enrolments(enrolments.values())

    def cards(self) -> Cards | None:
        """Make cards for this member: of all members or some, perhaps with changes; None if no manifest can be made."""
        rng, before = self.rng, self.phase.manifest.members if isinstance(self.phase, Paired) else self.federation.ids
        members = sorted(rng.sample(before, len(before) - rng.choice([0, 0, 1, 1, 2])))
        enrolling = self.enrolling(members, rng.choice([0, 0, 1, 2]))
        try:
            manifest = enrolling.make_manifest()
        except PeerFault:
            return None
        cards = enrolling.cards_for(manifest, self.member if self.member in members else members[0])
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            cards = self._changed(cards)
        return cards

    def _changed(self, cards: Cards) -> Cards:
        rng, manifest, shown = self.rng, cards.manifest, list(cards.shown)
        at, other = rng.randrange(len(shown)), rng.choice([*self.enrolments.values()])
        changes: list[Change] = [
            {rng.choice(["cohort", "roster_hash", "study", "repeats", "cards_root"]): rng.randbytes(32)},
            {"counter": 2},
            {"period": rng.choice(["other", "judge-1"])},
            {"members": manifest.members[1:], "decryptors": ()},
            {"decryptors": manifest.decryptors[1:]},
        ]
        numbers = ("decryptor_colluders", "survivors_min", "threshold", "degree", "window_dropped_max")
        changes += [{name: getattr(manifest, name) + 1} for name in numbers]
        if rng.random() < 0.4:
            return replace(cards, manifest=replace(manifest, **rng.choice(changes)))
        each = shown[at]
        shown[at] = rng.choice(
            [
                replace(each, mlkem_key=b"" if each.mlkem_key else other.mlkem_key),
                replace(each, mlkem_key=rng.choice([other.mlkem_key, b"\1", each.mlkem_key[:-1]])),
                replace(
                    each, path=rng.choice([each.path[:-1], (*each.path, bytes(32)), (bytes(32),) * len(each.path)])
                ),
                replace(each, card=again(each.card, self.federation.keys[each.member], nonce=rng.randbytes(32))),
            ]
        )
        if rng.random() < 0.3:
            del shown[at]
        return replace(cards, shown=tuple(shown))

    def ciphertexts(self, manifest: Manifest) -> Ciphertexts:
        """Make ciphertexts for this member, perhaps with changes. They open to secrets that nobody else knows."""
        rng, shown = self.rng, list[ShownCiphertext]()
        for sender in senders_to(manifest, self.member):
            drawn = tuple(rng.randbytes(1088) for _ in recipients_of(manifest, sender))
            key = self.federation.keys[sender]
            pairing = Pairing.make_signed(key, manifest=manifest.hash, member=sender, ciphertexts=drawn)
            shown += [each for to, each in split_pairing(manifest, pairing) if to == self.member]
        for _ in range(rng.choice([0, 0, 1, 2]) if shown else 0):
            at = rng.randrange(len(shown))
            each, key = shown[at], self.federation.keys[rng.choice(self.federation.ids)]
            shown[at] = rng.choice(
                [
                    replace(each, ciphertext=rng.randbytes(1088)),
                    replace(each, path=rng.choice([each.path[:-1], (*each.path, bytes(32))])),
                    replace(each, signature=key.sign(rng.randbytes(32))),
                    replace(each, member=rng.choice(self.federation.ids)),
                ]
            )
            if rng.random() < 0.2:
                del shown[at]
                break
        named = rng.choice([manifest.hash] * 9 + [rng.randbytes(32)])
        by_member = {each.member: each for each in shown}
        return Ciphertexts(named, tuple(by_member[member] for member in sorted(by_member)))

    # Steps that both take

    def take(self, message: Message) -> str:
        """Let the member and its twin take a message; return what became of it."""
        cause: str | None = None
        answers: tuple[Message, ...] = ()
        key, before = self.federation.keys[self.member], self.phase
        try:
            read = type(message).from_bytes(message.to_bytes())
            if isinstance(read, Cards) and isinstance(before, Enrolled | Paired):
                self.phase, answers = before.pair(read, key, self.now_s, self._encapsulate)
            else:
                self.phase, answers = before.receive(read, key, self.now_s)
        except PeerFault as fault:
            cause = fault.cause.value
        self.twin.now = self.now_s
        made: list[bytes | None] = []
        said = refusal(lambda: made.append(self.twin.receive(message.to_bytes())))
        assert said == cause, (said, cause, message)
        assert [each.to_bytes() for each in answers] == [each for each in made if each]
        if isinstance(self.phase, Ready):
            assert {pair.peer: bytes(pair.key) for pair in self.phase.masks} == self.twin.mask_keys
            assert {pair.peer: bytes(pair.key) for pair in self.phase.boxes} == self.twin.box_keys
        return cause or type(self.phase).__name__

    def _encapsulate(self, mlkem_key: bytes, owner: str) -> Encapsulated:
        self.encapsulated[owner] = encapsulate(mlkem_key, owner)
        return self.encapsulated[owner]


def walk(seed: int, members: int, nominees: Sequence[int]) -> Iterator[str]:
    """Show a member messages of its enrolment and pairing, true and false, early and late; then two more."""
    cohort = Cohort(seed, members, nominees)
    rng, left = cohort.rng, 20
    while left > 0:
        if rng.random() < 0.03:
            cohort.now_s = max(cohort.now_s + 1, cohort.twin.lapses - rng.choice([0, 1]))
        manifest = getattr(cohort.phase, "manifest", None)
        shown = cohort.ciphertexts(manifest) if manifest and rng.random() < 0.3 else cohort.cards()
        if shown:
            became = cohort.take(shown)
            left = min(left - 1, 2 if became in {"Ready", "wrong-phase"} else 20)
            yield became


SEEN = {"Paired", "Ready", "wrong-phase", "wrong-cohort", "manifest-mismatch", "weak-parameters", "bad-signature", "duplicate", "low-order-point", "mlkem-key-invalid"}  # fmt: skip


SEEDS, NOMINEES = 60, (0, 2, 5, 6)


def test_a_member_takes_and_refuses_the_same_cards_and_ciphertexts() -> None:
    seen = Counter(
        each for seed in range(SEEDS) for each in (walk(seed, 8, NOMINEES) if seed % 2 else walk(seed, 5, ()))
    )
    assert seen.keys() >= SEEN


@pytest.mark.usefixtures("fake_ring")
def test_a_member_on_a_ring_takes_and_refuses_the_same_cards_and_ciphertexts() -> None:
    """Where it is shown some cards only, with their paths."""
    seen = Counter(each for seed in range(SEEDS // 2) for each in walk(seed, 12, NOMINEES))
    assert seen.keys() >= SEEN


def test_a_coordinator_admits_and_refuses_the_same_enrolments_and_pairings() -> None:
    seen = Counter[str]()
    for seed in range(20):
        cohort = Cohort(seed, 7, NOMINEES if seed % 2 else ())
        rng, (roster, study, *run) = cohort.rng, cohort.run
        signed = (roster.to_bytes(), study.to_bytes(), *run)
        twin = coordinator.Coordinator(private(cohort.federation.coordinator), *signed)
        enrolling, clock = Enrolling(*cohort.run), (cohort.now_s,)
        for _ in range(40):
            enrolment = cohort.enrolments[rng.choice(cohort.federation.ids)]
            sent = cohort.altered(enrolment) if rng.random() < 0.5 else enrolment
            enrolling = admit(seen, enrolling, twin, sent, *clock)
        if refusal(twin.gather):
            continue
        window = PairingWindow.begin(enrolling)
        for _ in range(40):
            window = admit(seen, window, twin, pairing(cohort, window.manifest))
        assert tuple(sorted({*window.manifest.members} - {*twin.pairings})) == window.missing_members
    assert seen.keys() >= {"admitted", "wrong-cohort", "unknown-member", "bad-signature", "card-expired", "card-conflict",
                           "mlkem-key-invalid", "low-order-point", "duplicate", "pairing-misshapen", "pairing-conflict",
                           "manifest-mismatch"}  # fmt: skip


Window = TypeVar("Window", Enrolling, PairingWindow)


def admit(seen: Counter[str], window: Window, twin: coordinator.Coordinator, message: Any, *clock: float) -> Window:
    """Let both coordinators take a message, and count what became of it. A pairing of another manifest is ignored by one of them."""
    cause: str | None = None
    try:
        window = window.receive(message, *clock)
    except PeerFault as fault:
        cause = fault.cause.value
    said = refusal(lambda: twin.receive(message.to_bytes()))
    assert said == cause or (said, cause) == (None, "manifest-mismatch"), (said, cause, message)
    seen[cause or "admitted"] += 1
    return window


def pairing(cohort: Cohort, manifest: Manifest) -> Pairing:
    """Return a member's pairing, perhaps with changes."""
    rng, keys = cohort.rng, cohort.federation.keys
    member = rng.choice(cohort.federation.ids)
    to = recipients_of(manifest, member) if member in manifest.members else ()
    made = Pairing.make_signed(
        keys[member], manifest=manifest.hash, member=member, ciphertexts=tuple(bytes([len(name)] * 1088) for name in to)
    )
    changes: list[Change] = [
        {"ciphertexts": made.ciphertexts[1:]},
        {"ciphertexts": (*made.ciphertexts, bytes(1088))},
        {"ciphertexts": tuple(rng.randbytes(1088) for _ in to)},
        {"manifest": rng.randbytes(32)},
        {"member": rng.choice(["nobody", *keys])},
    ]
    signer = rng.choice([*[member] * 9, *keys])
    return again(made, keys[signer], **rng.choice([{}] * 5 + changes))
