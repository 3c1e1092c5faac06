"""`veilsum operator run` goes from enrolment to the result by itself: failed steps are repeated, and it may be stopped anywhere."""

from collections.abc import Callable
from typing import Any

import pytest

from client_sdk.errors import Unreachable
from service.coordination import solving
from tests.support.cli import PATIENCE_S, PERIOD, TOKEN, Cli, Consortium
from veilsum.cli import running
from veilsum.cli.remote import open_operator
from veilsum.cli.round_view import progress_line
from veilsum.cli.running import Following, find_study
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import CohortView, RoundView

Make = Callable[..., Consortium]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RUN_RETRY_S", 0.2)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this many certified attempts at a step fail at the coordinator, one after the other."""

    def arm(step: str, times: int = 1) -> None:
        name = {"count": "publish_counts", "sum": "solve_sum"}[step]
        honest, left = getattr(solving, name), [times]

        def broken(*args: Any, **kwargs: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise PeerFault(Cause.SUM_CHECK_FAILED, "the trace of V is not the number of rows")
            return honest(*args, **kwargs)

        monkeypatch.setattr(solving, name, broken)

    return arm


def test_a_step_that_never_has_a_result_ends_the_command(
    consortium: Make, failing: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "ATTEMPTS_MAX", 2)
    c = consortium()
    failing("sum", times=2)
    run, joins = c.run(), [c.join(member) for member in c.members]
    assert run.result(PATIENCE_S).error.startswith(
        f"2 times in a row step sum of period {PERIOD} had no result. The last"
    )
    done = c.run("--json").result(PATIENCE_S)  # the same command continues
    assert done.values["rows"] == 120
    assert [each.result(PATIENCE_S).code for each in joins] == [0] * 3


def test_a_roster_that_was_replaced_after_enrolment_has_members_enrol_again(
    consortium: Make, remote: Cli
) -> None:
    c = consortium()
    c.enrolled()
    remote.json("admin", "roster", c.draft, "--reader", "m0", "--folder", c.folder / "admin")
    remote.operate("admin", "publish", c.roster)
    run, joins = c.run("--json"), [c.join(member) for member in c.members]
    done = run.result(PATIENCE_S)
    assert done.values["rows"] == 120
    assert "The roster was replaced after enrolment" in done.err
    assert [each.result(PATIENCE_S).code for each in joins] == [0] * 3


# Stopped and started again


class Interrupted(BaseException):
    """Ctrl-C at a place chosen by the test."""


def test_an_answer_that_was_lost_is_not_looked_for_in_haste(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, happened = consortium(), list[Any]()

    def lost(*_: Any) -> None:
        happened.append("asked")
        raise Unreachable("HTTP 500") if len(happened) < 3 else Interrupted

    with open_operator(remote.url, TOKEN) as client:
        monkeypatch.setattr(client, "open_cohort", lost)
        study = find_study(client, c.admin, "digits")
        following = Following(client, happened.append, pause=lambda _: happened.append("paused"))
        with pytest.raises(Interrupted):
            following.run_study(c.admin, study, PERIOD)
    assert happened == ["asked", "HTTP 500. Looking again.", "paused", "asked"]


@pytest.mark.parametrize(("answer_s", "presence_s"), [(60, 120.0), (240, 120.0), (172_800, 86_400.0)])
def test_a_step_opens_once_enough_members_were_heard_within_half_of_their_time_to_answer(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch, answer_s: int, presence_s: float
) -> None:
    c, asked = consortium(edits={"answer = 60": f"answer = {answer_s}"}), list[float]()
    c.enrolled()

    def refuse(_cohort: str, *, heard_within_s: float) -> None:
        asked.append(heard_within_s)
        if len(asked) == 2:
            raise Interrupted
        raise PeerFault(Cause.TERMS_REFUSED, "2 of 3 members heard from")

    with open_operator(remote.url, TOKEN) as client:
        monkeypatch.setattr(client, "open_round", refuse)
        following = Following(client, lambda _: None, pause=lambda _: None)
        with pytest.raises(Interrupted):
            following.run_study(c.admin, find_study(client, c.admin, "digits"), PERIOD)
    assert asked == [presence_s, presence_s]


@pytest.mark.slow
def test_whoever_starts_the_command_again_finds_the_run_at_each_point(
    consortium: Make, remote: Cli, failing: Callable[..., None]
) -> None:
    c = consortium(5, withhold=True)
    failing("sum")
    joins, seen = [c.join(member) for member in c.members], set[str]()

    def tell(news: CohortView | RoundView | str) -> None:
        text = news if isinstance(news, str) else progress_line(news)
        if text not in seen:
            seen.add(text)
            raise Interrupted

    result: RoundView | None = None
    while result is None:
        with open_operator(remote.url, TOKEN) as client:
            study = find_study(client, c.admin, "digits")
            try:
                result = Following(client, tell).run_study(c.admin, study, PERIOD)
            except Interrupted:
                continue
    assert result.state == "done"
    assert len(seen) > 12
    assert [each.result(PATIENCE_S).code for each in joins] == [0] * 5
    with open_operator(remote.url) as client:
        assert len(client.runs(c.admin).runs) == 2  # nothing was opened twice
