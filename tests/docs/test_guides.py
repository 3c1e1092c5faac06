"""The guides of the operator, the admin, the member and the security officer are followed to the letter."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from client_sdk import Result
from client_sdk.operator import Operator
from tests.docs.guide import Guide
from tests.threads import later
from tests.veilsum.cli import EXTRACTOR, Cli, Consortium, enrolled

DIM, CLASSES = 64, 10


def features(folder: Path, name: str, seed: int, count: int = 60) -> Path:
    """A file of the size that guides speak of."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    z = rng.normal(size=(count, DIM)) + 4 * np.eye(CLASSES, DIM)[labels]
    path = folder / f"{name}.npz"
    np.savez(path, features=z / np.linalg.norm(z, axis=1, keepdims=True), labels=labels)
    return path


@pytest.mark.slow
def test_the_operator_s(consortium: Callable[..., Consortium], coordinator: Cli) -> None:
    c, guide = consortium(), Guide("howto/operator.md", coordinator)
    guide.meaning = {"FEDERATION": c.admin, "DIGEST": EXTRACTOR}
    c.files = [features(c.folder, member, index) for index, member in enumerate(c.members)]
    guide.passed("pip install")  # docs/start.md
    guide.passed("veilsum serve")  # the coordinator of the fixture
    guide.passed("export VEILSUM_OPERATOR_TOKEN")  # it is, as every page says or takes for granted
    c.cohort = guide.json("operator cohort open")["cohort"]
    guide.meaning["COHORT"] = c.cohort
    joining = [c.join(member) for member in c.members]
    guide.veilsum("operator cohort watch")
    first = guide.json("operator round open")["round"]
    guide.meaning["ROUND"] = first
    assert guide.json("operator round watch")["state"] == "done"
    assert [each.result(120).code for each in joining] == [0, 0, 0]

    second = c.open("--dim", DIM, "--classes", CLASSES)
    guide.meaning["ROUND"] = second
    with Operator(coordinator.url) as client:
        before = client.round(second).deadline_s
    assert before is not None
    assert guide.json("operator round extend")["deadline_s"] == pytest.approx(before + 3600)

    made = guide.json("operator token new")
    assert made["scopes"] == ["rounds"]
    guide.meaning["ID"] = made["token"]
    assert made["token"] in {each["token"] for each in guide.json("operator token list")["tokens"]}
    assert guide.json("operator token revoke")["revoked"] is not None

    guide.passed("export VEILSUM_DATA_DIR")  # the folder of the fixture
    current = guide.json("operator db current")
    assert current["revision"] is None
    assert guide.json("operator db upgrade")["revision"] == current["newest"]
    guide.meaning["/var/lib/veilsum/data"] = "veilsum-data"
    assert guide.json("operator backup create")["files"] == 1

    c.files = [features(c.folder, f"{member}-december", 10 + index) for index, member in enumerate(c.members)]
    joining = [c.join(member, "--lineage", "december") for member in c.members]
    assert [each.result(120).code for each in joining] == [0, 0, 0]
    guide.meaning |= {"ROUND1": first, "ROUND2": second}
    assert guide.json("operator round combine")["records"] == 360
    guide.done()


@pytest.mark.slow
def test_the_security_officer_s(coordinator: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = Guide("howto/security.md", coordinator)
    made = guide.json("operator token new")
    monkeypatch.setenv("VEILSUM_OPERATOR_TOKEN", made["secret"])
    noted = guide.json("operator audit verify")["head"]
    guide.meaning["NUMBER:HASH"] = noted
    assert guide.json("operator audit verify")["heads_held"] == 1
    assert guide.json("operator audit export")["log"] == "log.json"
    with Operator(coordinator.url) as client:
        guide.meaning["COORDINATOR"] = client.coordinator().public_key
    assert guide.json("operator audit verify")["whole"] is True
    guide.done()


@pytest.mark.slow
def test_the_admin_s_and_the_member_s(coordinator: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, member = Guide("howto/admin.md", coordinator), Guide("howto/member.md", coordinator)
    key = admin.json("admin new")["federation"]
    member.passed("pip install")
    keys = {"hospital-a": member.json("member new")["public_key"]}
    for name in ("hospital-b", "hospital-c"):
        keys[name] = coordinator.json("member", "new", name, "--member", name)["public_key"]
    admin.meaning = {f"{name}=KEY": f"{name}={shown}" for name, shown in keys.items()}
    admin.meaning |= {"DIGEST": EXTRACTOR, "URL": coordinator.url}
    admin.veilsum("admin roster", "--publish-rare-classes")
    admin.veilsum("admin sign")
    admin.done()

    cohort = str(coordinator.operate("operator", "cohort", "open", key)["cohort"])
    member.meaning = {"COHORT": cohort, "KEY": key}
    features(Path(), "features", 0)
    joining = [later(member.json, "member join")]
    for index, name in enumerate(("hospital-b", "hospital-c"), 1):
        words = ("member", "join", name, "--cohort", cohort, "--admin-key", key, "--lineage", "ct-2026")
        path = features(Path(), name, index)
        joining.append(later(coordinator.json, *coordinator.at(*words), "--features", path))
    enrolled(coordinator.url, cohort, 3, commands=joining)
    coordinator.operate(
        "operator", "round", "open", cohort, "--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR
    )
    assert [each.result(120)["counted"] for each in joining] == [True] * 3

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its database wants the whole of mlflow
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' own, at their import
        mlflow = pytest.importorskip("mlflow")
        board = pytest.importorskip("torch.utils.tensorboard")
        mlflow.set_tracking_uri(Path("runs").absolute().as_uri())
        with mlflow.start_run() as run, board.SummaryWriter("board") as writer:
            result = Result.load("hospital-a/result")
            member.names = {"result": result, "writer": writer, "step": 1, "accuracy": 0.875}
            member.python()
    assert mlflow.get_run(run.info.run_id).data.metrics["veilsum.accuracy"] == 0.875
    assert list(Path("board").iterdir())
    member.done()
