"""Options of every command that contributes data, and how options are gathered into dataclasses."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from client_sdk import Policy

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
Normalise = Annotated[bool, typer.Option("--normalise", help="Scale each feature vector to length 1.")]

_LIMITS = "What you insist on"


@dataclass(frozen=True, kw_only=True)
class MemberLimits:
    """What a member insists on: each field an option of the command, with `Policy`'s own value where it is not given."""

    extractor: Annotated[
        list[str] | None,
        typer.Option(
            help="Accept only this extractor digest; repeat.",
            show_default="the roster's",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    members_min: Annotated[
        int | None,
        typer.Option(
            help="Refuse a cohort of fewer members.",
            min=3,
            show_default="3",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    changed_records_min: Annotated[
        int | None,
        typer.Option(
            help="How many records must have changed before a lineage is used again.",
            min=0,
            show_default="10",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    refuse_rare_classes: Annotated[
        bool,
        typer.Option(
            "--refuse-rare-classes",
            help="Refuse a federation that publishes rare classes.",
            rich_help_panel=_LIMITS,
        ),
    ] = False
    colluders_min: Annotated[
        int | None,
        typer.Option(
            help="Refuse a cohort that withstands fewer colluding members.",
            min=0,
            show_default="a quarter of the roster",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    decryptor_colluders_min: Annotated[
        int | None,
        typer.Option(
            help="Refuse a cohort that withstands fewer colluding decryptors, where the admin nominates few.",
            min=0,
            show_default="0",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    accept_exceptions: Annotated[
        bool,
        typer.Option(
            "--accept-exceptions",
            help="Take part although the admin lets a round expose a group you are in.",
            rich_help_panel=_LIMITS,
        ),
    ] = False
    statistic: Annotated[
        list[str] | None,
        typer.Option(
            help="Answer this question too, such as ccvr; repeat.",
            show_default="all but ccvr",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    sigma_min: Annotated[
        float | None,
        typer.Option(
            help="Refuse sums in which any number has noise of a smaller standard deviation than this, from the honest members of the "
            "smallest sum alone: σ/√2 off the diagonal of V, σ/w on U, σ/α on counts. 0 takes exact sums.",
            min=0,
            show_default="0",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    mu_max: Annotated[
        float | None,
        typer.Option(
            help="Refuse rounds of more μ than this, exact ones included.",
            show_default="any",
            rich_help_panel=_LIMITS,
        ),
    ] = None
    mu_budget: Annotated[
        float | None,
        typer.Option(
            help="Most μ that all noisy rounds over a lineage may take together.",
            show_default="2",
            rich_help_panel=_LIMITS,
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that are, by name; 0 is a number."""
        return {name: value for name, value in vars(self).items() if value or type(value) in {int, float}}

    def policy(self, admin_key: str) -> "Policy":
        """The limits as the SDK takes them; Misuse where an id is none."""
        from client_sdk import Policy
        from veilsum.names import extractor_digest

        limits = self.given
        if digests := limits.pop("extractor", ()):
            limits["extractors"] = frozenset(map(extractor_digest, digests))
        if more := limits.pop("statistic", ()):
            limits["statistics"] = Policy.statistics.union(more)
        refused = limits.pop("refuse_rare_classes", False)
        return Policy(admin_key=admin_key, publish_rare_classes=not refused, **limits)


def gathered(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of the dataclasses that it takes: it is given them whole."""
    parameters = inspect.signature(command).parameters
    groups: dict[str, type[Any]] = {
        name: kind
        for name, each in parameters.items()
        if isinstance(kind := each.annotation, type) and is_dataclass(kind)
    }

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: kind(**{each.name: given.pop(each.name) for each in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    options: list[inspect.Parameter] = []
    for name, each in parameters.items():
        options += _options(groups[name]) if name in groups else [each.replace(kind=_KEYWORD)]
    vars(run)["__signature__"] = inspect.Signature(options)  # which typer reads
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _options(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            each.name,
            _KEYWORD,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
    ]
