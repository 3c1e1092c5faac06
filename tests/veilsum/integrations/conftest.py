import pytest

from client_sdk import Result
from tests.support.cli import Consortium


@pytest.fixture
def result(held: Consortium) -> Result:
    """The verified result of a run of three members, by commands against a served coordinator."""
    found = Result.load(held.result("m0"))
    found.verify(bytes.fromhex(held.admin))
    return found
