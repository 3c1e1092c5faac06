"""A hostile coordinator, alone or with colluding members, against honest ones: each attack fails by its name."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tests.protocol.forging import again
from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Freezing, Recovered, Revealing, Voided, VoidedByErasure
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keystream import Masks
from veilsum.protocol.member import Checked, Closed, Opened, Ready, Uploaded, Voted
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import (
    Cards,
    Certificate,
    Deliveries,
    Entry,
    Freeze,
    Message,
    Opening,
    Roster,
    Shown,
    SurvivorSet,
    Upload,
    VoidRequest,
    Vote,
    cards_tree,
    survivors_hash,
)
from veilsum.protocol.packing import unpack
from veilsum.protocol.sealing import unseal
from veilsum.protocol.shelf import Trees

VICTIM = "member-0"


def pairs_of(phase: object, boxes: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - which of two kinds
    ready = getattr(phase, "ready", phase)
    assert isinstance(ready, Ready)
    return {pair.peer: pair for pair in (ready.boxes if boxes else ready.masks)}


# Members who are shown different things


def recarded(federation: Federation, colluder: str) -> Cards:
    """The cohort's cards with another one of a colluder, validly signed, under the root that they then have."""
    cards = [shown.card for shown in federation.cards.shown]
    place = federation.ids.index(colluder)
    cards[place] = again(cards[place], federation.keys[colluder], nonce=b"\x66" * 32)
    manifest = replace(federation.manifest, cards_root=cards_tree(cards).root)
    return Cards(manifest, tuple(Shown(card, ()) for card in cards))


@pytest.fixture
def split() -> Federation:
    federation = Federation(5)
    honest = federation.manifest
    federation.tamper = lambda sender, message: None if ">" in sender else message
    federation.enrol("other-1")
    assert federation.manifest != honest
    for member in federation.ids:
        shown = recarded(federation, "member-4") if member == VICTIM else federation.cards
        federation.phases[member], _ = federation.phases[member].receive(
            shown, federation.keys[member], federation.now_s
        )
    federation.tamper = lambda _sender, message: message
    return federation


def test_regression_cards_outside_the_context(split: Federation) -> None:
    """Two members shown different manifests derive different contexts and pair secrets, and nothing opens.

    Without the cards in the context, a victim shown other cards than the rest was opened without any colluder.
    """
    opening = split.opening(split.terms())
    phases = {}
    for member in split.ids:
        phase, _ = split.phases[member].receive(opening, split.keys[member], split.now_s)
        assert isinstance(phase, Opened)
        phases[member] = phase
    mine, theirs = phases[VICTIM].attempt.context, phases["member-1"].attempt.context
    assert mine != theirs
    assert len({phase.attempt.context for phase in phases.values()}) == 2
    for other in split.ids[1:]:
        ours, back = pairs_of(phases[VICTIM])[other], pairs_of(phases[other])[VICTIM]
        for context in (mine, theirs):
            assert ours.mask_seed(VICTIM, context) != back.mask_seed(other, context)
        mine_, theirs_ = (
            pairs_of(phases[VICTIM], boxes=True)[other],
            pairs_of(phases[other], boxes=True)[VICTIM],
        )
        for context in (mine, theirs):
            salt = bytes(32)
            assert mine_.box_key(VICTIM, other, context, salt) != theirs_.box_key(
                VICTIM, other, context, salt
            )
    # between the others everything stands
    one, two = pairs_of(phases["member-1"])["member-2"], pairs_of(phases["member-2"])["member-1"]
    assert one.mask_seed("member-1", theirs) == two.mask_seed("member-2", theirs)


def test_a_victim_of_other_cards_is_left_out_by_name(split: Federation) -> None:
    outcome = split.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == split.ids[1:]
    assert ("coordinator", Cause.WRONG_CONTEXT) in [(who, fault.cause) for who, fault in outcome.faults]
    assert outcome.total is not None
    expected = np.sum([split.vectors_now[m] for m in split.ids[1:]], axis=0)
    assert np.array_equal(outcome.total, expected)


