"""A machine that stops at any durable write of a whole run: the same bytes leave afterwards, or none (docs/protocol.md §7.2, §7.3)."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.effects import Flow
from client_sdk.records import Records
from client_sdk.reservations import Reservations, State
from client_sdk.result import Result
from tests.client_sdk.federation import NOISY, WITHHOLDING, Federation, Steps


class Stopped(BaseException):
    """The machine stops."""


class Machine:
    """Stops member-0 at its n-th durable write: a file's fsync, or a ledger's transaction, before or after it takes effect."""

    def __init__(self, last: int, *, early: bool) -> None:
        self.last, self.early, self.writes, self.stopped = last, early, 0, False

    def strike(self) -> None:
        self.writes += 1
        if self.writes == self.last:
            self.stopped = True
            raise Stopped

    @contextmanager
    def on(self, patched: pytest.MonkeyPatch) -> Iterator[None]:
        real, transaction = os.fsync, Reservations._write

        def fsync(descriptor: int) -> None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            mine = "/member-0/" in path  # not the identity's own folder, which is synced as it is locked
            if mine and self.early:
                self.strike()
            real(descriptor)
            if mine and not self.early:
                self.strike()

        @contextmanager
        def write(ledger: Reservations) -> Iterator[Any]:
            mine = "/member-0/" in str(ledger._folder)
            with transaction(ledger) as opened:
                yield opened
                if mine and self.early:
                    self.strike()
            if mine and not self.early:
                self.strike()

        with patched.context() as here:
            here.setattr(os, "fsync", fsync)
            here.setattr(Reservations, "_write", write)
            yield


def life(federation: Federation, cohort: str, member: str, records: Records) -> Flow[Any]:
    """A member's whole run: enrol, then each round as the operator opens it."""
    conversations = federation.member(member)
    yield from conversations.enrol(cohort, records)
    while True:
        view = yield from conversations.cohort(cohort)
        while not view.rounds or (view.step and federation.coordinator.view(view.rounds[-1]).ended):
            view = yield from conversations.cohort(cohort, view.version)
        result = yield from conversations.contribute(view.rounds[-1])
        if federation.coordinator.next_step(cohort) is None:
            return result


def run(federation: Federation, machine: Machine, patched: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everybody's life; member-0 is started again where its machine stopped, with other records than before."""
    cohort = federation.coordinator.open_cohort()
    flows = {m: federation.steps(life(federation, cohort, m, federation.records(m))) for m in federation.ids}
    results: dict[str, Any] = {}
    with machine.on(patched):
        drive(flows, results, federation.leading_on(cohort), lambda: again(federation, cohort))
    return results


def again(federation: Federation, cohort: str) -> Steps:
    """Without a single record once the answer is stored: what is uploaded comes from the reservation."""
    member = federation.member("member-0")
    answered = bool(member.ledger())
    records = Records(np.zeros((0, 3)), np.zeros(0, int)) if answered else federation.records("member-0")
    return federation.steps(life(federation, cohort, "member-0", records))


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


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("question", "stride"), [({}, 3), (WITHHOLDING, 7), (NOISY, 7)], ids=["exact", "withholding", "noisy"]
)
def test_the_same_bytes_leave_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any], stride: int, *, early: bool
) -> None:
    last = 1
    while True:
        federation = Federation(tmp_path / str(last), question=question)
        machine = Machine(last, early=early)
        results = run(federation, machine, monkeypatch)
        assert {type(each) for each in results.values()} == {Result}, (last, results)
        assert all(result.counted for result in results.values()), last
        for place, bodies in federation.coordinator.wire.items():
            assert len(set(bodies)) == 1, (last, place)
        [run_] = federation.open["member-0"].ledger()
        assert (run_.state, run_.rows) == (State.SPENT, 20), last
        if not question.get("noise"):
            [cohort] = federation.coordinator.cohorts.values()
            assert federation.total(cohort.rounds[-1]) == federation.expected(cohort.rounds[-1]), last
        federation.close()
        if not machine.stopped:
            break
        last += stride
    assert last > 25
