"""`veilsum operator db`: an operator looks at the tables, and upgrades them."""

from pathlib import Path

import pytest

from service.storage import migrating
from service.storage.folder import DataFolderLock
from tests.veilsum.cli import Cli


def test_tables_are_made_when_nobody_else_works_on_them(cli: Cli, tmp_path: Path) -> None:
    newest = migrating.newest()
    for command, revision in (
        ("current", None),
        ("upgrade", newest),
        ("upgrade", newest),
        ("current", newest),
    ):
        assert cli("operator", "db", command, "--json").values == {"revision": revision, "newest": newest}
    with DataFolderLock(tmp_path / "veilsum-data"):
        assert "another coordinator" in cli("operator", "db", "upgrade").error


def test_a_database_that_cannot_be_had_is_said_in_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, said in (
        ("postgresql://v:secret@127.0.0.1:1/veilsum", "the database can't be reached"),
        ("postgresql://v:sec@ret:x@127.0.0.1/veilsum", "percent-encode the password"),
        (
            "postgresql://v@127.0.0.1/veilsum?sslmode=always",
            "sslmode in VEILSUM_DATABASE_URL is to be one of",
        ),
    ):
        monkeypatch.setenv("VEILSUM_DATABASE_URL", url)
        outcome = cli("operator", "db", "current")
        assert said in outcome.error
        assert "ret" not in outcome.err
