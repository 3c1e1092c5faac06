import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from veilsum.protocol import rest
from veilsum.protocol.audit import AuditEntry, AuditHead
from veilsum.protocol.forms import Hex32, U64Text
from veilsum.protocol.record import CombinedRecord, ResultRecord
from veilsum.protocol.rest import CohortRequest, DecryptorsView, MemberId, Problem, RoundId, RoundRequest

FIELDS: dict[str, tuple[Any, str]] = {
    "Hex32": (Hex32, "0a" * 32),
    "MemberId": (MemberId, "member-7"),
    "RoundId": (RoundId, "0a" * 8),
}


def test_an_object_of_too_many_keys_is_refused_before_its_fields_are_read() -> None:
    with pytest.raises(ValidationError) as caught:
        Problem.model_validate(dict.fromkeys(map(str, range(rest.MAX_OBJECT_KEYS + 1)), ""))
    assert caught.value.error_count() == 1


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


@pytest.mark.parametrize(
    "bad",
    [
        {"lifetime_s": 0.0},
        {"lifetime_s": float("nan")},
        {"lifetime_s": 31 * 86_400},
        {"heard_within_s": 59.9},  # a waiting member may say nothing for a minute
        {"heard_within_s": 1e12},
        {"step": "sum"},  # study and chain say it
    ],
    ids=str,
)
def test_a_round_outside_its_domain_is_refused(bad: dict[str, Any]) -> None:
    assert RoundRequest().lifetime_s is None
    with pytest.raises(ValidationError):
        RoundRequest.model_validate(bad)


@pytest.mark.parametrize(
    "bad", [{"study": "5d"}, {"period": "Not A Name"}, {"repeats": "5d"}, {"margin": 1}], ids=str
)
def test_a_cohort_outside_its_domain_is_refused(bad: dict[str, Any]) -> None:
    good = {"study": "5d" * 32, "period": "2026-11"}
    assert CohortRequest.model_validate(good).repeats is None
    with pytest.raises(ValidationError):
        CohortRequest.model_validate({**good, **bad})


@pytest.mark.parametrize("number", [0, 1, (1 << 53) + 1, (1 << 64) - 1])
def test_a_64_bit_number_is_a_string_in_json(number: int) -> None:
    adapter: TypeAdapter[int] = TypeAdapter(U64Text)
    assert adapter.validate_python(number) == number
    assert adapter.dump_json(number) == f'"{number}"'.encode()
    assert adapter.validate_json(adapter.dump_json(number)) == number
    assert adapter.json_schema(mode="serialization")["type"] == "string"


@pytest.mark.parametrize(
    "bad", ["1", '""', '"-1"', '"01"', '" 1"', '"1.0"', '"1e3"', f'"{1 << 64}"', "null", "1.5"]
)
def test_what_is_no_64_bit_number_is_refused(bad: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(U64Text).validate_json(bad)


@pytest.mark.parametrize(
    ("silent", "named"),
    [
        (0, ""),
        (2, ". Missing: m-00, m-01"),
        (10, ". Missing: m-00, m-01, m-02, m-03, m-04, m-05, m-06, m-07, m-08, m-09"),
        (12, ". Missing: m-00, m-01, m-02, m-03, m-04, m-05, m-06, m-07, m-08, m-09 and 2 more"),
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
    assert re.fullmatch(rf"{12 - silent} of 12 .*\b600 s, .*\b7\D*{re.escape(named)}", view.sentence)


def test_models_are_immutable() -> None:
    problem = Problem(
        type=rest.PROBLEM_BASE + "cancelled", title="t", status=409, detail="d", cause="cancelled"
    )
    with pytest.raises(ValidationError):
        problem.status = 200


def test_views_of_a_later_release_are_read_and_its_requests_and_records_are_not() -> None:
    view = rest.CoordinatorView.model_validate({"public_key": "0a" * 32, "protocol_version": 1, "more": 1})
    assert view == rest.CoordinatorView(public_key="0a" * 32, protocol_version=1)
    with pytest.raises(ValidationError):
        rest.CancelRequest.model_validate({"reason": "x", "more": 1})
    signed: tuple[type[BaseModel], ...] = (ResultRecord, CombinedRecord, AuditEntry, AuditHead)
    assert not any(issubclass(model, rest.View) for model in (*signed, *_inside(*signed)))


def _inside(*models: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Return the models inside these models' fields."""
    for model in models:
        for field in model.model_fields.values():
            kinds: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
            found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            yield from (*found, *_inside(*found))


def _forms(parent: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for form in parent.__subclasses__():
        yield form
        yield from _forms(form)


CLIENTS_FORMS = {
    form.__name__: form for form in _forms(rest.Model) if form.__module__.startswith("veilsum.protocol")
}


@pytest.mark.parametrize("form", CLIENTS_FORMS.values(), ids=CLIENTS_FORMS)
def test_a_list_is_refused_at_its_first_fault(form: type[BaseModel]) -> None:
    for name in form.model_fields:
        with pytest.raises(ValidationError) as caught:
            form.model_validate_json(f'{{"{name}": [{", ".join(["[0]"] * 100)}]}}')
        assert (
            sum(fault["loc"][:1] == (name,) for fault in caught.value.errors()) <= 8
        )  # each form of a union
