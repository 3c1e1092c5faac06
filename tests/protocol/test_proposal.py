"""Which survivors are proposed, and in which order a proposal is checked."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.counting import count_rows, indicated
from tests.support.forging import again, receipts_of
from tests.support.refusals import refused
from tests.support.simulator import Federation, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Freezing
from veilsum.protocol.coordinator.base import RECEIPT_GRACE_S
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.graph import Graph
from veilsum.protocol.messages import Receipt, Survivor, SurvivorSet
from veilsum.protocol.proposal import (
    check_proposal,
    choose_survivors,
    contested_disputes,
    covers_uploads,
    disputes_among,
)
from veilsum.protocol.shelf import Announced


def frozen(members: int = 6, **settings: object) -> tuple[Federation, Freezing]:
    federation = Federation(members, **settings)  # type: ignore[arg-type]  # the fields are Federation's own
    phase = federation.reach(Freezing)
    return federation, phase


# Complaints that need no cover


def test_a_receipt_covers_what_was_delivered_and_nothing_else() -> None:
    federation, phase = frozen()
    receipt, key = phase.receipts["member-1"], federation.keys["member-1"]
    assert covers_uploads(receipt, phase.uploads)
    complaining = again(receipt, key, dealers=receipt.dealers[1:], complaints=receipt.dealers[:1])
    assert covers_uploads(complaining, phase.uploads)
    assert not covers_uploads(again(receipt, key, dealers=receipt.dealers[1:]), phase.uploads)
    assert not covers_uploads(again(receipt, key, complaints=receipt.dealers[:1]), phase.uploads)
    assert not covers_uploads(again(receipt, key, uploads=bytes(32)), phase.uploads)
    # the same names, and a second upload of one of them
    other = replace(
        phase.uploads["member-0"], header=replace(phase.uploads["member-0"].header, salt=bytes(32))
    )
    assert not covers_uploads(receipt, {**phase.uploads, "member-0": other})
    assert not covers_uploads(receipt, {m: upload for m, upload in phase.uploads.items() if m != "member-0"})


# Checks without secrets


def refusal(
    attempt: Attempt, survivors: tuple[Survivor, ...], earlier: tuple[SurvivorSet, ...] = ()
) -> Cause | None:
    try:
        check_proposal(attempt, survivors, earlier)
    except PeerFault as fault:
        return fault.cause
    return None


def test_windows_come_before_what_the_attempt_rests_on() -> None:
    """On a ring whose windows allow no dropout, one is too many."""
    _, phase = frozen()
    attempt, shown = (
        replace(phase.attempt, manifest=replace(phase.attempt.manifest)),
        (SurvivorSet(phase.survivors),),
    )
    vars(attempt.manifest)["graph"] = Graph(attempt.members, 2, attempt.manifest.beacon)
    assert refusal(attempt, phase.survivors[1:], shown) is Cause.WINDOW_EXCEEDED
    assert refusal(attempt, phase.survivors, shown) is Cause.MALFORMED


# The set that the attempt rests on


def resting(*, repeats: bool) -> tuple[Attempt, tuple[Survivor, ...], tuple[SurvivorSet, ...]]:
    """Return an attempt that rests on another, its honest proposal, and the other's certified set."""
    federation = indicated()
    count_rows(federation)
    if repeats:
        context = federation.run_round().phase.attempt.context
        federation.tell_ending()
        federation.enrol("period-0", context)
    phase = federation.reach(Freezing)
    return phase.attempt, phase.survivors, phase.setting.earlier


@pytest.mark.parametrize(("repeats", "cause"), [(False, Cause.COUNT_MISMATCH), (True, Cause.REPEAT_MISMATCH)])
def test_the_set_shown_is_the_one_that_was_certified(*, repeats: bool, cause: Cause) -> None:
    attempt, survivors, earlier = resting(repeats=repeats)
    assert refusal(attempt, survivors, earlier) is None
    assert refusal(attempt, survivors) is Cause.MALFORMED
    *others, shown = earlier
    assert len(others) == (0 if repeats else 1)
    for forged in (shown.survivors[1:], shown.survivors[::-1], survivors):
        assert refusal(attempt, survivors, (*others, SurvivorSet(forged))) is cause
        assert refusal(attempt, survivors, (SurvivorSet(forged), *others)) is cause
    # a set whose link the opening does not hold; its opening was refused already
    bare = replace(attempt, opening=replace(attempt.opening, links=()))
    assert refusal(bare, survivors, earlier) is cause


def test_a_repeated_run_sums_exactly_the_repeated_members() -> None:
    attempt, survivors, earlier = resting(repeats=True)
    assert len(survivors) == 7
    assert attempt.quorum.survivors_min == 7
    # n_min says so already; with a smaller one the set itself does
    vars(attempt)["quorum"] = replace(attempt.quorum, survivors_min=4)
    with refused("repeat-mismatch", "member-6"):
        check_proposal(attempt, survivors[:6], earlier)


def test_under_a_count_only_counted_members_are_summed_and_the_margin_may_miss() -> None:
    attempt, survivors, earlier = resting(repeats=False)
    assert refusal(attempt, survivors[1:], earlier) is None
    with refused("count-mismatch", "member-0", "member-1"):
        check_proposal(attempt, survivors[2:], earlier)
    # an evicted member was not counted, and doesn't use up the margin
    evicting = replace(attempt.terms, evicted=("member-0",))
    attempt = replace(attempt, opening=replace(attempt.opening, terms=evicting))
    assert refusal(attempt, survivors[2:], earlier) is None
    with refused("count-mismatch", "member-0"):
        check_proposal(attempt, survivors, earlier)


