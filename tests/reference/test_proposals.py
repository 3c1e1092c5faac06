"""Random receipts, true and false: both implementations propose the same survivors, or void for the same reason (§4.5)."""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from protocol.coordinator import Checking, CoordinatorPhase, Freezing, Voiding
from protocol.errors import PeerFault
from protocol.ledger import LedgerFault
from protocol.messages import Ledger, Link, Past, Receipt, Survivor, SurvivorSet, deliveries_hash
from protocol.proposal import check_survivors
from protocol.shelf import Announced
from protocol.simulator import After
from tests.reference.lockstep import Lockstep
from tests.reference.wire import M, Refused, decode

EACH = 40


def checking(n: int, rng: random.Random) -> tuple[Lockstep, Checking]:
    """After an exact round of some of them over the same lineage, or none, everybody's boxes are in."""
    federation = Lockstep(n, seed=n, lineage=bytes(8))
    if n % 2:
        federation.drop = {rng.randrange(n): After.CARD} if n > 4 else {}
        federation.run_round(terms=federation.terms(8))
        federation.drop = {}
    federation.begin(federation.vectors(8), federation.terms(8))
    phase = federation.run_until(Checking)
    assert isinstance(phase, Checking)
    return federation, phase


def asked(phase: CoordinatorPhase) -> bytes:
    """What decryptors are asked to sign."""
    assert isinstance(phase, Freezing | Voiding)
    return (phase.proposal if isinstance(phase, Freezing) else phase.request).to_bytes()


def receipt(
    federation: Lockstep, context: bytes, member: str, whole: Mapping[str, Announced], against: Collection[str]
) -> Receipt:
    """A decryptor's for these uploads, with complaints about some."""
    dealers = [each for each in whole if each != member]
    return Receipt.make(
        federation.keys[member],
        context=context,
        member=member,
        uploads=deliveries_hash(context, (whole[each].header.digest for each in dealers)),
        dealers=tuple(each for each in dealers if each not in against),
        complaints=tuple(each for each in dealers if each in against),
    )


@pytest.mark.parametrize("n", range(4, 15))
def test_both_propose_the_same_survivors(n: int) -> None:
    rng = random.Random(n)
    federation, phase = checking(n, rng)
    twin, everyone, context = federation.twin, phase.uploads, phase.attempt.context
    uploads, seen = dict(twin.uploads), set[type[CoordinatorPhase]]()
    for _ in range(EACH):
        gone = set(rng.sample(federation.ids, rng.choice([0, rng.randint(0, n - phase.attempt.quorum.survivors_min)])))
        whole = {member: upload for member, upload in everyone.items() if member not in gone}
        liars = set(rng.sample(federation.ids, n // 4)) | (gone if rng.random() < 0.5 else set())
        accused = rng.sample(sorted(whole), rng.randint(1, 3))
        receipts = {}
        for member in federation.ids:
            dealers = [each for each in whole if each != member]
            against = {each for each in accused if member in liars and rng.random() < 0.6}
            against |= {each for each in dealers if each in liars and rng.random() < 0.1}
            if rng.random() < rng.choice([0.97, 0.85]):
                receipts[member] = receipt(federation, context, member, whole, against)
        ended = replace(phase, uploads=whole, receipts=receipts).expire(phase.latest_s)
        twin.uploads, twin.receipts = {each: uploads[each] for each in whole}, receipts
        assert twin.freeze() == asked(ended)
        seen.add(type(ended))
    assert seen == {Freezing, Voiding}


def test_both_hold_each_group_to_the_largest_floor_of_its_rounds() -> None:
    """Random older sums of blocks that stay together, each sum with its g, and random exceptions (§8)."""
    rng = random.Random(8)
    federation, phase = checking(8, rng)
    twin, opening, said = federation.twin, phase.attempt.opening, set[str]()
    for _ in range(EACH * 5):
        blocks = rng.choices(range(3), weights=(4, 2, 1), k=8)
        rounds = [{0, *rng.sample(range(3), rng.randint(0, 2))} for _ in range(rng.randint(2, 4))]
        *older, survivors = (
            tuple(
                Survivor(member, bytes(8), bytes(8), bytes(32))
                for member, block in zip(federation.ids, blocks, strict=True)
                if block in kept
            )
            for kept in rounds
        )
        history = tuple(Past(bytes([n]) * 32, "none", (SurvivorSet(held),)) for n, held in enumerate(older, 1) if held)
        links = tuple(
            Link(bytes(32), n, 0, "exact", rng.randint(1, 4), past.context, past.closing)
            for n, past in enumerate(history)
        )
        named = [tuple(rng.sample(federation.ids, rng.randint(1, 2))) for _ in range(2)]
        named += [tuple(m for m, block in zip(federation.ids, blocks, strict=True) if block == rng.choice([1, 2]))]
        exceptions = tuple(federation.excepting(tuple(sorted(each))) for each in named)
        attempt = replace(phase.attempt, opening=replace(opening, links=links, exceptions=exceptions))
        ledger = decode(Ledger(bytes(32), links, history).to_bytes(), "Ledger")
        excused = tuple(decode(each.to_bytes(), "Exception") for each in exceptions)
        vars(twin).update(
            context=attempt.context, links=ledger.links, opening=twin.opening._replace(exceptions=excused)
        )
        ours: tuple[object, ...] = ()
        theirs: tuple[object, ...] = ()
        try:
            check_survivors(attempt, survivors, history)
        except LedgerFault as fault:
            ours = (fault.cause.value, fault.group.members, fault.group.rounds)
        except PeerFault as fault:
            ours = (fault.cause.value,)
        shown = tuple(M.Survivor(each.member, each.lineage, each.records, each.digest) for each in survivors)
        try:
            twin.check_proposal(shown, ledger.history)
        except Refused as refused:
            theirs = refused.args
        assert ours == theirs
        said.add(str(ours[0]) if ours else "signed")
    assert said == {"signed", "ledger-refused", "survivors-too-few"}
