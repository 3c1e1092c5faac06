"""A helper's phases: what each takes, what it refuses and why, and what it still holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.coordinator import Checking, Freezing, Recovered, Voiding
from protocol.helpers.coordinator import Summing as CoordinatorSumming
from protocol.helpers.helper import (
    Checked,
    Enrolled,
    HelperPhase,
    Opened,
    Standing,
    Summing,
    Voted,
    load_helper,
)
from protocol.helpers.messages import (
    ClientSet,
    HelperCertificate,
    HelperDeliveries,
    HelperFreeze,
    HelperLost,
    HelperRefusal,
    HelperVoidRequest,
    HelperVote,
    set_outcome,
)
from protocol.helpers.simulator import HelperFederation, standing_of
from protocol.messages.base import Message

Until = Callable[..., Any]


def tell(federation: HelperFederation, message: Message, helper: str = "helper-0") -> tuple[Message, ...]:
    federation.phases[helper], replies = federation.phases[helper].receive(
        message, federation.keys[helper], federation.now_s
    )
    return replies


def cause(federation: HelperFederation, message: Message, helper: str = "helper-0") -> Cause:
    before = federation.phases[helper]
    with pytest.raises(PeerFault) as refused:
        tell(federation, message, helper)
    assert federation.phases[helper] is before
    return refused.value.cause


def lost(federation: HelperFederation, *sets: Any, **changes: Any) -> HelperLost:
    values = {"context": federation.attempt.context, "family": "exact", "floor": 5, "sets": sets, **changes}
    key = values.pop("key", federation.admin)
    return HelperLost.make(key, **values)


# Standing


def test_a_helper_is_one_by_the_admin_s_roster(federation: HelperFederation) -> None:
    admin, roster = federation.admin.public, federation.roster
    for member, federation_key, cause_ in (
        ("client-0", admin, Cause.NOT_A_DECRYPTOR),
        ("helper-0", bytes(32), Cause.WRONG_FEDERATION),
    ):
        with pytest.raises(PeerFault) as refused:
            Standing.start(member, federation_key, roster)
        assert refused.value.cause == cause_
    standing = Standing.start("helper-0", admin, roster)
    newer = federation.sign_roster(2)
    assert standing.trust(newer).roster == newer
    with pytest.raises(PeerFault, match=r"^roster-rollback: "):
        standing.trust(newer).trust(roster)
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: "):
        standing.trust(federation.sign_roster(3, helpers=("client-0", *federation.helpers[1:])))


def test_a_helper_learns_how_attempts_ended_that_it_missed(federation: HelperFederation) -> None:
    absent = federation.phases["helper-0"]
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Recovered)
    certificate = outcome.phase.certificate
    met = federation.phases["helper-0"]
    assert isinstance(met, Standing)
    federation.phases["helper-0"] = absent
    assert tell(federation, certificate) == ()
    learnt = federation.phases["helper-0"]
    assert isinstance(learnt, Standing)
    assert (learnt.history, learnt.chain) == (met.history, met.chain)
    assert tell(federation, certificate) == ()
    assert cause(federation, replace(certificate, family="noisy")) == Cause.CHAIN_BROKEN
    federation.phases["helper-0"] = absent
    assert cause(federation, replace(certificate, votes=certificate.votes[:2])) == Cause.CERTIFICATE_INVALID
    assert cause(federation, replace(certificate, family="noisy")) == Cause.CERTIFICATE_INVALID
    closed = lost(federation, ClientSet(certificate.survivors))
    assert cause(federation, replace(closed, family="noisy")) == Cause.BAD_SIGNATURE
    assert tell(federation, closed) == ()
    assert standing_of(federation.phases["helper-0"]).opened()[0].survivors == certificate.survivors


def test_the_certificate_again_is_answered_by_the_same_sums(federation: HelperFederation) -> None:
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Recovered)
    first = federation.phases["helper-0"].outbox()
    assert len(first) == 1
    assert tell(federation, outcome.phase.certificate) == first
    federation.begin(federation.terms(100, layout=b"next"))
    assert standing_of(federation.phases["helper-0"]).outbox() == ()


# Enrolled


def test_a_card_serves_one_opening_that_shows_it_and_goes_on_from_the_history(
    federation: HelperFederation, reopen: Callable[..., Any]
) -> None:
    enrolled, [card] = federation.phases["helper-0"].enrol(  # type: ignore[attr-defined]  # Standing
        federation.keys["helper-0"], expires_s=2_000_000, random_bytes=federation.random
    )
    assert enrolled.outbox() == (card,)
    federation.begin(federation.terms(100))
    shown = federation.phases["helper-0"]
    federation.phases["helper-0"] = enrolled
    assert cause(federation, federation.attempt.opening) == Cause.MANIFEST_MISMATCH
    federation.phases["helper-0"] = Enrolled(enrolled.standing, shown_card(federation), bytes(32))
    assert cause(federation, reopen(federation, chain=b"\x01" * 32).opening) == Cause.CHAIN_BROKEN
    assert cause(federation, reopen(federation, survivors_min=4).opening) == Cause.WEAK_PARAMETERS
    assert tell(federation, federation.attempt.opening) == ()
    assert isinstance(shown, Opened)
    assert isinstance(federation.phases["helper-0"], Opened)


def shown_card(federation: HelperFederation) -> Any:
    return federation.attempt.manifest.cards[0]


def test_another_opening_under_the_same_card_is_refused(
    federation: HelperFederation, reopen: Callable[..., Any]
) -> None:
    federation.begin(federation.terms(100))
    assert tell(federation, federation.attempt.opening) == ()
    other = reopen(federation, terms=federation.terms(99)).opening
    assert cause(federation, other) == Cause.WRONG_SEQUENCE


def test_who_missed_the_opening_goes_back_to_where_it_stood(federation: HelperFederation) -> None:
    federation.helper_drop = {0: 1}  # type: ignore[dict-item]  # its card goes out, and it hears nothing more
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Recovered)
    assert isinstance(federation.phases["helper-0"], Enrolled)
    assert tell(federation, outcome.phase.certificate) == ()
    assert isinstance(federation.phases["helper-0"], Standing)


# Opened


def test_deliveries_are_of_this_context_by_clients_under_their_roots(
    federation: HelperFederation, until: Until, resign: Callable[..., Any]
) -> None:
    phase = until(federation, Checking)
    deliveries = phase.request_for("helper-0")
    assert isinstance(deliveries, HelperDeliveries)
    first = deliveries.deliveries[0]

    def shown(**changes: Any) -> HelperDeliveries:
        return replace(deliveries, deliveries=(replace(first, **changes), *deliveries.deliveries[1:]))

    assert cause(federation, replace(deliveries, context=bytes(32))) == Cause.WRONG_CONTEXT
    stranger = resign(federation, phase.uploads[0], context=bytes(32))
    assert cause(federation, shown(header=stranger.header)) == Cause.WRONG_CONTEXT
    unsigned = replace(first.header, lineage=b"\x07" * 8)
    assert cause(federation, shown(header=unsigned)) == Cause.BAD_SIGNATURE
    assert cause(federation, shown(box=bytes(112))) == Cause.CHUNK_MISMATCH
    assert cause(federation, shown(path=())) == Cause.CHUNK_MISMATCH
    assert cause(federation, shown(commitments=())) == Cause.CHUNK_MISMATCH
    assert cause(federation, shown(commitments=(bytes(32),) * 4)) == Cause.CHUNK_MISMATCH
    # a client that colludes signs the root of three commitments
    three = first.commitments[:3]
    short = resign(federation, phase.uploads[0], commitments=three)
    assert cause(federation, shown(header=short.header, commitments=three)) == Cause.CHUNK_MISMATCH
    of_another = replace(deliveries, deliveries=(phase.uploads[0].delivery(1),))
    assert cause(federation, of_another) == Cause.CHUNK_MISMATCH
    [receipt] = tell(federation, deliveries)
    assert receipt.dealers == federation.ids  # type: ignore[attr-defined]  # HelperReceipt
    assert tell(federation, deliveries) == (receipt,)
    assert federation.phases["helper-0"].outbox() == (receipt,)
    assert cause(federation, replace(deliveries, context=bytes(32))) == Cause.WRONG_CONTEXT


def test_bad_boxes_are_complained_about_and_the_box_key_is_gone(
    federation: HelperFederation, until: Until, resign: Callable[..., Any]
) -> None:
    def cheat(sender: str, message: Any) -> Any:
        if sender == "client-1":
            return resign(federation, message, boxes=(bytes(112), *message.boxes[1:]))
        if sender == "client-2":
            return resign(federation, message, sender_key=bytes(32))
        return message

    federation.tamper = cheat
    phase = until(federation, Checking)
    opened = federation.phases["helper-0"]
    assert isinstance(opened, Opened)
    tell(federation, phase.request_for("helper-0"))
    checked = federation.phases["helper-0"]
    assert isinstance(checked, Checked)
    assert checked.receipts[0].complaints == ("client-1", "client-2")
    assert bytes(opened.private) not in checked.to_bytes()
    assert [entry.member for entry in checked.held] == [f"client-{i}" for i in (0, 3, 4, 5, 6, 7)]


# Checked and Voted


@pytest.fixture
def freezing(federation: HelperFederation, until: Until) -> Freezing:
    phase = until(federation, Freezing)
    assert isinstance(phase, Freezing)
    return phase


def refused(federation: HelperFederation, message: HelperFreeze) -> str:
    [refusal] = tell(federation, message)
    assert isinstance(refusal, HelperRefusal)
    refusal.verify(federation.keys["helper-0"].public, "helper-0")
    return refusal.cause


def test_a_proposal_is_of_clients_whose_seeds_are_held(
    federation: HelperFederation, freezing: Freezing
) -> None:
    survivors, context = freezing.survivors, federation.attempt.context
    assert refused(federation, HelperFreeze(context, survivors[:4])) == "survivors-too-few"
    changed = (replace(survivors[0], digest=bytes(32)), *survivors[1:])
    assert refused(federation, HelperFreeze(context, changed)) == "survivors-invalid"
    stranger = replace(survivors[-1], member="stranger")
    assert refused(federation, HelperFreeze(context, (*survivors, stranger))) == "survivors-invalid"
    assert cause(federation, HelperFreeze(bytes(32), survivors)) == Cause.WRONG_CONTEXT
    [vote] = tell(federation, HelperFreeze(context, survivors))
    assert isinstance(vote, HelperVote)
    assert vote.outcome == set_outcome(context, "exact", 5, survivors)


def test_a_proposal_with_a_client_it_complained_about_is_refused(
    federation: HelperFederation, until: Until, resign: Callable[..., Any]
) -> None:
    def cheat(sender: str, message: Any) -> Any:
        if sender == "client-1":
            return resign(federation, message, boxes=(bytes(112), *message.boxes[1:]))
        return message

    federation.tamper = cheat
    phase = until(federation, Checking)
    everybody = tuple(upload.header.survivor for upload in phase.uploads)
    until_frozen = federation.run_until(Freezing)
    assert [s.member for s in until_frozen.survivors] == [f"client-{i}" for i in (0, 2, 3, 4, 5, 6, 7)]  # type: ignore[attr-defined]
    assert refused(federation, HelperFreeze(federation.attempt.context, everybody)) == "box-refused"


def test_one_vote_a_context_ever(federation: HelperFederation, freezing: Freezing) -> None:
    context = federation.attempt.context
    freeze = HelperFreeze(context, freezing.survivors)
    [vote] = tell(federation, freeze)
    assert tell(federation, freeze) == (vote,)
    assert federation.phases["helper-0"].outbox() == (vote,)
    assert cause(federation, HelperFreeze(context, freezing.survivors[:7])) == Cause.ALREADY_VOTED
    assert cause(federation, HelperVoidRequest(context, "cancelled")) == Cause.ALREADY_VOTED
    assert cause(federation, HelperFreeze(bytes(32), freezing.survivors)) == Cause.WRONG_CONTEXT


def test_void_is_signed_once_and_from_any_phase_before_a_vote(federation: HelperFederation) -> None:
    federation.begin(federation.terms(100))
    request = HelperVoidRequest(federation.attempt.context, "cancelled")
    assert cause(federation, replace(request, context=bytes(32))) == Cause.WRONG_CONTEXT
    [vote] = tell(federation, request)
    assert tell(federation, request) == (vote,)
    assert cause(federation, replace(request, reason="quorum-lost")) == Cause.ALREADY_VOTED


def test_who_signed_void_still_sums_for_a_certified_set(
    federation: HelperFederation, freezing: Freezing
) -> None:
    context = federation.attempt.context
    tell(federation, HelperVoidRequest(context, "cancelled"))
    votes = [tell(federation, freezing.request_for(helper), helper)[0] for helper in federation.helpers[1:]]  # type: ignore[arg-type]
    certificate = HelperCertificate(context, "exact", 5, freezing.survivors, "none", tuple(votes))  # type: ignore[arg-type]
    assert tell(federation, certificate) == ()
    assert isinstance(federation.phases["helper-0"], Summing)


def test_the_ledger_is_kept() -> None:
    federation = HelperFederation(12)
    assert isinstance(federation.run(federation.terms(100)).phase, Recovered)
    federation.drop = {0: 0}  # type: ignore[dict-item]
    second = federation.run(federation.terms(100))
    assert isinstance(federation.phase.closing, HelperCertificate)  # type: ignore[attr-defined]  # Voided
    assert second.fault is not None
    assert "helper-0: ledger-refused" in second.fault.detail
    federation.drop = {}
    assert isinstance(federation.run(federation.terms(100)).phase, Recovered)


# Certificates and the admin's word


def test_a_certificate_ends_the_attempt(federation: HelperFederation, until: Until) -> None:
    phase = until(federation, CoordinatorSumming)
    certificate = phase.certificate
    assert cause(federation, replace(certificate, votes=certificate.votes[:2])) == Cause.CERTIFICATE_INVALID
    voted = federation.phases["helper-0"]
    assert isinstance(voted, Voted)
    assert tell(federation, certificate) == ()
    summing = federation.phases["helper-0"]
    assert isinstance(summing, Summing)
    assert tell(federation, certificate) == ()
    assert cause(federation, replace(certificate, context=bytes(32))) == Cause.WRONG_CONTEXT
    adding = summing.adding()
    with pytest.raises(Misuse, match="not complete"):
        adding.finish(federation.keys["helper-0"])
    assert sum(1 for _ in adding.chunks()) == 6
    sums = adding.finish(federation.keys["helper-0"])
    with pytest.raises(Misuse, match="not of the certified set"):
        summing.summed(replace(sums, outcome=bytes(32)))
    standing, effects = summing.summed(sums)
    assert effects == standing.outbox() == (sums,)
    for entry in voted.held:
        for at in range(0, 96, 32):
            assert bytes(entry.seeds[at : at + 32]) not in standing.to_bytes()


def test_only_survivors_seeds_are_kept_for_the_sums(federation: HelperFederation, freezing: Freezing) -> None:
    context, fewer = federation.attempt.context, freezing.survivors[:7]
    held = {entry.member: bytes(entry.seeds) for entry in federation.phases["helper-0"].held}  # type: ignore[attr-defined]
    votes = [tell(federation, HelperFreeze(context, fewer), helper)[0] for helper in federation.helpers]
    tell(federation, HelperCertificate(context, "exact", 5, fewer, "none", tuple(votes)))  # type: ignore[arg-type]
    assert held["client-7"] not in federation.phases["helper-0"].to_bytes()
    assert held["client-6"] in federation.phases["helper-0"].to_bytes()


def test_without_the_seeds_a_certificate_leads_back_to_standing(
    federation: HelperFederation, until: Until
) -> None:
    federation.helper_drop = {0: 2}  # type: ignore[dict-item]  # it takes the opening, and no boxes
    phase = until(federation, CoordinatorSumming)
    assert tell(federation, phase.certificate) == ()
    standing = federation.phases["helper-0"]
    assert isinstance(standing, Standing)
    assert len(standing.history) == 1


def test_void_leads_back_to_standing_and_opens_nothing(federation: HelperFederation, until: Until) -> None:
    phase = until(federation, Freezing)
    federation.phase = phase.cancel(federation.now_s)
    assert isinstance(federation.phase, Voiding)
    federation.run_until()
    federation.finish()
    standing = federation.phases["helper-0"]
    assert isinstance(standing, Standing)
    assert (len(standing.history), standing.opened()) == (1, ())


def test_the_admin_closes_an_attempt_only_with_the_set_that_was_signed(
    federation: HelperFederation, freezing: Freezing
) -> None:
    survivors = freezing.survivors
    tell(federation, HelperFreeze(federation.attempt.context, survivors))
    voted = federation.phases["helper-0"]
    told = ClientSet(survivors)
    assert cause(federation, lost(federation, told, context=bytes(32))) == Cause.WRONG_CONTEXT
    assert cause(federation, lost(federation, told, key=federation.coordinator)) == Cause.BAD_SIGNATURE
    assert cause(federation, lost(federation, told, family="noisy")) == Cause.CHAIN_BROKEN
    assert cause(federation, lost(federation, told, floor=4)) == Cause.CHAIN_BROKEN
    assert cause(federation, lost(federation)) == Cause.CHAIN_BROKEN
    assert cause(federation, lost(federation, ClientSet(survivors[:7]))) == Cause.CHAIN_BROKEN
    tell(federation, lost(federation, ClientSet(survivors[:7]), told))
    opened = standing_of(federation.phases["helper-0"]).opened()
    assert [len(each.survivors) for each in opened] == [7, 8]
    # a vote for VOID opened nothing, and neither did who signed nothing
    for helper, before in (("helper-1", False), ("helper-2", True)):
        if before:
            tell(federation, HelperVoidRequest(federation.attempt.context, "cancelled"), helper)
        tell(federation, lost(federation), helper)
        assert isinstance(federation.phases[helper], Standing)
    assert isinstance(voted, Voted)


# Time, restarts, order


def test_secrets_go_when_their_time_has_passed(federation: HelperFederation, until: Until) -> None:
    standing = federation.phases["helper-0"]
    enrolled, _ = standing.enrol(  # type: ignore[attr-defined]  # Standing
        federation.keys["helper-0"], expires_s=2_000_000, random_bytes=federation.random
    )
    federation.begin(federation.terms(100))
    seen: list[HelperPhase] = [standing, enrolled, federation.phases["helper-0"]]
    federation.collect()
    federation.run_until(Freezing)
    seen.append(federation.phases["helper-0"])
    federation.run_until(CoordinatorSumming)
    seen.append(federation.phases["helper-0"])
    tell(federation, federation.phase.request_for("helper-0"))  # type: ignore[arg-type]
    seen.append(federation.phases["helper-0"])
    kinds = [Standing, Enrolled, Opened, Checked, Voted, Summing]
    assert list(map(type, seen)) == kinds
    assert [phase.lapse(1_500_000) is phase for phase in seen] == [True] * 6
    later = [phase.lapse(2_000_000) for phase in seen]
    assert list(map(type, later)) == [Standing, Standing, Checked, Checked, Voted, Standing]
    assert [getattr(phase, "held", ()) for phase in later] == [()] * 6
    assert later[3].lapse(2_000_000) is later[3]
    assert later[4].outbox() == seen[4].outbox()
    # without seeds it signs no set, and still helps to end the attempt
    federation.phases["helper-0"] = later[2]
    assert refused(federation, HelperFreeze(federation.attempt.context, ())) == "survivors-too-few"
    [vote] = tell(federation, HelperVoidRequest(federation.attempt.context, "cancelled"))
    assert isinstance(vote, HelperVote)


def test_a_phase_refuses_what_it_does_not_name(federation: HelperFederation) -> None:
    request = HelperVoidRequest(bytes(32), "cancelled")
    assert cause(federation, request) == Cause.WRONG_PHASE


def test_an_opened_helper_has_nothing_to_send_again(federation: HelperFederation) -> None:
    federation.begin(federation.terms(100))
    assert federation.phases["helper-0"].outbox() == ()


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x07"])
def test_other_bytes_are_no_helper_s(data: bytes) -> None:
    with pytest.raises(Misuse, match="not a helper's phase"):
        load_helper(data)


def test_no_secret_shows_in_a_repr(federation: HelperFederation, until: Until) -> None:
    shown = [repr(phase) for phase in federation.phases.values()]
    federation.begin(federation.terms(100))
    opened = federation.phases["helper-0"]
    assert isinstance(opened, Opened)
    federation.collect()
    federation.run_until(CoordinatorSumming)
    voted = federation.phases["helper-0"]
    assert isinstance(voted, Voted)
    tell(federation, federation.phase.request_for("helper-0"))  # type: ignore[arg-type]
    summing = federation.phases["helper-0"]
    shown += [repr(phase) for phase in (opened, voted, voted.held[0], summing)]
    secrets = [opened.private, *(entry.seeds for entry in voted.held)]
    for secret in secrets:
        assert not any(
            bytes(secret)[:4].hex() in text or repr(bytes(secret)[:4])[2:-1] in text for text in shown
        )
    assert "<SecretBytes 96 B>" in repr(voted.held[0])
