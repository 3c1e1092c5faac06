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
    assert first_fault(nested.value).startswith("lifetime_s: Input should be a valid number")
    assert "secret" not in first_fault(nested.value)
    with pytest.raises(ValidationError) as whole:
        RoundRequest.model_validate_json(b"{")
    assert first_fault(whole.value, "the body").startswith("the body: Invalid JSON")
    with pytest.raises(ValidationError) as unnamed:
        CohortRequest.model_validate([])
    assert first_fault(unnamed.value).startswith("Input should be")


@pytest.mark.parametrize(
    ("model", "values", "words"),
    [
        (CancelRequest, {"reason": ""}, "reason: expected at least one character"),
        (CancelRequest, {"reason": "a\nb"}, "reason: .*no control characters or line breaks"),
        (TokenRequest, {"name": "a/b", "scopes": ["rounds"]}, "name: expected 1 to 64 letters, digits"),
        (CohortRequest, {"study": "x", "period": "2026-11"}, "study: expected 64 lower-case hex digits"),
        (CohortRequest, {"study": KEY, "period": "November"}, "period: expected 1 to 64 of a-z, 0-9 and '-'"),
    ],
)
def test_what_text_should_look_like_is_told_in_words(
    model: type[BaseModel], values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate_json(json.dumps(values))
    assert re.fullmatch(f"{words}[^^]*", first_fault(refused.value))


def _joining(identity: Identity) -> None:
    with Member(URL, identity, Policy(KEY)) as member:
        next(iter(member.join([[1.0]], once=True)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            lambda _: Policy(KEY[:-1] + "x"),
            r"^admin_key: got 64 characters.*expected 64 hexadecimal.*Ask the admin",
        ),
        (lambda _: Policy(KEY, approved=["12"]), r"^approved: got 2 characters, expected 64.*member join"),
        (lambda _: Result.load("nowhere"), r"^no folder nowhere: expected a saved result's folder, such as"),
        (
            lambda identity: Member("sum.example.org", identity, Policy(KEY)),
            r"^url: expected .* scheme, such as https://",
        ),
        (lambda _: Member(URL, WRONG, Policy(KEY)), r"^identity: got str, expected Identity.load"),
        (lambda identity: Member(URL, identity, WRONG), r"^policy: got str, expected Policy\("),
        (
            lambda identity: Member(URL, identity, Policy(KEY), roster=SEVEN),
            r"^roster: got int, expected a Roster",
        ),
        (
            lambda identity: Member(URL, identity, Policy(KEY), roster="no.bin"),
            r"^roster: can't read no.bin.*signed roster",
        ),
        (_joining, r"^records: got list, expected Records\("),
    ],
)
def test_a_mistake_is_told_with_what_was_expected_and_the_next_step(
    mistake: Callable[[Identity], object], words: str, tmp_path: Path
) -> None:
    with pytest.raises((Misuse, StateError), match=words):
        mistake(Identity.create(tmp_path / "a", "hospital-a"))


@pytest.mark.parametrize(
    "state", ["failed", "voided", "erased", "lost", "counted", "erasing", "missed", "lapsed"]
)
def test_a_round_without_a_result_keeps_its_cause_and_parties(state: str) -> None:
    error = NoResult("0123456789abcdef", state, PeerFault(Cause.QUORUM_LOST, "2 votes", ["m-1"]))
    assert (error.round_id, error.state, error.cause) == ("0123456789abcdef", state, Cause.QUORUM_LOST)
    assert error.parties == ("m-1",)
    assert "2 votes" in error.detail
