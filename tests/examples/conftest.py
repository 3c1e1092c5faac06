from tests.cli.conftest import cli, consortium, remote, url

__all__ = ["cli", "consortium", "remote", "url"]
