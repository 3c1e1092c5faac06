"""The story of docs/tutorials/tables.md: five tables, a study with noise, a head."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import PATIENCE_S, PERIOD, TOKEN, Cli, later

ROOT = Path(__file__).parents[2]
HOSPITALS = tuple(f"hospital-{letter}" for letter in "abcde")
CLASSES = ("infection", "heart-failure", "bleeding", "other")


def test_hospitals_with_tables_share_a_noisy_head(remote: Cli) -> None:
    """In two steps; the page's 18 take minutes in one process."""
    subprocess.run([sys.executable, ROOT / "examples" / "tables.py", "data"], check=True, timeout=PATIENCE_S)
    moments = Path("data/moments.safetensors")
    admin = remote.json("admin", "new", "admin")["federation"]
    roster = list[object]()
    for name in HOSPITALS:
        key = remote.json("member", "new", name, "--member", name)["public_key"]
        roster += ["--member", f"{name}={key}"]
    remote.json(*remote.at("admin", "roster", "roster.json", "--folder", "admin", *roster))
    classes = [word for key in CLASSES for word in ("--class", key)]
    words = ("--name", "admission", "--dim", 13, *classes, "--members", len(HOSPITALS))
    extractor = hashlib.sha256(moments.read_bytes()).hexdigest()
    remote.json("admin", "study", "new", "study.toml", "--extractor", extractor, *words)
    draft = Path("study.toml")
    text = draft.read_text().replace('"mean+sum+16-gradients"', '"mean+sum"')
    names = Path("data/test.csv").read_text().partition("\n")[0].split(",")[1:-1]
    draft.write_text(text.replace("# columns = []", f"columns = {names[::-1]}"))
    approval = remote.json("admin", "study", "sign", draft, "--folder", "admin")["approval"]
    remote.operate("admin", "publish", "roster.bin", "study.bin")

    data = ("--id-column", "patient", "--standardise", moments, "--test-set", "data/test.csv")
    trust = ("--admin-key", admin, "--approve", approval, "--once", "--json")
    joins = {
        name: later(remote, *remote.at("member", "join", name, f"data/{name}.csv", *data, *trust))
        for name in HOSPITALS
    }
    run = later(
        remote, *remote.at("operator", "run", "study.bin", "--period", PERIOD, "--token", TOKEN, "--json")
    )
    assert run.result(PATIENCE_S).code == 0
    said = {name: join.result(PATIENCE_S).values for name, join in joins.items()}
    own, judges = said["hospital-b"]["read"]
    assert (own["rows"], own["ids"], judges["rows"], own["skipped"]) == (2500, 2500, 4000, {})
    assert {*own["classes"]} == {*CLASSES}
    judged = {name: each["judged"] for name, each in said.items()}
    for name in HOSPITALS[1:]:  # the first sees all diagnoses alike
        assert judged[name]["accuracy"] > judged[name]["own_accuracy"] + 0.05
    verified = remote.json("verify", f"hospital-b/results/admission/{PERIOD}", "--admin-key", admin)
    assert verified["record"]["noise"]["spent_epsilon"] == pytest.approx(2)
