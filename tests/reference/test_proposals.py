"""Random receipts, true and false: both implementations propose the same survivors, or void for the same reason (§4.5)."""

import random
from dataclasses import replace

import pytest

from protocol.coordinator import Checking, CoordinatorPhase, Freezing, Voiding
from protocol.messages import Receipt, deliveries_hash
from protocol.simulator import After
from tests.reference.lockstep import Lockstep

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
                receipts[member] = Receipt.make(
                    federation.keys[member],
                    context=context,
                    member=member,
                    uploads=deliveries_hash(context, (whole[each].header.digest for each in dealers)),
                    dealers=tuple(each for each in dealers if each not in against),
                    complaints=tuple(each for each in dealers if each in against),
                )
        ended = replace(phase, uploads=whole, receipts=receipts).expire(phase.latest_s)
        twin.uploads, twin.receipts = {each: uploads[each] for each in whole}, receipts
        assert twin.freeze() == asked(ended)
        seen.add(type(ended))
    assert seen == {Freezing, Voiding}
