"""Every reconstruction attack on sums of 64 features, three draws each: `python -m assurance.attacks.reconstruction.run --output FILE`.

Prints a table; ends with status 1 if an attack gives more than is promised, or less than it shows elsewhere.
"""

from dataclasses import asdict

import torch
from rich.console import Console
from rich.table import Table

from assurance.attacks.reconstruction.scenarios import list_scenarios
from assurance.reports import arguments, report

DIM, DRAWS = 64, 3


def main() -> None:
    given = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    table = Table(
        "attack", "features", "setting", "expected", "rows", "recovered", "by chance", "cosine", "chance", ""
    )
    figures = []
    for scenario in list_scenarios(DIM):
        found = scenario.measure(DRAWS)
        held = scenario.holds(found)
        numbers = (
            f"{found.rows}",
            f"{found.recovered}",
            f"{found.chance_recovered}",
            f"{found.cosine:.2f}",
            f"{found.chance:.2f}",
        )
        named = (scenario.attack, scenario.features, scenario.setting, scenario.expected.value)
        table.add_row(*named, *numbers, "" if held else "NOT AS EXPECTED")
        figures.append(
            dict(zip(("attack", "features", "setting", "expected"), named, strict=True))
            | asdict(found)
            | {"holds": held}
        )
    Console(stderr=True, width=180).print(table)
    report(
        {"dim": DIM, "draws": DRAWS, "figures": figures},
        given.output,
        sound=all(each["holds"] for each in figures),
    )


if __name__ == "__main__":
    main()
