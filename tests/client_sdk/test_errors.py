import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from client_sdk import Identity, Member, Policy, Result
from client_sdk.errors import Misuse, NoResult, PeerFault, StateError
from veilsum.protocol.causes import Cause
from veilsum.protocol.forms import first_fault
from veilsum.protocol.rest import CancelRequest, CohortRequest, RoundRequest, TokenRequest

KEY, URL = "ab" * 32, "https://sum.example.org"
WRONG: Any = "hospital-a"
SEVEN: Any = 7


def test_what_is_wrong_with_json_is_told_with_its_place_and_without_its_values() -> None:
    with pytest.raises(ValidationError) as nested:
        RoundRequest.model_validate({"lifetime_s": "secret"})
    assert first_fault(nested.value).startswith("lifetime_s: ")
    assert "secret" not in first_fault(nested.value)
    with pytest.raises(ValidationError) as whole:
        RoundRequest.model_validate_json(b"{")
    assert first_fault(whole.value, "the body").startswith("the body: ")
    with pytest.raises(ValidationError) as unnamed:
        CohortRequest.model_validate([])
    assert first_fault(unnamed.value).startswith("Input should be")


@pytest.mark.parametrize(
    ("model", "values", "field"),
    [
        (CancelRequest, {"reason": ""}, "reason"),
        (CancelRequest, {"reason": "a\nb"}, "reason"),
        (TokenRequest, {"name": "a/b", "scopes": ["rounds"]}, "name"),
        (CohortRequest, {"study": "x", "period": "2026-11"}, "study"),
        (CohortRequest, {"study": KEY, "period": "November"}, "period"),
    ],
)
def test_what_text_should_look_like_is_told_in_words(
    model: type[BaseModel], values: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate_json(json.dumps(values))
    assert re.fullmatch(f"{field}: [^^]*", first_fault(refused.value))  # not by a regular expression


def _joining(identity: Identity) -> None:
    with Member(URL, identity, Policy(KEY)) as member:
        next(iter(member.join([[1.0]], once=True)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistake", "argument"),
    [
        (lambda _: Policy(KEY[:-1] + "x"), "admin_key"),
        (lambda _: Policy(KEY, approved=["12"]), "approved"),
        (lambda _: Result.load("nowhere"), "no folder nowhere"),
        (lambda identity: Member("sum.example.org", identity, Policy(KEY)), "url"),
        (lambda _: Member(URL, WRONG, Policy(KEY)), "identity"),
        (lambda identity: Member(URL, identity, WRONG), "policy"),
        (lambda identity: Member(URL, identity, Policy(KEY), roster=SEVEN), "roster"),
        (lambda identity: Member(URL, identity, Policy(KEY), roster="no.bin"), "roster"),
        (_joining, "records"),
    ],
)
def test_a_mistake_is_named_by_its_argument(
    mistake: Callable[[Identity], object], argument: str, tmp_path: Path
) -> None:
    with pytest.raises((Misuse, StateError), match=f"^{argument}: "):
        mistake(Identity.create(tmp_path / "a", "hospital-a"))


@pytest.mark.parametrize(
    "state", ["failed", "voided", "erased", "lost", "counted", "erasing", "missed", "lapsed"]
)
def test_a_round_without_a_result_keeps_its_cause_and_parties(state: str) -> None:
    error = NoResult("0123456789abcdef", state, PeerFault(Cause.QUORUM_LOST, "2 votes", ["m-1"]))
    assert (error.round_id, error.state, error.cause) == ("0123456789abcdef", state, Cause.QUORUM_LOST)
    assert error.parties == ("m-1",)
    assert "2 votes" in error.detail
