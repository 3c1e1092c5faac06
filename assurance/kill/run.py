"""Kill coordinators many times at every durable point, and at any time: `python -m assurance.kill.run`.

Every round must give the same head bit for bit, nothing acknowledged may be lost, and no signed sum may contain flipped bits of stored
chunks and sums. Rounds follow one another on the same stores: one
process on SQLite and files, two on PostgreSQL and S3, then three. A killed process is restarted at once, as a supervisor would.
"""

import itertools
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from assurance.kill.campaign import Plan, on_pair
from assurance.reports import arguments, report

PAIRS = ("embedded", "servers")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--pair", choices=PAIRS, action="append")
    chosen = parser.parse_args()
    begun, pairs = time.monotonic(), chosen.pair or PAIRS
    with ProcessPoolExecutor(len(pairs)) as pool:
        found: dict[str, Any] = dict(
            zip(pairs, pool.map(on_pair, pairs, itertools.repeat(Plan())), strict=True)
        )
    found["minutes"] = round((time.monotonic() - begun) / 60, 1)
    report(found, chosen.output, sound=not any(found[pair]["faults"] for pair in pairs))


if __name__ == "__main__":
    main()
