from collections.abc import Callable

import pytest

from client_sdk import Result
from tests.veilsum.cli import Consortium


@pytest.fixture
def result(consortium: Callable[..., Consortium]) -> Result:
    """The verified result of a round of three members, by commands against a served coordinator."""
    c = consortium()
    joining = [c.join(member) for member in c.members]
    c.formed()
    c.open("--bias")
    assert [future.result(120).code for future in joining] == [0, 0, 0]
    found = Result.load(c.folder / "m0" / "result")
    found.verify(bytes.fromhex(c.admin))
    return found
