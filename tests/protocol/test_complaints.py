"""Up to `a` liars of every kind against whom the sum holds: searched at random, while all honest members are there (protocol §4.5)."""

import random
from collections import Counter

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Freezing
from veilsum.protocol.messages import Receipt
from veilsum.protocol.proposal import contested, disputes_among, settle
from veilsum.protocol.shelf import Announced

ROUNDS = 150
COMPLAINTS = ("each of another", "one of several", "some of few", "any of all")


class Liars:
    """`a` members: some upload nothing, some send no receipt, some spoil boxes, and all complain as they like."""

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
                    signature=bytes(64),  # nobody looks at it here
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
        """How many honest decryptors hold the dealer's shares."""
        return sum(dealer == member or dealer in self.receipts[member].dealers for member in self.honest)


@pytest.mark.parametrize("members", [5, 6, 7, 8, 9, 10, 12, 13, 16])
def test_as_many_as_collude_leave_a_set_and_its_honest_dealers_their_holders(members: int) -> None:
    federation = Federation(members)
    phase = federation.reach(Freezing)
    attempt, rng, seen = phase.attempt, random.Random(members), Counter[int]()
    threshold, colluders = attempt.quorum.threshold, attempt.quorum.decryptor_colluders
    for _ in range(ROUNDS):
        played = Liars(rng, attempt, phase.uploads)
        disputes = contested(
            attempt, played.receipts, disputes_among(attempt, played.uploads, played.receipts)
        )
        survivors, heard = settle(attempt, played.uploads, played.receipts, disputes, ())
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
