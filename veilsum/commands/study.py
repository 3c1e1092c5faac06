"""`veilsum admin study`: write, check and sign what a federation sums."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import AsJson, note, reported, say

app = typer.Typer(
    help="Write, check and sign a study: what a federation sums.",
    no_args_is_help=True,
)
DraftFile = Annotated[Path, typer.Argument(help="The study's draft, a TOML file.")]


@app.command()
def new(
    draft: DraftFile,
    extractor: Annotated[
        str, typer.Option(help="SHA-256 of the feature extractor and its preprocessing, 64 hex digits.")
    ],
    dim: Annotated[int, typer.Option(min=1, max=65_536, help="Features per record.")],
    class_: Annotated[
        list[str], typer.Option("--class", help="A class's key; repeat, in the order of the head's outputs.")
    ],
    members: Annotated[int, typer.Option(min=3, max=10_000, help="Members in the roster.")],
    name: Annotated[str, typer.Option(help="The study's name: a-z, 0-9 and '-'.")] = "study",
    json_: AsJson = False,
) -> None:
    """Write a commented draft with good defaults, to edit."""
    with reported(as_json=json_):
        from veilsum import study
        from veilsum.protocol.errors import Misuse

        if draft.exists():
            raise Misuse(f"{draft} exists already: edit it, or choose another file")
        text = study.draft.template(
            draft,
            name=name,
            extractor=extractor,
            dim=dim,
            classes=class_,
            members=members,
            today=datetime.now(UTC).date(),
        )
        draft.write_text(text, "utf-8")
        try:
            study.draft.load(draft)
        except Misuse:
            draft.unlink()
            raise
        say(
            {"draft": str(draft), "next": f"veilsum admin study check {draft}"},
            as_json=json_,
            title="Study, a draft",
        )


@app.command()
def check(draft: DraftFile, json_: AsJson = False) -> None:
    """Explain a draft: what it sums, what each party learns and what it costs. Refuse what members would refuse."""
    with reported(as_json=json_):
        from veilsum import study

        content = study.draft.load(draft)
        study.signed.check_signable(content, time.time())
        if json_:
            words = {section.heading: list(section.sentences) for section in study.explain.explain(content)}
            say({"question": content.question.digest.hex(), "explained": words}, as_json=True)
            return
        for section in study.explain.explain(content):
            typer.secho(section.heading, bold=True)
            for sentence in section.sentences:
                typer.echo(f"  {sentence}")
            typer.echo()
        note(f"The draft is valid. Next: veilsum admin study sign {draft} --folder ADMIN")


@app.command()
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
    json_: AsJson = False,
) -> None:
    """Sign a draft. Members approve the digest that this prints."""
    with reported(as_json=json_):
        from veilsum import study
        from veilsum.admin import load_admin
        from veilsum.commands.admin import target_of
        from veilsum.names import federation_id

        content = study.draft.load(draft)
        key = load_admin(folder)
        of = key.public if federation is None else bytes.fromhex(federation_id(federation))
        target = target_of(draft, output)
        signed = study.signed.sign(content, of, key, time.time())
        target.write_bytes(signed.to_bytes())
        say(
            {
                "study": str(target),
                "name": content.notes.name,
                "version": content.notes.version,
                "hash": signed.hash.hex(),
                "approval": content.approval.hex(),
                "federation": of.hex(),
                "next": f"veilsum admin publish {target}",
            },
            as_json=json_,
            title="Study, signed",
        )
