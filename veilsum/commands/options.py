"""Options of every command that contributes data, whatever the mode."""

from pathlib import Path
from typing import Annotated

import typer

AdminKey = Annotated[
    str | None,
    typer.Option(
        envvar="VEILSUM_ADMIN_KEY",
        help="The admin's public key; get it from the admin.",
        show_default="the one pinned",
    ),
]
Lineage = Annotated[str, typer.Option(help="Your name for this data set; the same records, the same name.")]
Labels = Annotated[Path | None, typer.Option(help="Labels, where the features are a .npy.")]
Output = Annotated[Path | None, typer.Option(help="Where the result goes.", show_default="FOLDER/result")]
Extractors = Annotated[
    list[str] | None,
    typer.Option(help="Accept only this extractor digest; repeat.", show_default="the roster's"),
]
ChangedRecordsMin = Annotated[
    int | None,
    typer.Option(
        help="How many records must have changed before a lineage is used again.", min=0, show_default="10"
    ),
]
RefuseRareClasses = Annotated[
    bool, typer.Option("--refuse-rare-classes", help="Refuse a federation that publishes rare classes.")
]
Normalise = Annotated[bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")]
