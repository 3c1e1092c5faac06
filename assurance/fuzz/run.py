"""Fuzz the protocol: `make fuzz`.

Four campaigns share one mutator and one set of rules: live rounds and decoders with a plain seeded engine, then decoders and recorded
stages of rounds with atheris, which continues from inputs that reach new code. Exit status 1 if any rule was broken.
"""

# ruff: noqa: T201 - a command prints

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from assurance.fuzz import decoders
from assurance.fuzz.live import Live, largest
from assurance.fuzz.oracle import Tally
from assurance.reports import arguments, report

MUTANTS = 40
"""Number of mutants of each message in a live round."""
SHARES = {"live rounds": 0.38, "decoders": 0.05, "guided decoders": 0.07, "guided stages": 0.5}
"""Shares of the messages. At least three in ten mutants must be signed again, so two in five of those put into phases are."""


def guided(which: str, runs: int, seed: int) -> tuple[Tally, int]:
    """Run a campaign under atheris in a process of its own; return its tally and the number of edges that it reached."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "tally.json"
        command = [sys.executable, "-m", "assurance.fuzz.guided", which, str(runs), str(seed), str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not output.exists():
            raise SystemExit(f"atheris stopped early:\n{done.stderr[-4000:]}")
        edges = [int(number) for number in re.findall(r"\bcov: (\d+)", done.stderr)]
        return Tally.from_json(output.read_text()), max(edges)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int, default=1_200_000, help="mutants in all")
    parser.add_argument("--seed", type=int, default=0, help="fixes every choice of the plain engine")
    chosen = parser.parse_args()
    wanted = {name: int(chosen.messages * share) for name, share in SHARES.items()}
    seed = chosen.seed
    campaigns: dict[str, Callable[[], tuple[Tally, int | None]]] = {
        "live rounds": lambda: (Live(seed, MUTANTS).campaign(wanted["live rounds"]), None),
        "largest": lambda: (largest(seed), None),
        "decoders": lambda: (decoders.campaign(seed, wanted["decoders"]), None),
    }
    if importlib.util.find_spec("atheris"):
        campaigns["guided decoders"] = lambda: guided("decoders", wanted["guided decoders"], seed)
        campaigns["guided stages"] = lambda: guided("stages", wanted["guided stages"], seed)
    else:
        lacking = sum(share for name, share in SHARES.items() if name.startswith("guided"))
        print(
            f"atheris is not installed, which has wheels for Linux on x86_64 and Python before 3.14 alone: {lacking:.0%} of the messages, "
            "those guided by coverage, are left out, and so this run ends with 1",
            file=sys.stderr,
        )
    total, began, parts = Tally(), monotonic(), dict[str, Any]()
    for name, campaign in campaigns.items():
        started = monotonic()
        tally, edges = campaign()
        total.add(tally)
        count, seconds = tally.messages.total(), monotonic() - started
        parts[name] = {"messages": count, "seconds": round(seconds, 1), "edges": edges}
        print(
            f"{name}: {count:,} messages in {seconds:.0f} s, {len(tally.violations)} rules broken", flush=True
        )
    found = {
        "seed": seed,
        "messages": total.messages.total(),
        "seconds": round(monotonic() - began, 1),
        "campaigns": parts,
        "into_phases": total.delivered,
        "resigned_share": round(total.resigned.total() / max(total.messages.total(), 1), 3),
        "resigned_share_of_those_into_phases": round(total.resigned.total() / max(total.delivered, 1), 3),
        "slowest_s": round(total.slowest_s, 4),
        "slowest": total.slowest,
        "rounds": dict(total.rounds.most_common()),
        "by_form": dict(total.messages.most_common()),
        "resigned_by_form": dict(total.resigned.most_common()),
        "by_cause": dict(total.causes.most_common()),
        "violations": total.violations,
    }
    report(found, chosen.output, sound=not total.violations and len(campaigns) == len(SHARES) + 1)


if __name__ == "__main__":
    main()
