from dataclasses import replace

import pytest

from tests.support.forging import certificate
from tests.support.simulator import After, Federation, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Checking, Collecting, Freezing, Revealing, Voided, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Closed, Opened, Ready, Voted
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Certificate, Reveal, Survivor, VoidRequest, Vote


def revealing(federation: Federation) -> Certificate:
    """Drive until the certificate stands, before anybody has seen it."""
    phase = federation.reach(Revealing)
    return phase.certificate


def attempting(federation: Federation, member: str) -> Attempting:
    return of(Attempting, federation.phases[member])


# VOID


@pytest.mark.parametrize("stage", [Collecting, Checking, Freezing])
def test_void_is_signed_in_every_phase_before_a_vote(stage: type) -> None:
    federation = Federation(4)
    federation.begin()
    federation.run_until(stage)
    opening = federation.phase.attempt.opening
    if stage is Collecting:
        federation.phases["member-0"], _ = federation.ask("member-0", opening)
        assert isinstance(federation.phases["member-0"], Opened)
    context = federation.phase.attempt.context
    _, (vote,) = federation.ask("member-0", VoidRequest(context, "cancelled"), Voted)
    assert isinstance(vote, Vote)
    assert vote.outcome == Certificate(context, (), "cancelled", ()).outcome
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        federation.ask("member-0", VoidRequest(bytes(32), "cancelled"))


def voided(federation: Federation) -> Certificate:
    """Cancel while everyone has uploaded; nobody has seen the certificate."""
    federation.begin()
    federation.phase = federation.run_until(Checking).cancel(federation.now_s)
    assert isinstance(federation.phase, Voiding)
    phase = of(Voided, federation.run_until())
    return phase.closing


def test_a_void_certificate_opens_the_next_attempt_with_the_same_keys() -> None:
    federation = Federation(4)
    void = voided(federation)
    before = attempting(federation, "member-0").ready
    closed, replies = federation.ask("member-0", void, Closed)
    assert replies == ()
    assert (closed.ready.sequence, closed.ready.attempt) == (0, 1)
    assert (closed.ready.masks, closed.ready.boxes) == (before.masks, before.boxes)
    assert not {*closed.own} & {*closed.certificate.survivors}


def test_the_eighth_void_ends_the_round_and_moves_the_keys() -> None:
    federation = Federation(4)
    void = voided(federation)
    phase = attempting(federation, "member-0")
    last = replace(phase, opening=replace(phase.opening, attempt=7))
    context = last.attempt.context
    votes = tuple(
        Vote.make(
            federation.keys[vote.member],
            context=context,
            member=vote.member,
            outcome=Certificate(context, (), void.reason, ()).outcome,
        )
        for vote in void.votes
    )
    closed, _ = last.receive(
        Certificate(context, (), void.reason, votes), federation.keys["member-0"], federation.now_s
    )
    assert isinstance(closed, Closed)
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)
    moved = phase.ready.advanced(1, 0, phase.history)
    assert (closed.ready.masks, closed.ready.boxes) == (moved.masks, moved.boxes)


# Certificates and reveals


@pytest.fixture
def federation() -> Federation:
    """Six members, of whom member-1 and member-4 have not uploaded."""
    return Federation(6, drop={1: After.OPENING, 4: After.CARD})


def test_keys_move_on_at_the_certificate_and_shares_are_gone_once_the_result_is_out(
    federation: Federation,
) -> None:
    certified = revealing(federation)
    voted = attempting(federation, "member-2")
    closed, _ = federation.ask("member-2", certified, Closed)
    assert {*closed.own} & {*closed.certificate.survivors}
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)
    stored = closed.to_bytes()
    assert not any(pair.key in stored for pair in (*voted.ready.masks, *voted.ready.boxes))
    # until then a dealer may prove false, and its neighbours' shares are wanted
    shares = [voted.own_shares, *(dealt.shares for dealt in voted.held())]
    assert all(each in stored for each in shares)
    settled = closed.settled()
    assert not any(each in settled.to_bytes() for each in shares)
    assert settled.outbox() == ()
    assert settled.settled() is settled


def test_a_certificate_for_another_set_after_the_reveal_reveals_nothing_more(federation: Federation) -> None:
    certified = revealing(federation)
    federation.phases["member-2"], first = federation.ask("member-2", certified)
    smaller = certificate(federation, certified.survivors[:4])
    _, again = federation.ask("member-2", smaller)
    assert again == first


def test_a_decryptor_reveals_of_the_dealers_it_vouched_for_and_of_no_other(federation: Federation) -> None:
    certified = revealing(federation)
    voted = of(Voted, attempting(federation, "member-2"))
    whole = federation.answered("member-2", certified, Reveal)
    # it complained of member-0
    federation.phases["member-2"] = replace(
        voted, opened=voted.opened[1:], refused=(voted.opened[0].survivor,)
    )
    part = federation.answered("member-2", certified, Reveal)
    assert part.runs == whole.runs[1:]
    # it holds the shares of another upload of member-0's
    other = replace(voted.opened[0], survivor=replace(voted.opened[0].survivor, digest=bytes(32)))
    federation.phases["member-2"] = replace(voted, opened=(other, *voted.opened[1:]))
    part = federation.answered("member-2", certified, Reveal)
    assert part.runs == whole.runs[1:]


# The terms' latest end


def test_after_the_latest_end_a_certificate_closes_without_a_reveal(federation: Federation) -> None:
    certified = revealing(federation)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    closed, replies = federation.ask("member-2", certified, Closed)
    assert {*closed.own} & {*closed.certificate.survivors}
    assert replies == ()


def test_after_the_latest_end_void_moves_the_keys_too() -> None:
    federation = Federation(4)
    void = voided(federation)
    federation.now_s = federation.phase.attempt.opening.terms.latest_end_s
    closed, _ = federation.ask("member-0", void, Closed)
    assert (closed.ready.sequence, closed.ready.attempt) == (1, 0)


def test_keys_lapse_at_the_latest_end_certificate_or_not(federation: Federation) -> None:
    revealing(federation)
    voted = attempting(federation, "member-2")
    end = voted.opening.terms.latest_end_s
    assert voted.lapse(end - 1) is voted
    lapsed = of(Ready, voted.lapse(end))
    assert lapsed == voted.ready.advanced(1, 0, voted.history)
    stored = lapsed.to_bytes()
    assert not any(pair.key in stored for pair in (*voted.ready.masks, *voted.ready.boxes))
    assert not any(dealt.shares in stored for dealt in voted.held())


def test_the_phase_of_an_attempt_is_one_with_its_messages(federation: Federation) -> None:
    revealing(federation)
    phase = attempting(federation, "member-2")
    assert phase.attempt == Attempt(federation.roster, federation.study, federation.manifest, phase.opening)
    assert phase.own == (Survivor.of(phase.uploads[0].header),)
    assert attempting(federation, "member-1").own == ()
