"""A machine that stops at any durable write of a whole run sends the same bytes afterwards, or none (member: Selection, member: Ledger)."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from client_sdk.database import STATE_FILE
from client_sdk.effects import Flow, Request
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.consortium import NOISY, WITHHOLDING, Consortium, Steps, Stopped
from tests.support.machine import Machine
from tests.support.serving import Stage


def life(consortium: Consortium, cohort: str, member: str, records: Records | None) -> Flow[Any]:
    """A member's whole run: enrol, then take part in each round that the operator opens."""
    conversations = consortium.member(member)
    yield from conversations.enrol(cohort, records)
    while True:
        view = yield from conversations.cohort(cohort)
        while not view.rounds or (view.step and consortium.operator.round(view.rounds[-1]).ended):
            view = yield from conversations.cohort(cohort, view.version)
        result = yield from conversations.contribute(view.rounds[-1])
        if consortium.operator.cohort(cohort).step is None:
            return result


def run(consortium: Consortium, machine: Machine, patched: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all members; restart member-0 whenever its machine stopped, with other records than before."""
    cohort = consortium.open_cohort()
    flows = {m: consortium.steps(life(consortium, cohort, m, consortium.records(m))) for m in consortium.ids}
    results: dict[str, Any] = {}
    with machine.on(patched):
        drive(flows, results, consortium.leading_on(cohort), lambda: again(consortium, cohort))
    return results


def left_of_uploads(consortium: Consortium) -> bool:
    """Return whether a seed, or an array without a reservation, is on disk after the end."""
    state = consortium.folder / "member-0/state"
    with closing(sqlite3.connect(state / STATE_FILE)) as database:
        query = "SELECT rows_sha256 FROM run WHERE yes UNION SELECT sha256 FROM vector"
        named = {digest.hex() for (digest,) in database.execute(query)}
        seeds = database.execute("SELECT name FROM sealed WHERE name GLOB 'unsent/*'").fetchall()
    return bool(seeds) or {path.name for path in (state / "arrays").iterdir()} != named


def again(consortium: Consortium, cohort: str) -> Steps:
    """Restart without any records once the answer is stored: the upload comes from the reservation."""
    member = consortium.member("member-0")
    answered = bool(member.ledger())
    records = None if answered else consortium.records("member-0")
    return consortium.steps(life(consortium, cohort, "member-0", records))


def drive(
    flows: dict[str, Steps], results: dict[str, Any], stuck: Callable[[], bool], restart: Callable[[], Steps]
) -> None:
    while flows:
        waiting = 0
        for member in list(flows):
            try:
                state, _ = next(flows[member])
                waiting += state == "waits"
            except StopIteration as end:
                results[member] = end.value
                del flows[member]
            except Stopped:
                flows[member] = restart()
        if flows and waiting == len(flows):
            assert stuck(), "all wait for ever"


@pytest.mark.parametrize(
    ("question", "first", "early"),
    [
        pytest.param(
            question, first, early, id=f"{name}-{first}-{when}", marks=() if quick else pytest.mark.slow
        )
        for name, question, firsts in (
            ("exact", {}, (1, 7, 13)),
            ("withholding", WITHHOLDING, (9, 1)),
            ("noisy", NOISY, (9, 1)),
        )
        for place, first in enumerate(firsts)
        for when, early, quick in (("before", True, place % 2 == 0), ("after", False, place % 2 == 1))
    ],
)
def test_the_same_bytes_leave_or_none(
    consortium: Consortium,
    monkeypatch: pytest.MonkeyPatch,
    question: dict[str, Any],
    first: int,
    *,
    early: bool,
) -> None:
    consortium.revise(**question)
    machine = Machine(consortium.folder / "member-0", first, early=early)
    results = run(consortium, machine, monkeypatch)
    assert machine.stops >= 3
    assert {type(each) for each in results.values()} == {Result}, results
    assert all(result.counted for result in results.values())
    for place, bodies in consortium.bodies().items():
        assert len(bodies) == 1, place
    assert not left_of_uploads(consortium)
    [run_] = consortium.open["member-0"].ledger()
    assert (run_.state, run_.rows) == (State.SPENT, 20)
    if not question.get("noise"):
        assert consortium.total(consortium.rounds[-1]) == consortium.expected(consortium.rounds[-1])


class Disk:
    """A member's folder after a power cut: only synced bytes and names. SQLite syncs its own files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes, self._names = dict[int, bytes](), dict[int, dict[str, tuple[int, bool]]]()
        self._settle()

    def _settle(self) -> None:
        for path in (self._folder, *self._folder.rglob("*")):
            self._sync(path)

    def fsync(self, descriptor: int) -> None:
        """Replace the system's fsync."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(self._folder):
            self._sync(path)

    def _sync(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = {each.name: (each.inode(), each.is_dir()) for each in os.scandir(path)}
        else:
            self._bytes[inode] = path.read_bytes()

    def cut(self) -> None:
        """Delete everything else from the folder."""
        before = self._folder.rename(self._folder.with_name("before the cut"))
        self._restore(before.stat().st_ino, self._folder)
        for path in before.rglob(f"{STATE_FILE}*"):
            shutil.copy2(path, self._folder / path.relative_to(before))
        shutil.rmtree(before)
        self._settle()

    def _restore(self, inode: int, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        for name, (child, is_folder) in self._names.get(inode, {}).items():
            if is_folder:
                self._restore(child, folder / name)
            elif not name.startswith(STATE_FILE):
                (folder / name).touch(0o600)
                (folder / name).write_bytes(self._bytes.get(child, b""))


CHANGES = 4
"""Requests that change the coordinator's state, from one power cut to the next."""


def until_cut(steps: Steps, last: int) -> Steps:
    """Run a member up to the answer to its n-th change of the coordinator's state."""
    sent = 0
    while True:
        try:
            state, effect = next(steps)
        except StopIteration as end:
            return end.value
        sent += state == "after" and isinstance(effect, Request) and effect.method != "GET"
        if sent == last:
            steps.close()
            raise Stopped
        yield state, effect


@pytest.mark.parametrize(
    "question", [pytest.param({}, marks=pytest.mark.slow), NOISY], ids=["exact", "noisy"]
)
def test_a_power_cut_after_any_request_takes_nothing_that_it_rests_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any]
) -> None:
    cuts = list[int]()
    for number in range(1, CHANGES + 1):
        consortium = Consortium(stage, tmp_path / str(number), question=question)
        disk = Disk(consortium.folder / "member-0")
        monkeypatch.setattr(os, "fsync", disk.fsync)
        cohort = consortium.open_cohort()
        flows = {
            m: consortium.steps(life(consortium, cohort, m, consortium.records(m))) for m in consortium.ids
        }
        flows["member-0"] = until_cut(flows["member-0"], number)

        def restart(
            at: Consortium = consortium, of: str = cohort, disk: Disk = disk, n: int = number
        ) -> Steps:
            at.open.pop("member-0").close()
            disk.cut()
            cuts.append(n)
            return until_cut(again(at, of), CHANGES)

        results: dict[str, Any] = {}
        drive(flows, results, consortium.leading_on(cohort), restart)
        assert {type(each) for each in results.values()} == {Result}, (number, results)
        for place, bodies in consortium.bodies().items():
            assert len(bodies) == 1, (number, place)
        assert not left_of_uploads(consortium), number
        consortium.close()
    assert len(cuts) >= 6
