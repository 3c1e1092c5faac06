"""`veilsum calibrate`: fit a head of any kind to features in files, on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.cli.console import JSON_OUTPUT, print_values
from veilsum.cli.options import Standardise, add_table_options

if TYPE_CHECKING:
    from veilsum.cli.tables import TableFormat


@add_table_options
def calibrate(
    features: Annotated[list[Path], typer.Argument(help="Features and labels, one file or several.")],
    form: "TableFormat",
    head: Annotated[
        str, typer.Option(help="ffc, random-features or ccvr; lda and ncm follow from FFC's sums.")
    ] = "ffc",
    held_out: Annotated[
        str | None,
        typer.Option(help="Judge the head on a share of the records, or on a file.", show_default="none"),
    ] = None,
    unit_columns: Annotated[
        bool, typer.Option("--unit-columns", help="Scale the weights of each class to length 1.")
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Class shares where the head is used: uniform, or a text file with a number for each class.",
            show_default="as in the records",
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="The class whose detection is judged.", show_default="the second of two classes, else none"
        ),
    ] = None,
    standardise: Standardise = None,
    output: Annotated[Path, typer.Option(help="Write the head to this file.")] = Path("head.safetensors"),
) -> None:
    """Fit a head in closed form to your own records, judge it, and write it. Nothing is sent."""
    from veilsum.cli.features import held_out_from
    from veilsum.cli.fitting import Fitting
    from veilsum.cli.read_report import list_some

    fitting = Fitting(
        files=features,
        head=head,
        output=output,
        held_out=held_out_from(held_out),
        unit_columns=unit_columns,
        prior=prior,
        positive=positive,
        standardise=standardise,
        form=form,
    )
    values, table = fitting.run_fit()
    shown = {name: value for name, value in values.items() if name not in {"read", "heads", "rare"}}
    keys = values.get("class_keys", [f"class-{place}" for place in range(values["classes"])])
    shown["empty_classes"] = list_some([keys[place] for place in values["empty_classes"]]) or None
    if "class_keys" in shown:
        shown["class_keys"] = list_some(keys)
    print_values(shown, "Head", scripts=values)
    if table is not None and not JSON_OUTPUT.get():
        table.print_table("Fit it: --head lda --prior uniform.")
