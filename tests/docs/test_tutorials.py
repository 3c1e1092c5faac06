"""The tutorials are followed to the letter: their commands against a coordinator, their Python on models and texts of a test's size."""

import ast
import hashlib
import io
import re
from concurrent.futures import Future
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file
from sklearn.feature_extraction.text import HashingVectorizer

from client_sdk import Identity, Member, Policy, Result
from tests.docs.guide import FENCE, ROOT, Guide
from tests.threads import later
from tests.veilsum.cli import EXTRACTOR, Cli, enrolled

HOSPITALS = ("hospital-b", "hospital-c", "hospital-d")


def federation(cli: Cli, keys: dict[str, str], extractor: str = EXTRACTOR) -> str:
    """A published roster of these keys, by commands; the admin's key."""
    key = str(cli.json("admin", "new", "admin")["federation"])
    named = [word for name, shown in keys.items() for word in ("--member", f"{name}={shown}")]
    words = (*cli.at("admin", "roster", "roster.json"), *named, "--extractor", extractor)
    cli.json(*words, "--publish-rare-classes")
    cli.operate("admin", "sign", "roster.json", "--folder", "admin", "--publish")
    return key


def identities(cli: Cli, names: tuple[str, ...]) -> dict[str, str]:
    return {name: cli.json("member", "new", name, "--member", name)["public_key"] for name in names}


def join(cli: Cli, name: str, cohort: str, admin: str, path: Path, lineage: str) -> Future[dict[str, Any]]:
    words = ("member", "join", name, "--cohort", cohort, "--admin-key", admin, "--lineage", lineage)
    return later(cli.json, *cli.at(*words), "--features", path, "--normalise")


@pytest.mark.slow
def test_hospitals(coordinator: Cli) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 16), torch.nn.Tanh())
    model = torch.nn.Sequential()
    model.add_module("body", body)
    model.add_module("fc", torch.nn.Linear(16, 3))
    centres = torch.randn(3, 36)
    labels = torch.arange(60) % 3
    images = (centres[labels] + torch.randn(60, 36)).reshape(60, 1, 6, 6)
    save_file(model.state_dict(), "model.safetensors")
    Path("preprocessing.txt").write_text("6 × 6 pixels, mean 0\n")

    guide = Guide("tutorials/hospitals.md", coordinator)
    digest = guide.shell("cat").split()[0]
    both = Path("model.safetensors").read_bytes() + Path("preprocessing.txt").read_bytes()
    assert digest == hashlib.sha256(both).hexdigest()
    guide.names = {"model": model, "loader": [(images[:40], labels[:40]), (images[40:], labels[40:])]}
    guide.python()
    guide.veilsum("member new")
    key = guide.json("member show")["public_key"]
    admin = federation(coordinator, {"hospital-a": key, **identities(coordinator, HOSPITALS)}, digest)
    cohort = str(coordinator.operate("operator", "cohort", "open", admin)["cohort"])
    guide.meaning = {"COHORT": cohort, "KEY": admin}
    joining = [later(guide.json, "member join")]
    z = np.load("features.npz")
    for index, name in enumerate(HOSPITALS):
        noise = np.random.default_rng(index).normal(scale=0.1, size=z["features"].shape)
        np.savez(f"{name}.npz", features=z["features"] + noise, labels=z["labels"])
        joining.append(join(coordinator, name, cohort, admin, Path(f"{name}.npz"), "ct-2026"))
    enrolled(coordinator.url, cohort, 4, commands=joining)
    coordinator.operate(
        "operator", "round", "open", cohort, "--dim", 16, "--classes", 3, "--extractor", digest
    )
    assert [each.result(120)["survivors"] for each in joining] == [["hospital-a", *HOSPITALS]] * 4
    guide.names["admin_key"] = bytes.fromhex(admin)
    guide.python()
    with torch.no_grad():
        answers = model(images).argmax(dim=1).numpy()
    unit = z["features"] / np.linalg.norm(z["features"], axis=1, keepdims=True)
    np.testing.assert_array_equal(answers, Result.load("hospital-a/result").predict(unit))
    assert (answers == labels.numpy()).mean() > 0.9
    december(guide, z["features"], z["labels"], digest)
    guide.done()


