"""210 members on a ring of twelve neighbours, eight of them drawn to decrypt: both implementations agree in every byte (§4.2, §5)."""

import random
from dataclasses import replace

import pytest

from protocol.coordinator import Checking, Freezing, Recovered, Voiding
from protocol.simulator import After
from tests.reference.lockstep import Lockstep
from tests.reference.test_proposals import asked, receipt

EACH = 12


@pytest.mark.slow
def test_on_a_ring_both_send_the_same_bytes_and_propose_the_same_survivors() -> None:
    federation = Lockstep(210, seed=4, colluders=3, loss=10)
    manifest, rng = federation.manifest, random.Random(210)
    ring, drawn, window = manifest.graph.ring, manifest.decryptors, manifest.graph.window
    assert (manifest.degree, manifest.window_dropped_max, len(drawn), manifest.threshold) == (12, 2, 8, 6)
    # one is lost where the ring closes, one with its chunks, and one of those drawn once its receipt is in
    lost = {ring[0]: After.OPENING, ring[100]: After.UPLOAD, drawn[0]: After.RECEIPT}
    federation.drop = {federation.ids.index(member): after for member, after in lost.items()}
    federation.begin(federation.vectors(8), federation.terms(8))
    phase = federation.run_until(Checking)
    assert isinstance(phase, Checking)
    twin, context, reasons = federation.twin, phase.attempt.context, set[str]()
    uploads = dict(twin.uploads)
    for _ in range(EACH):
        # up to one more than a window may lose stay away or are complained of, next to each other and over the end
        start, away, accused = rng.randrange(-window, 0), rng.randint(0, 3), rng.randint(0, 3)
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
