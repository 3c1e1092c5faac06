"""Four members and a coordinator as services on one machine, with separate users, networks and certificates; one is killed on the way."""

import re
import subprocess
from pathlib import Path

import pytest

from client_sdk import Result
from tests.deploy.services import ROOT, lacking
from tests.deploy.walk import MEMBERS, PICTURES, Consortium, consortium, walk
from tests.service.pages import looking
from tests.support.cli import PERIOD

PAGE = ROOT / "docs" / "tutorials" / "one-machine.md"


def as_another(c: Consortium, name: str, host: str, code: str) -> str:
    """Run Python as a member's user on a host; return its output."""
    words = c.machine.as_user(f"veilsum-{name}", host, ["/usr/bin/python3", "-c", code])
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


@pytest.mark.slow
async def test_an_evening_of_the_operator_s(tmp_path: Path) -> None:
    reason = lacking() or (None if looking.CHROMIUM else "chromium is not installed")
    if reason is not None:
        pytest.skip(reason)
    with consortium() as c:
        seen = await walk(c, tmp_path)
        for name in MEMBERS:
            # The agent continues to wait for runs; its result is there.
            kept = c.machine.home(f"veilsum-{name}") / "identity" / "results" / "ct-2026" / PERIOD
            result = Result.load(kept)
            result.verify(bytes.fromhex(c.admin))
            assert (result.record.round, result.counted) == (seen["round"], True)
            assert [each.member for each in result.record.survivors] == list(MEMBERS)
        key = c.machine.home("veilsum-hospital-a") / "identity" / "identity.key"
        assert "PermissionError" in as_another(c, "hospital-b", "hospital-b", f"open({str(key)!r})")
        hub, neighbour = (c.machine.network.address, 8443), ("10.77.1.2", 8443)
        reach = "import socket; socket.create_connection({}, 2)"
        assert as_another(c, "hospital-b", "hospital-b", reach.format(hub)) == ""
        assert "Error" in as_another(c, "hospital-b", "hospital-b", reach.format(neighbour))
        stranger = c.cli(*c.cli.at("operator", "round", "status", seen["round"]), "--ca", c.authority.path)
        assert stranger.code == 1  # it has no certificate
    assert named(tmp_path) == named(PICTURES)


def named(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_the_page_shows_every_picture_and_says_what_is_in_it() -> None:
    shown = re.findall(r"^!\[.{20,}\]\(\.\./pictures/(\S+)\)$", PAGE.read_text(), re.MULTILINE)
    assert (set(shown), len(shown)) == (named(PICTURES), 5)
