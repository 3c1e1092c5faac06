"""`veilsum operator round open`: each group of options is one part of the request, and the request is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.commands.options import gathered
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported

if TYPE_CHECKING:
    from protocol.rest import WindowsModel
    from veilsum.planned import SavedPlan

_NOISE, _MEMBERS = "Differential privacy", "Members"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The question, of which features, and how their numbers are sent."""

    extractor: Annotated[str, typer.Option(help="Digest of the extractor, from the roster's list.")]
    dim: Annotated[
        int | None, typer.Option(help="Features that the extractor gives.", min=1, show_default="the plan's")
    ] = None
    classes: Annotated[int | None, typer.Option(help="Classes.", min=1, show_default="the plan's")] = None
    bias: Annotated[bool, typer.Option("--bias", help="Fit a constant too.")] = False
    statistic: Annotated[
        str, typer.Option(help="What is asked: `veilsum operator round questions` lists what there is.")
    ] = "ffc"
    parameter: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the question; repeat.", show_default="its own")
    ] = None
    rests_on: Annotated[
        str | None, typer.Option(help="The finished round that the question rests on.", show_default="none")
    ] = None
    ring_bits: Annotated[int, typer.Option(help="Bits of an element on the wire.", min=8, max=64)] = 48
    records_max: Annotated[
        int | None, typer.Option(help="Most records in all.", min=1, show_default="the members' caps' sum")
    ] = None
    ridge: Annotated[
        list[float] | None, typer.Option(help="λ; repeat for a grid.", show_default="GCV over a grid")
    ] = None

    @property
    def request(self) -> dict[str, Any]:
        """Its part of the request, but for what a plan fixes; Misuse where an id or a parameter is none."""
        from veilsum.asking import parsed
        from veilsum.names import extractor_digest, round_id

        return {
            "statistic": self.statistic,
            "parameters": parsed(self.parameter or ()),
            "rests_on": None if self.rests_on is None else round_id(self.rests_on),
            "extractor": extractor_digest(self.extractor),
            "ring_bits": self.ring_bits,
            "records_max": self.records_max,
            "ridges": self.ridge or (),
        }


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What noise hides, if there is any, in words or as a saved plan has it."""

    plan: Annotated[
        Path | None,
        typer.Option(
            help="A noisy round as `veilsum privacy plan --output` saved it: dim, classes, bias, ε, δ.",
            rich_help_panel=_NOISE,
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of this round.", show_default="an exact sum", rich_help_panel=_NOISE),
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(
            help="δ, with --epsilon; well below 1 / records.", show_default="1e-05", rich_help_panel=_NOISE
        ),
    ] = None
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="With --epsilon: protect a record's content, not its presence.",
            rich_help_panel=_NOISE,
        ),
    ] = False
    nonnegative: Annotated[
        bool,
        typer.Option(
            "--nonnegative",
            help="With --epsilon: no feature is below 0, as after a ReLU, so less noise does; members cut what is.",
            rich_help_panel=_NOISE,
        ),
    ] = False
    member_records: Annotated[
        int | None,
        typer.Option(
            help="With --epsilon: protect a member as a whole; its sums are cut to what so many records alike come to.",
            min=1,
            show_default="a record is protected",
            rich_help_panel=_NOISE,
        ),
    ] = None
    insist: Annotated[
        bool,
        typer.Option(
            "--insist",
            help="With --epsilon or --plan: also where noise is expected to leave little of a head.",
            rich_help_panel=_NOISE,
        ),
    ] = False

    @property
    def saved(self) -> "SavedPlan | None":
        """The plan; Misuse where the file is none."""
        from veilsum.planned import SavedPlan

        return None if self.plan is None else SavedPlan.load(self.plan)

    @property
    def request(self) -> dict[str, Any] | None:
        """What the options ask for; None for an exact sum, Misuse where they say of what but not how much."""
        from protocol.errors import Misuse

        if self.epsilon is not None:
            return {
                "epsilon": self.epsilon,
                "neighbours": "replace" if self.replace else "add-remove",
                "nonnegative": self.nonnegative,
                "member_records": self.member_records,
                **({} if self.delta is None else {"delta": self.delta}),
            }
        if self.delta is not None or self.replace or self.nonnegative or self.member_records:
            raise Misuse(
                "--delta, --replace, --nonnegative and --member-records say what noise hides: pass --epsilon, or leave them out"
            )
        return None


@dataclass(frozen=True, kw_only=True)
class Members:
    """Exceptions, counts of rare classes, and who must be there."""

    exception: Annotated[
        list[Path] | None,
        typer.Option(
            help="An exception that the admin signed (`veilsum admin exception`); repeat.",
            rich_help_panel=_MEMBERS,
        ),
    ] = None
    margin: Annotated[
        int | None,
        typer.Option(
            help="Where rare classes are withheld: how many of the members counted may be missing.",
            min=0,
            show_default="a sixth or all colluders, whichever is more, as far as a sum can spare them",
            rich_help_panel=_MEMBERS,
        ),
    ] = None
    recount: Annotated[
        bool,
        typer.Option(
            "--recount",
            help="Count the classes' holders again: records have changed since.",
            rich_help_panel=_MEMBERS,
        ),
    ] = False
    heard_within: Annotated[
        float | None,
        typer.Option(
            help="Seconds: open it only where enough decryptors for its end were heard from so lately.",
            min=60,
            show_default="members may be started later",
            rich_help_panel=_MEMBERS,
        ),
    ] = None

    @property
    def request(self) -> dict[str, Any]:
        """Its part of the request."""
        return {
            "margin": self.margin,
            "heard_within_s": self.heard_within,
            "exceptions": [path.read_bytes().hex() for path in self.exception or ()],
        }


@dataclass(frozen=True, kw_only=True)
class Windows:
    """How long each phase waits."""

    upload_s: Annotated[float, typer.Option(help="Seconds to wait for uploads.")] = 3600.0
    answer_s: Annotated[float, typer.Option(help="Seconds to wait for each later answer.")] = 300.0
    grace_s: Annotated[float, typer.Option(help="Seconds to wait for more receipts than needed.")] = 15.0
    lifetime_s: Annotated[
        float,
        typer.Option(help="Seconds until the latest end: what has not ended by then is erased."),
    ] = 7 * 86_400.0

    @property
    def request(self) -> "WindowsModel":
        """Its part of the request."""
        from protocol.rest import WindowsModel

        answer_s = self.answer_s
        return WindowsModel(
            upload_s=self.upload_s,
            check_s=answer_s,
            freeze_s=answer_s,
            grace_s=self.grace_s,
        )


@gathered
def open_(
    cohort: Annotated[str, typer.Argument(help="The cohort's id.")],
    asked: Asked,
    noise: Noise,
    members: Members,
    windows: Windows,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Open nothing: show what would be opened now, and what it would cost."
        ),
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Open the cohort's next round, or the next attempt of one that ended VOID.

    Where rare classes are withheld, the round that counts how many members hold each class comes first: it is opened and followed to its
    end, then the round itself. Interrupted, run it again: it goes on where it was.
    """
    with reported(as_json=json_):
        from protocol.rest import RoundRequest
        from veilsum import opening
        from veilsum.names import cohort_id
        from veilsum.remote import operator
        from veilsum.round_view import line, show, show_foreseen

        saved = noise.saved
        values = {
            **asked.request,
            **_fixed(asked, noise, saved),
            **members.request,
            "windows": windows.request,
            "lifetime_s": windows.lifetime_s,
        }
        name, request = cohort_id(cohort), RoundRequest.model_validate(values)
        with operator(url, token, ca) as client:
            if saved is not None:
                saved.check_cohort(client, name)
            if dry_run:
                show_foreseen(opening.foreseen(client, name, request, recount=members.recount), as_json=json_)
                return
            view = opening.open_in_turn(
                client,
                name,
                request,
                recount=members.recount,
                tell=lambda seen: note(f"counting, {line(seen)}"),
            )
        show(view, as_json=json_)
    if view.ended or view.state == "erasing":
        raise typer.Exit(1)


def _fixed(asked: Asked, noise: Noise, saved: "SavedPlan | None") -> dict[str, Any]:
    """Sizes and noise, by the options or by a plan; Misuse where both say them, or nobody does."""
    from protocol.errors import Misuse
    from veilsum.asking import let_through

    own: dict[str, Any] = {
        "dim": asked.dim,
        "classes": asked.classes,
        "bias": asked.bias,
        "noise": noise.request,
    }
    if saved is None and (asked.dim is None or asked.classes is None):
        raise Misuse("a round takes --dim and --classes, or --plan with both in it")
    if saved is not None and any(own.values()):
        raise Misuse(
            "--plan fixes dim, classes, bias and noise: leave --dim, --classes, --bias and --epsilon out"
        )
    fixed = own if saved is None else saved.request
    let_through(fixed["noise"], insist=noise.insist)
    return fixed
