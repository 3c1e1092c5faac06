"""Write a CSV table for each of five hospitals, and the public constants that standardise its columns.

The patients do not exist. A diagnosis is a pattern of abnormal values, times how ill the patient is, plus independent normal variation. Each
hospital sees other diagnoses. Nothing is fitted to real patients.

    python tables.py FOLDER
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

Floats = npt.NDArray[np.float64]

MEASUREMENTS = {  # the middle of a usual reference range, and half its width: agreed before any record is looked at
    "age": (60, 15),
    "heart_rate": (80, 20),
    "systolic": (115, 20),
    "respiratory_rate": (16, 4),
    "temperature": (36.8, 0.6),
    "oxygen": (90, 10),
    "leukocytes": (7.5, 3.5),
    "albumin": (42, 7),
    "creatinine": (80, 30),
    "lactate": (1.2, 0.8),
    "sodium": (140, 5),
    "hemoglobin": (140, 20),
}
ONE = "one"
"""A column that is 1 in every row. Rows are scaled to length 1, and beside it a row keeps how far it is from normal."""
PATTERNS = {
    "infection": {"heart_rate": 0.8, "temperature": 1.4, "leukocytes": 1.3, "albumin": -1.5, "lactate": 0.4},
    "heart-failure": {"age": 0.8, "respiratory_rate": 1.2, "oxygen": -1.3, "creatinine": 0.8, "sodium": -0.7},
    "bleeding": {"heart_rate": 0.9, "systolic": -1.1, "lactate": 0.8, "hemoglobin": -1.8},
    "other": {},
}
TABLES = {  # rows, and how many in a hundred have each diagnosis
    "hospital-a": (3000, (25, 25, 25, 25)),
    "hospital-b": (2500, (70, 10, 5, 15)),
    "hospital-c": (2000, (5, 75, 5, 15)),
    "hospital-d": (1500, (10, 5, 65, 20)),
    "hospital-e": (1000, (15, 15, 5, 65)),
    "test": (4000, (25, 25, 25, 25)),
}


def draw_patients(
    rng: np.random.Generator, count: int, percent: tuple[int, ...]
) -> tuple[Floats, npt.NDArray[Any]]:
    """Return (count, measurements) in their units, and (count,) diagnoses."""
    labels = rng.choice(len(PATTERNS), size=count, p=np.array(percent) / 100)
    patterns = np.array([[each.get(name, 0) for name in MEASUREMENTS] for each in PATTERNS.values()])
    severity = rng.lognormal(0, 0.4, size=(count, 1))
    standard = severity * patterns[labels] + rng.normal(size=(count, len(MEASUREMENTS)))
    centre, half = np.array([*MEASUREMENTS.values()]).T
    return np.maximum(centre + half * standard, 0.1), np.array([*PATTERNS])[labels]


def write_tables(folder: Path, seed: int) -> None:
    """Write each table, and `moments.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for table, (count, percent) in TABLES.items():
        with (folder / f"{table}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", *MEASUREMENTS, ONE, "label"])
            for number, (row, label) in enumerate(zip(*draw_patients(rng, count, percent), strict=True)):
                writer.writerow([f"{table}-{number}", *(f"{value:.1f}" for value in row), 1, label])
    centre, half = np.array([*MEASUREMENTS.values()]).T
    # One becomes √12, as long as a typical row of the twelve measurements.
    moments = {"mean": np.append(centre, 0.0), "scale": np.append(half, len(centre) ** -0.5)}
    columns = {"columns": json.dumps([*MEASUREMENTS, ONE])}
    save_file(moments, folder / "moments.safetensors", columns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_tables(args.folder, args.seed)
