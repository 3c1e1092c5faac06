import io
import logging

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