def test_a_coordinator_that_hides_the_difference_opens_no_box_of_the_victims(split: Federation) -> None:
    split.begin()
    checking = split.run_until(Checking)
    assert isinstance(checking, Checking)
    victim = split.phases[VICTIM]
    assert isinstance(victim, Uploaded)
    upload = victim.uploads[0]
    # delivered as it is, it is refused: its context is another
    shown = checking.request_for("member-1")
    assert isinstance(shown, Deliveries)
    shown = replace(shown, deliveries=(Trees.of(upload).delivery(upload, 1), *shown.deliveries))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-0\]$"):
        split.phases["member-1"].receive(shown, split.keys["member-1"], split.now_s)
    # and no honest decryptor's key opens its box in any of the two contexts
    key = pairs_of(split.phases["member-1"], boxes=True)[VICTIM]
    for context in (victim.attempt.context, checking.attempt.context):
        with pytest.raises(PeerFault, match=r"^box-refused:"):
            unseal(
                key.box_key(VICTIM, "member-1", context, upload.header.salt), upload.boxes[1], context, VICTIM
            )


def test_a_victim_of_another_roster_enrols_in_another_cohort() -> None:
    federation = Federation(5)
    sybil = SigningKey(b"\x66" * 32)
    other = again(
        federation.roster,
        federation.admin,
        number=2,
        members=(*federation.roster.members, Entry("sybil", sybil.public)),
    )
    assert isinstance(other, Roster)
    other.verify_admin(federation.admin.public, seen=federation.roster)
    moved = replace(federation.manifest, roster_hash=other.hash)
    federation.tamper = lambda sender, message: None if ">" in sender else message
    federation.enrol("other-1")
    for manifest in (moved, replace(federation.manifest, roster_hash=other.hash)):
        shown = replace(federation.cards, manifest=manifest)
        with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
            federation.phases[VICTIM].receive(shown, federation.keys[VICTIM], federation.now_s)


TERMS: list[dict[str, Any]] = [{"latest_end_s": 2_000_000}, {"latest_end_s": 1_000_001}]


@pytest.mark.parametrize("change", TERMS, ids=["later", "sooner"])
def test_terms_changed_for_one_member_leave_it_out_and_its_masks_do_not_cancel(
    change: dict[str, Any],
) -> None:
    federation = Federation(5)

    def tamper(sender: str, message: Message) -> Message:
        if sender == f"coordinator>{VICTIM}" and isinstance(message, Opening):
            opening = again(message, federation.coordinator, terms=replace(message.terms, **change))
            assert isinstance(opening, Opening)
            return opening
        return message

    federation.tamper = tamper
    federation.begin()
    phase = federation.run_until(Revealing)
    assert isinstance(phase, Revealing)
    assert [survivor.member for survivor in phase.certificate.survivors] == list(federation.ids[1:])
    who, fault = federation.faults[0]
    assert (who, fault.cause) == ("coordinator", Cause.WRONG_CONTEXT)
    # what the victim sent is not x + the masks that the others would take off
    victim, other = federation.phases[VICTIM], federation.phases["member-1"]
    assert isinstance(victim, Attempting)
    assert isinstance(other, Attempting)
    seeds = {peer: pair.mask_seed(VICTIM, other.attempt.context) for peer, pair in pairs_of(victim).items()}
    words = unpack(federation.spool[VICTIM, 0], 32, 64)
    words = words.copy()
    Masks(other.attempt.ring, subtracted=list(seeds.values())).apply(words, 0)
    assert np.abs(other.attempt.ring.lift(words) - federation.vectors_now[VICTIM][:64]).max() > 1 << 20


def test_terms_changed_without_a_signature_are_refused_at_once() -> None:
    federation = Federation(5)

    def tamper(sender: str, message: Message) -> Message:
        if sender == f"coordinator>{VICTIM}" and isinstance(message, Opening):
            return replace(message, terms=replace(message.terms, latest_end_s=2_000_000))
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert (VICTIM, Cause.BAD_SIGNATURE) in [(who, fault.cause) for who, fault in outcome.faults]
    assert outcome.survivors == federation.ids[1:]


