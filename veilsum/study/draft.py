"""The draft of a study: the commented TOML file that its author edits."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from pydantic import ValidationError

from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.sizing import HONEST_MIN, Quorum, size_cohort
from veilsum.protocol.study import DAY_S, ROWS_MIN, Content, as_tuples, first_error

_DRAFT_DEFAULTS: dict[str, dict[str, Any]] = {
    "notes": {"display": []},
    "question": {"withhold": None, "noise": None},
    "after": {"ccvr": None},
}
"""Values of fields that a draft may leave out, because TOML has no null."""

_STUDY_TEMPLATE = """\
# A study says what a federation sums. Its author signs it, each member approves it, and the coordinator can't change it.
# Edit this file, then run: veilsum admin study check {path}

[notes]
name = "{name}"  # short, a-z 0-9 and "-": pages, files and commands show it
version = 1  # raise it with every change
purpose = ""  # what the result is for; members read this when they approve
expires = {expires}  # at most 90 days ahead
# display = ["Benign", "Malignant"]  # names of the classes for people, in their order

[question]
extractor = "{extractor}"  # SHA-256 of the feature extractor and its preprocessing
dim = {dim}  # features per record
classes = {classes}  # stable keys; their order is the order of the head's outputs
ring_bits = 48  # 32 halves the upload and rounds more coarsely

members_min = {members_min}  # fewest members in a run
members_max = {members_max}  # most members in the roster
a = {colluders}  # members that may collude with the coordinator: at least a quarter of members_max, rounded down
h_min = {honest_min}  # fewest honest members in every sum
loss = 100  # members in a thousand that may drop out (used above 200 members)
thin_classes = false  # true allows classes with few rows; a study that withholds none must say so

[[question.statistics]]  # add "random-features" (size, bandwidth) or "ccvr" as further tables, in this order
kind = "ffc"
bias = false  # true fits a constant as well

[question.records]
least = {least}  # a member with fewer rows does not take part; {dim} dimensions need this many
most = {most}  # a member with more rows uses this many of them
least_per_class = 5  # a member with this many rows of a class holds it
rows_per_id = 1  # rows used of one patient, exam or file

[question.withhold]  # leave out classes that few members hold
margin = {margin}  # members that may drop out between counting the classes and the sum

# Differential privacy instead of exact sums. Delete [question.withhold] before you enable it.
# [question.noise]
# epsilon = 2.0  # what the whole study may tell about one unit
# delta = 1e-7  # at most 1 / (most * members_max)
# unit = "record"  # or "member"
# recipe = "mean+sum+gradients"  # the default, most accurate in 32 steps; or "mean+sum" in 2, "sum" in 1; CCVR takes no gradients

[question.windows]  # the least time that the coordinator gives, in seconds
enrol = 600
upload = 600
answer = 60

[after]
ridge = "gcv"  # or a number
publish = []  # further documents for members: "lda", "ncm"; "pooled" and "posterior" show them the sums
readers = "members"  # or "anyone": the head's readers
"""


def draft_template(
    path: str, *, name: str, extractor: str, dim: int, classes: Sequence[str], members: int, today: date
) -> str:
    """Return the text of a commented draft with good defaults.

    `path` is the file that the text will be in; `extractor` is a digest of 64 hex digits. The study expires 60 days after `today`.

    Raises:
        PeerFault: cohort-too-small if no sum is safe with so few members.
    """
    colluders = members // 4
    quorum = _quorum_of(members, colluders)
    # Allow for dropouts between counting the classes and the sum.
    margin = min(max(members // 6, colluders), quorum.members_may_miss)
    members_min = quorum.survivors_min + margin
    honest = _quorum_of(members_min, colluders).survivors_min - colluders
    least = math.ceil(max(ROWS_MIN, 2 * dim) / honest)
    return _STUDY_TEMPLATE.format(
        path=path,
        name=name,
        expires=date.fromordinal(today.toordinal() + 60).isoformat(),
        extractor=extractor,
        dim=dim,
        classes="[" + ", ".join(f'"{key}"' for key in classes) + "]",
        members_min=members_min,
        members_max=members,
        colluders=colluders,
        honest_min=HONEST_MIN,
        least=least,
        most=max(20_000, least),
        margin=margin,
    )


def _quorum_of(members: int, colluders: int) -> Quorum:
    return size_cohort(members, None, roster=members, colluders=colluders).quorum


def parse_draft(text: str, path: str) -> Content:
    """Parse a draft; `path` names its file in errors.

    Raises:
        Misuse: the text is not TOML, a field is missing, unknown or invalid, or the study breaks a rule.
    """
    import tomllib  # noqa: PLC0415 - slow, and members read no draft

    try:
        read = tomllib.loads(text)
    except ValueError as error:
        raise Misuse(f"{path} is not a TOML file: {error}") from error
    for block, absent in _DRAFT_DEFAULTS.items():
        if isinstance(given := read.get(block), dict):
            read[block] = {**absent, **given}
    if isinstance(noise := read.get("question", {}).get("noise"), dict):
        noise.setdefault("recipe", _best_recipe(read["question"].get("statistics")))
    if isinstance(notes := read.get("notes"), dict) and "expires" in notes:
        notes["expires"] = _to_unix_s(notes["expires"])
    try:
        return Content.model_validate(as_tuples(read))
    except ValidationError as error:
        raise Misuse(f"{path}: {first_error(error)}") from error
    except PeerFault as fault:
        raise Misuse(f"{path}: {fault.detail}") from fault


def _best_recipe(statistics: Any) -> str:
    """Return the most accurate recipe for these statistics."""
    return "mean+sum" if {"kind": "ccvr"} in (statistics or ()) else "mean+sum+gradients"


def _to_unix_s(value: Any) -> Any:
    """Convert a TOML date (to its end, in UTC) or date and time to Unix seconds. The model refuses any other value, returned unchanged."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime.combine(value, time(), UTC).timestamp()) + DAY_S
    return value
