"""Pages are followed with the command line's own fixtures."""

import pytest

from tests.veilsum.cli import TOKEN, Cli
from tests.veilsum.conftest import cli, consortium, remote, url

__all__ = ["cli", "consortium", "remote", "url"]


@pytest.fixture
def coordinator(remote: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`veilsum` in a shell that knows the coordinator's address and the operator's token."""
    monkeypatch.setenv("VEILSUM_URL", remote.url)
    monkeypatch.setenv("VEILSUM_OPERATOR_TOKEN", TOKEN)
    return remote
