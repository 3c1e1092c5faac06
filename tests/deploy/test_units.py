"""The systemd units, as systemd itself reads them and rates their confinement."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.services import DEPLOY, settings_of

UNITS = sorted(DEPLOY.glob("*.service"))
ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(autouse=True)
def _systemd() -> None:
    if ANALYZE is None:
        pytest.skip("systemd-analyze is not installed")


def placed(unit: Path, folder: Path) -> Path:
    """Return the unit with existing programs, and its drop-ins next to it."""
    programs = f"{Path(sys.executable).parent}/"
    for path in (unit, *DEPLOY.glob(f"{unit.name}.d/*.conf")):
        copy = folder / path.relative_to(DEPLOY)
        copy.parent.mkdir(exist_ok=True)
        text = path.read_text().replace("/opt/veilsum/bin/", programs)
        copy.write_text(text.replace("User=veilsum-%i", "User=root").replace("User=veilsum\n", "User=root\n"))
    return folder / unit.name.replace("@.", "@hospital-a.")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    path = placed(unit, tmp_path)
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    run = subprocess.run(
        [str(ANALYZE), "verify", "--man=no", "--recursive-errors=no", path],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_is_exposed_little(unit: Path) -> None:
    run = subprocess.run(
        [str(ANALYZE), "security", "--offline=yes", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=True,
    )
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", run.stdout)
    assert level is not None
    assert float(level[1]) <= 2.5, run.stdout


def test_all_units_are_confined_alike() -> None:
    confined = [
        {name: value for name, value in settings_of(unit.read_text()).items() if re.match(CONFINING, name)}
        for unit in UNITS
    ]
    assert len(UNITS) == 2
    assert all(each == confined[0] for each in confined)


CONFINING = r"(Protect|Private|Restrict|NoNew|Capability|SystemCall|UMask|Lock|Memory)"
