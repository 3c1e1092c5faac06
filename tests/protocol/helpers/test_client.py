"""A client trusts a roster and speaks once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Client
from protocol.helpers.simulator import HelperFederation
from protocol.messages.roster import Roster


@pytest.fixture
def opened(federation: HelperFederation) -> HelperFederation:
    federation.begin(federation.terms(100))
    return federation


def client(federation: HelperFederation, member: str = "client-0") -> Client:
    return Client.start(member, federation.admin.public, federation.roster)


def test_a_roster_is_the_pinned_admin_s_and_names_the_client(federation: HelperFederation) -> None:
    def judged(call: Callable[[], object]) -> Cause:
        with pytest.raises(PeerFault) as refused:
            call()
        return refused.value.cause

    roster = federation.roster
    assert judged(lambda: Client.start("client-0", bytes(32), roster)) == Cause.WRONG_FEDERATION
    forged = replace(roster, coordinator=bytes(32))
    assert judged(lambda: Client.start("client-0", federation.admin.public, forged)) == Cause.BAD_SIGNATURE
    assert judged(lambda: client(federation, "stranger")) == Cause.UNKNOWN_MEMBER
    assert judged(lambda: client(federation, "helper-0")) == Cause.UNKNOWN_MEMBER
    newer: Roster = federation.sign_roster(2)
    trusting = client(federation).trust(newer)
    assert (trusting.roster_version, trusting.roster_hash) == (2, newer.hash)
    assert judged(lambda: trusting.trust(roster)) == Cause.ROSTER_ROLLBACK


def test_the_opening_is_read_with_the_trusted_roster(opened: HelperFederation) -> None:
    other = HelperAttempt(opened.sign_roster(2), opened.attempt.opening)
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .* another roster"):
        client(opened).seal(other, opened.now_s)


def test_the_opening_is_checked(opened: HelperFederation, reopen: Callable[..., HelperAttempt]) -> None:
    with pytest.raises(PeerFault, match=r"^weak-parameters: "):
        client(opened).seal(reopen(opened, survivors_min=4), opened.now_s)


def test_one_upload_for_each_attempt_ever(
    opened: HelperFederation, reopen: Callable[..., HelperAttempt]
) -> None:
    opened._speak(0)
    spoken = opened.states["client-0"]
    after = spoken.client  # type: ignore[union-attr]  # it has spoken
    assert after.counter == 1
    again = reopen(opened, terms=replace(opened.attempt.opening.terms, layout=b"again"))
    with pytest.raises(PeerFault, match=r"^wrong-sequence: attempt 0: this client has answered 0"):
        after.seal(again, opened.now_s)


def test_an_upload_is_taken_for_its_own_attempt_and_client(
    opened: HelperFederation, reopen: Callable[..., HelperAttempt]
) -> None:
    upload = opened._speak(0)
    with pytest.raises(Misuse, match="another attempt or client"):
        client(opened, "client-1").spoken(opened.attempt, upload)
    with pytest.raises(Misuse, match="another attempt or client"):
        client(opened).spoken(reopen(opened, cap=1), upload)


def test_what_is_stored_holds_no_secret(opened: HelperFederation) -> None:
    drawn: list[bytes] = []

    def watched(count: int) -> bytes:
        drawn.append(opened.random(count))
        return drawn[-1]

    one = client(opened)
    sealing = one.seal(opened.attempt, opened.now_s, watched)
    for size in (64, 36):
        sealing.chunk(np.zeros(size, np.int64))
    upload = sealing.finish(opened.keys["client-0"], lineage=bytes(8), records_tag=bytes(8), records=1)
    stored = one.spoken(opened.attempt, upload).to_bytes()
    assert len(drawn) == 5
    assert not any(secret in stored for secret in drawn)
