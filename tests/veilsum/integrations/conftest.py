from collections.abc import Callable

import pytest

from client_sdk import Result
from tests.support.cli import Consortium


@pytest.fixture
def result(consortium: Callable[..., Consortium]) -> Result:
    """The verified result of a run of three members, by commands against a served coordinator."""
    c = consortium(edits={"bias = false": "bias = true"})
    c.held()
    found = Result.load(c.result("m0"))
    found.verify(bytes.fromhex(c.admin))
    return found
