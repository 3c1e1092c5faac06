"""What is checked of a member's machine and network before there is a run."""

import shutil
import socket
import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from client_sdk.doctor import Doctor, HealthCheck
from client_sdk.environment import Environment
from client_sdk.identity import Identity
from client_sdk.policy import Policy
from client_sdk.transport import BlockingDriver
from tests.support.answers import changed, rewritten
from tests.support.consortium import Consortium
from tests.support.serving import Sent
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import SIGNATURE_LIFETIME_S

M = "member-0"


def examine(consortium: Consortium, **changes: Any) -> dict[str, HealthCheck]:
    """Return the outcomes by name; nothing is stored."""
    values: dict[str, Any] = {
        "identity": Identity.load(consortium.folder / M),
        "policy": consortium.policy,
        "driver": consortium.driver,
        "url": consortium.stage.url,
        "environment": Environment(now_s=consortium.clock),
        **changes,
    }
    before = consortium.state(M)
    found = {each.name: each for each in Doctor(**values).run_checks()}
    assert consortium.state(M) == before
    return found


def failing(found: dict[str, HealthCheck]) -> set[str]:
    return {each.name for each in found.values() if each.ok is False}


def test_all_is_well(consortium: Consortium) -> None:
    date = formatdate(consortium.clock(), usegmt=True)
    consortium.shows("GET /v1/coordinator", dated(date))
    found = examine(consortium)
    assert failing(found) == set()
    assert [*found] == [
        *(
            "version",
            "proxy",
            "coordinator",
            "encryption",
            "clock",
            "roster",
            "approval of study",
            "disk",
            "upload",
        ),
        "window of study",
    ]
    assert all(each.ok for each in found.values())
    assert [each.length for each in consortium.requests("/probe")] == [1, 1 << 18]
    assert consortium.operator.cohort(consortium.open_cohort()).cards == ()


def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def dated(date: str) -> Any:
    def shown(answer: httpx.Response) -> httpx.Response:
        return httpx.Response(
            200, headers={"date": date, "content-type": "application/json"}, content=answer.content
        )

    return shown


@pytest.mark.parametrize(("ahead_s", "ok"), [(300, False), (-300, False), (20, True)])
def test_a_clock_that_is_off_is_named(consortium: Consortium, ahead_s: float, *, ok: bool) -> None:
    consortium.clock.ahead_s += 0.25  # of a second, which the date leaves out
    consortium.shows("GET /v1/coordinator", dated(formatdate(consortium.clock() - ahead_s, usegmt=True)))
    found = examine(consortium)["clock"]
    assert found.ok is ok
    assert f"{abs(ahead_s)} s {'ahead of' if ahead_s > 0 else 'behind'}" in found.detail
    assert abs(ahead_s) < SIGNATURE_LIFETIME_S or "NTP" in found.detail


def test_a_clock_without_a_date_to_compare_with_is_not_judged(consortium: Consortium) -> None:
    consortium.shows("GET /v1/coordinator", lambda answer: httpx.Response(200, content=answer.content))
    assert examine(consortium)["clock"].ok is None


@pytest.mark.parametrize(
    ("url", "ok"), [("http://127.0.0.1", True), ("http://x.example", False), ("https://x.example", True)]
)
def test_a_network_needs_tls(consortium: Consortium, url: str, *, ok: bool) -> None:
    assert examine(consortium, url=url)["encryption"].ok is ok


def test_the_newest_version_in_force_of_each_study_counts(consortium: Consortium) -> None:
    consortium.publish(consortium.make_study({"name": "other"}))
    consortium.revise(windows={"enrol": 60, "upload": 7200, "answer": 60})
    for _ in range(2):
        found = examine(consortium)
        assert "7,200 s" in found["window of study"].detail
        assert "7,200 s" not in found["window of other"].detail
        consortium.shows("GET .*/studies", rewritten(lambda shown: shown[::-1]))
    consortium.shows("GET .*/studies", rewritten(lambda shown: [{**each, "revoked": True} for each in shown]))
    found = examine(consortium)
    assert found["studies"].ok is None
    assert not [name for name in found if name.startswith("window")]


def test_a_study_that_the_coordinator_lists_twice_is_checked_all_the_same(consortium: Consortium) -> None:
    consortium.shows(
        "GET .*/studies", rewritten(lambda shown: [*shown, *({**each, "name": "again"} for each in shown)])
    )
    assert "window of study" in examine(consortium)


def test_a_dead_proxy_is_named_at_once(consortium: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    port = dead_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
    url, begun_s = "http://198.51.100.1:8000", time.monotonic()
    with pytest.warns(UserWarning, match="plain HTTP"):
        driver = BlockingDriver(url)
    found = examine(consortium, url=url, driver=driver)
    driver.close()
    assert time.monotonic() - begun_s < 5
    assert failing(found) == {"coordinator"}
    for name in ("proxy", "coordinator"):
        assert f"proxy http://127.0.0.1:{port} (HTTP_PROXY)" in found[name].detail
        assert "secret" not in found[name].detail


def test_a_full_disk_and_an_old_release_are_named(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    consortium.shows("GET /v1/coordinator", changed(protocol_version=99))
    found = examine(consortium)
    assert failing(found) == {"disk", "coordinator"}
    assert "protocol 99" in found["coordinator"].detail


def test_a_member_that_the_roster_lacks_is_given_its_key(consortium: Consortium) -> None:
    others = tuple(each for each in consortium.roster.members if each.member != M)
    consortium.operator.publish_roster(consortium.make_roster(2, members=others))
    found = examine(consortium)
    assert failing(found) == {"roster"}
    assert Identity.load(consortium.folder / M).public.hex() in found["roster"].detail
    assert "upload" not in found


def test_a_federation_that_the_coordinator_lacks_is_named(consortium: Consortium) -> None:
    found = examine(consortium, policy=Policy(SigningKey(b"O" * 32).public))
    assert failing(found) == {"roster"}
    assert "not-found" in found["roster"].detail
    assert "upload" not in found


def test_a_proxy_s_body_limit_and_a_slow_line_are_named(consortium: Consortium) -> None:
    consortium.revise(
        dim=900,
        records={"least": 900, "most": 1000, "least_per_class": 5, "rows_per_id": 1},
        windows={"enrol": 60, "upload": 20, "answer": 60},
    )
    passed_s = [0.0]

    def pass_time(_member: str, sent: Sent, moment: str) -> None:
        passed_s[0] += 8 * sent.length / 1e6 if moment == "before" else 0.0  # 1 Mbit/s

    consortium.on_request = pass_time
    line = Environment(now_s=consortium.clock, monotonic_s=lambda: passed_s[0])
    found = examine(consortium, environment=line)
    assert "1 Mbit/s" in found["upload"].detail
    assert failing(found) == {"window of study"}
    assert "windows.upload" in found["window of study"].detail
    consortium.shows("POST .*/probe", lambda _: httpx.Response(413))
    found = examine(consortium)
    assert failing(found) == {"upload"}
    assert "413" in found["upload"].detail
    assert "client_max_body_size" in found["upload"].detail


def test_a_study_without_approval_is_named_with_its_digest(consortium: Consortium) -> None:
    found = examine(consortium, policy=Policy(admin_key=consortium.admin.public))
    [digest] = [each.hex() for each in consortium.policy.approved if isinstance(each, bytes)]
    approval = found["approval of study"]
    assert (approval.ok, digest in approval.detail, failing(found)) == (None, True, set())
