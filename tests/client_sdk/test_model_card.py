"""A head's model card."""

from dataclasses import replace

from client_sdk.records import Records
from client_sdk.result import Result
from tests.support.consortium import Consortium


def test_a_card_counts_the_records_that_the_head_cannot_answer(done: tuple[Consortium, Result]) -> None:
    consortium, result = done
    judged = result.judge(Records(*consortium.data("member-0"))).judged
    assert judged is not None
    assert judged.unanswered == 0
    plain, counting = (
        replace(result, judged=judged.model_copy(update={"unanswered": count})).model_card().splitlines()
        for count in (0, 1234)
    )
    assert f"| rows in the sum | {result.record.rows:,} |" in plain
    [more] = set(counting) - set(plain)
    assert "1,234" in more
    assert set(plain) <= set(counting)


def test_a_card_shows_the_temperature_of_a_head_that_has_one(done: tuple[Consortium, Result]) -> None:
    consortium, result = done
    judged = result.judge(Records(*consortium.data("member-0")))
    tau = judged.calibrated.temperature
    assert tau is not None
    shown = [
        f"softmax(scores/{tau:.4g})" in each.model_card()
        for each in (judged, result, replace(judged, head_file=None))
    ]
    assert shown == [True, False, False]
