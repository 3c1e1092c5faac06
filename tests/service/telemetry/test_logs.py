import asyncio
import io
import logging
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from service.telemetry import logs
from tests.service.telemetry.conftest import Lines

CANARY = "canary-5f1d"


def test_ours_and_the_servers_lines_are_json_with_level_and_time(lines: Lines) -> None:
    logs.log.info("round ended", round="00ff")
    logging.getLogger("uvicorn.error").info("process [%d] started", 7)
    logging.getLogger("uvicorn.access").info("GET /%s", CANARY)  # left out: ours have no paths
    ours, servers = lines()
    assert (ours["event"], ours["round"], ours["level"]) == ("round ended", "00ff", "info")
    assert (servers["event"], servers["level"]) == ("process [7] started", "info")
    assert {"timestamp"} < set(ours) & set(servers)


def test_an_errors_words_stay_out_whoever_logs_it(stream: io.StringIO, lines: Lines) -> None:
    try:
        int(CANARY)
    except ValueError as error:
        logging.getLogger("uvicorn.error").exception("it failed\n")
        logs.log.error("request failed", exc_info=error)
    logging.getLogger("uvicorn.error").error("Traceback (most recent call last):\n  %s", CANARY)
    server, ours, written = lines()
    assert server["event"] == "it failed"
    assert (server["error"], ours["error"]) == ("ValueError", "ValueError")
    assert "test_logs.py:" in server["at"]
    assert "Traceback" not in written["event"]
    assert CANARY not in stream.getvalue()


def test_what_is_behind_an_error_is_named_by_its_code_or_type() -> None:
    """An operator learns from the log that a disk is full, or that a bucket refuses."""
    with pytest.raises(OSError, match="No space") as full, Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    assert logs.describe_error(full.value)["reason"] == "ENOSPC"
    with create_engine("sqlite://").connect() as connection:
        connection.execute(text("PRAGMA max_page_count = 1"))
        with pytest.raises(OperationalError) as written:
            connection.execute(text(f"CREATE TABLE t AS SELECT '{CANARY}' AS value"))
    found = logs.describe_error(written.value)
    assert (found["error"], found["reason"]) == ("OperationalError", "SQLITE_FULL")
    refused = OSError("the bucket refused")
    refused.__cause__ = PermissionError(CANARY)
    assert logs.describe_error(refused)["reason"] == "PermissionError"
    late = TimeoutError()
    late.__cause__ = asyncio.CancelledError()
    assert logs.describe_error(late)["reason"] == "TimeoutError"
    assert logs.describe_error(sqlite3.OperationalError(CANARY))["reason"] == "OperationalError"
