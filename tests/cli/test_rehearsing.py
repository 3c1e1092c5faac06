"""A rehearsal with its sites, as `veilsum operator rehearse` holds it."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from client_sdk.environment import Environment
from client_sdk.errors import PeerFault
from client_sdk.identity import Identity
from client_sdk.member import Member
from client_sdk.operator import Operator
from client_sdk.records import Records
from client_sdk.store import Store
from client_sdk.transport import BlockingDriver
from tests.client_sdk.conftest import closed, stage
from tests.support.consortium import CLASSES, DIM, NOISY, WITHHOLDING, Consortium, Tap
from tests.support.serving import Line, Stage
from veilsum.cli import rehearsing
from veilsum.cli.commands.member import load_unexported
from veilsum.cli.rehearsing import Rehearsed, rehearse
from veilsum.cli.running import find_study
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import CohortView, Scope, SitesView, TokenRequest
from veilsum.protocol.round_spec import RoundSpec
from veilsum.study.canaries import CanaryPack
from veilsum.study.vectors import compute_vector

__all__ = ["closed", "stage"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without pauses: the coordinator answers a poll once there is news."""
    for interval in ("client_sdk.session.POLL_MIN_S", "veilsum.cli.running.REHEARSAL_POLL_S"):
        monkeypatch.setattr(interval, 0.05)
    monkeypatch.setattr("client_sdk.agent.RUNS_POLL_S", 0.2)  # it is answered at once, news or not


GRADIENTS: dict[str, Any] = {**NOISY, "noise": {**NOISY["noise"], "recipe": "mean+sum+6-gradients"}}
PERIOD, COUNT = "rehearsal-1", 8
ROWS = np.random.default_rng(5).standard_normal((COUNT, DIM))
KEYS = [CLASSES[place % 2] for place in range(COUNT)]
IDS = [f"canary-{place}" for place in range(COUNT)]


@pytest.fixture
def rehearsed(stage: Stage, tmp_path: Path, request: pytest.FixtureRequest) -> Consortium:
    """Four members, unless the test asks for more, and a study with a pack."""
    made = Consortium(stage, tmp_path, members=getattr(request, "param", 4))
    pack = CanaryPack(IDS, KEYS, ROWS)
    made.rehearsal = {"pack": pack.digest, "tolerance": 1e-3}
    made.revise(members_min=4)
    made.operator.publish_canaries(made.name, pack)
    return made


def with_canaries(consortium: Consortium, member: str, rows: np.ndarray, order: int = 1) -> Records:
    features, labels = consortium.data(member)
    return Records(
        np.concatenate([features, rows[::order]]),
        [*(CLASSES[label] for label in labels), *KEYS[::order]],
        [*(f"p-{row}" for row in range(len(labels))), *IDS[::order]],
    )


def look(consortium: Consortium, period: str = PERIOD) -> Rehearsed:
    """Do what the operator does: hold a rehearsal, or judge one that was held."""
    study = find_study(consortium.operator, consortium.name, "study")
    return rehearse(consortium.operator, lambda _: None, consortium.name, study, period)


def hold(
    consortium: Consortium,
    change: Callable[[str, Member], Records] | None = None,
    period: str = PERIOD,
    asleep: str = "",
) -> Rehearsed:
    """Hold a rehearsal: whole members in threads, except the one that is asleep, and the operator here."""

    def take_part(member: str) -> None:
        ahead_s = 300.0 if (change is not None and member == "member-2") else 0.0
        policy = replace(consortium.policy, reports_site=change is None or member != "member-3")
        with Member(
            consortium.stage.url,
            Identity.load(consortium.folder / member),
            policy,
            environment=Environment(now_s=lambda: consortium.clock() + ahead_s),
            driver=BlockingDriver(consortium.stage.url, transport=Tap(consortium)),
        ) as process:
            given = with_canaries(consortium, member, ROWS, -1) if change is None else change(member, process)
            assert [*process.join(given, once=True, period=period)] == []

    with ThreadPoolExecutor(len(consortium.ids)) as pool:
        going = [pool.submit(take_part, member) for member in consortium.ids if member != asleep]
        done = look(consortium, period)
        for each in going:
            if (error := each.exception(60)) is not None and not isinstance(error, PeerFault):
                raise error
    return done


