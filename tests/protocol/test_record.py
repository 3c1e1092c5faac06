import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.published import (
    MAX_DOCUMENTS,
    CombinedRecord,
    DisputeView,
    PartView,
    ResultRecord,
    SolutionView,
    SurvivorView,
)
from protocol.record import record_digest, sign_record, verify_record

KEY = SigningKey(b"\xc0" * 32)
SOLUTION = SolutionView(
    ridge=0.5,
    grid=(0.25, 0.5),
    errors=(1.5, None),
    dof=2.0,
    condition=10.0,
    residual=1e-9,
    rank=3,
    empty_classes=(),
)
RECORD = ResultRecord(
    round="0" * 16,
    federation="f0" * 32,
    cohort="cc" * 32,
    context="c7" * 32,
    closing="0c" * 32,
    terms="7e" * 32,
    extractor="e1" * 32,
    statistic="ffc",
    members=5,
    survivors=(SurvivorView(member="ann", digest="d9" * 32),),
    disputes=(DisputeView(cause="box-refused", parties=("bob", "eve")),),
    dropped=("bob",),
    records=100,
    weights_sha256="3e" * 32,
    sums_sha256="50" * 32,
    transcript="7a" * 32,
    weights_error_bound=None,
    solution=SOLUTION,
)


def test_the_digest_is_over_sorted_json_without_the_signature() -> None:
    body = json.loads(RECORD.model_dump_json())
    del body["signature"]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    preimage = b"veilsum/3/result\0" + len(text).to_bytes(8, "little") + text
    assert record_digest(RECORD) == hashlib.sha256(preimage).digest()
    assert record_digest(sign_record(RECORD, KEY)) == record_digest(RECORD)
    assert record_digest(RECORD).hex() == "aaf7421d2fa519c8ae28d073ac18fb3f81eaf40cd83e54d87cfc9508b3da26f8"


def test_the_page_has_every_field_of_both_records() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    section = page.partition("\n### 4.8 ")[2].partition("\n### 4.9 ")[0]
    rows = [line.split(" | ")[0].strip("| ") for line in section.splitlines() if line.startswith("| ")]
    assert [name for row in rows[1:] for name in row.split(", ")] == list(ResultRecord.model_fields)
    said = section.partition("A combined record ")[2]
    assert set(CombinedRecord.model_fields) <= set(re.findall(r"`([a-z_0-9]+)`", said))
    assert set(PartView.model_fields) | set(SolutionView.model_fields) <= set(
        re.findall(r"`([a-z_0-9]+)`", section)
    )


def test_a_signed_record_verifies_after_a_journey_as_json() -> None:
    signed = sign_record(RECORD, KEY)
    verify_record(ResultRecord.model_validate_json(signed.model_dump_json()), KEY.public)


@pytest.mark.parametrize(
    "change",
    [
        {"records": 101},
        {"survivors": ()},
        {"dropped": ()},
        {"disputes": ()},
        {"evicted": ("ann",)},
        {"withheld": (0,)},
        {"weights_sha256": "00" * 32},
        {"solution": SOLUTION.model_copy(update={"ridge": 0.25})},
        {"weights_error_bound": 0.0},
        {"statistic": "ccvr"},
        {"signature": "00" * 64},
        {"signature": ""},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_record_does_not(change: dict[str, Any]) -> None:
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[coordinator\]$"):
        verify_record(sign_record(RECORD, KEY).model_copy(update=change), KEY.public)


def test_a_combined_record_is_signed_in_the_same_way_and_is_no_result() -> None:
    part = PartView(round="0" * 16, context="c7" * 32, closing="0c" * 32, sums_sha256="50" * 32, records=100)
    combined = CombinedRecord(
        combination="1" * 16,
        federation="f0" * 32,
        parts=(part, part),
        statistic="ffc",
        extractor="e1" * 32,
        vectors=10,
        records=200,
        weights_sha256="3e" * 32,
        sums_sha256="50" * 32,
        weights_error_bound=None,
        solution=SOLUTION,
    )
    signed = sign_record(combined, KEY)
    verify_record(CombinedRecord.model_validate_json(signed.model_dump_json()), KEY.public)
    with pytest.raises(PeerFault, match=r"^bad-signature:"):
        verify_record(signed.model_copy(update={"records": 201}), KEY.public)
    with pytest.raises(ValidationError):
        ResultRecord.model_validate_json(signed.model_dump_json())


def test_another_coordinators_record_does_not() -> None:
    with pytest.raises(PeerFault, match=r"^bad-signature:"):
        verify_record(sign_record(RECORD, KEY), SigningKey(bytes(32)).public)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite_never_become_a_record(number: str) -> None:
    text = RECORD.model_dump_json().replace('"residual":1e-9', f'"residual":{number}')
    with pytest.raises(ValidationError):
        ResultRecord.model_validate_json(text)


def test_a_record_names_so_many_documents_at_most() -> None:
    named = [{"name": f"d-{index}", "sha256": "d0" * 32} for index in range(MAX_DOCUMENTS + 1)]
    values = RECORD.model_dump()
    assert ResultRecord(**values | {"documents": named[1:]}).documents
    with pytest.raises(ValidationError, match="documents"):
        ResultRecord(**values | {"documents": named})
