"""`veilsum admin study`: write, check and sign studies."""

import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from veilsum.cli.console import JSON_OUTPUT, print_note, print_values
from veilsum.cli.names import federation_id
from veilsum.cli.options import report_errors
from veilsum.protocol.errors import Misuse

app = typer.Typer(help="Write, check and sign a study: what a federation sums.", no_args_is_help=True)
DraftFile = Annotated[Path, typer.Argument(help="The study's draft, a TOML file.")]


@app.command()
@report_errors
def new(
    draft: DraftFile,
    extractor: Annotated[
        str, typer.Option(help="SHA-256 of the feature extractor and its preprocessing, 64 hex digits.")
    ],
    dim: Annotated[int, typer.Option(min=2, max=65_536, help="Features per record.")],
    class_: Annotated[
        list[str], typer.Option("--class", help="A class's key; repeat, in the order of the head's outputs.")
    ],
    members: Annotated[int, typer.Option(min=3, max=10_000, help="Members in the roster.")],
    name: Annotated[str, typer.Option(help="The study's name: a-z, 0-9 and '-'.")] = "study",
    why_not_listable: Annotated[
        str,
        typer.Option(
            help="Why no list of 10^12 rows can hold every input that a patient could have. Only then is an exact sum safe.",
            show_default="a study with noise",
        ),
    ] = "",
    canaries: Annotated[
        Path | None,
        typer.Option(help="The study's canary pack (`veilsum admin canaries`).", show_default="none"),
    ] = None,
) -> None:
    """Write a commented draft with good defaults, to edit: exact with --why-not-listable, else noisy."""
    from veilsum import study
    from veilsum.cli.canaries import pack_fields, read_pack

    if draft.exists():
        raise Misuse(f"{draft} exists already: edit it, or choose another file")
    pack = None if canaries is None else read_pack(canaries)
    text = study.draft.draft_template(
        str(draft),
        name=name,
        extractor=extractor,
        dim=dim,
        classes=class_,
        members=members,
        today=datetime.now(UTC).date(),
        why_not_listable=why_not_listable,
        **pack_fields(pack),
    )
    content = study.draft.parse_draft(text, str(draft))
    if pack is not None:
        pack.check_question(content.question)
    draft.write_text(text, "utf-8")
    values = {
        "draft": str(draft),
        "sums": study.explain.name_noise(content.question),
        "next": f"veilsum admin study check {draft}",
    }
    print_values(values, "Draft study")


@app.command()
@report_errors
def check(
    draft: DraftFile,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows that you expect of each member, without its held-out ones, for the simulated runs and the judge.",
            show_default="records.least, and twice as many in runs of all members",
        ),
    ] = None,
) -> None:
    """Explain a draft: what it sums, what each party learns, what it costs, and what to expect of its runs.

    Fails if members would refuse the study, or if no run of it can end in a head.
    """
    from veilsum import study
    from veilsum.cli.admin import read_study_draft
    from veilsum.cli.explanation import print_explanation

    content = read_study_draft(draft)
    study.signed.check_signable(content, time.time())
    forecast = study.forecast.forecast_study(content, rows)
    sections = (*study.explain.explain_study(content), study.forecast.explain_forecast(content, forecast))
    if JSON_OUTPUT.get():
        words = {section.heading: list(section.sentences) for section in sections}
        print_values(
            {"question": content.question.digest.hex(), "explained": words, "forecast": asdict(forecast)}
        )
        return
    print_explanation(sections, sys.stdout)
    if not content.notes.purpose:
        print_note("The draft states no purpose. Add one: members read it when they approve.")
    print_note(f"The draft is valid. Next: veilsum admin study sign {draft} --folder ADMIN")


@app.command()
@report_errors
def sign(
    draft: DraftFile,
    folder: Annotated[
        Path, typer.Option("--folder", help="The folder that holds the study key; the admin's by default.")
    ],
    federation: Annotated[
        str | None,
        typer.Option(
            help="The federation's id, if the folder holds a study key of its own.",
            show_default="the folder's own key",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where the signed study goes.", show_default="DRAFT with .bin")
    ] = None,
) -> None:
    """Sign a draft. Members approve the digest that this prints."""
    from veilsum import study
    from veilsum.cli.admin import load_admin, read_study_draft, signed_path

    content = read_study_draft(draft)
    key = load_admin(folder)
    of = key.public if federation is None else bytes.fromhex(federation_id(federation))
    target = signed_path(draft, output)
    signed = study.signed.sign_study(content, of, key, time.time())
    target.write_bytes(signed.to_bytes())
    values = {
        "study": str(target),
        "name": content.notes.name,
        "version": content.notes.version,
        "hash": signed.hash.hex(),
        "approval": content.approval.hex(),
        "federation": of.hex(),
        # The holder of a separate study key asks the operator or the admin to publish.
        "next": f"veilsum admin publish {target}"
        + ("" if content.rehearsal is None else " PACK.zip")
        + (
            f" --folder {folder}"
            if federation is None
            else " (by the operator, or by the admin with --folder)"
        ),
    }
    print_values(values, "Signed study")
