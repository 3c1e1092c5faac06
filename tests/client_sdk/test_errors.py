import pytest
from pydantic import ValidationError

from client_sdk.errors import first_fault
from veilsum.protocol.rest import CohortRequest, RoundRequest


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