def test_a_period_of_records_is_not_rehearsed(rehearsed: Consortium) -> None:
    for period in ("2026-11", "judge-1"):
        with pytest.raises(Misuse, match=period):
            look(rehearsed, period)
    assert rehearsed.operator.runs(rehearsed.name).runs == ()


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        (WITHHOLDING, ["sum"]),
        (NOISY, ["mean", "sum"]),
        pytest.param(GRADIENTS, ["mean", "sum", "gradient-2"], marks=pytest.mark.slow),
    ],
    ids=["withholding", "noisy", "gradients"],
)
def test_each_step_of_sites_that_agree_is_checked_against_the_reference(
    rehearsed: Consortium, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any], steps: list[str]
) -> None:
    if "noise" in question:
        rehearsed.rehearsal = {**(rehearsed.rehearsal or {}), "tolerance": 0.5}
    rehearsed.revise(members_min=4, **question)
    done = hold(rehearsed)
    assert (done.ok, done.failure) == (True, "")
    assert [each.verdict for each in done.rows] == [()] * 4
    assert all(each.upload and each.decryptor for each in done.rows)
    assert "4 times the reference" in done.check
    assert "could hide" not in done.check
    for member in rehearsed.ids:
        assert rehearsed.ledger(member) == ()
        assert load_unexported(Store(rehearsed.folder / member)) == []  # a restarted agent has no result
    honest = compute_vector

    def compute(spec: RoundSpec, features: Any, labels: Any, *material: Any) -> Any:
        return honest(spec, features[:, ::-1] if spec.step == other else features, labels, *material)

    with monkeypatch.context() as patched:
        patched.setattr("veilsum.cli.rehearsing.compute_vector", compute)
        for other in steps:  # its sum is of other rows
            found = look(rehearsed)
            assert (found.ok, found.exact, f"step {other} " in found.check) == (False, False, True)
    reported = Operator.site_reports

    def lose_one(operator: Operator, cohort: str) -> SitesView:
        sites = reported(operator, cohort)
        return sites.model_copy(update={"sites": sites.sites[1:]})

    monkeypatch.setattr(Operator, "site_reports", lose_one)
    found = look(rehearsed)
    assert (found.ok, found.exact) == (False, True)
    assert ("could hide" in found.check) == ("noise" in question)  # differences up to the tolerance may grow


def test_an_operator_that_may_not_read_sums_sees_the_sites_all_the_same(rehearsed: Consortium) -> None:
    request = TokenRequest(name="night shift", scopes=frozenset({Scope.ROUNDS}))
    secret, line = rehearsed.operator.new_token(request).secret, Line(rehearsed.stage)
    rehearsed.operator = Operator(
        rehearsed.stage.url, secret, driver=BlockingDriver(rehearsed.stage.url, transport=line)
    )
    done = hold(rehearsed)
    assert [each.ok for each in done.rows] == [True] * 4
    assert (done.ok, done.exact, "'sums'" in done.failure) == (False, None, True)


@pytest.mark.parametrize("rehearsed", [6], indirect=True)
def test_each_site_s_verdict_says_what_is_wrong(
    rehearsed: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = lambda folder: SimpleNamespace(free=1 if "member-4" in str(folder) else 1 << 40)  # noqa: E731
    monkeypatch.setattr(shutil, "disk_usage", full)

    def change(member: str, _process: Member) -> Records:
        return with_canaries(rehearsed, member, ROWS[:, ::-1] if member == "member-1" else ROWS)

    done = hold(rehearsed, change)
    said = {each.member: " ".join(each.verdict) for each in done.rows}
    assert said.pop("member-0") == said.pop("member-5") == ""
    assert "reverse" in said.pop("member-1")
    assert "300 s ahead" in said.pop("member-2")
    assert "sent no report" in said.pop("member-3")
    assert "1 byte left" in said.pop("member-4")
    assert (done.ok, done.exact) == (False, True)
    assert "4 times the reference" in done.check
    monkeypatch.undo()
    assert hold(rehearsed, period="rehearsal-2").ok


@pytest.mark.parametrize("rehearsed", [5], indirect=True)
def test_a_site_that_neither_comes_nor_reports_is_not_waited_for_until_enrolment_ends(
    rehearsed: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    came, honest = set[str](), rehearsing._list_awaited

    def list_awaited(client: Operator, view: CohortView) -> set[str]:
        came.update(view.cards)
        return honest(client, view)

    monkeypatch.setattr(rehearsing, "_list_awaited", list_awaited)
    late = SimpleNamespace(monotonic=lambda: 1e9 if len(came) == 4 else 0.0)
    monkeypatch.setattr(rehearsing, "time", late)
    done = hold(rehearsed, asleep="member-4")
    assert [each.member for each in done.rows if not each.ok] == ["member-4"]
    assert "did not enrol" in done.rows[-1].verdict[0]
    assert (done.ok, done.exact, done.failure) == (False, True, "")
