import pytest

from client_sdk import Result
from tests.cli.conftest import cli, consortium, held, remote, url
from tests.support.cli import CliConsortium

__all__ = ["cli", "consortium", "held", "remote", "url"]


@pytest.fixture
def result(held: CliConsortium) -> Result:
    """The verified result of a run of three members, by commands against a served coordinator."""
    found = Result.load(held.result("m0"))
    found.verify(bytes.fromhex(held.admin))
    return found
