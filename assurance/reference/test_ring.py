"""Sixteen members on a ring of four neighbours, eight of them nominated to decrypt: both propose the same survivors (§4.5)."""

import random
from dataclasses import replace

import pytest

from assurance.reference.lockstep import Lockstep
from assurance.reference.test_proposals import asked, receipt
from tests.support.simulator import After
from veilsum.protocol.coordinator import Checking, Freezing, Recovered, Voiding

EACH = 40


@pytest.mark.usefixtures("fake_ring")
def test_on_a_ring_both_send_the_same_bytes_and_propose_the_same_survivors() -> None:
    federation = Lockstep(16, seed=4, decryptors=range(8))
    manifest, rng = federation.manifest, random.Random(210)
    ring, drawn, window = manifest.graph.ring, manifest.decryptors, manifest.graph.window
    assert (manifest.degree, manifest.window_dropped_max, len(drawn), manifest.threshold) == (4, 1, 8, 6)
    # one is lost where the ring closes, and one of the decryptors once its receipt is in
    lost = {ring[0]: After.OPENING, next(each for each in drawn if each != ring[0]): After.RECEIPT}
    federation.drop = {federation.ids.index(member): after for member, after in lost.items()}
    federation.begin()
    phase = federation.run_until(Checking)
    assert isinstance(phase, Checking)
    twin, context, reasons = federation.twin, phase.attempt.context, set[str]()
    uploads = dict(twin.uploads)
    for _ in range(EACH):
        # up to one more than a window may lose stay away or are complained of, next to each other and over the end
        start, away, accused = rng.randrange(-window, 0), rng.randint(0, 2), rng.randint(0, 2)
        beside = [ring[start + step] for step in range(away + accused)]
        whole = {member: upload for member, upload in phase.uploads.items() if member not in beside[:away]}
        against = {liar: {victim} for liar, victim in zip(drawn, beside[away:], strict=False)}
        receipts = {member: receipt(federation, context, member, whole, against.get(member, set())) for member in drawn}
        ended = replace(phase, uploads=whole, receipts=receipts).expire(phase.latest_s)
        assert isinstance(ended, Freezing | Voiding)
        twin.uploads, twin.receipts = {each: uploads[each] for each in whole}, receipts
        assert twin.freeze() == asked(ended)
        reasons.add(ended.fault.cause.value if isinstance(ended, Voiding) else "")
    assert reasons == {"", "window-exceeded", "box-refused"}

    twin.uploads, twin.receipts = uploads, {}
    federation.run_until()
    assert isinstance(federation.finish().phase, Recovered)
