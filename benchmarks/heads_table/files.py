"""Result files: one for each set of features and each seed."""

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.heads_table.features import Features
from benchmarks.heads_table.heads import Row

RESULTS = Path(__file__).parents[1] / "figures/heads-table"
FORMAT = "veilsum/heads-table/1"


@dataclass(frozen=True)
class ResultFile:
    """Rows of one set of features under one seed.

    Attributes:
        data: one of `features.DATA`.
        seed: of split, extractor, partition.
        features: `Features.digest`.
        records: of each member, contributed.
        dim: l.
        classes: C.
        tested: test records.
        machine: on which it was run, and with which numpy.
        rows: heads × paths × ε.
    """

    data: str
    seed: int
    features: str
    records: tuple[int, ...]
    dim: int
    classes: int
    tested: int
    machine: str
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, features: Features, rows: list[Row]) -> Self:
        return cls(
            features.name,
            features.seed,
            features.digest,
            tuple(map(len, features.members)),
            features.dim,
            features.classes,
            len(features.test_y),
            f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}",
            tuple(rows),
        )

    @staticmethod
    def path(folder: Path, data: str, seed: int) -> Path:
        return folder / f"{data}-{seed}.json"

    def write(self, folder: Path) -> None:
        """Whole, or not at all."""
        path = self.path(folder, self.data, self.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        head = {"format": FORMAT, **{key: value for key, value in vars(self).items() if key != "rows"}}
        lines = ",\n  ".join(json.dumps(_told(row), ensure_ascii=False) for row in self.rows)
        fresh = path.with_suffix(".new")
        opened = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
        fresh.write_text(f'{opened},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        content = json.loads(path.read_text("utf-8"))
        assert content.pop("format") == FORMAT, path
        rows = [
            Row(**{**row, "transcripts": tuple(row.get("transcripts", ()))}) for row in content.pop("rows")
        ]
        return cls(**{**content, "records": tuple(content["records"]), "rows": tuple(rows)})

    @property
    def without_noise(self) -> tuple[str, ...]:
        """Heads that have no row under noise: none of a file that the benchmark as it is makes."""
        noisy = {row.head for row in self.rows if row.epsilon is not None}
        heads = dict.fromkeys(row.head for row in self.rows)
        return tuple(head for head in heads if head not in noisy)

    @property
    def summary(self) -> str:
        """What a watcher of the run wants to see."""
        secure = [row for row in self.rows if row.path == "secure" and row.epsilon is None]
        best = max(secure, key=lambda row: row.accuracy)
        return f"{len(self.rows)} rows; exact {secure[0].accuracy:.1%} to {best.accuracy:.1%} ({best.head})"


def read_results(folder: Path = RESULTS) -> list[ResultFile]:
    """All of a folder, by data and seed."""
    return sorted(map(ResultFile.read, folder.glob("*.json")), key=lambda found: (found.data, found.seed))


def _told(row: Row) -> dict[str, Any]:
    """Without what has its default, and without digits beyond those that mean something."""
    default = asdict(Row(head="", path="", accuracy=0.0))
    told = {key: value for key, value in asdict(row).items() if value != default[key]}
    return {key: round(value, 3) if key == "cpu_s" else value for key, value in told.items()}
