"""The draft of a study: the commented TOML file that its author edits."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from pydantic import ValidationError

from veilsum.calibration.privacy.plan import MOST_ACCURATE_RECIPE
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.sizing import HONEST_MIN, Quorum, size_cohort
from veilsum.protocol.statistics import FFC
from veilsum.protocol.study import (
    DAY_S,
    NOISY_RECORDS_MAX,
    ROWS_MIN,
    Content,
    as_tuples,
    count_rows_needed,
    first_error,
)

_DRAFT_DEFAULTS: dict[str, dict[str, Any]] = {
    "notes": {"display": [], "why_not_listable": "", "why_not_withheld": ""},
    "question": {"columns": [], "withhold": None, "noise": None, "judge": None},
    "after": {"ccvr": None},
}
"""Values of fields that a draft may leave out, because TOML has no null."""

_JUDGE_DEFAULTS: dict[str, Any] = {
    "epsilon": 1.0,
    "heads": 3,
    "positive": None,
    "bins": {"confidence": 5, "score": 8},
}

_MARGIN_FROM_MEMBERS, _MEMBERS_PER_MARGIN = 8, 20
"""The fewest members that get a margin, and how many members there are for each place of it."""

_MOST_ROWS = 20_000
_EXPECTED_ROWS = 1000
"""Rows of a member by which a noisy draft's accuracy is estimated."""

_LEAST_PER_CLASS = 5
"""Rows by which a member holds a class. A member with the fewest rows, in equal parts, holds all classes."""

_STUDY_TEMPLATE = """\
# A study says what a federation sums. Its author signs it, each member approves it, and the coordinator can't change it.
# Edit this file, then run: veilsum admin study check {path}

[notes]
name = {name}  # short, a-z 0-9 and "-": pages, files and commands show it
version = 1  # raise it with every change
purpose = ""  # what the result is for; members read this when they approve
expires = {expires}  # at most 90 days ahead
# display = ["Benign", "Malignant"]  # names of the classes for people, in their order
{reasons}
[question]
extractor = {extractor}  # SHA-256 of the feature extractor and its preprocessing
dim = {dim}  # features per record
{columns}  # a name for each feature: members' tables are then matched by name, in any order
classes = {classes}  # stable keys; their order is the order of the head's outputs
constant = true  # fits a constant beside the features; goes with "ffc"

# Could someone write down, in a list of 10^12 rows, every input that a patient could have? Tables of measurements, categories or codes,
# short forms, pictures of a public archive: yes. An exact sum of such inputs gives the records back, so it needs noise.
# Free images, long texts and recordings: no. If you are not sure, leave it true.
listable = {listable}

ring_bits = 48  # 32 halves the upload and rounds more coarsely

members_min = {members_min}  # fewest members in a run
members_max = {members_max}  # most members in the roster
a = {colluders}  # members that may collude with the coordinator: at least a quarter of members_max, rounded down
h_min = {honest_min}  # fewest honest members in every sum
loss = 100  # members in a thousand that may drop out (used above 200 members)

[[question.statistics]]  # or "random-features" (size, bandwidth), or without noise both as two tables; "ccvr" stands alone
kind = "ffc"

[question.records]
least = {least}  # {least_meaning}
most = {most}  # {most_meaning}
least_per_class = {least_per_class}  # {least_per_class_meaning}
rows_per_id = 1  # rows used of one patient, exam or file; {rows_per_id_cost}

{limit}
# [question.judge]  # count over all members how heads do on held-out records, with noise of its own
# epsilon = 1.0  # what one judgement may tell about one record
# delta = 1e-7  # at most 1 / (most * members_max)
# positive = {positive}  # the class whose detection is judged

[question.windows]  # the least time that the coordinator gives, in seconds
enrol = 600
upload = 600
answer = 60

[after]
ridge = "gcv"  # or a number
publish = []  # further documents for members: "lda", "ncm"; "pooled" and "posterior" show them the sums
readers = "members"  # or "anyone": the head's readers
{rehearsal}"""

_REHEARSAL_BLOCK = """
[rehearsal]  # members compare their features of the pack's public inputs before they take part
pack = "{pack}"  # SHA-256 of the canary pack
tolerance = {tolerance}  # largest difference of two rows of length 1; below the pack's smallest slip
"""

_EXACT_REASONS = """\
why_not_listable = {why_not_listable}
# why_not_withheld = ""  # without [question.withhold]: why rare classes may be shown
"""

_WITHHOLD_BLOCK = """\
[question.withhold]  # leave out classes that few members hold
margin = {margin}  # members that may drop out between the count and the sum; counts spend no records
"""

_NOISE_BLOCK = """\
[question.noise]  # differential privacy; `veilsum privacy` estimates what it costs
epsilon = 2.0  # what the whole study may tell about one unit
delta = 1e-7  # at most 1 / (most * members_max)
unit = "record"  # or "member", all that it holds: only a `most` of few rows fits, and `study check` says how few
recipe = "mean+sum+16-gradients"  # most accurate, in 18 steps; or "mean+sum+6-gradients" in 8, "mean+sum" in 2, "sum" in 1; CCVR takes no gradients
"""


