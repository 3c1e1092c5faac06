"""Processes of members: what they say is heard in order, and one that fails says why."""

import os
from multiprocessing.connection import Connection

import pytest

from benchmarks.crews import crew, hear, tell
from client_sdk.errors import ClientError


async def echo(word: str, parent: Connection) -> None:
    parent.send(("ready", os.getpid()))
    if parent.recv() == "fail":
        raise OSError(word)
    parent.send(("ended", word))


def test_they_work_side_by_side_and_say_why_they_fail() -> None:
    with crew(echo, "one") as first, crew(echo, "two") as second:
        pids = hear([first, second], "ready")
        assert len({*pids, os.getpid()}) == 3
        tell([first], "go")
        tell([second], "fail")
        assert hear([first], "ended") == ["one"]
        with pytest.raises(ClientError, match="OSError: two"):
            hear([second], "ended")
        with pytest.raises(ClientError, match="the process has ended"):
            hear([second], "ended")
