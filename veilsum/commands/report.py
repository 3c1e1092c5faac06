"""`veilsum report`: result files as one page, our numbers beside the papers'."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, fail, lacks, reported, say


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Result files, or folders of them: what `veilsum train` leaves.")
    ],
    output: Annotated[
        Path, typer.Option(help="The page: .html with pictures, or .md with tables alone.")
    ] = Path("runs/report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Runs beside the papers",
    json_: AsJson = False,
) -> None:
    """Put results beside the papers' tables: mean and spread over seeds, cost, and what differs, in one HTML file."""
    if lacks("matplotlib", "torch"):
        fail("reports need the training extra: pip install 'veilsum[training]'", as_json=json_)
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from training.report import cells, markdown, page
        from training.results import ResultError, read_diverged, read_results

        try:
            found, diverged = cells(read_results(results)), read_diverged(results)
        except ResultError as error:
            raise Misuse(str(error)) from error
        if not found:
            raise Misuse("all of these runs diverged, so there is nothing to compare")
        text = markdown(found, diverged) if output.suffix == ".md" else page(found, diverged, title=title)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, "utf-8")
        say(
            {
                "experiments": len(found),
                "runs": sum(len(cell.runs) for cell in found),
                **({"diverged": len(diverged)} if diverged else {}),
                "beside a paper's row": sum(bool(cell.comparisons) for cell in found),
                "saved": str(output),
            },
            as_json=json_,
            title="Report",
        )
