"""`veilsum bench`: what a coordinator bears."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say

app = typer.Typer(help="For researchers: measure a coordinator.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Measure a coordinator."""


@app.command("service")
def service(
    url: Url = DEFAULT_URL,
    token: Token = None,
    members: Annotated[int, typer.Option(help="How many take part.", min=4)] = 100,
    upload_mb: Annotated[
        float, typer.Option(help="Size of each upload, in millions of bytes.", min=0.001)
    ] = 1.0,
    processes: Annotated[int, typer.Option(help="How many processes the members share.", min=1)] = 2,
    calls_per_s: Annotated[
        int, typer.Option(help="Signed control calls a second, beside the uploads and alone.", min=1)
    ] = 200,
    chunk_elements: Annotated[
        int, typer.Option(help="Of each chunk, a multiple of 8; of 6 bytes each.", min=8, max=1 << 22)
    ] = 1 << 17,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Play a round of many members against a coordinator, and measure uploads and control calls.

    The coordinator gets a federation, a cohort and a round for it; take one that serves nobody else. Members mask first and upload
    together. A call's time counts from when it was due. Members of one address share its limits (docs/operations.md).
    """
    with reported(as_json=json_):
        from veilsum.loading import Load, run
        from veilsum.remote import certificate, trust

        load = Load(
            url,
            token,
            trust(ca),
            certificate(),
            members,
            round(upload_mb * 1e6),
            processes,
            calls_per_s,
            chunk_elements,
        )
        with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as folder:
            facts = run(load, Path(folder), note)
    say(facts, as_json=json_, title="Load")
