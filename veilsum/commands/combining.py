"""`veilsum operator round combine` and `combined`: a head from the sums of several rounds."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.commands.options import AdminKey
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, reported, say


def combine(
    rounds: Annotated[list[str], typer.Argument(metavar="ROUND...", help="Finished rounds, two or more.")],
    federation: Annotated[str, typer.Option(help="The federation's id.")],
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Add up the sums of rounds over different lineages (periods), and solve for one head."""
    with reported(as_json=json_):
        from protocol.published import CombineRequest
        from veilsum import names
        from veilsum.remote import operator

        request = CombineRequest(rounds=tuple(map(names.round_id, rounds)), ridges=tuple(ridge or ()))
        with operator(url, token, ca) as client:
            record = client.combine(names.federation_id(federation), request)
        say(
            {
                "combination": record.combination,
                "rounds": [part.round for part in record.parts],
                "records": record.records,
                "ridge": record.solution.ridge,
            },
            as_json=json_,
            title="Combination",
        )


def combined(
    combination: Annotated[str, typer.Argument(help="The combination's id.")],
    folder: Annotated[Path, typer.Option(help="The member's identity: it took part in each of the rounds.")],
    output: Annotated[Path, typer.Option(help="Where the weights go, a safetensors file.")],
    admin_key: AdminKey = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """As a member, fetch a combination and check it against the evidence of each of its rounds."""
    with reported(as_json=json_):
        from client_sdk import Identity, Result
        from client_sdk.combined import Combined
        from client_sdk.store import Store
        from veilsum import names
        from veilsum.pinning import pinned
        from veilsum.remote import operator

        key = pinned(folder, admin_key)
        store = Store(Identity.load(folder).folder)
        with operator(url, ca=ca) as client:
            record, weights = client.combination(names.round_id(combination))
        found = Combined(record, weights)
        found.verify(
            [Result.load(store.results(part.round)) for part in record.parts],
            key,
        )
        output.write_bytes(weights)
        say(
            {
                "combination": record.combination,
                "rounds": [part.round for part in record.parts],
                "records": record.records,
                "ridge": record.solution.ridge,
                "weights": list(found.weights.shape),
                "saved": str(output),
            },
            as_json=json_,
            title="Combination, verified",
        )
