import string
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from protocol import published, rest
from protocol.audit import AuditEntry, AuditHead
from protocol.preflight import DecryptorsView
from protocol.rest import (
    CohortRequest,
    Hex32,
    MemberId,
    Problem,
    RoundId,
    RoundRequest,
    WindowsModel,
)

PATHS = {name: value for name, value in vars(rest).items() if name.isupper() and str(value).startswith("/")}
FIELDS: dict[str, tuple[Any, str]] = {
    "Hex32": (Hex32, "0a" * 32),
    "MemberId": (MemberId, "member-7"),
    "RoundId": (RoundId, "0a" * 8),
}


def test_paths_are_different_and_versioned() -> None:
    assert len(set(PATHS.values())) == len(PATHS)
    unversioned = {name for name, path in PATHS.items() if not path.startswith("/v1/")}
    assert unversioned == {"HEALTH", "READY", "METRICS", "PROBLEM_BASE"}
    placeholders = {f for path in PATHS.values() for _, f, _, _ in string.Formatter().parse(path) if f}
    assert placeholders == {
        *(
            "federation",
            "cohort",
            "member",
            "round_id",
            "index",
            "context",
            "combination",
            "name",
            "token",
        ),
    }


@pytest.mark.parametrize("name", FIELDS)
def test_names_in_paths_leave_no_room_for_tricks(name: str) -> None:
    form, good = FIELDS[name]
    adapter: TypeAdapter[str] = TypeAdapter(form)
    assert adapter.validate_python(good) == good
    for bad in (
        "",
        "../x",
        good + "\n",
        good + "/",
        good.upper() + "A",
        good + "\0",
        "é" * 64,
        "a" * 65,
        "%2e%2e",
    ):
        with pytest.raises(ValidationError):
            adapter.validate_python(bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), 1e12])
def test_windows_are_positive_and_finite(bad: float) -> None:
    with pytest.raises(ValidationError):
        WindowsModel(upload_s=bad)


@pytest.mark.parametrize(
    "bad",
    [
        {"ring_bits": 7},
        {"ring_bits": 65},
        {"dim": 0},
        {"ridges": (0.0,)},
        {"chunk_elements": 9},
        {"exceptions": ("0",)},
        {"exceptions": ("0A",)},
        {"exceptions": ("00",) * 17},
        {"heard_within_s": 59.9},  # a waiting member may say nothing for a minute
        {"heard_within_s": 1e12},
        {"more": 1},
    ],
)
def test_a_round_outside_its_domain_is_refused(bad: dict[str, Any]) -> None:
    good: dict[str, Any] = {"dim": 4, "classes": 2, "extractor": "e1" * 32}
    assert RoundRequest.model_validate(good).ring_bits == 48
    with pytest.raises(ValidationError):
        RoundRequest.model_validate({**good, **bad})


@pytest.mark.parametrize(
    ("silent", "named"),
    [
        (0, ""),
        (2, "; not: m-00, m-01"),
        (10, "; not: m-00, m-01, m-02, m-03, m-04, m-05, m-06, m-07, m-08, m-09"),
        (12, "; not: m-00, m-01, m-02, m-03, m-04, m-05, m-06, m-07, m-08, m-09 and 2 more"),
    ],
)
def test_of_many_decryptors_the_first_are_named(silent: int, named: str) -> None:
    view = DecryptorsView(
        decryptors=12,
        needed=7,
        within_s=600.0,
        heard=12 - silent,
        silent=tuple(f"m-{number:02}" for number in range(silent)),
    )
    assert view.sentence == f"{12 - silent} of 12 decryptors heard from within 600 s, 7 needed{named}"


def test_an_indicator_round_has_no_features_and_every_other_has() -> None:
    good: dict[str, Any] = {"classes": 2, "extractor": "e1" * 32}
    assert RoundRequest.model_validate({**good, "statistic": "indicator"}).dim is None
    for bad in (
        {},
        {"statistic": "ffc"},
        {"statistic": "indicator", "dim": 4},
        {"statistic": "Not A Name", "dim": 4},
    ):
        with pytest.raises(ValidationError):
            RoundRequest.model_validate({**good, **bad})
    for margin in (-1, 10_001):
        with pytest.raises(ValidationError):
            RoundRequest.model_validate({**good, "dim": 4, "margin": margin})


@pytest.mark.parametrize(
    "bad", [{"colluders": -1}, {"honest_min": 2}, {"records_cap": 0}, {"loss": -1}, {"loss": 375}]
)
def test_a_cohort_outside_its_domain_is_refused(bad: dict[str, Any]) -> None:
    assert CohortRequest(records_cap=1).honest_min == 3
    with pytest.raises(ValidationError):
        CohortRequest.model_validate({"records_cap": 1, **bad})


def test_a_round_is_named_by_its_context() -> None:
    name = rest.round_name(bytes(range(32)))
    assert TypeAdapter(RoundId).validate_python(name) == "0001020304050607"


def test_models_are_immutable() -> None:
    problem = Problem(
        type=rest.PROBLEM_BASE + "cancelled", title="t", status=409, detail="d", cause="cancelled"
    )
    with pytest.raises(ValidationError):
        problem.status = 200


def test_views_of_a_later_release_are_read_and_its_requests_and_records_are_not() -> None:
    view = rest.CoordinatorView.model_validate({"public_key": "0a" * 32, "protocol_version": 1, "more": 1})
    assert view.model_dump() == {"public_key": "0a" * 32, "protocol_version": 1}
    with pytest.raises(ValidationError):
        rest.CancelRequest.model_validate({"reason": "x", "more": 1})
    signed: tuple[type[BaseModel], ...] = (
        published.ResultRecord,
        published.CombinedRecord,
        AuditEntry,
        AuditHead,
    )
    assert not any(issubclass(model, rest.View) for model in (*signed, *_inside(*signed)))


def _inside(*models: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Whatever models stand in the fields of these."""
    for model in models:
        for field in model.model_fields.values():
            kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
            found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            yield from (*found, *_inside(*found))
