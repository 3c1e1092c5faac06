import pytest

from tests.support.simulator import Federation
from veilsum.protocol.attempt import Attempt, cohort_sizes
from veilsum.protocol.cost import plan_of, upload_bytes
from veilsum.protocol.estimate import estimate
from veilsum.protocol.messages import Cards, Message, Upload
from veilsum.protocol.sizing import Committee, Sizes


def test_the_cost_stated_beforehand_is_the_bytes_that_are_sent() -> None:
    announced: dict[str, int] = {}

    def note(sender: str, message: Message) -> Message:
        if isinstance(message, Upload):
            announced[sender] = len(message.to_bytes())
        return message

    with Federation(members=5, tamper=note, question={"ring_bits": 48}) as federation:
        outcome = federation.run_round()
        for member in federation.ids:
            chunks = sum(len(packed) for (owner, _), packed in federation.spool.items() if owner == member)
            assert upload_bytes(outcome.phase.attempt, member) == announced[member] + chunks
        # The estimate made before there are terms lacks the announcement's framing, and has a decryptor send itself a box.
        attempt = outcome.phase.attempt
        foreseen = estimate(attempt.quorum, attempt.neighbour_count, 0, 99, 48).upload_bytes
        assert abs(upload_bytes(attempt, federation.ids[0]) - 32 * attempt.chunks - foreseen) < 512


def unshown(_sender: str, message: Message) -> Message | None:
    return None if isinstance(message, Cards) else message


@pytest.mark.parametrize(
    ("members", "decryptors", "committee"),
    [(5, (), Committee.EVERYONE), (9, (0, 2, 4, 6), Committee.NOMINATED), (260, (), Committee.DRAWN)],
)
def test_an_opened_rounds_plan_has_the_sizes_of_its_cohort(
    members: int, decryptors: tuple[int, ...], committee: Committee
) -> None:
    # No member is shown the cards: what it makes of 259 of them is not in question.
    with Federation(members=members, decryptors=decryptors, tamper=unshown) as federation:
        attempt = Attempt(
            federation.roster, federation.study, federation.manifest, federation.opening(federation.terms())
        )
        plan = plan_of(attempt)
        sizes = cohort_sizes(attempt.roster, attempt.question, attempt.members, repeats=False)
    assert Sizes(plan.quorum, plan.committee, plan.degree, plan.window_dropped_max) == sizes
    assert (plan.committee, plan.cost.lost) == (committee, members * attempt.question.loss // 1000)
