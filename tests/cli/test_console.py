import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from client_sdk.progress import Progress, Step
from tests.support.cli import Cli
from veilsum.cli.commands.member import make_progress_printer
from veilsum.cli.console import end_with_error, print_note, print_table, print_values, reporting_errors
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.rest import RoundRequest

ROOT = Path(__file__).parents[2]


def test_a_result_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "a_name": 1.23456789,
        "list": [1, None],
        "empty": (),
        "inner": {"x": 0.5},
        "whole": True,
        "long": "z" * 200,
    }
    print_values(values, "Title")
    assert capsys.readouterr().out.splitlines() == [
        "Title",
        "a name  1.23457",
        "list    1, –",
        "empty   –",
        "inner   x 0.5",
        "whole   yes",
        f"long    {'z' * 200}",
    ]
    print_values({})
    assert capsys.readouterr().out == ""


RECALLS = {
    "head": "ridge, unit columns",
    "accuracy": "99.0 %",
    "balanced_accuracy": "50.0 %",
    **{f"recall of {name}": "100.0 %" for name in ("infection", "heart-failure", "bleeding", "other")},
}


def test_a_table_cuts_no_word_that_has_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table("Title", [RECALLS])
    lines = capsys.readouterr().out.splitlines()
    assert {"heart-failure", "infection", "columns"} <= {*" ".join(lines).split()}
    assert max(map(len, lines)) <= 80
    print_table("Title", [{"name": "a", "digest of the file": "ab" * 50}])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "".join(" ".join(lines[2:]).split()) == "a" + "ab" * 50


@pytest.mark.parametrize("columns", [50, 70, 80, 100])
def test_a_table_wider_than_the_terminal_shows_all_its_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table("Title", [RECALLS | {"recall of oedema-of-lung": "100.0 %"}])
    assert capsys.readouterr().out.count("%") == 7


def test_a_result_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("beside it")
    with reporting_errors(as_json=True):
        print_values({"a_name": [1]}, "Title")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"a_name": [1]}
    assert captured.err == "beside it\n"


def test_an_interrupted_command(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        with pytest.raises(typer.Exit) as ended, reporting_errors(as_json=as_json):
            raise KeyboardInterrupt
        assert ended.value.exit_code == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out).keys() == {"error", "cause"}
    assert captured.err.startswith("veilsum: ")


HOSTILE = "a\x1b[2Jb\x9b1Ac\r\nveilsum: d\x00\x7f\u202e\ud800"


def test_what_a_coordinator_says_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    said = "a�[2Jb�1Ac  veilsum: d����"
    print_note(HOSTILE)
    tell = make_progress_printer()
    tell(Progress(Step.WAITING, waiting_for=(HOSTILE,)))
    tell(Progress(Step.WAITING, detail=HOSTILE))
    with pytest.raises(typer.Exit):
        end_with_error(HOSTILE)
    print_values({HOSTILE: [HOSTILE, {HOSTILE: 1}]})
    print_table("Title", [{"name": HOSTILE}])
    captured = capsys.readouterr()
    note, waiting, *others = captured.err.splitlines()
    assert (note, others) == (said, [said, f"veilsum: {said}"])
    assert waiting.endswith(said)
    shown, _, _, row = captured.out.splitlines()
    assert shown == f"{said}  {said}, {said} 1"
    assert row.strip() == said


def test_brackets_in_a_table_are_no_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_table("at http://[fe80::1]", [{"recall of a_1 [/late]": "[b]", "last_seen": 1}])
    title, names, row = capsys.readouterr().out.splitlines()
    assert title.strip() == "at http://[fe80::1]"
    assert names.split("  ") == ["recall of a_1 [/late]", "last seen"]
    assert row.split() == ["[b]", "1"]


def test_a_long_refusal_is_cut_for_people_and_whole_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = "x" * 1_000_000
    for as_json in (False, True):
        with pytest.raises(typer.Exit), reporting_errors(as_json=as_json):
            raise PeerFault(Cause.CONFLICT, refusal)
    print_note(refusal)
    print_values({"fault": refusal})
    print_table("Title", [{"fault": refusal}])
    captured = capsys.readouterr()
    script, shown = captured.out.split("\n", 1)
    assert json.loads(script)["error"] == f"conflict: {refusal}"
    for text in (*captured.err.splitlines(), *shown.split("Title")):
        assert re.search("x{10}", text)
        assert len(text) < 10_000
        assert re.search(r"99[\d,\s]+ characters more", text)


def test_a_validation_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reporting_errors(as_json=False):
        RoundRequest(lifetime_s=0)
    assert re.fullmatch("veilsum: lifetime_s: .*\n", capsys.readouterr().err)
    with pytest.raises(typer.Exit), reporting_errors(as_json=False):
        raise Misuse("said")
    assert capsys.readouterr().err == "veilsum: said\n"


def test_a_path_of_another_kind_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    expected: dict[Callable[[], object], str] = {
        lambda: file.mkdir(exist_ok=True): f"{file} is a file, expected a folder",
        lambda: (file / "x").write_bytes(b""): f"{file / 'x'} leads through a file",
        lambda: folder.write_bytes(b""): f"{folder} is a folder, expected a file",
        folder.mkdir: f"{folder}: File exists",
        (tmp_path / "none").read_bytes: f"{tmp_path / 'none'}: No such file or directory",
    }
    for act, said in expected.items():
        with pytest.raises(typer.Exit), reporting_errors(as_json=False):
            act()
        assert capsys.readouterr().err.startswith(f"veilsum: {said}")


def test_too_little_memory_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for error, said in (
        (MemoryError(), "allocation failed"),
        (MemoryError("Unable to allocate 1 PiB"), "Unable to"),
    ):
        with pytest.raises(typer.Exit), reporting_errors(as_json=False):
            raise error
        assert f"out of memory ({said}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("calibrate", "--help"), ("calibrate", "none.npz")])
def test_a_terminal_without_our_letters_shows_others(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "veilsum", *words]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "PATH": os.defpath}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == (0 if "--help" in words else 1)


@pytest.mark.parametrize("words", [("", "--member", "a"), ("folder", "--member", "a", "--admin-key=")])
def test_an_empty_word_is_refused(
    words: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = cli("member", "new", *words)
    assert refused.code == 2
    assert not list(tmp_path.iterdir())
