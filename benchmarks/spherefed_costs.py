"""SphereFed's tables of costs (Dong et al. 2022, Tables 1 and 10) on this machine: the cost of training or calibrating a classifier.

MobileNetV2's l = 1280, C = 100, 50,000 records of ten members, 100 rounds of ten local epochs. Features are synthetic, because no cost
depends on their values. Bytes are a member's, in both directions if the paper counts them so. Our operations are one processor's seconds;
the paper's are FLOPs without the forward pass of a trained classifier, which ours include. One epoch of the thousand
is run. All figures are from one run: read the ratios.

    .venv/bin/python -m benchmarks.spherefed_costs --output runs/spherefed_costs.json
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from benchmarks.reports import write_findings
from training.data.dataset import shuffle_batches
from training.heads import FixedHead, LearnedHead, Tammes, orthonormal_head
from training.results import Machine
from veilsum.calibration import CCVRStatistics, FFCStatistics, solve_ffc
from veilsum.calibration.ccvr_head import fit_logistic_sgd, tukey_transform, virtual_features
from veilsum.calibration.layout import Layout

ROOT = Path(__file__).parents[1]
DIM, CLASSES, RECORDS = 1280, 100, 50_000
ROUNDS, EPOCHS, BATCH = 100, 10, 64
PER_CLASS, RETRAINED = 500, 30
FLOAT32, RING_BITS, MB = 4, 48, 1e6


@dataclass(frozen=True)
class Cost:
    """One row of Table 1.

    Attributes:
        method: the table's name of it.
        paper_mb: size in the table.
        clear_mb: size by formula, with float32 and whole matrices.
        masked_mb: a member's masked upload for the calibration; None if the method isn't a sum.
        paper_gflop: operations in the table.
        cpu_s: measured seconds.
    """

    method: str
    paper_mb: float
    clear_mb: float
    masked_mb: float | None
    paper_gflop: float
    cpu_s: float


@dataclass(frozen=True)
class Made:
    """One row of Table 10: the making of a fixed head.

    Attributes:
        head: its construction.
        paper_s: seconds on the paper's GPU.
        cpu_s: seconds here.
        largest_cosine: between any two class vectors.
    """

    head: str
    paper_s: float
    cpu_s: float
    largest_cosine: float


def features(records: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = np.abs(rng.standard_normal((records, DIM), dtype=np.float32))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z, np.arange(records) % CLASSES


def taken_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def learned(z: np.ndarray, y: np.ndarray) -> None:
    """Train the head's part of one epoch: its own gradient, and the one passed on to the extractor."""
    head = LearnedHead(DIM, CLASSES, bias=False)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5)
    x, labels = torch.from_numpy(z), torch.from_numpy(y)
    for indices in shuffle_batches(len(x), BATCH):
        loss = functional.cross_entropy(head(x[indices].requires_grad_()), labels[indices])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        optimiser.step()


def ffc(z: np.ndarray, y: np.ndarray) -> Layout:
    statistics = FFCStatistics(DIM, CLASSES, normalise=False)
    statistics.update(z, y)
    solve_ffc(statistics, 1e-3)
    return statistics.layout


def ccvr(z: np.ndarray, y: np.ndarray) -> Layout:
    statistics = CCVRStatistics(DIM, CLASSES)
    statistics.update(z, y)
    rng = np.random.default_rng(0)
    drawn, labels = virtual_features(statistics, PER_CLASS, rng)
    fit_logistic_sgd(tukey_transform(drawn, 0.5), labels, CLASSES, rng, rate=1e-5, epochs=RETRAINED)
    return statistics.layout


def table_one() -> list[Cost]:
    z, y = features(RECORDS)
    layouts: list[Layout] = []
    trained = ROUNDS * EPOCHS * taken_s(lambda: learned(z, y))
    fast = taken_s(lambda: layouts.append(ffc(z, y)))
    retrained = taken_s(lambda: layouts.append(ccvr(z, y)))
    ours = [layout.elements * RING_BITS / 8 / MB for layout in layouts]
    head = DIM * CLASSES * FLOAT32 / MB
    every_round = 2 * ROUNDS * head
    return [
        Cost("FedAvg, a learned head", 102, every_round, None, 1.9e4, trained),
        Cost("and CCVR", 758, every_round + head + head * DIM, ours[1], 2.1e4, trained + retrained),
        Cost("a fixed head and FFC", 7, DIM * head / CLASSES + head, ours[0], 1.7e2, fast),
    ]


def table_ten() -> list[Made]:
    made = []
    for name, paper_s, make in (("QR", 0.02, orthonormal_head), ("Tammes", 13.1, Tammes())):
        torch.manual_seed(0)
        heads: list[FixedHead] = []
        seconds = taken_s(lambda make=make, heads=heads: heads.append(make(DIM, CLASSES)))  # type: ignore[misc]
        unit = functional.normalize(heads[0].weight.detach(), dim=1)
        cosines = unit @ unit.T - 2 * torch.eye(CLASSES)
        made.append(Made(name, paper_s, seconds, float(cosines.max())))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/spherefed_costs.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    made, costs = table_ten(), table_one()
    least, paper_least = costs[-1].cpu_s, costs[-1].paper_gflop
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table(
        *("classifier", "paper, MB", "float32, MB", "masked here, MB", "paper, GFLOP"),
        *("here, CPU s", "paper, over FFC", "here, over FFC"),
        title=f"Table 1: l = {DIM}, C = {CLASSES}, {RECORDS:,} records, {ROUNDS} rounds of {EPOCHS} epochs",
    )
    for cost in costs:
        table.add_row(
            cost.method,
            f"{cost.paper_mb:g}",
            f"{cost.clear_mb:.1f}",
            "–" if cost.masked_mb is None else f"{cost.masked_mb:.1f}",
            f"{cost.paper_gflop:.2g}",
            f"{cost.cpu_s:.1f}",
            f"{cost.paper_gflop / paper_least:.0f}",
            f"{cost.cpu_s / least:.0f}",
        )
    console.print(table)
    table = Table("fixed head", "paper, s", "here, CPU s", "largest cosine", title="Table 10: making it")
    for each in made:
        table.add_row(each.head, f"{each.paper_s:g}", f"{each.cpu_s:.3f}", f"{each.largest_cosine:.4f}")
    console.print(table)
    written = {
        "environment": Machine.describe_machine().model_dump(),
        "table_1": [asdict(cost) for cost in costs],
        "table_10": [asdict(each) for each in made],
    }
    write_findings(written, given.output)


if __name__ == "__main__":
    main()