# One liar among few receipts: which dealers lose their place while other receipts are in transit (wire: Survivors).


def test_a_liar_within_the_grace_leaves_nobody_out_whose_holders_are_on_their_way() -> None:
    """Three honest dealers had seven clean receipts of the required eight: a set of the other eight could be proposed."""
    federation = Federation(12)
    phase: Any = federation.reach(Checking)
    liar, *honest = federation.ids
    receipts, threshold = receipts_of(federation, phase), phase.attempt.quorum.threshold
    told, victims = receipts[liar], tuple(honest[:3])
    clean = tuple(dealer for dealer in told.dealers if dealer not in victims)
    false = again(told, federation.keys[liar], dealers=clean, complaints=victims)
    phase = phase.receive(false, federation.now_s)
    for member in honest[: threshold - 1]:
        phase = phase.receive(receipts[member], federation.now_s)
    assert phase.deadline_s == federation.now_s + min(RECEIPT_GRACE_S, phase.setting.windows.answer)
    waiting = of(Checking, phase.pass_deadline(phase.deadline_s))
    assert waiting.deadline_s == phase.latest_s
    # receipts that arrive 20 seconds later show that nothing was wrong with these boxes
    late: Any = waiting
    for member in honest[threshold - 1 :]:
        late = late.receive(receipts[member], federation.now_s + 20)
    assert isinstance(late, Freezing)
    assert tuple(each.member for each in late.survivors) == federation.ids
    # if they never arrive, no other member holds shares of the three
    assert waiting.deadline_s is not None
    alone = of(Freezing, waiting.pass_deadline(waiting.deadline_s))
    assert tuple(each.member for each in alone.survivors) == tuple(honest[3:])


# Up to `a` liars of every kind against whom the sum holds: searched at random, while all honest members are there (wire: Survivors).


ROUNDS = 150
COMPLAINTS = ("each of another", "one of several", "some of few", "any of all")


class Liars:
    """Let `a` members lie: some upload nothing, some send no receipt, some spoil boxes, and all complain at will."""

    def __init__(self, rng: random.Random, attempt: Attempt, uploads: dict[str, Announced]) -> None:
        quorum, members = attempt.quorum, attempt.members
        self.liars = sorted(rng.sample(members, quorum.colluders))
        self.honest = [member for member in members if member not in self.liars]
        away, quiet = rng.random(), rng.random() / 2
        self.uploads = {
            member: each for member, each in uploads.items() if member in self.honest or rng.random() >= away
        }
        silent = {member for member in self.liars if rng.random() < quiet}
        spoilt = {
            liar: set(rng.sample(self.honest, rng.randint(0, quorum.decryptors - quorum.threshold)))
            for liar in self.liars
        }
        victims, kind = rng.sample(self.honest, quorum.colluders), rng.choice(COMPLAINTS)
        self.receipts: dict[str, Receipt] = {}
        for member in members:
            against = {liar for liar, of in spoilt.items() if member in of}
            if member in self.liars:
                against = self._accused(rng, kind, victims, member)
            if member not in silent:
                dealers = [each for each in self.uploads if each != member]
                clean = tuple(each for each in dealers if each not in against)
                complaints = tuple(each for each in dealers if each in against)
                self.receipts[member] = Receipt(
                    context=attempt.context,
                    member=member,
                    uploads=bytes(32),
                    dealers=clean,
                    complaints=complaints,
                    signature=bytes(64),  # not checked here
                )

    def _accused(self, rng: random.Random, kind: str, victims: list[str], liar: str) -> set[str]:
        if kind == "each of another":
            return {victims[self.liars.index(liar)]}
        if kind == "one of several":
            return set(victims[: rng.randint(1, len(victims))])
        if kind == "some of few":
            return set(rng.sample(victims, rng.randint(0, min(2, len(victims)))))
        return {member for member in self.honest if rng.random() < rng.random()}

    def honest_holders(self, dealer: str) -> int:
        """Return how many honest decryptors hold the dealer's shares."""
        return sum(dealer == member or dealer in self.receipts[member].dealers for member in self.honest)


@pytest.mark.parametrize("members", [5, 6, 8, 9, 12, 16])
def test_as_many_as_collude_leave_a_set_and_its_honest_dealers_their_holders(members: int) -> None:
    federation = Federation(members)
    phase = federation.reach(Freezing)
    attempt, rng, seen = phase.attempt, random.Random(members), Counter[int]()
    threshold, colluders = attempt.quorum.threshold, attempt.quorum.decryptor_colluders
    for _ in range(ROUNDS):
        played = Liars(rng, attempt, phase.uploads)
        disputes = contested_disputes(
            attempt, played.receipts, disputes_among(attempt, played.uploads, played.receipts)
        )
        survivors, heard = choose_survivors(attempt, played.uploads, played.receipts, disputes, ())
        assert len(survivors) >= attempt.quorum.survivors_min
        assert all({*each.parties} & {*played.liars} for each in disputes)
        assert all(played.honest_holders(each) >= threshold for each in survivors if each in played.honest)
        accused = {each.one for each in disputes}
        vouched = [each for each in played.uploads if each not in accused]
        assert all(
            played.honest_holders(each) >= threshold
            for each in vouched
            if sum(each in receipt.dealers for receipt in played.receipts.values())
            + (each in played.receipts)
            >= threshold + colluders
        )
        seen[len(disputes) - len(heard)] += 1
    assert members in {6, 7} or len(seen) > 1
