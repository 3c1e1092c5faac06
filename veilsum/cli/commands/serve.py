"""`veilsum serve`: start the coordinator, as `uvicorn service.app:app` does."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.cli.console import JSON_OUTPUT, print_values, require_extras
from veilsum.cli.options import report_errors


@report_errors
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.", min=0, max=65535)] = 8000,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="VEILSUM_DATA_DIR", help="Where everything is kept.", show_default="veilsum-data"
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the server's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of the authority that signs callers' certificates; others are refused."),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            help="Processes at this address; one that dies is replaced. More than one needs PostgreSQL and a bucket.",
            min=1,
        ),
    ] = 1,
) -> None:
    """Start a coordinator. The first start shows the operator's token once, or writes it to a file if there is no terminal."""
    require_extras("the coordinator", "service")
    from veilsum.cli import serving

    serving.serve_coordinator(
        host,
        port,
        data_dir,
        tls_cert,
        tls_key,
        client_ca,
        processes,
        quiet=JSON_OUTPUT.get(),
        started=lambda facts: print_values(facts, "Coordinator"),
    )