def december(guide: Guide, features: Any, labels: Any, digest: str) -> None:
    """The tutorial's noisy round, of four hospitals and a test's features; the numbers that the page names are its own plan's."""
    cli, page = guide.cli, (ROOT / "docs" / "tutorials" / "hospitals.md").read_text("utf-8")
    own = re.search(r"^\$ veilsum (privacy plan .*) --output", page, re.MULTILINE)
    assert own is not None
    said = cli.json(*own[1].split())
    assert f"`{said['verdict']}`: {said['expected_points_lost']} points" in page
    assert f"μ = {said['mu']:.3g}, the" in page
    assert f"σ = {said['sigma']:.3g}, the" in page
    assert f"= {said['mu'] * 2**0.5:.3g}.\n" in page

    guide.meaning |= {"--dim 512 --classes 9 --members 12": "--dim 16 --classes 3 --members 4"}
    assert guide.json("privacy plan")["mu"] == pytest.approx(said["mu"])  # which follows from ε and δ alone
    guide.meaning |= {"DIGEST": digest}
    guide.json("operator round open")
    for index, name in enumerate(("december", *HOSPITALS)):
        drawn = np.random.default_rng(10 + index).normal(scale=0.1, size=features.shape)
        np.savez(f"{name}.npz", features=features + drawn, labels=labels)
    cohort, admin = str(guide.meaning["COHORT"]), str(guide.meaning["KEY"])
    joining = [join(cli, name, cohort, admin, Path(f"{name}.npz"), "ct-2026-12") for name in HOSPITALS]
    joined = guide.json("member join")
    assert [each.result(120)["counted"] for each in joining] == [True] * 3
    assert joined["noise"] == "ε = 4 at δ = 1e-06 for a record's presence"
    printed = io.StringIO()
    with redirect_stdout(printed):
        guide.python()
    assert f"`{printed.getvalue().strip()}`" in page


class Encoder:
    """A sentence encoder of counts: frozen, the same for all, and of the width that the page has."""

    def __init__(self) -> None:
        self._counts = HashingVectorizer(n_features=384, alternate_sign=False)

    def encode(self, texts: list[str]) -> Any:
        return self._counts.transform(texts).toarray().astype(np.float32)


TOPICS = {
    "economy": ("bank rates rise", "the market fell", "trade and prices", "jobs and wages"),
    "health": ("a doctor and a nurse", "the vaccine works", "hospital beds", "sleep and diet"),
    "sport": ("the team won", "a late goal", "she ran the marathon", "the coach and the cup"),
}


@pytest.mark.slow
def test_texts(coordinator: Cli) -> None:
    pytest.importorskip("pyarrow")
    names = list(TOPICS)
    texts = [text for topic in names for text in TOPICS[topic]] * 5
    labels = [names.index(topic) for topic in names for _ in TOPICS[topic]] * 5
    guide = Guide("tutorials/text.md", coordinator)
    guide.names = {"encoder": Encoder(), "texts": texts, "labels": labels}
    guide.python()
    Path("held-out.parquet").write_bytes(Path("embeddings.parquet").read_bytes())
    alone = guide.json("calibrate")
    assert alone["accuracy"] == 1.0
    guide.python()  # prints scores

    keys = identities(coordinator, ("press-a", "press-b", "press-c"))
    admin = federation(coordinator, keys)
    cohort = str(coordinator.operate("operator", "cohort", "open", admin)["cohort"])
    others = [
        join(coordinator, name, cohort, admin, Path("embeddings.parquet"), "topics-2026")
        for name in ("press-b", "press-c")
    ]
    policy = Policy(admin_key=bytes.fromhex(admin))
    with Member(coordinator.url, Identity.load("press-a"), None, policy) as member:
        member.enrol(cohort)
        terms = ("--dim", 384, "--classes", 3, "--extractor", EXTRACTOR, "--bias")
        opened = coordinator.operate("operator", "round", "open", cohort, *terms)
        guide.names |= {"member": member, "round_id": opened["round"], "labels": [names[i] for i in labels]}
        guide.python()
    assert [each.result(120)["counted"] for each in others] == [True, True]
    classifier = guide.names["classifier"]
    assert classifier.result_.counted
    assert list(classifier.predict(Encoder().encode(["the hospital and the nurse"]))) == ["health"]
    guide.done()


def plain(function: ast.FunctionDef) -> str:
    """A function without its annotations, its docstring and what checkers are told."""
    for argument in function.args.args:
        argument.annotation = None
    function.returns = None
    if ast.get_docstring(function) is not None:
        function.body = function.body[1:]
    return ast.unparse(function)


def functions(code: str) -> dict[str, str]:
    return {each.name: plain(each) for each in ast.parse(code).body if isinstance(each, ast.FunctionDef)}


def test_flower_s_code_is_the_example_s() -> None:
    """The example itself runs in Flower's own environment: tests/veilsum/examples."""
    page = (ROOT / "docs" / "tutorials" / "flower.md").read_text("utf-8")
    shown = {
        name: code
        for language, block in FENCE.findall(page)
        if language == "python"
        for name, code in functions(block).items()
    }
    example = functions((ROOT / "examples" / "flower" / "apps.py").read_text("utf-8"))
    assert shown == {name: example[name] for name in ("enrol", "calibrate")}
    for line in re.findall(
        r"^\$ (?:make|.venv/bin/python -m pytest .*?)(?: --no-cov)? (\S+)$", page, re.MULTILINE
    ):
        target = re.search(rf"^{line}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert target or (ROOT / line).is_dir(), line