# Split survivors


def freezing(members: int) -> tuple[Federation, Freezing]:
    federation = Federation(members)
    federation.begin()
    phase = federation.run_until(Freezing)
    assert isinstance(phase, Freezing)
    return federation, phase


@pytest.mark.parametrize("members", [5, 6, 8])
def test_of_all_sets_shown_to_different_decryptors_at_most_one_is_certified(members: int) -> None:
    federation, phase = freezing(members)
    quorum, context = phase.attempt.quorum, phase.attempt.context
    headers = tuple(upload.header for upload in phase.uploads.values())
    left, right = headers[: quorum.survivors_min], headers[members - quorum.survivors_min :]
    assert left != right
    colluders = federation.ids[: quorum.colluders]
    best = 0
    honest = [m for m in federation.ids if m not in colluders]
    for cut in range(len(honest) + 1):
        votes: dict[bytes, set[str]] = {}
        for place, member in enumerate(honest):
            shown = Freeze(context, left if place < cut else right, ())
            voted, (vote,) = federation.phases[member].receive(
                shown, federation.keys[member], federation.now_s
            )
            assert isinstance(voted, Voted)
            assert isinstance(vote, Vote)
            votes.setdefault(vote.outcome, set(colluders)).add(member)
            for second in (left, right):
                if second != shown.headers:
                    with pytest.raises(PeerFault, match=r"^already-voted:"):
                        voted.receive(Freeze(context, second, ()), federation.keys[member], federation.now_s)
        # the colluders sign everything
        best = max(best, sum(len(voters) >= quorum.threshold for voters in votes.values()))
    assert best == 1


@pytest.mark.parametrize("members", [5, 6, 8, 12])
def test_survivors_and_void_are_never_both_certified(members: int) -> None:
    federation = Federation(members)
    quorum, colluders = federation.manifest, federation.content.question.a
    honest = members - colluders
    # honest decryptors sign one of the two, colluders both
    for survivors in range(honest + 1):
        both = [survivors + colluders, honest - survivors + colluders]
        assert sum(votes >= quorum.threshold for votes in both) <= 1


def test_both_secrets_of_one_member_cannot_be_had_by_two_certificates() -> None:
    """The coordinator wants b_u from a set with u, and u's edges from a set without it."""
    federation, phase = freezing(6)
    context = phase.attempt.context
    headers = tuple(upload.header for upload in phase.uploads.values())
    without = headers[1:]
    threshold, colluder = phase.attempt.quorum.threshold, "member-5"
    assert phase.attempt.quorum.colluders == 1
    shown = {m: Freeze(context, headers if i < 3 else without, ()) for i, m in enumerate(federation.ids[:5])}
    outcomes: dict[bytes, list[Vote]] = {}
    for member, freeze in shown.items():
        federation.phases[member], (vote,) = federation.phases[member].receive(
            freeze, federation.keys[member], federation.now_s
        )
        assert isinstance(vote, Vote)
        outcomes.setdefault(vote.outcome, []).append(vote)
    for outcome, votes in outcomes.items():
        forged = Vote.make(federation.keys[colluder], context=context, member=colluder, outcome=outcome)
        survivors = phase.survivors if len(votes) == 3 else phase.survivors[1:]
        assert survivors_hash(context, survivors) == outcome
        certificate = Certificate(context, survivors, "none", (*votes, forged))
        if len(certificate.votes) >= threshold:
            continue
        for member in federation.ids[:5]:
            with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
                federation.phases[member].receive(certificate, federation.keys[member], federation.now_s)
    assert sorted(len(votes) for votes in outcomes.values()) == [2, 3]


def test_shrunk_survivors_above_the_shamir_threshold_are_refused_by_every_decryptor() -> None:
    federation = Federation(6, decryptors=(0, 1, 2, 3))

    def tamper(sender: str, message: Message) -> Message:
        if isinstance(message, Freeze):
            return replace(message, headers=message.headers[: federation.manifest.survivors_min - 1])
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert federation.manifest.threshold <= federation.manifest.survivors_min - 1
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.SURVIVORS_TOO_FEW


