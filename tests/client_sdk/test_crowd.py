"""A crowd at the real coordinator, under its default limits: nobody honest meets them."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import Request
from pydantic import SecretStr

from client_sdk import Identity, Member
from client_sdk.operator import Operator
from service.access.callers import Caller
from service.access.connections import Connection
from service.access.limits import ADDRESS, CALLER, Limits
from service.app import create_app
from service.settings import Settings
from service.telemetry.metrics import REFUSALS
from tests.client_sdk.federation import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Roster

MEMBERS = 40


class Crowd(Federation):
    """Whose members' names are in order, however many there are."""

    def make_roster(self, *args: Any, **changes: Any) -> Roster:
        self.ids = tuple(sorted(self.ids))
        return super().make_roster(*args, **changes)


class Watched(Limits):
    """Remembers how many requests each caller has sent in all, and most at once."""

    sent, at_once = Counter[str](), Counter[str]()

    def charge(self, caller: Caller, request: Request) -> None:
        super().charge(caller, request)
        self.sent[self._of(caller, request)[0]] += 1

    @contextmanager
    def under_way(self, caller: Caller, request: Request, size: int = 0) -> Iterator[None]:
        with super().under_way(caller, request, size):
            who = self._of(caller, request)[0]
            self.at_once[who] = max(self.at_once[who], self._under_way[who])
            yield


@pytest.mark.slow
def test_a_round_of_many_behind_one_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.app.Limits", Watched)
    settings = Settings(data_dir=tmp_path / "service", operator_token=SecretStr("the operator's own token"))
    config = uvicorn.Config(create_app(settings), port=0, log_level="error", ws="none", http=Connection)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    crowd = Crowd(tmp_path / "crowd", MEMBERS)

    def enrolled(member: str) -> None:
        with Member(url, Identity.load(crowd.folder / member), crowd.policy) as live:
            live.enrol(cohort, crowd.records(member))

    def contributed(member: str) -> bool:
        with Member(url, Identity.load(crowd.folder / member), crowd.policy) as live:
            return live.contribute(round_id).counted

    refused = REFUSALS.labels(Cause.TOO_MANY_REQUESTS.value)._value
    before = refused.get()
    crowd.clock.now_s = time.time()
    with Operator(url, "the operator's own token") as operator, ThreadPoolExecutor(MEMBERS) as pool:
        roster = crowd.make_roster(1, coordinator=bytes.fromhex(operator.coordinator().public_key))
        federation = operator.publish_roster(roster).federation
        study = operator.publish_study(crowd.make_study()).study
        cohort = operator.open_cohort(federation, study, "p1").cohort
        list(pool.map(enrolled, crowd.ids))
        round_id = operator.open_round(cohort).round
        assert list(pool.map(contributed, crowd.ids)) == [True] * MEMBERS
    server.should_exit = True
    thread.join(10)
    crowd.close()
    assert refused.get() == before
    # Not even if the whole round had come in one moment.
    public = Watched.sent.pop("address 127.0.0.1")
    assert 100 < public < ADDRESS.burst / 4
    assert 10 < max(Watched.sent.values()) < CALLER.burst / 4
    assert Watched.at_once.pop("address 127.0.0.1") < ADDRESS.at_once / 8
    assert max(Watched.at_once.values()) < CALLER.at_once / 2
