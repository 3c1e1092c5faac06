from pathlib import Path

import pytest

from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.processes import DemoError


def test_an_earlier_demo_is_replaced_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = Folder.claim_folder(tmp_path / "out")
    folder.summary.touch()
    folder.coordinator.mkdir()
    (folder.root / "link").symlink_to(outside)
    again = Folder.claim_folder(tmp_path / "out")
    assert [path.name for path in again.root.iterdir()] == [".veilsum-demo"]
    assert (outside / "kept").exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DemoError):
        Folder.claim_folder(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(DemoError):
        Folder.claim_folder(tmp_path / "thesis.tex")


def test_tidying_leaves_results_and_no_key(tmp_path: Path) -> None:
    folder = Folder.claim_folder(tmp_path)
    folder.member_folder("member-01").mkdir(parents=True)
    folder.features_file("member-01").touch()
    folder.admin.mkdir()
    folder.summary.touch()
    folder.remove_secrets()
    assert {path.name for path in tmp_path.iterdir()} == {".veilsum-demo", "summary.json"}
