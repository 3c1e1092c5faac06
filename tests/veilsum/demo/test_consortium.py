import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from veilsum.demo.consortium import Lost, _Consortium, _waiting, casualties
from veilsum.demo.coordinator import Address
from veilsum.demo.errors import DemoError
from veilsum.demo.screen import Screen

MEMBERS = ("member-01", "member-02", "member-03", "member-04")
VICTIM = Lost("member-02", "upload")


class Killing:
    """Stands for `Children`."""

    def __init__(self) -> None:
        self.killed: list[str] = []

    def during(self, work: Callable[[], Any]) -> Any:
        return work()

    def kill(self, name: str) -> None:
        self.killed.append(name)


def view(state: str, **changes: Any) -> Any:
    values = {
        "state": state,
        "ended": state in {"done", "voided", "failed", "lost"},
        "round": "0" * 16,
        "version": 1,
        "members": MEMBERS,
        "uploaded": (),
        "waiting_for": (),
        "survivors": (),
        "survivors_min": 3,
        "threshold": 3,
        "deadline_s": 1.0,
        "fault": None,
    }
    return SimpleNamespace(**(values | changes))


def follow(*following: Any) -> tuple[_Consortium, Killing]:
    """A consortium whose coordinator shows these, one after the other."""
    shown: Iterator[Any] = iter(following)
    operator: Any = SimpleNamespace(round=lambda *_: next(shown), cohort=lambda *_: next(shown))
    unused: Any = None
    children: Any = Killing()
    screen = Screen(Console(file=io.StringIO()))
    consortium = _Consortium(unused, unused, unused, screen, children, operator, Address(1, "token"))
    return consortium, children


def test_the_members_in_the_middle_by_records_are_killed() -> None:
    sizes = np.array([30, 10, 20, 40])
    learned: Any = SimpleNamespace(members=MEMBERS, partition=SimpleNamespace(sizes=sizes))
    assert casualties(learned) == (Lost("member-03", "card"), Lost("member-01", "upload"))


def test_the_victim_is_killed_once_and_only_when_its_upload_is_whole() -> None:
    collecting = [
        view("collecting", waiting_for=MEMBERS),
        view("collecting", uploaded=("member-01",), waiting_for=MEMBERS[1:]),
        view("collecting", uploaded=("member-01", "member-02"), waiting_for=MEMBERS[2:]),
        view("collecting", uploaded=MEMBERS[:3], waiting_for=MEMBERS[3:]),
    ]
    consortium, children = follow(*collecting[1:], view("checking", waiting_for=MEMBERS), view("done"))
    assert consortium.ended(collecting[0], VICTIM).state == "done"
    assert children.killed == ["member-02"]


def test_a_window_that_closes_before_the_victim_uploads_ends_the_demo() -> None:
    consortium, children = follow(view("checking", uploaded=("member-01",)))
    with pytest.raises(DemoError, match="member-02's upload was not whole"):
        consortium.ended(view("collecting"), VICTIM)
    assert not children.killed


@pytest.mark.parametrize(
    ("fault", "words"),
    [(SimpleNamespace(detail="box refused"), "voided: box refused"), (None, "voided: no reason given")],
)
def test_a_round_without_a_result_ends_the_demo(fault: Any, words: str) -> None:
    consortium, _ = follow(view("voiding"), view("voided", fault=fault))
    with pytest.raises(DemoError, match=words):
        consortium.ended(view("collecting", uploaded=("member-02",)), VICTIM)


@pytest.mark.parametrize(
    ("fault", "words"),
    [(SimpleNamespace(detail="too few cards"), "failed: too few cards"), (None, "failed: no reason given")],
)
def test_a_cohort_that_is_not_formed_ends_the_demo(fault: Any, words: str) -> None:
    enrolling = SimpleNamespace(
        state="enrolling", members=MEMBERS, cards=(), cohort="c", version=1, deadline_s=None
    )
    consortium, _ = follow(SimpleNamespace(state="failed", quorum=None, fault=fault))
    cohort: Any = enrolling
    with pytest.raises(DemoError, match=words):
        consortium.formed(cohort)


def test_a_wait_says_for_whom_and_until_when() -> None:
    assert _waiting((), None) == ""
    assert _waiting(("a", "b"), None) == "waiting for a, b until –"
    assert _waiting(("a", "b", "c", "d", "e"), None) == "waiting for a, b, c and 2 more until –"
