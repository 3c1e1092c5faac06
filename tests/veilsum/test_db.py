"""`veilsum db`: an operator looks at the tables, and moves them."""

from pathlib import Path

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
        assert cli("db", *command, "--json").values == {"revision": revision, "newest": newest}


def test_nothing_is_lost_by_mistake(cli: Cli, tmp_path: Path) -> None:
    cli("db", "upgrade")
    assert "say --yes" in cli("db", "downgrade", "base").error
    assert "no revision older: `base`, initial" in cli("db", "downgrade", "older", "--yes").error
    lock = FolderLock(tmp_path / "veilsum-data")
    assert "another coordinator" in cli("db", "downgrade", "base", "--yes").error
    lock.release()
    assert cli("db", "current", "--json").values["revision"] == migrating.newest()
