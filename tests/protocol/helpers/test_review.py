"""What a hostile review broke in the mode with helpers, each as it was done (docs/assurance.md)."""

from dataclasses import replace

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.client import Client, Spoken
from protocol.helpers.coordinator import Recovered, Voided
from protocol.helpers.helper import Enrolled, Standing, Voted
from protocol.helpers.messages import ClientSet, HelperFreeze, HelperLost
from protocol.helpers.simulator import ClientStop, HelperFederation, HelperStop
from protocol.identity import SigningKey


def client_of(state: Client | Spoken) -> Client:
    return state.client if isinstance(state, Spoken) else state


def test_of_a_replaced_helper_and_its_successor_neither_hears_what_the_other_signed() -> None:
    """helper-2 is false; helper-3 has been replaced by helper-4, and the coordinator tells 0 and 3 nothing of it.

    Helpers 0, 2 and 3 certify everybody. Helpers 1, 2 and 4 then end an attempt that nobody is shown, so that counters differ,
    and certify everybody but one: no honest helper has signed both, and the two sums tell that one's vector. Clients alone see
    it: their records were entrusted to other keys (`client_sdk.lineages`).
    """
    old = HelperFederation(8, helper_drop={1: HelperStop.NOTHING})
    everybody = old.run(old.terms(16))
    assert isinstance(everybody.phase, Recovered)

    new = HelperFederation(8, helper_drop={0: HelperStop.NOTHING})
    new.helpers = ("helper-0", "helper-1", "helper-2", "helper-4")
    new.keys["helper-4"] = SigningKey(b"4" * 32)
    del new.keys["helper-3"]
    new.roster = new.sign_roster(2)
    new.phases["helper-4"] = Standing.start("helper-4", new.admin.public, new.roster)
    for helper in ("helper-1", "helper-2"):
        standing = new.phases[helper]
        assert isinstance(standing, Standing)
        new.phases[helper] = standing.trust(new.roster)
    new.states = {client: client_of(state).trust(new.roster) for client, state in old.states.items()}
    new.drop = dict.fromkeys(range(8), ClientStop.OPENING)
    assert isinstance(new.run(new.terms(16)).phase, Voided)
    new.drop = {5: ClientStop.OPENING}
    but_one = new.run(new.terms(16))
    assert isinstance(but_one.phase, Recovered)

    assert everybody.total is not None
    assert but_one.total is not None
    np.testing.assert_array_equal(everybody.total - but_one.total, old.vector(5, 16))
    assert old.attempt.helper_keys != new.attempt.helper_keys


def test_a_client_that_brings_an_old_lineage_is_dropped_alone(
    federation: HelperFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every period is over new records, but one client's: every honest helper refused, attempt after attempt."""
    federation.run(federation.terms(16))
    fresh = [index.to_bytes(8, "little") for index in range(8)]
    old = federation.lineage(3)
    monkeypatch.setattr(federation, "lineage", lambda index: old if index == 3 else fresh[index])
    outcome = federation.run(federation.terms(16))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == tuple(client for client in federation.ids if client != "client-3")
    expected = sum(federation.vector(index, 16) for index in range(8) if index != 3)
    np.testing.assert_array_equal(outcome.total, expected)


def test_lineages_of_noisy_sums_are_dropped_alone_from_an_exact_one(
    federation: HelperFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation.drop = dict.fromkeys(range(3), ClientStop.OPENING)
    with monkeypatch.context() as lenient:  # the history of whoever took noise once
        lenient.setattr(HelperAttempt, "check", lambda _attempt, _now_s: None)
        assert isinstance(federation.run(federation.terms(16, noise=b"n")).phase, Recovered)
    federation.drop = {}
    outcome = federation.run(federation.terms(16))
    # Three are left of five that a sum needs: this is the attempt's end, and names who brought the lineages.
    assert isinstance(outcome.phase, Voided)
    assert (outcome.phase.fault.cause, outcome.phase.fault.parties) == (
        Cause.SURVIVORS_TOO_FEW,
        federation.ids[3:],
    )


def test_a_helper_that_has_voted_refuses_a_set_of_nobody(federation: HelperFederation) -> None:
    """A set without clients has no root: the helper raised a Misuse, and its process ended."""
    federation.helper_drop = dict.fromkeys(range(4), HelperStop.VOTE)
    federation.run(federation.terms(16))
    voted = federation.phases["helper-0"]
    assert isinstance(voted, Voted)
    with pytest.raises(PeerFault) as refused:
        voted.receive(HelperFreeze(voted.attempt.context, ()), federation.keys["helper-0"], federation.now_s)
    assert refused.value.cause is Cause.SURVIVORS_TOO_FEW


def test_no_set_of_nobody_is_read(federation: HelperFederation) -> None:
    federation.begin(federation.terms(16))
    lost = HelperLost.make(
        federation.admin, context=federation.attempt.context, family="exact", floor=5, sets=(ClientSet(()),)
    )
    with pytest.raises(PeerFault, match="has clients in it") as refused:
        HelperLost.from_bytes(lost.to_bytes())
    assert refused.value.cause is Cause.MALFORMED


def test_an_end_that_is_known_costs_an_enrolled_helper_nothing(federation: HelperFederation) -> None:
    """The coordinator showed an old certificate again, and the helper dropped its box key for it."""
    federation.run(federation.terms(16))
    [ended] = federation.closings
    standing = federation.phases["helper-0"]
    assert isinstance(standing, Standing)
    key = federation.keys["helper-0"]
    enrolled, _ = standing.enrol(key, expires_s=int(federation.now_s) + 100, random_bytes=federation.random)
    assert isinstance(enrolled, Enrolled)
    assert enrolled.receive(ended, key, federation.now_s) == (enrolled, ())
    # One that it has missed takes it back to where it stands.
    missed = replace(
        enrolled, standing=Standing.start("helper-0", federation.admin.public, federation.roster)
    )
    assert missed.receive(ended, key, federation.now_s)[0] == replace(standing, sums=())


@pytest.mark.parametrize("missed", [False, True])
def test_who_leaves_a_large_roster_hides_among_as_many_as_it_asked_for(*, missed: bool) -> None:
    """Four colluders leave with one client: the next roster's g was smaller, and held for the older sum's groups too.

    A helper that missed the older attempt has its g from the votes.
    """
    federation = HelperFederation(16, helper_drop={0: HelperStop.NOTHING} if missed else {})
    assert federation.run(federation.terms(16)).total is not None
    for client in federation.ids[11:]:
        del federation.keys[client]
    federation.helper_drop, federation.drop = {}, dict.fromkeys(range(11, 16), ClientStop.OPENING)
    federation.roster = federation.sign_roster(2)
    for helper, phase in federation.phases.items():
        assert isinstance(phase, Standing)
        federation.phases[helper] = phase.trust(federation.roster)
    federation.newcomer = federation.newcomer.trust(federation.roster)
    federation.states = {
        client: client_of(federation.states[client]).trust(federation.roster)
        for client in federation.ids[:11]
    }
    outcome = federation.run(federation.terms(16))
    assert isinstance(outcome.phase, Voided)
    assert federation.attempt.manifest.floor == 5
    assert "helper-0: ledger-refused" in str(outcome.fault)
