"""`veilsum operator db`: an operator looks at the tables, and moves them."""

from pathlib import Path

import pytest

from service.storage import migrating
from service.storage.folder import FolderLock
from tests.veilsum.cli import Cli


def test_tables_go_up_and_down(cli: Cli) -> None:
    newest = migrating.newest()
    for command, revision in (
        (("current",), None),
        (("upgrade",), newest),
        (("upgrade",), newest),
        (("current",), newest),
        (("downgrade", "base", "--yes"), None),
    ):
        assert cli("operator", "db", *command, "--json").values == {"revision": revision, "newest": newest}


def test_nothing_is_lost_by_mistake(cli: Cli, tmp_path: Path) -> None:
    cli("operator", "db", "upgrade")
    assert "--yes" in cli("operator", "db", "downgrade", "base").error
    assert "no revision older: `base`" in cli("operator", "db", "downgrade", "older", "--yes").error
    lock = FolderLock(tmp_path / "veilsum-data")
    assert "another coordinator" in cli("operator", "db", "downgrade", "base", "--yes").error
    lock.release()
    assert cli("operator", "db", "current", "--json").values["revision"] == migrating.newest()


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
