import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.refusals import refused
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.record import (
    DisputeView,
    ResultRecord,
    SolutionView,
    SurvivorView,
    record_digest,
    sign_record,
    verify_record,
)
from veilsum.protocol.rest import NoiseView

KEY = SigningKey(b"\xc0" * 32)
SOLUTION = SolutionView(ridge=0.5, grid=(0.25, 0.5), errors=(1.5, None), rank=3)
SUMMED: dict[str, Any] = {
    "federation": "f0" * 32,
    "study": "5d" * 32,
    "name": "ct",
    "version": 1,
    "rows": 100,
    "head": "3e" * 32,
    "sums": "50" * 32,
    "error_bound": None,
    "solution": SOLUTION,
}
RECORD = ResultRecord(
    round="0" * 16,
    context="c7" * 32,
    period="2026-11",
    step="sum",
    cohort="cc" * 32,
    terms="7e" * 32,
    survivors_hash="0c" * 32,
    survivors=(SurvivorView(member="ann", digest="d9" * 32),),
    disputes=(DisputeView(cause="box-refused", parties=("bob", "eve")),),
    dropped=("bob",),
    transcript="7a" * 32,
    **SUMMED,
)


def test_the_digest_is_over_canonical_json_without_the_signature() -> None:
    body = json.loads(RECORD.model_dump_json())
    del body["signature"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    preimage = b"veilsum/4/result\0" + len(text).to_bytes(8, "little") + text
    assert record_digest(RECORD) == hashlib.sha256(preimage).digest()
    assert record_digest(sign_record(RECORD, KEY)) == record_digest(RECORD)


def test_the_page_has_every_field_of_both_records() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol" / "analysis.md").read_text("utf-8")
    section = page.partition("\n## Results\n")[2].partition("\n## ")[0].partition("<!-- ")[0]
    rows = [line.strip("|").split("|")[0] for line in section.splitlines() if line.startswith("|")]
    named = [name for row in rows[1:] for name in re.findall(r"`([a-z_0-9]+)`", row)]
    assert sorted(named) == sorted(ResultRecord.model_fields)
    said = set(re.findall(r"`([a-z_0-9]+)`", section))
    assert set(SolutionView.model_fields) | set(NoiseView.model_fields) <= said


def test_a_signed_record_verifies_after_a_journey_as_json() -> None:
    signed = sign_record(RECORD, KEY)
    verify_record(ResultRecord.model_validate_json(signed.model_dump_json()), KEY.public)
    with refused("bad-signature", "coordinator"):
        verify_record(signed, SigningKey(bytes(32)).public)


@pytest.mark.parametrize(
    "change",
    [{"rows": 101}, {"signature": "00" * 64}, {"signature": ""}],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_record_does_not(change: dict[str, Any]) -> None:
    with refused("bad-signature", "coordinator"):
        verify_record(sign_record(RECORD, KEY).model_copy(update=change), KEY.public)


@pytest.mark.parametrize(
    "change", [{"rows": 1 << 53}, {"version": -(1 << 60)}, {"withheld": (10**30,)}], ids=str
)
def test_an_integer_that_canonical_json_cannot_hold_is_the_coordinators_fault(change: dict[str, Any]) -> None:
    record = ResultRecord.model_validate_json(RECORD.model_copy(update=change).model_dump_json())
    with refused("malformed", "coordinator"):
        verify_record(record, KEY.public)


def test_a_record_names_its_transcript() -> None:
    text = RECORD.model_dump_json().replace(f'"{RECORD.transcript}"', "null")
    with pytest.raises(ValidationError, match="transcript"):
        ResultRecord.model_validate_json(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite_never_become_a_record(number: str) -> None:
    text = RECORD.model_dump_json().replace('"ridge":0.5', f'"ridge":{number}')
    with pytest.raises(ValidationError):
        ResultRecord.model_validate_json(text)
