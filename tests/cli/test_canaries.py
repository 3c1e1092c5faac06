"""Canary packs from the admin's files to a member's run, by commands alone."""

import csv
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.support.cli import CLASSES, DIM, EXTRACTOR, PATIENCE_S, PERIOD, Cli, CliConsortium, records
from veilsum.cli.canaries import write_inputs
from veilsum.cli.commands import pilot
from veilsum.cli.demo.processes import DemoError
from veilsum.cli.tables import Table
from veilsum.protocol.errors import Misuse
from veilsum.study.canaries import CanaryPack

Make = Callable[..., CliConsortium]
COLUMNS = [f"f{place}" for place in range(DIM)]
COUNT = 12


def write_rows(path: Path, features: Any, ids: list[str], columns: list[str] = COLUMNS) -> Path:
    lines = [["id", "label", *columns]]
    lines += [
        [name, f"class-{place % CLASSES}", *map(repr, row)]
        for place, (name, row) in enumerate(zip(ids, features.tolist(), strict=True))
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)
    return path


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A public table, whose ids are not yet those of canaries."""
    rows = np.random.default_rng(3).standard_normal((COUNT, DIM))
    return write_rows(tmp_path / "public.csv", rows, [f"row-{place}" for place in range(COUNT)])


def test_a_pack_of_a_table_goes_from_the_admin_to_the_members(
    consortium: Make, remote: Cli, public: Path, tmp_path: Path
) -> None:
    pack = tmp_path / "pack.zip"
    made = remote.json("admin", "canaries", pack, "--features", public)
    digest = hashlib.sha256(pack.read_bytes()).hexdigest()
    assert (made["sha256"], made["canaries"], made["inputs"]) == (digest, COUNT, 1)
    draft = tmp_path / "draft.toml"
    keys = [word for each in range(CLASSES) for word in ("--class", f"class-{each}")]
    words = ("--extractor", EXTRACTOR, "--dim", DIM, "--members", 5, *keys, "--canaries", pack)
    remote.json("admin", "study", "new", draft, *words)
    assert f'pack = "{digest}"' in draft.read_text()
    assert "\ncolumns = [" in draft.read_text()
    assert "canaries" in remote("admin", "study", "check", draft).out
    rehearsal = f'readers = "members"\n[rehearsal]\npack = "{digest}"\ntolerance = 0.01\n#'
    c = consortium(edits={'readers = "members"': rehearsal})
    name = c.folder / "m0"
    key = ("--admin-key", c.admin)
    asked = ("member", "canaries", name, tmp_path / "inputs", *key)
    assert "veilsum admin publish" in remote(*remote.at(*asked)).error
    sent = remote.json(*remote.at("admin", "publish", pack, "--folder", c.folder / "admin"))
    assert sent["published"] == [{"canaries": COUNT, "pack": digest}]
    assert remote.json(*remote.at(*asked))["inputs"] == 1
    rows = [*csv.DictReader((tmp_path / "inputs" / "canaries.csv").read_text("utf-8").splitlines())]
    assert [each["id"] for each in rows] == [f"canary-row-{place}" for place in range(COUNT)]
    shown = np.array([[float(each[column]) for column in COLUMNS] for each in rows])

    for place in range(len(c.files)):
        data = records(np.random.default_rng(place), 40)
        ids = [*(f"p{place}-{row}" for row in range(40)), *(each["id"] for each in rows)]
        labels = [*(f"class-{label}" for label in data[1]), *(each["label"] for each in rows)]
        c.write(c.members[place], np.concatenate([data[0], shown]), labels, ids)
    doctor = remote.json(*remote.at("member", "doctor", name, c.files[0], *key))
    assert doctor["ok"]
    found = {each["name"]: each for each in doctor["checks"]}
    approval = found["approval of digits"]
    assert (approval["ok"], c.approval in approval["detail"]) == (None, True)
    assert f"{COUNT} canaries agree" in found["canaries of digits"]["detail"]
    assert {"proxy", "coordinator", "clock", "roster", "disk", "upload", "window of digits"} < set(found)

    right = c.files[0]
    with np.load(right) as held:
        wrong = c.write("wrong", held["features"][:, ::-1], held["labels"], held["ids"])
    checked = remote(*remote.at("member", "doctor", name, wrong, *key))
    assert checked.code == 1
    assert "reverse" in checked.out.replace("\n", " ")
    c.files[0] = wrong
    cohort = remote.operate("operator", "cohort", "open", c.study, "--period", PERIOD)["cohort"]
    refused = c.join("m0", "--json").result(PATIENCE_S)
    assert (refused.code, refused.values["cause"]) == (1, "canaries-differ")
    assert remote.json("member", "ledger", name)["runs"] == []
    c.files[0] = right
    record, printed = c.held()
    assert record["rows"] == 3 * 40
    assert record["cohort"] == cohort
    assert printed["m0"]["read"][0]["canaries"] == COUNT
    checks = remote.json(*remote.at("member", "doctor", name))["checks"]
    assert [each["ok"] for each in checks if each["name"] == approval["name"]] == [True]


def test_inputs_replace_no_file_that_a_folder_has(tmp_path: Path) -> None:
    pack = CanaryPack(["canary-0"], ["x"], np.ones((1, DIM)), inputs={"canary-0.png": b"public"})
    (tmp_path / "labels.csv").write_text("id,label\nours,x\n")
    with pytest.raises(Misuse, match=r"labels\.csv"):
        write_inputs(pack, tmp_path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [
        ("labels.csv", "id,label\nours,x\n")
    ]
    for _ in range(2):
        write_inputs(pack, tmp_path / "new")


def test_slips_and_inputs_are_matched_by_id(cli: Cli, public: Path, tmp_path: Path) -> None:
    ids = [f"row-{place}" for place in range(COUNT)]
    rows = np.random.default_rng(3).standard_normal((COUNT, DIM))
    slip = write_rows(tmp_path / "slip.csv", rows[::-1, ::-1], ids[::-1])
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for each in ids:
        (inputs / f"{each}.PNG").write_bytes(each.encode())
    words = ("admin", "canaries", tmp_path / "pack.zip", "--features", public)
    made = cli.json(*words, "--inputs", inputs, "--slip", f"bgr={slip}")
    assert (made["slips"], made["inputs"]) == (["bgr"], COUNT)
    pack = CanaryPack.from_bytes((tmp_path / "pack.zip").read_bytes())
    assert pack.inputs["canary-row-3.png"] == b"row-3"
    np.testing.assert_allclose(pack.slips["bgr"], pack.features[:, ::-1])
    (inputs / "row-0.json").write_text("{}")
    assert "row-0.PNG and row-0.json" in cli(*words, "--inputs", inputs).error
    (inputs / "row-0.json").unlink()
    (inputs / "row-0.PNG").unlink()
    for more in (
        ("--inputs", inputs),
        ("--slip", "bgr"),
        ("--slip", f"bgr={write_rows(tmp_path / 'few.csv', rows[1:], ids[1:])}"),
        ("--slip", f"B G R={slip}"),
        ("--slip", f"none={public}"),
        ("--extractor", "json:dumps"),
    ):
        assert cli(*words, *more).error


def test_an_extractor_of_images_makes_the_slips(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photograph = load_sample_images().images[0]
    for place in range(6):
        folder = tmp_path / "images" / f"class-{place % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        part = photograph[40 * place :][:40, :36]
        Image.fromarray(part).save(folder / f"{place}.png")
    (tmp_path / "own_extractor.py").write_text(
        "import numpy as np\n"
        "from PIL import Image\n"
        "def features(images):\n"
        "    small = [Image.fromarray(each).resize((8, 8), Image.Resampling.BILINEAR) for each in images]\n"
        "    return np.stack([np.asarray(each).ravel() for each in small]).astype(float)\n"
        "def raw(images):\n"
        "    return features(images) - 100\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ("admin", "canaries", "pack.zip", "--inputs", "images", "--extractor", "own_extractor:features")
    made = cli.json(*words, "--size", "8x8", "--slip", "not-normalised=own_extractor:raw")
    assert {"not-normalised", "bgr", "transposed", "flipped", "bicubic", "nearest"} < set(made["slips"])
    assert (made["canaries"], made["inputs"]) == (6, 6)
    pack = CanaryPack.from_bytes(Path("pack.zip").read_bytes())
    assert (pack.ids[0], pack.labels) == ("canary-0001", ("class-0",) * 3 + ("class-1",) * 3)
    with Image.open(io.BytesIO(pack.inputs["canary-0001.png"])) as image:
        assert image.size == (36, 40)
    for wrong in ("own_extractor:nothing", "no_module:features", "own_extractor:np"):
        assert wrong in cli(*words[:-1], wrong).error
        assert "--extractor" not in cli(*words, "--slip", f"raw={wrong}").error
    assert "--size" in cli(*words, "--size", "8").error


def test_a_pilot_deals_canaries_to_all_members_and_compares_them_first(
    cli: Cli, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Table]()

    def stops(_folder: object, _content: object, tables: list[Table], *_: object) -> None:
        given[:] = tables
        raise DemoError("enough")

    monkeypatch.setattr(pilot, "run_pilot", stops)
    cli.json("admin", "canaries", tmp_path / "pack.zip", "--features", public)
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.standard_normal((COUNT, DIM)), rng.standard_normal((200, DIM))])
    rows[:COUNT] = np.random.default_rng(3).standard_normal((COUNT, DIM))
    ids = [f"canary-row-{place}" for place in range(COUNT)] + [f"p{place}" for place in range(200)]
    data = write_rows(tmp_path / "data.csv", rows, ids)
    words = ("pilot", data, "--output", tmp_path / "pilot", "--members", 3)
    more = ("--canaries", tmp_path / "pack.zip")
    done = cli(*words, *more)
    assert done.error == "enough"
    assert done.err.count(f"{COUNT} canaries agree") == 3
    assert [table.is_canary.sum() for table in given] == [COUNT] * 3
    assert sum(len(table.features) for table in given) == 200 + 3 * COUNT
    assert 'pack = "' in (tmp_path / "pilot/study.toml").read_text()
    study = tmp_path / "kept.toml"
    study.write_text((tmp_path / "pilot/study.toml").read_text())
    assert "pass that pack" in cli(*words, "--study", study).error
    rows[0, 0] += 1
    write_rows(data, rows, ids)
    assert "member 1" in cli(*words, *more).error
