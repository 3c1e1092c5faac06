import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from client_sdk import Identity, Member, Policy
from tests.veilsum.cli import CLASSES, DIM, Consortium

ROOT = Path(__file__).parents[3]


def test_a_member_of_own_features_takes_part(consortium: Callable[..., Consortium]) -> None:
    c = consortium()
    script = [sys.executable, str(ROOT / "examples" / "own_features.py"), "--url", c.cli.url]
    given = ("--folder", str(c.folder / "m0"), "--admin-key", c.admin, "--cohort", c.cohort)
    joining = [c.join(member) for member in c.members[1:]]
    policy = Policy(admin_key=bytes.fromhex(c.admin))
    with Member(c.cli.url, Identity.load(c.folder / "m0"), None, policy) as member:
        member.enrol(c.cohort)  # the round, which the script is told, opens once all are there
    words = [*script, *given, "--round", c.open("--bias"), "--features", str(c.files[0])]
    ran = subprocess.run(
        words, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert f"3 members, W ({DIM}, {CLASSES}), accuracy on my own records " in ran.stdout
    assert "never answers: none" in ran.stdout
    assert [future.result(120).code for future in joining] == [0, 0]
