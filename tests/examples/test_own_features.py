import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.cli import CLASSES, DIM, PATIENCE_S, CliConsortium

ROOT = Path(__file__).parents[2]


def test_a_member_of_own_features_takes_part(consortium: Callable[..., CliConsortium]) -> None:
    c = consortium()
    run, joins = c.run(), [c.join(member) for member in c.members[1:]]
    words = ("--url", c.cli.url, "--folder", c.folder / "m0", "--admin-key", c.admin, "--approve", c.approval)
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "own_features.py", *words, "--features", c.files[0]],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"({DIM}, {CLASSES})" in ran.stdout
    assert [each.result(PATIENCE_S).code for each in joins] == [0, 0]
    assert run.result(PATIENCE_S).code == 0
