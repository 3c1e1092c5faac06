"""`veilsum operator run` goes from enrolment to the result by itself: failed steps are repeated, and it may be stopped anywhere."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import Unreachable
from service.coordination import solving
from tests.support.cli import EXTRACTOR, PATIENCE_S, PERIOD, TOKEN, Cli, CliConsortium, later, records
from veilsum.cli import running
from veilsum.cli.remote import open_operator
from veilsum.cli.round_view import progress_line
from veilsum.cli.running import Following, find_study
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import CohortView, RoundView
from veilsum.study.progress import RESTORED_ADVICE

Make = Callable[..., CliConsortium]


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
    monkeypatch.setattr(running, "Following", partial(running.Following, attempts_max=2))
    c = consortium()
    failing("sum", times=2)
    run, joins = c.run(), [c.join(member) for member in c.members]
    assert re.match(rf"step sum .*{PERIOD} .*\b2 times", run.result(PATIENCE_S).error)
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
    assert [each.result(PATIENCE_S).code for each in joins] == [0] * 3


@pytest.mark.parametrize(
    "ids", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["without ids", "with ids"]
)
def test_records_that_were_summed_are_summed_again_under_another_extractor(
    consortium: Make, remote: Cli, *, ids: bool
) -> None:
    enough = {"least = 17": "least = 20"}  # of each member, for one more sum
    c, rng = consortium(5, edits=enough), np.random.default_rng(5)
    features, labels = records(rng, 40)
    for member, path in zip(c.members, c.files, strict=True):
        own = [f"{member}-{row}" for row in range(40)] if ids else None
        assert c.write(member, features, labels, own) == path
    first, _ = c.held()
    study, approval = c.signed_study("other", edits={EXTRACTOR: "cd" * 32, **enough})
    remote.operate("admin", "publish", study)
    again, _ = records(rng, 40)
    for member in c.members:  # the same exams, through the new extractor
        c.write(member, again, labels, [f"{member}-{row}" for row in range(40)] if ids else None)

    def join(member: str) -> Any:
        words = ("member", "join", c.folder / member, c.folder / f"{member}.npz", "--approve", approval)
        return later(remote, *remote.at(*words, "--once", "--json"))

    run = later(remote, *remote.at("operator", "run", study, "--period", PERIOD, "--token", TOKEN, "--json"))
    joining = [join(member) for member in c.members]
    joined = [each.result(PATIENCE_S) for each in joining]
    assert [each.code for each in joined] == [0] * 5, joined
    done = run.result(PATIENCE_S)
    assert (done.code, done.values["name"], done.values["rows"]) == (0, "other", first["rows"])
    assert first["round"] in done.err
    with open_operator(remote.url) as client:
        assert [run.repeats for run in client.runs(c.admin).runs] == [None, first["context"]]


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


@pytest.mark.parametrize(("answer_s", "presence_s"), [(240, 120.0), (172_800, 86_400.0)])
def test_a_step_opens_once_enough_members_were_heard_within_half_of_their_time_to_answer(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch, answer_s: int, presence_s: float
) -> None:
    c, asked = consortium(edits={"answer = 60": f"answer = {answer_s}"}), list[float]()
    c.enrolled()

    def refuse(_cohort: str, *, heard_within_s: float, **_: object) -> None:
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


@pytest.mark.parametrize("forgotten", ["round", "cohort", "open_round"])
def test_what_a_restored_coordinator_forgot_does_not_end_the_command(
    consortium: Make, remote: Cli, monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    c, said = consortium(), list[Any]()
    if forgotten == "cohort":
        shown = remote.operate("operator", "cohort", "open", c.study, "--period", PERIOD)["cohort"]
    else:
        shown = c.enrolled()
    with open_operator(remote.url, TOKEN) as client:
        if forgotten == "round":
            shown = client.open_round(shown).round
        honest, left = getattr(client, forgotten), [forgotten != "open_round"]

        def forget(*given: Any, **options: Any) -> Any:
            """The first view is of the coordinator before it was restored."""
            if left[0]:
                left[0] = False
                return honest(*given, **options)
            raise PeerFault(Cause.NOT_FOUND, "there is no such round")

        def pause(_: float) -> None:
            raise Interrupted

        monkeypatch.setattr(client, forgotten, forget)
        with pytest.raises(Interrupted):
            Following(client, said.append, pause=pause).run_study(
                c.admin, find_study(client, c.admin, "digits"), PERIOD
            )
    assert (shown in said[-1], RESTORED_ADVICE in said[-1]) == (True, True)


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
