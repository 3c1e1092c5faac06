"""The cost of a secure sum here, compared with the floor and with Flower in one run, so that ratios are meaningful.

A whole round runs in this process with the protocol's own classes: every member has real keys, a vector of its
own and a masked upload, every message is passed as bytes, and the unmasked total must equal the plain
one exactly. Each member's and the coordinator's CPU time is measured at each call (`time.process_time`). There is
no network, and chunks are on disk. The graph follows the protocol: complete up to 200 members, and sparse
at 1,000, compared with a floor of the same degree.

    .venv/bin/python -m benchmarks.secure_sum --output runs/bench.json
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.floor import ELEMENTS, floor
from benchmarks.metered_round import (
    APART,
    COORDINATOR_STAGES,
    MEMBER_STAGES,
    BenchError,
    Case,
    Encode,
    Round,
    study_of,
)
from benchmarks.reports import write_findings
from veilsum.calibration.lattice import SumsLattice
from veilsum.protocol.sizing import Quorum

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / "benchmarks/peers/.venv/bin/python"
FLOWER = ROOT / "benchmarks/peers/flower_secagg.py"
SPARSE_SHARES = 21  # Flower's graph at 100 members, where its complete one takes minutes

QUICK = (Case(10, 0), Case(10, 1))
CASES = (*(Case(10, lost, 3, 3) for lost in (0, 1, 3)), *(Case(100, lost, 3) for lost in (0, 10, 30)))
BESIDE_FLOWER = (Case(10, 1, 3, 3), Case(100, 0, 3), Case(100, 10, 3))
LARGE = (Case(1_000, 0), Case(1_000, 100))
COMPLETE = tuple(Case(1_000, lost, loss=300, nominated=50) for lost in (0, 100, 300))
RINGS = {32: 32, 48: 64}  # ours, and the floor's: a 48-bit element needs a uint64

NOTES = """\
Complete and SPARSE graphs do not compare: a sparse one costs by its degree, not by the cohort, and promises less; that
ratio is the price of a graph, not of an implementation. A sparse graph of ours has no fewer neighbours than the rules
ask for, and none is small enough at 100 members. A loss of 30 % asks for the complete graph at 1,000.
Flower rounds to 22 bits and sends 64, whatever the ring. The floor of 48 bits is taken with words of 64.
The floor neither hashes an upload (most of admit, a fifth of mask at 10 members) nor commits to shares, nor certifies
a survivor set. With nobody lost it has next to nothing to do for its server: ours still hashes all that came in."""


# --- The three systems under the same terms --------------------------------------------------------------


def ours(case: Case, ring_bits: int) -> dict[str, Any]:
    """Return our figures, each the median over members and repeats, under the peers' names.

    Raises:
        BenchError: as `Round.run`.
    """
    content = study_of(case, ring_bits)
    lattice = SumsLattice(content.question.scale)
    assert content.question.elements == ELEMENTS

    def statistic(number: int) -> Encode:
        values = np.random.default_rng(number).uniform(-1, 1, ELEMENTS)
        return lambda: lattice.encode(values)

    members, bystanders, coordinators = [], [], []
    for repeat in range(case.repeats):
        with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as spool:
            measured = Round(case, content, statistic, Path(spool))
            measured.run(probe_memory=repeat == 0)
        members += measured.member_cpu_s()
        bystanders += measured.bystander_cpu_s()
        coordinators.append(measured.coordinator_cpu_s())
        if repeat == 0:
            first = measured
    sizes = case.sizes
    decryptor = {"cpu_s": _total(members, MEMBER_STAGES), "stage_cpu_s": median_of(members)}
    return {
        "system": "veilsum",
        "graph": "complete" if sizes.degree == sizes.quorum.members - 1 else "sparse",
        "shares": sizes.degree + 1,
        "bits": ring_bits,
        "client_cpu_s": _total(bystanders or members, MEMBER_STAGES),
        "client_stage_cpu_s": median_of(bystanders or members),
        **({f"decryptor_{name}": figure for name, figure in decryptor.items()} if bystanders else {}),
        "client_announced_and_chunks_bytes": statistics.median_high(first.upload_bytes.values()),
        "client_upload_bytes": statistics.median_high(first.sent_bytes[member] for member in first.staying),
        "client_received_bytes": statistics.median_high(
            first.received_bytes[member] for member in first.staying
        ),
        "client_peak_bytes": first.peak_bytes,
        "server_cpu_s": _total(coordinators, COORDINATOR_STAGES),
        "server_stage_cpu_s": median_of(coordinators),
    }


def _total(figures: list[dict[str, float]], stages: Sequence[str]) -> float:
    return statistics.median(sum(one[stage] for stage in stages) for one in figures)


def median_of(measured: Sequence[Any]) -> Any:
    """Return the median of each figure, with the names of the first measurement."""
    first = measured[0]
    if isinstance(first, dict):
        return {name: median_of([figures[name] for figures in measured]) for name in first}
    if None in measured or isinstance(first, str):
        return first
    return (statistics.median if isinstance(first, float) else statistics.median_high)(measured)


def flower(case: Case, shares: int | None, threshold: int) -> dict[str, Any]:
    """Measure Flower's own secure sum in its own environment; `shares` None means its complete graph.

    Raises:
        BenchError: the environment is missing, or the run failed.
    """
    if not PEERS_PYTHON.exists():
        raise BenchError(
            f"Flower's environment is missing ({PEERS_PYTHON.parents[1]}): make it with `make bench-peers`, "
            "or go without by --skip-flower"
        )
    terms = {
        "members": case.members,
        "shares": shares or "complete",
        "threshold": threshold,
        "lost": case.lost / case.members,
        "repeats": case.repeats,
        "elements": ELEMENTS,
    }
    command = [str(PEERS_PYTHON), str(FLOWER)]
    for name, value in terms.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"Flower's run failed: {done.stderr.strip() or done.returncode}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def flower_rounds(case: Case, *, full: bool) -> list[dict[str, Any]]:
    """Measure Flower on the same graph; at 100 members without `full`, only on its sparse graph, which fails above a tenth of dropouts."""
    complete = [flower(case, None, case.sizes.quorum.threshold)] if full or case.members <= 50 else []
    if case.members <= 50 or case.lost > case.members // 10:
        return complete
    # The threshold of 21 shares is our rule's for a cohort of 21.
    return [
        *complete,
        flower(case, SPARSE_SHARES, Quorum.derive_quorum(SPARSE_SHARES, SPARSE_SHARES).threshold),
    ]


def compare(case: Case, rings: dict[int, int], *, with_flower: bool, full: bool) -> list[dict[str, Any]]:
    """Compare ours, the floor with either keystream, and Flower in one case; return an entry for each ring.

    The systems alternate: a shared machine's speed changes within seconds, and so affects all of them.
    """
    turns: dict[int, list[dict[str, Any]]] = {bits: [] for bits in rings}
    for _ in range(case.blocks):
        peers = flower_rounds(case, full=full) if with_flower else []
        for bits, words in rings.items():
            own = ours(case, bits)
            bound, ctr = (
                floor(
                    case.members,
                    words,
                    case.lost,
                    repeats=max(case.repeats, 3) if case.members <= 100 else 1,
                    neighbours=case.sizes.degree,
                    threshold=case.sizes.quorum.threshold,
                    aes=aes,
                )
                for aes in ("gcm", "ctr")
            )
            graphs = {f"flower_{peer['graph']}": peer for peer in peers}
            turns[bits].append({"ours": own, "floor": bound, "floor_ctr": ctr, **graphs})
    rounds = []
    for bits, measured in turns.items():
        systems = median_of(measured)
        own = systems["ours"]
        rounds.append(
            {
                "members": case.members,
                "lost": case.lost,
                "threshold": case.sizes.quorum.threshold,
                "decryptors": case.sizes.quorum.decryptors,
                "ring_bits": bits,
                "systems": systems,
                "ours_over_floor": _over_floor(own, systems["floor"]),
                "ours_over_floor_ctr": _over_floor(own, systems["floor_ctr"]),
                "over_ours": {name: _ratios(system, own) for name, system in systems.items()},
            }
        )
    return rounds


def _over_floor(own: dict[str, Any], bound: dict[str, Any]) -> dict[str, float]:
    ratios = _ratios(own, bound)
    if "decryptor_cpu_s" in own:
        ratios["decryptor_cpu_s"] = own["decryptor_cpu_s"] / bound["client_cpu_s"]
    return ratios


def _ratios(costly: dict[str, Any], cheap: dict[str, Any]) -> dict[str, float]:
    figures = ("client_cpu_s", "server_cpu_s", "client_upload_bytes", "client_peak_bytes")
    return {name: costly[name] / cheap[name] for name in figures if costly.get(name) and cheap.get(name)}


# --- What is printed ---------------------------------------------------------------------------------------


def comparison_table(rounds: list[dict[str, Any]]) -> Table:
    table = Table(title=f"A secure sum of {ELEMENTS:,} elements; CPU in ms of process time")
    for name in ("members", "ring", "system", "graph"):
        table.add_column(name)
    for name in ("member", "÷ floor", "÷ ours", "MB up", "peak MB", "coordinator", "÷ floor", "÷ ours"):
        table.add_column(name, justify="right")
    for row in rounds:
        shown = f"{row['members']}, {row['lost']} lost"
        for name, system in row["systems"].items():
            sparse, bound = system["graph"] == "sparse", row["systems"]["floor"]
            named = f"floor, {system['aes']}" if "aes" in system else system["system"]
            # Another graph has another floor.
            above = _ratios(system, bound) if system.get("shares", bound["shares"]) == bound["shares"] else {}
            beside = row["over_ours"][name]
            table.add_row(
                shown,
                f"{system['bits']} b" if "bits" in system else "",
                named,
                f"SPARSE, {system['shares']}" if sparse else "complete",
                _ms(system["client_cpu_s"]),
                _times(above.get("client_cpu_s")),
                _times(beside["client_cpu_s"]),
                f"{system['client_upload_bytes'] / 1e6:.2f}",
                f"{system['client_peak_bytes'] / 1e6:.0f}" if system.get("client_peak_bytes") else "–",
                _ms(system["server_cpu_s"]),
                _times(above.get("server_cpu_s")),
                _times(beside["server_cpu_s"]),
            )
            shown = ""
        table.add_section()
    return table


def stage_table(rounds: list[dict[str, Any]]) -> Table:
    table = Table(title="Ours by stage, CPU ms; wire and store come on top of the figures above")
    for name in ("members", "ring", "who"):
        table.add_column(name)
    columns = ("enrol", "pair", "mask", "receipt", "reveal", "admit", "certify", "recover", "sum", *APART)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rounds:
        shown = (f"{row['members']}, {row['lost']} lost", f"{row['ring_bits']} b")
        for who, figures in (
            ("member", "client_stage_cpu_s"),
            ("decryptor", "decryptor_stage_cpu_s"),
            ("coordinator", "server_stage_cpu_s"),
        ):
            spent = row["systems"]["ours"].get(figures)
            if spent is None:
                continue
            table.add_row(*shown, who, *(_ms(spent[name]) if name in spent else "" for name in columns))
            shown = ("", "")
        table.add_section()
    return table


def _ms(cpu_s: float) -> str:
    return f"{1e3 * cpu_s:.1f}" if cpu_s < 1 else f"{1e3 * cpu_s:,.0f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/bench.json")
    parser.set_defaults(cases=CASES)
    for name, cases, told in (
        ("--quick", QUICK, "10 members, measured once, no Flower: seconds"),
        ("--beside-flower", BESIDE_FLOWER, "the rounds of the README's table alone: ten minutes"),
        (
            "--large",
            LARGE,
            "ours and the floor at 1,000 members alone: an hour, and 6 GB of disk and of memory",
        ),
        (
            "--complete",
            COMPLETE,
            "the same on the complete graph, which a loss of 30 %% asks for: hours, 5 GB of memory",
        ),
    ):
        parser.add_argument(name, dest="cases", action="store_const", const=cases, help=told)
    parser.add_argument("--skip-flower", action="store_true", help="ours and the floor only")
    parser.add_argument("--bits", type=int, choices=RINGS, help="one ring alone")
    parser.add_argument("--lost", type=int, help="of these rounds those that lose so many members alone")
    parser.add_argument("--full", action="store_true", help="Flower's complete graph of 100 too: minutes")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with_flower = given.cases in (CASES, BESIDE_FLOWER) and not given.skip_flower
    rings = {given.bits: RINGS[given.bits]} if given.bits else RINGS
    chosen = [each for each in given.cases if given.lost in {None, each.lost}]
    if not chosen:
        parser.error(f"--lost: none of these rounds loses {given.lost}, some lose {given.cases[-1].lost}")
    rounds = []
    try:
        ours(Case(10, 0), 32)  # the first round of a process is slower, and doesn't count
        for case in chosen:
            console.log(case.name, _stack_offset=2)
            rounds += compare(case, rings, with_flower=with_flower, full=given.full)
    except BenchError as error:
        sys.exit(f"secure_sum: {error}")
    console.print(comparison_table(rounds), stage_table(rounds))
    console.print(NOTES)
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }
    written = {"elements": ELEMENTS, **machine, "rounds": rounds}
    write_findings(written, given.output)


if __name__ == "__main__":
    main()
