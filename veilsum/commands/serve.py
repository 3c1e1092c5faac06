"""`veilsum serve`: the coordinator, as `uvicorn service.app:app` would start it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, fail


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where everything is kept [default: veilsum-data].")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file of the server's certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.")] = None,
    json_: AsJson = False,
) -> None:
    """Start a coordinator. At first start it prints the operator's token, once."""
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ImportError:
        fail("the coordinator needs its extra: pip install 'veilsum[service]'", as_json=json_)
    if data_dir is not None:
        os.environ["VEILSUM_DATA_DIR"] = str(data_dir)
    uvicorn.run(
        "service.app:app",
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        log_level="warning" if json_ else "info",
        timeout_graceful_shutdown=5,
    )
