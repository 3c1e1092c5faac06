"""`veilsum operator db`: inspecting and upgrading the database."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.storage import migrating
from service.storage.folder import lock_folder
from tests.service.storage.kept import DONE, FOLDERS, flip, opened, overwrite
from tests.support.cli import Cli


def test_tables_are_made_when_nobody_else_works_on_them(cli: Cli, tmp_path: Path) -> None:
    newest, folder = migrating.newest_format(), tmp_path / "veilsum-data"
    for command in (
        "current",
        "upgrade",
        "check",
    ):  # of a folder that was mistyped, or before the first start
        assert cli("operator", "db", command).error
        assert not folder.exists()
    folder.mkdir(0o700)
    (folder / "coordinator.sqlite3").touch()
    for command, found in (("current", None), ("upgrade", newest), ("upgrade", newest), ("current", newest)):
        assert cli("operator", "db", command, "--json").values == {"format": found, "newest": newest}
    with lock_folder(folder):
        assert "another coordinator" in cli("operator", "db", "upgrade").error


def test_a_database_that_cannot_be_had_is_said_in_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, said in (
        ("postgresql://v:secret@127.0.0.1:1/veilsum", "the database can't be reached"),
        ("postgresql://v:sec@ret:x@127.0.0.1/veilsum", "percent-encode the password"),
        (
            "postgresql://v@127.0.0.1/veilsum?sslmode=always",
            "sslmode in VEILSUM_DATABASE_URL: expected one of",
        ),
    ):
        monkeypatch.setenv("VEILSUM_DATABASE_URL", url)
        outcome = cli("operator", "db", "current")
        assert said in outcome.error
        assert "ret" not in outcome.err


@pytest.mark.parametrize(
    ("damage", "damaged"),
    [
        (lambda _: None, []),
        (lambda folder: flip(folder, "links", "body", "federation", DONE), [f"chain of federation {DONE}"]),
        (lambda folder: flip(folder, "audit", "who", "number", "3"), ["audit log: entry 3 "]),
        (lambda folder: flip(folder, "audit_head", "head", "id", "0"), ["audit log: "]),
        (lambda folder: overwrite(folder, "tokens"), ["file: ", "table tokens: "]),
    ],
)
def test_an_operator_is_told_what_is_damaged(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    damaged: list[str],
) -> None:
    folder = tmp_path / "data"
    opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    damage(folder)
    monkeypatch.setenv("VEILSUM_DATA_DIR", str(folder))
    outcome = cli("operator", "db", "check", "--json")
    assert outcome.code == int(bool(damaged))
    for found, expected in zip(outcome.values["damaged"], damaged, strict=True):
        assert found.startswith(expected)


def test_an_operator_has_a_damaged_chain_made_again(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be made again is still named."""
    folder, chain = tmp_path / "data", f"chain of federation {DONE}"
    opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    flip(folder, "links", "body", "federation", DONE)
    monkeypatch.setenv("VEILSUM_DATA_DIR", str(folder))
    outcome = cli("operator", "db", "repair", "--json")
    assert (outcome.values, outcome.code) == ({"repaired": [chain], "damaged": []}, 0)
    flip(folder, "links", "body", "federation", DONE)
    flip(folder, "studies", "body", "federation", DONE)
    outcome = cli("operator", "db", "repair", "--json")
    assert (outcome.values["repaired"], outcome.code) == ([], 1)
    assert chain in outcome.values["damaged"]


def test_every_blob_is_checked_before_a_backup_is_signed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    kept = [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    for path in kept:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    monkeypatch.setenv("VEILSUM_DATA_DIR", str(folder))
    names = {f"blob {path.relative_to(folder / 'blobs')}" for path in kept}
    outcome = cli("operator", "db", "check", "--json")
    assert (set(outcome.values["damaged"]), outcome.code) == (names, 1)
    made = cli("operator", "backup", "create", tmp_path / "it.zip", "--data-dir", folder, "--json")
    assert (set(made.values["damaged"]), made.code) == (names, 1)
    lines = cli("operator", "db", "check").out.splitlines()
    assert all(sum(name in line for line in lines) == 1 for name in names)
