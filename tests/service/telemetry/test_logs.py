import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from service.telemetry import logs

CANARY = "canary-5f1d"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    kept = io.StringIO()
    logs.configure(kept)
    yield kept
    logs.configure()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_ours_and_the_servers_lines_are_json_with_level_and_time(stream: io.StringIO) -> None:
    structlog.get_logger(logs.LOGGER).info("round ended", round="00ff")
    logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
    ours, servers = lines(stream)
    assert (ours["event"], ours["round"], ours["level"]) == ("round ended", "00ff", "info")
    assert (servers["event"], servers["level"]) == ("Started server process [7]", "info")
    assert {"timestamp"} < set(ours) & set(servers)


def test_the_servers_access_lines_are_left_out_for_ours_have_no_paths(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.access").info("GET /%s", CANARY)
    assert lines(stream) == []


def test_an_errors_words_stay_out_whoever_logs_it(stream: io.StringIO) -> None:
    try:
        int(CANARY)
    except ValueError as error:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
        structlog.get_logger(logs.LOGGER).error("request failed", exc_info=error)
    server, ours = lines(stream)
    assert server["event"] == "Exception in ASGI application"
    assert (server["error"], ours["error"]) == ("ValueError", "ValueError")
    assert "test_logs.py:" in server["at"]
    assert CANARY not in stream.getvalue()


def test_a_traceback_that_a_library_wrote_out_is_left_out(stream: io.StringIO) -> None:
    written = f"Traceback (most recent call last):\n  {CANARY}\nValueError: {CANARY}"
    logging.getLogger("uvicorn.error").error(written)
    [line] = lines(stream)
    assert line["event"] == "a traceback, left out"
    assert CANARY not in stream.getvalue()


def test_quiet_leaves_warnings_and_errors() -> None:
    stream = io.StringIO()
    logs.configure(stream, quiet=True)
    try:
        structlog.get_logger(logs.LOGGER).info("refused")
        logging.getLogger("uvicorn.error").info("started")
        logging.getLogger("uvicorn.error").warning("stopping")
    finally:
        logs.configure()
    assert [line["event"] for line in lines(stream)] == ["stopping"]
