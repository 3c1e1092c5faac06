import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.telemetry import logs

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Capture the coordinator's log."""
    kept = io.StringIO()
    logs.configure_logs(kept)
    yield kept
    logs.configure_logs(quiet=True)


@pytest.fixture
def lines(stream: io.StringIO) -> Lines:
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