# Two sums


def repeated(federation: Federation) -> bytes:
    """Sum, then form a cohort of the same members that sums the same records again."""
    context = federation.run_round().phase.attempt.context
    federation._tell_ending()
    federation.enrol("period-0", context)
    return context


def test_two_sums_of_the_same_records_that_differ_in_one_member_are_not_both_signed() -> None:
    """S and S without u: their difference is x_u."""
    federation = Federation(6)
    repeated(federation)
    federation.tamper = lambda sender, m: None if sender == VICTIM and isinstance(m, Upload) else m
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.parties) == (Cause.SURVIVORS_TOO_FEW, (VICTIM,))


def test_nor_by_a_coordinator_that_asks_all_the_same() -> None:
    federation = Federation(6)
    repeated(federation)
    federation.tamper = lambda _sender, m: replace(m, headers=m.headers[1:]) if isinstance(m, Freeze) else m
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.SURVIVORS_TOO_FEW


def test_nor_by_one_that_hides_the_first_sum_in_the_chain() -> None:
    federation = Federation(6)
    assert isinstance(federation.run_round().phase, Recovered)
    federation._tell_ending()
    federation.enrol("period-0")
    federation.links = ()
    outcome = federation.run_round()
    assert outcome.total is None
    hidden = {who for who, fault in outcome.faults if fault.cause is Cause.OUTCOME_MISSING}
    assert hidden == set(federation.ids)
    assert federation.spool == {}


@pytest.mark.parametrize("forged", [(), (0, 1, 2, 3, 4)], ids=["hidden", "smaller"])
def test_nor_by_one_that_forges_it_for_decryptors(forged: tuple[int, ...]) -> None:
    federation = Federation(6)
    context = repeated(federation)
    shown = tuple(federation.sets[context][index] for index in forged)
    earlier = (SurvivorSet(shown),) if forged else ()
    federation.tamper = lambda _sender, m: replace(m, earlier=earlier) if isinstance(m, Freeze) else m
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is (Cause.REPEAT_MISMATCH if forged else Cause.MALFORMED)


# Void


def test_a_void_that_some_signed_and_survivors_that_others_signed_end_by_erasure() -> None:
    federation, phase = freezing(6)
    context = phase.attempt.context
    for member in ("member-4", "member-5"):
        federation.phases[member], _ = federation.phases[member].receive(
            VoidRequest(context, "cancelled"), federation.keys[member], federation.now_s
        )

    silenced = {"member-3"}
    federation.tamper = lambda sender, message: None if sender in silenced else message
    end = federation.run_until()
    assert isinstance(end, VoidedByErasure)
    assert end.fault.cause is Cause.QUORUM_LOST
    federation.tamper = lambda _sender, message: message
    outcome = federation.finish()
    # three signed the set, and nothing of it was revealed
    assert federation.links[0].reason == "erased"
    assert outcome.total is None


@pytest.mark.parametrize("pair", list(combinations(range(5), 2)))
def test_any_two_members_share_a_seed_that_nobody_else_derives(pair: tuple[int, int]) -> None:
    federation = Federation(5)
    federation.begin()
    federation.run_until(Freezing)
    context = federation.phase.attempt.context
    u, v = (federation.ids[i] for i in pair)
    seed = pairs_of(federation.phases[u])[v].mask_seed(u, context)
    for member in federation.ids:
        phase = federation.phases[member]
        assert isinstance(phase, Checked)
        seeds = {peer: p.mask_seed(member, context) for peer, p in pairs_of(phase).items()}
        held = [peer for peer, other in seeds.items() if other == seed]
        assert held == ({u: [v], v: [u]}.get(member, []))


def test_an_attempt_that_ended_leaves_everyone_closed() -> None:
    federation = Federation(5)
    federation.run_round()
    assert all(isinstance(phase, Closed) for phase in federation.phases.values())
