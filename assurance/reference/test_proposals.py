"""From random true and false receipts, both implementations propose the same survivors, or void for the same reason (wire: Survivors)."""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest

from assurance.reference.lockstep import Lockstep
from tests.support.simulator import After
from veilsum.protocol.coordinator import Checking, CoordinatorPhase, Freezing, Voiding
from veilsum.protocol.messages import Receipt, deliveries_hash
from veilsum.protocol.shelf import Announced

EACH, ONES = 30, np.ones(4, np.int64)


def checking(n: int, rng: random.Random) -> tuple[Lockstep, Checking]:
    """Return a federation with all boxes delivered; for odd n, in a sum under a count that did not count all members."""
    question = {"dim": 2, "records": {"least": 50, "most": 500, "least_per_class": 50, "rows_per_id": 1}}
    federation = Lockstep(n, seed=n, margin=1 if n % 2 else None, question=question)
    if n % 2:
        federation.drop = {rng.randrange(n): After.CARD} if n > 6 else {}
        federation.run_round(dict.fromkeys(federation.ids, ONES))
        federation.disclose()
        federation.drop = {}
    phase = federation.reach(Checking)
    return federation, phase


def asked(phase: CoordinatorPhase) -> bytes:
    """Return what decryptors are asked to sign."""
    assert isinstance(phase, Freezing | Voiding)
    return (phase.proposal if isinstance(phase, Freezing) else phase.request).to_bytes()


def receipt(
    federation: Lockstep, context: bytes, member: str, whole: Mapping[str, Announced], against: Collection[str]
) -> Receipt:
    """Make a decryptor's receipt for these uploads, with complaints about some."""
    dealers = [each for each in whole if each != member]
    return Receipt.make_signed(
        federation.keys[member],
        context=context,
        member=member,
        uploads=deliveries_hash(context, (whole[each].header.digest for each in dealers)),
        dealers=tuple(each for each in dealers if each not in against),
        complaints=tuple(each for each in dealers if each in against),
    )


@pytest.mark.parametrize("n", [4, 5, 8, 11])
def test_both_propose_the_same_survivors(n: int) -> None:
    rng = random.Random(n)
    federation, phase = checking(n, rng)
    twin, everyone, context = federation.twin, phase.uploads, phase.attempt.context
    uploads, seen = dict(twin.uploads), set[type[CoordinatorPhase]]()
    for _ in range(EACH):
        gone = set(rng.sample(federation.ids, rng.choice([0, rng.randint(0, n - phase.attempt.quorum.survivors_min)])))
        whole = {member: upload for member, upload in everyone.items() if member not in gone}
        if len(whole) < phase.attempt.quorum.survivors_min:
            continue
        liars = set(rng.sample(federation.ids, n // 4)) | (gone if rng.random() < 0.5 else set())
        accused = rng.sample(sorted(whole), rng.randint(1, 3))
        receipts = {}
        for member in federation.ids:
            dealers = [each for each in whole if each != member]
            against = {each for each in accused if member in liars and rng.random() < 0.6}
            against |= {each for each in dealers if each in liars and rng.random() < 0.1}
            if rng.random() < rng.choice([0.97, 0.85]):
                receipts[member] = receipt(federation, context, member, whole, against)
        ended = replace(phase, uploads=whole, receipts=receipts).pass_deadline(phase.latest_s)
        twin.uploads, twin.receipts = {each: uploads[each] for each in whole}, receipts
        assert twin.freeze() == asked(ended)
        seen.add(type(ended))
    assert seen == {Freezing, Voiding}
