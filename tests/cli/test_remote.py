import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.authority import Authority
from tests.support.cli import TOKEN, Cli
from veilsum.cli import remote
from veilsum.cli.console import CLIENT_CERTIFICATE
from veilsum.cli.demo.coordinator import free_port
from veilsum.cli.remote import shown_address, verify_argument, watch_changes
from veilsum.protocol.rest import CohortView
from veilsum.system.intervals import POLL_MIN_S

COHORT = "ab" * 32


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://sum.example.org/", "https://sum.example.org"),
        ("https://user:secret@sum.example.org:1", "https://sum.example.org:1"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    assert shown_address(url) == address


@pytest.mark.parametrize(
    "url", [" ", "sum.example.org", "ftp://x", "http://", "http://[::1", "http://x:99999", "http://x:port"]
)
def test_what_is_no_address(url: str, cli: Cli) -> None:
    assert "--url" in cli("operator", "round", "status", "ab" * 8, "--url", url).error
    assert "--url" in cli("operator", "cohort", "status", COHORT, "--url", url).error


def test_nobody_answers(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(remote, "COMMAND_RETRY_S", 0.05)
    plain = remote.open_operator.__wrapped__  # type: ignore[attr-defined]  # contextmanager keeps it
    monkeypatch.setattr(plain, "__kwdefaults__", {**plain.__kwdefaults__, "patience_s": 0.05})
    address = f"http://127.0.0.1:{free_port()}"
    said = cli("operator", "cohort", "status", COHORT, "--url", address)
    assert said.error.startswith(f"{address}: GET /v1/cohorts/")
    as_json = cli("operator", "cohort", "status", COHORT, "--url", address, "--json").values
    assert as_json["cause"] is None
    assert address in as_json["error"]


def test_a_doctor_shows_no_password_of_the_address(cli: Cli) -> None:
    cli.json("member", "new", "own", "--member", "own", "--admin-key", COHORT)
    said = cli("member", "doctor", "own", "--url", f"http://user:secret@127.0.0.1:{free_port()}")
    assert said.code == 1
    assert "secret" not in said.out + said.err


def test_authorities(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify_argument(None) is True
    status = ("operator", "cohort", "status")
    Path("junk.pem").write_text("junk")
    for name in ("nowhere.pem", "junk.pem"):
        assert f"--ca {name} " in cli(*status, COHORT, "--ca", name).error
    monkeypatch.setenv("VEILSUM_CA", "junk.pem")
    assert "--ca junk.pem " in cli(*status, COHORT).error
    monkeypatch.setenv("VEILSUM_CA", "")  # as a unit has it whose file says nothing of it
    assert "--ca" not in cli(*status, "none").error


def test_a_token_s_newline_is_not_quoted_in_an_error(cli: Cli, url: str) -> None:
    words = ("operator", "cohort", "close", COHORT, "--url", url, "--token")
    assert "not-found" in cli(*words, f" {TOKEN}\r\n").error  # it was taken
    for damaged in (f"{TOKEN}\nx", f"{TOKEN}ä"):
        outcome = cli(*words, damaged)
        assert "copy it again" in outcome.error
        assert TOKEN not in outcome.err
    assert "unauthorised" in cli(*words, " ").error


def view(version: int) -> CohortView:
    return CohortView(
        cohort=COHORT,
        federation=COHORT,
        study=COHORT,
        name="digits",
        study_version=1,
        period="2026-11",
        counter=0,
        repeats=None,
        state="enrolling",
        version=version,
        members=(),
        cards=(),
        deadline_s=None,
        quorum=None,
        fault=None,
    )


def test_changes_are_seen_once_and_without_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    versions, asked = iter([1, 1, 1, 2, 0]), list[Any]()

    def look(after: int | None) -> CohortView:
        asked.append(after)
        return view(next(versions))

    seen = watch_changes(look)
    assert [next(seen).version for _ in range(3)] == [1, 2, 0]
    assert asked == [None, 1, 1, 1, 2]
    assert slept == [POLL_MIN_S] * 2


def test_a_long_poll_that_waited_is_followed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 30))
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("nobody hurries"))
    versions = iter([1, 1, 2])
    seen = watch_changes(lambda _after: view(next(versions)))
    assert [next(seen).version for _ in range(2)] == [1, 2]


def test_changes_without_end_are_followed_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now_s.append(now_s.pop() + seconds))
    versions = itertools.count()
    seen = watch_changes(lambda _after: view(next(versions)))
    assert [next(seen).version for _ in range(100)] == list(range(100))
    assert now_s[0] - 1000 > 45


def test_a_client_certificate_that_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    status = ("operator", "cohort", "status", COHORT, "--url", "http://127.0.0.1:1")
    certificate, key = Authority(tmp_path, "authority").issue("member")
    for alone in (("--client-key", "k"), ("--client-cert", "c"), ("--client-cert", certificate)):
        assert alone[0] in cli(*alone, *status).error
    token = CLIENT_CERTIFICATE.set((certificate, key))
    assert remote.client_certificate() == (str(certificate), str(key))
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    CLIENT_CERTIFICATE.set((both, None))
    assert remote.client_certificate() == str(both)
    CLIENT_CERTIFICATE.reset(token)