def draft_template(
    path: str,
    *,
    name: str,
    extractor: str,
    dim: int,
    classes: Sequence[str],
    members: int,
    today: date,
    why_not_listable: str = "",
    pack: str = "",
    tolerance: float = 0.01,
    columns: Sequence[str] = (),
) -> str:
    """Return the text of a commented draft with good defaults.

    `path` is the file that the text will be in; `extractor` is a digest of 64 hex digits. The study expires 60 days after `today`.
    With `why_not_listable` its sums are exact; without, inputs count as listable, and its sums are noisy. `pack` is the SHA-256 of a canary
    pack, if the study has one, `tolerance` how far features may differ, and `columns` the pack's names of them.

    Raises:
        PeerFault: cohort-too-small if no sum is safe with so few members.
    """
    colluders = members // 4
    quorum = _quorum_of(members, colluders)
    margin = min(_default_margin(members), quorum.members_may_miss)
    members_min = quorum.survivors_min + margin
    honest = _quorum_of(members_min, colluders).survivors_min - colluders
    exact = bool(why_not_listable.strip())
    return _STUDY_TEMPLATE.format(
        path=path,
        name=_toml_text(name),
        expires=date.fromordinal(today.toordinal() + 60).isoformat(),
        extractor=_toml_text(extractor),
        dim=dim,
        columns=f"columns = {_toml_list(columns)}" if columns else "# columns = []",
        classes=_toml_list(classes),
        members_min=members_min,
        members_max=members,
        colluders=colluders,
        honest_min=HONEST_MIN,
        least_per_class=_LEAST_PER_CLASS,
        listable="false" if exact else "true",
        reasons=_EXACT_REASONS.format(why_not_listable=_toml_text(why_not_listable)) if exact else "",
        positive=_toml_text(classes[-1]) if classes else '""',
        limit=_WITHHOLD_BLOCK.format(margin=margin) if exact else _NOISE_BLOCK,
        rehearsal=_REHEARSAL_BLOCK.format(pack=pack, tolerance=tolerance) if pack else "",
        **(_exact_rows(dim, len(classes), honest) if exact else _noisy_rows(members)),
    )


def _toml_list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_toml_text, texts))}]"


def _exact_rows(dim: int, classes: int, honest: int) -> dict[str, Any]:
    """Return the limits on a member's rows in an exact study whose sums include `honest` honest members, with their comments."""
    elements = FFC().elements_for(dim, classes, constant=True)
    needed = -(-max(ROWS_MIN, count_rows_needed(elements, dim + 1, dim)) // honest)
    least = max(needed, classes * _LEAST_PER_CLASS)
    return {
        "least": least,
        "least_meaning": f"a member with fewer rows does not take part; {dim} dimensions and {classes} classes need this many",
        "most": max(_MOST_ROWS, least),
        "most_meaning": "a member with more rows uses this many of them",
        "least_per_class_meaning": "a member with this many rows of a class, and enough non-zero features in them, holds it",
        "rows_per_id_cost": "with 2, an exact sum needs twice as many rows",
    }


def _noisy_rows(members: int) -> dict[str, Any]:
    """Return the limits on a member's rows in a noisy study, with their comments."""
    most = min(_MOST_ROWS, (NOISY_RECORDS_MAX - 1) // members)
    return {
        "least": min(_EXPECTED_ROWS, most),
        "least_meaning": "rows that you expect of a member: the estimate of accuracy goes by them, and none is left out for fewer",
        "most": most,
        "most_meaning": "sums of more rows are clipped to the size of this many",
        "least_per_class_meaning": "counts classes in exact studies alone",
        "rows_per_id_cost": "with 2, the noise is twice as large; `study check` says how many fit",
    }


def _default_margin(members: int) -> int:
    """Return how many members may drop out between the count and the sum."""
    if members < _MARGIN_FROM_MEMBERS:
        return 0
    return max(1, members // _MEMBERS_PER_MARGIN)


def _toml_text(text: str) -> str:
    """Write a TOML basic string; JSON's escapes are valid in it."""
    return json.dumps(text, ensure_ascii=False)


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
        read.setdefault("rehearsal", None)
        for block, absent in _DRAFT_DEFAULTS.items():
            if isinstance(given := read.get(block), dict):
                read[block] = {**absent, **given}
        if isinstance(question := read.get("question"), dict) and isinstance(
            noise := question["noise"], dict
        ):
            noise.setdefault("recipe", _best_recipe(question.get("statistics")))
        if isinstance(question, dict) and isinstance(judge := question["judge"], dict):
            question["judge"] = {**_JUDGE_DEFAULTS, **judge}
        if isinstance(notes := read.get("notes"), dict) and "expires" in notes:
            notes["expires"] = _to_unix_s(notes["expires"], path)
        return Content.model_validate(as_tuples(read))
    except ValidationError as error:
        raise Misuse(f"{path}: {first_error(error)}") from error
    except PeerFault as fault:
        raise Misuse(f"{path}: {fault.detail}") from fault
    except ValueError as error:
        raise Misuse(f"{path} is not a TOML file: {error}") from error
    except RecursionError as error:
        raise Misuse(f"{path} nests its values too deeply: a draft has tables of tables at most") from error


def _best_recipe(statistics: Any) -> str:
    """Return the most accurate recipe for these statistics."""
    ccvr = isinstance(statistics, list) and {"kind": "ccvr"} in statistics
    return "mean+sum" if ccvr else MOST_ACCURATE_RECIPE


def _to_unix_s(value: Any, path: str) -> Any:
    """Convert a TOML date (to its end, in UTC) or date and time to Unix seconds; raise Misuse for a text.

    The model refuses any other value, returned unchanged.
    """
    if isinstance(value, str):
        raise Misuse(
            f"{path}: notes.expires is a text: write the date without quotes, as in expires = 2027-01-31"
        )
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime.combine(value, time(), UTC).timestamp()) + DAY_S
    return value
